//! A directory of containers as one tree: what a mount of it shows, without the kernel.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{Access, Archive, Options, contained};
use crate::account::Account;
use crate::cache::Cache;
use crate::error::{Error, Kind, Result};
use crate::gpu::Gpu;
use crate::mirror::{self, Containers, Found, Rules, Target, is_candidate};
use crate::platform::{FileType, OsStrExt, slashed};
use crate::source::{Location, Passed, Seen};

/// A directory of containers, of this machine or a prefix of a bucket. Each container in it is a directory too.
///
/// Its containers share descriptors, memory, disk space, threads, one cache and the device.
///
/// ```
/// use fzmfs::{Directory, Options};
///
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/zstd");
/// let directory = Directory::open(path, &Options::default())?.unwrap();
/// for node in directory.walk("".as_ref()) {
///     let node = node?;
///     if node.is_container() && node.shown.ends_with("v07-level03.zst") {
///         assert!(directory.open_container(&node)?.file("data.raw")?.len() > 0);
///     }
/// }
/// # Ok::<(), fzmfs::Error>(())
/// ```
#[derive(Debug)]
pub struct Directory {
    containers: Arc<Containers>,
    cache: Arc<Cache>,
    options: Options,
    gpu: Arc<Gpu>,
    access: Access,
}

/// A file or directory of a [`Directory`].
#[derive(Debug)]
pub struct Node {
    /// The file or directory, below the directory.
    pub file: PathBuf,
    /// Its name in the tree, below the directory.
    pub shown: PathBuf,
    /// The kind.
    pub kind: NodeKind,
    /// Type, size and times of the file.
    pub seen: Seen,
}

impl Node {
    /// Whether it is a container, or in one.
    pub fn is_container(&self) -> bool {
        matches!(self.kind, NodeKind::Container(_))
    }
}

/// The kind of a [`Node`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Dir,
    /// A file that is passed through.
    File,
    /// A link, a device, or similar.
    Other,
    /// A container, and a path in its tree; empty for its root.
    Container(String),
}

/// A container that was found, and the options to open it with.
#[derive(Debug)]
pub(crate) struct Unopened {
    containers: Arc<Containers>,
    found: Found,
    options: Options,
    /// Of all containers, if they share one.
    cache: Option<Arc<Cache>>,
}

impl Unopened {
    /// Opens it.
    ///
    /// # Errors
    /// As [`Directory::open_container`].
    pub(crate) fn open(self) -> Result<Archive> {
        Archive::open_below(&self.containers, self.found, &self.options, self.cache)
    }
}

impl Directory {
    /// Opens the directory of containers `path`: a directory, or a bucket or a prefix of it (`s3://BUCKET/PREFIX/`).
    /// `None` if it is a file, or one container that is a directory.
    ///
    /// # Errors
    /// From open(2), also if there is nothing; of a server as [`Archive::open`].
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Option<Self>> {
        let path = path.as_ref();
        contained("directory", || {
            let found = Self::of(path, options, Rules::default(), options.gpu(), Access::Random)?;
            if let (None, Ok(Location::Local(path))) = (&found, Location::of(path)) {
                std::fs::metadata(path).map_err(|e| Error::io(e, "directory"))?;
            }
            Ok(found)
        })
    }

    /// The directory at `path`, unless that is a file or a container that is a directory.
    ///
    /// # Errors
    /// From open(2); of a server as [`Archive::open`].
    pub(crate) fn of(
        path: &Path,
        options: &Options,
        rules: Rules,
        gpu: Arc<Gpu>,
        access: Access,
    ) -> Result<Option<Self>> {
        if options.format.is_some() {
            return Ok(None);
        }
        let context = options.context(Access::Random, gpu.clone(), options.account());
        let Some(top) = mirror::open_directory(path, &options.remote, &context.account)? else { return Ok(None) };
        let (size, threads) = (options.cache_size(), options.thread_count());
        let cache = Cache::sharing(size, size, threads, context.account.clone());
        let containers = Arc::new(Containers::new(top, rules, context));
        Ok(Some(Self { containers, cache, options: options.clone(), gpu, access }))
    }

