//! The tree that is served: one container, or a directory of containers.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_128;

use super::figure::Figure;
use crate::archive::{Archive, Array, Directory, Entry, EntryKind, File, Node, NodeKind};
use crate::error::{Error, Kind, Result};
use crate::platform::FileType;
use crate::platform::os_error;
use crate::recent::Recent;
use crate::source::{Passed, Seen, stays_inside};

/// Containers of a directory that are kept open when no request uses them.
const OPEN: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Most entries of a directory in one reply.
const ENTRIES: usize = 1_000_000;
/// The first entries of a directory in a container, whose attributes are shown.
const DESCRIBED: usize = 2000;
/// Links that a path may lead over.
const LINKS: usize = 16;

/// The tree that is served.
#[derive(Debug)]
pub struct ServedTree(ServedRoot);

#[derive(Debug)]
enum ServedRoot {
    One(Archive),
    Many(Box<Directory>, OpenArchives),
}

/// Containers used last, each opened by one request while others wait.
type OpenArchives = Recent<PathBuf, Arc<Mutex<Option<(Seen, Archive)>>>>;

/// An entry of the tree.
#[derive(Debug)]
pub(super) enum Resource {
    /// A directory.
    Directory(Vec<ServedEntry>),
    /// A file.
    File(Served),
}

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct ServedEntry {
    pub(super) name: String,
    pub(super) kind: EntryKind,
    /// In bytes, of a file, where it is known without decoding.
    pub(super) size: Option<u64>,
    /// Its attributes, as the extended attributes of a mounted file have it; of a container that is not open, that it
    /// is one and its `stored_size`.
    pub(super) attributes: Vec<(String, String)>,
}

/// An open file.
#[derive(Debug, Clone)]
pub(super) struct Served {
    bytes: ServedBytes,
    /// The length in bytes.
    pub(super) len: u64,
    /// The time of modification: seconds since 1970.
    pub(super) mtime: i64,
    /// Tells its versions apart, and those of all other files.
    pub(super) tag: u128,
    /// The last component of its path.
    pub(super) name: String,
    /// Its path in the tree, for the log.
    pub(super) path: String,
    /// The file of a directory that it is, or is in.
    seen: Option<Arc<Seen>>,
}

#[derive(Debug, Clone)]
enum ServedBytes {
    Decoded(Archive, File),
    Passed(Arc<Passed>),
}

impl Served {
    /// Its entity tag.
    pub(super) fn etag(&self) -> String {
        format!("\"{:032x}\"", self.tag)
    }

    /// The array in it.
    pub(super) fn array(&self) -> Option<Array> {
        match &self.bytes {
            ServedBytes::Decoded(_, file) => file.array(),
            ServedBytes::Passed(..) => None,
        }
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// As [`File::read_exact_at`]; [`Kind::Changed`] if it is not the version any more that was opened.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.bytes {
            ServedBytes::Decoded(archive, file) => {
                file.read_exact_at(offset, buffer)?;
                archive.container().unchanged()
            }
            ServedBytes::Passed(file) => {
                let is_full = file.read_full(buffer, offset)? == buffer.len();
                let now = file.seen()?.version();
                let is_same = is_full && self.seen.as_ref().is_some_and(|seen| seen.version() == now);
                is_same.then_some(()).ok_or_else(|| Error::new(Kind::Changed, "file"))
            }
        }
    }
}

impl ServedTree {
    /// The tree of one container.
    pub fn one(archive: Archive) -> Self {
        Self(ServedRoot::One(archive))
    }

    /// The tree of a directory of containers.
    pub fn many(directory: Directory) -> Self {
        Self(ServedRoot::Many(Box::new(directory), Recent::new(OPEN)))
    }

    /// The time of modification of the entry at `path`, in seconds since 1970: of one of a container, that of the container.
    ///
    /// # Errors
    /// As [`ServedTree::resolve`]; finds no fault inside of a container.
    pub(super) fn mtime(&self, path: &str) -> Result<i64> {
        match &self.0 {
            ServedRoot::One(archive) => Ok(mtime(archive)),
            ServedRoot::Many(directory, _) => Ok(followed(directory, path)?.seen.mtime.0),
        }
    }