    /// How its containers are shown.
    #[cfg(feature = "cli")]
    pub(crate) fn layout(&self) -> mirror::Layout {
        self.containers.rules.layout
    }

    /// The cache of its containers.
    #[cfg(feature = "serve")]
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Its containers, for a mount.
    #[cfg(all(feature = "cli", feature = "fuse"))]
    pub(crate) fn containers(self) -> Option<Containers> {
        Arc::into_inner(self.containers)
    }

    /// Resolves `path`. Links are not followed.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; from open(2) and stat(2).
    pub fn find(&self, path: &OsStr) -> Result<Node> {
        let (mut file, mut inner) = (PathBuf::new(), None::<PathBuf>);
        let mut kind = NodeKind::Dir;
        let mut seen = self.containers.top.below(&file)?.stat_itself()?;
        let mut shown = PathBuf::new();
        for component in Path::new(path).components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::CurDir | Component::RootDir => continue,
                Component::ParentDir | Component::Prefix(_) => return Err(missing(path)),
            };
            if let Some(inner) = &mut inner {
                inner.push(name);
                continue;
            }
            let below = self.containers.top.below(&file)?;
            let is_there = |name: &OsStr| below.stat(name).is_ok_and(|seen| is_candidate(&below, name, seen.kind));
            let exists = |name: &OsStr| below.stat(name).is_ok();
            let (real, is_tree) = match self.containers.rules.target(name.as_bytes(), is_there, exists) {
                Target::Itself => (name, false),
                Target::Tree(real) => (OsStr::from_bytes(real), true),
            };
            seen = below.stat(real).map_err(|e| if e.errno() == libc::ENOENT { missing(path) } else { e })?;
            file.push(real);
            shown.push(name);
            match seen.kind {
                _ if is_tree => inner = Some(PathBuf::new()),
                FileType::Directory => kind = NodeKind::Dir,
                FileType::RegularFile => kind = NodeKind::File,
                _ => kind = NodeKind::Other,
            }
        }
        if let Some(inner) = inner {
            kind = NodeKind::Container(slashed(&inner).to_string_lossy().into_owned());
        }
        Ok(Node { file, shown, kind, seen })
    }

    /// The entries of the directory `dir`, sorted by name, as the tree shows them.
    ///
    /// # Errors
    /// From open(2).
    pub fn entries(&self, dir: &Path) -> Result<Vec<Node>> {
        let below = self.containers.top.below(dir)?;
        let mut names = Vec::new();
        below.names(|name, _| names.push(name.to_vec()))?;
        let mut nodes = Vec::new();
        for name in names {
            let name = OsStr::from_bytes(&name);
            // Removed meanwhile.
            let Ok(seen) = below.stat(name) else { continue };
            let is_tree = self.containers.rules.is_container(name.as_bytes()) && is_candidate(&below, name, seen.kind);
            let (file, container) = (dir.join(name), NodeKind::Container(String::new()));
            let kind = match seen.kind {
                _ if is_tree && !self.containers.rules.shows_file() => container.clone(),
                FileType::Directory => NodeKind::Dir,
                FileType::RegularFile => NodeKind::File,
                _ => NodeKind::Other,
            };
            if is_tree && self.containers.rules.shows_file() {
                let tree = self.containers.rules.tree_name(name.as_bytes(), |name| below.stat(name).is_ok());
                let shown = tree.map(|tree| dir.join(OsStr::from_bytes(&tree)));
                let at = |shown| Node { file: file.clone(), shown, kind: container, seen: seen.clone() };
                nodes.extend(shown.map(at));
            }
            nodes.push(Node { shown: file.clone(), file, kind, seen });
        }
        nodes.sort_unstable_by(|a, b| a.shown.as_os_str().cmp(b.shown.as_os_str()));
        Ok(nodes)
    }

    /// Everything below `dir`, each directory before its content, without the content of containers.
    ///
    /// An error is that of a directory that cannot be read; the walk goes on with the others.
    pub fn walk<'a>(&'a self, dir: &Path) -> impl Iterator<Item = Result<Node>> + 'a {
        let mut failed = None;
        let mut open = match self.entries(dir) {
            Ok(entries) => vec![entries.into_iter()],
            Err(e) => {
                failed = Some(e);
                Vec::new()
            }
        };
        std::iter::from_fn(move || {
            loop {
                if let Some(error) = failed.take() {
                    return Some(Err(error));
                }
                let Some(node) = open.last_mut()?.next() else {
                    open.pop();
                    continue;
                };
                if node.kind == NodeKind::Dir {
                    match self.entries(&node.file) {
                        Ok(entries) => open.push(entries.into_iter()),
                        Err(e) => failed = Some(e.within(node.shown.display())),
                    }
                }
                return Some(Ok(node));
            }
        })
    }

    /// Opens a container.
    ///
    /// # Errors
    /// As [`Archive::open`], but a broken container has entries that say so.
    pub fn open_container(&self, node: &Node) -> Result<Archive> {
        self.find_container(node)?.open()
    }

    /// Finds a container, for which a server may have to be waited for.
    ///
    /// # Errors
    /// As [`Directory::open_container`].
    pub(crate) fn find_container(&self, node: &Node) -> Result<Unopened> {
        if self.access == Access::Sequential {
            return self.find_alone(node, &self.options, self.options.account());
        }
        let found = self.containers.find(&node.file, Some(&node.seen))?;
        let (containers, options) = (self.containers.clone(), self.options.clone());
        Ok(Unopened { containers, found, options, cache: Some(self.cache.clone()) })
    }

    /// As [`Directory::find_container`], to be read once, with options of its own and an account that others may share.
    ///
    /// # Errors
    /// As [`Directory::open_container`].
    pub(crate) fn find_alone(&self, node: &Node, options: &Options, account: Account) -> Result<Unopened> {
        let context = options.context(Access::Sequential, self.gpu.clone(), account);
        let Containers { top, rules, .. } = &*self.containers;
        let containers = Arc::new(Containers::new(top.clone(), rules.clone(), context));
        let found = containers.find(&node.file, Some(&node.seen))?;
        Ok(Unopened { containers, found, options: options.clone(), cache: None })
    }

    /// Passes everything below `dir` to `each`, as [`Directory::walk`] does, each container found: on a server, several
    /// ahead.
    ///
    /// # Errors
    /// Errors of `each`.
    #[cfg(feature = "cli")]
    pub(crate) fn walk_finding<E>(
        &self,
        dir: &Path,
        mut each: impl FnMut(Result<(Node, Option<Result<Unopened>>)>) -> Result<(), E>,
    ) -> Result<(), E> {
        let ahead = if self.is_far() { mirror::FAR } else { 0 };
        let find = |node: Result<Node>| {
            node.map(|node| {
                let found = node.is_container().then(|| self.find_container(&node));
                (node, found)
            })
        };
        crate::parallel::in_order(ahead, self.walk(dir), find, &mut each)
    }

    /// Whether it is on a server.
    pub fn is_far(&self) -> bool {
        self.containers.top.prefix().is_some()
    }

    /// Opens a file that is passed through.
    ///
    /// # Errors
    /// From open(2).
    pub fn file(&self, file: &Path) -> Result<Passed> {
        self.containers.top.file(file)
    }

    /// The target of a link.
    ///
    /// # Errors
    /// From readlink(2).
    pub fn link(&self, file: &Path) -> Result<Vec<u8>> {
        let (below, name) = self.containers.top.around(file)?;
        Ok(below.link(name)?.into_bytes())
    }
}

fn missing(path: &OsStr) -> Error {
    Error::new(Kind::NotFound, format!("{}: no such file or directory", path.to_string_lossy()))
}