    /// Figures of the cache and of decoding.
    pub(super) fn figures(&self) -> [Figure; 9] {
        let cache = match &self.0 {
            ServedRoot::One(archive) => archive.cache(),
            ServedRoot::Many(directory, _) => directory.cache(),
        };
        let stats = cache.stats();
        let figure = |grows| move |name, value, what| Figure { name, grows, value, what };
        let (total, now) = (figure(true), figure(false));
        [
            now("cache_bytes", stats.held, "Decoded bytes that are kept."),
            now("cache_budget_bytes", cache.budget(), "Decoded bytes that may be kept."),
            now("cache_pieces", stats.pieces, "Decoded pieces that are kept."),
            total("cache_hits_total", stats.hits, "Pieces that were kept when they were needed."),
            total("cache_misses_total", stats.misses, "Pieces that were not."),
            total("decodes_total", stats.decodes, "Pieces decoded, including failures."),
            total("decodes_ahead_total", stats.ahead, "Pieces decoded before they were needed."),
            total("decode_failures_total", stats.failures, "Pieces that could not be decoded."),
            total("decoded_bytes_total", stats.decoded_bytes, "Bytes decoded."),
        ]
    }

    /// Whether `path` still leads to the version that `file` is of.
    pub(super) fn is_same(&self, path: &str, file: &Served) -> bool {
        match (&self.0, &file.seen) {
            (ServedRoot::Many(directory, _), Some(seen)) => {
                followed(directory, path).is_ok_and(|node| node.seen.version() == seen.version())
            }
            _ => file.read(0, &mut []).is_ok(),
        }
    }

    /// Resolves `path`, which is relative to the root.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; otherwise the entry is broken.
    pub(super) fn resolve(&self, path: &str) -> Result<Resource> {
        match &self.0 {
            ServedRoot::One(archive) => entry(archive, path, path),
            ServedRoot::Many(directory, open) => below(directory, open, path),
        }
    }
}

fn mtime(archive: &Archive) -> i64 {
    archive.container().sources().into_iter().next().map_or(0, |source| source.mtime().0)
}

/// The entry `inner` of a container, at `path` in the tree.
fn entry(archive: &Archive, inner: &str, path: &str) -> Result<Resource> {
    archive.container().unchanged()?;
    let entry = archive.entry(inner)?.followed()?;
    if entry.kind() == EntryKind::Directory {
        let mut described = 0;
        let mut listed = |entry: Entry| {
            described += 1;
            let is_described = entry.kind() == EntryKind::File && described <= DESCRIBED;
            let attributes = if is_described { entry.attributes().unwrap_or_default() } else { Vec::new() };
            ServedEntry { name: entry.name().to_owned(), kind: entry.kind(), size: entry.size(), attributes }
        };
        return bounded(entry.list()?.map(|entry| entry.map(&mut listed))).map(Resource::Directory);
    }
    let file = entry.open()?;
    let mtime = entry.modified().unwrap_or_else(|| mtime(archive));
    // The tree also depends on the options, which the description covers, and on the version of fzmfs.
    let version = format!("{archive:?}\0{}\0{}\0{inner}", archive.identity(), env!("CARGO_PKG_VERSION"));
    let (name, path, len) = (entry.name().to_owned(), path.to_owned(), file.len());
    let bytes = ServedBytes::Decoded(archive.clone(), file);
    Ok(Resource::File(Served { bytes, len, mtime, tag: xxh3_128(version.as_bytes()), name, path, seen: None }))
}

/// An entry of a directory of containers.
fn below(directory: &Directory, open: &OpenArchives, path: &str) -> Result<Resource> {
    let node = followed(directory, path)?;
    match &node.kind {
        NodeKind::Dir => {
            let nodes = directory.entries(&node.file)?;
            bounded(nodes.iter().map(|node| Ok(listed(node)))).map(Resource::Directory)
        }
        NodeKind::File => {
            let file = directory.file(&node.file)?;
            let seen = file.seen()?;
            let version = seen.version().map(u64::to_le_bytes).concat();
            let tag = xxh3_128(&[&version, path.as_bytes()].concat());
            let (len, mtime, name, path) = (seen.size, seen.mtime.0, name(&node.shown), path.to_owned());
            let (bytes, seen) = (ServedBytes::Passed(file.into()), Some(Arc::new(seen)));
            Ok(Resource::File(Served { bytes, len, mtime, tag, name, path, seen }))
        }
        NodeKind::Other => Err(Error::unsupported("not a regular file", "file")),
        NodeKind::Container(inner) => {
            let archive = opened(directory, open, &node)?;
            Ok(match entry(&archive, inner, path)? {
                Resource::File(file) => Resource::File(Served { seen: Some(Arc::new(node.seen)), ..file }),
                directory @ Resource::Directory(_) => directory,
            })
        }
    }
}

/// Resolves `path` in `directory` and follows the links on its way, none of which leads out.
fn followed(directory: &Directory, path: &str) -> Result<Node> {
    let mut path = PathBuf::from(path);
    for _ in 0..LINKS {
        let Some((link, rest)) = first_link(directory, &path)? else { return directory.find(path.as_os_str()) };
        let target = PathBuf::from(OsStr::new(&String::from_utf8_lossy(&directory.link(&link)?).into_owned()));
        let above = link.parent().unwrap_or(Path::new("")).to_path_buf();
        if !stays_inside(&target, above.components().count()) {
            return Err(Error::new(Kind::NotFound, format!("{}: a link out of the directory", link.display())));
        }
        path = joined(above, &target).join(rest);
    }
    Err(Error::io(os_error(libc::ELOOP), "path"))
}

/// The first link on the way to `path`, and the rest of the path behind it.
fn first_link(directory: &Directory, path: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let mut at = PathBuf::new();
    let mut components = path.components();
    while let Some(component) = components.next() {
        at.push(component);
        let node = directory.find(at.as_os_str())?;
        if node.is_container() {
            break;
        }
        if node.seen.kind == FileType::Symlink {
            return Ok(Some((at, components.as_path().to_path_buf())));
        }
    }
    Ok(None)
}

/// `target`, relative to `dir`, without `.` and `..`.
fn joined(mut dir: PathBuf, target: &Path) -> PathBuf {
    for component in target.components() {
        match component {
            Component::ParentDir => _ = dir.pop(),
            Component::Normal(name) => dir.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    dir
}

/// The container at `node`: the one that is open if it is the same version.
fn opened(directory: &Directory, open: &OpenArchives, node: &Node) -> Result<Archive> {
    let place = open.get_or_put(node.file.clone(), Arc::default);
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((seen, archive)) = &*place
        && seen.version() == node.seen.version()
        && archive.container().unchanged().is_ok()
    {
        return Ok(archive.clone());
    }
    let archive = directory.open_container(node)?;
    *place = Some((node.seen.clone(), archive.clone()));
    Ok(archive)
}

fn listed(node: &Node) -> ServedEntry {
    let (kind, size) = match node.kind {
        NodeKind::Dir | NodeKind::Container(_) => (EntryKind::Directory, None),
        NodeKind::File => (EntryKind::File, Some(node.seen.size)),
        NodeKind::Other => (EntryKind::Link, None),
    };
    let attributes = match node.kind {
        NodeKind::Container(_) => {
            vec![("container".to_owned(), "true".to_owned()), ("stored_size".to_owned(), node.seen.size.to_string())]
        }
        _ => Vec::new(),
    };
    ServedEntry { name: name(&node.shown), kind, size, attributes }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Collects entries that fit in one reply.
fn bounded(entries: impl Iterator<Item = Result<ServedEntry>>) -> Result<Vec<ServedEntry>> {
    let mut out = Vec::new();
    for entry in entries {
        out.push(entry?);
        if out.len() > ENTRIES {
            return Err(Error::unsupported(format!("more than {ENTRIES} entries"), "directory"));
        }
    }
    Ok(out)
}
