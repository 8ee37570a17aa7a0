//! The interface of a container format, and the table of supported formats.
//!
//! A format parses its file once ([`Format::open`]) and then provides its description ([`Container::info`]), its
//! virtual files ([`Container::entries`]) and its integrity checks ([`Container::checks`]). It decodes only when a
//! piece of a [`Blob`] is requested, reads only through [`Source`], and does not know about caches, inodes or mounts.
//!
//! Adding a format: one folder next to this file and one row in [`FORMATS`]. `tests/examples/format` is a whole one to
//! copy, and says what belongs to it: how it reads, limits and charges, its tests, its fuzz target.
//!
//! The account: a list with an entry for each part (`account::Records`, `charge_list`) may go to the disk; what is only
//! kept in case it is read again is spare (`charge_spare`); what a decoder needs is charged while it runs.

pub mod about;
mod arrays;
mod blob;
mod blosc2;
mod broken;
mod content;
mod dtype;
mod entry;
mod failed;
mod file;
mod fragments;
pub mod fzm;
mod idle;
mod info;
mod layout;
mod nested;
pub mod npy;
mod options;
mod resident;
pub mod space;
mod spool;
mod tar;
#[cfg(test)]
pub(crate) mod testing;
mod zstd;
mod ztensor;
mod zxc;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::account::Account;
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Kind, Result};
use crate::source::{Dir, Folder, Location, Objects, Place, RemoteOptions, Source};

pub use crate::source::Need;
pub use about::About;
pub use arrays::{ArrayList, Arrays, Found, ListedArray, NamedArray, Tiles, numbered_dimensions};
pub use blob::{Batched, Blob, BlobRef, Far, Fetch, Fragmented, InOrder, Measured, Piece, PieceKey};
pub use broken::open_or_explain;
pub use content::{Content, FileExtent, Generator, Grid, Window};
pub use dtype::{Dtype, Number, NumberKind};
pub use entry::{Attrs, Directory, Entry, IndexedDir, LazyFile, Metadata, Node, NumberedFiles, Subdirs, collected};
pub use file::{Array, File};
pub use idle::IdleDecoders;
pub use info::Info;
pub use layout::Layout;
pub use nested::{Enclosed, OuterPieces, compressed_name, extension_at};
pub use options::Options;
pub use resident::{DeviceStream, OnDevice};
pub use space::Space;
pub use spool::Spool;

use fragments::Fragments;
use info::ratio;

/// The supported formats, in the order of detection.
pub static FORMATS: &[Format] = &[fzm::FORMAT, zstd::FORMAT, ztensor::FORMAT, zxc::FORMAT, blosc2::FORMAT, tar::FORMAT];

/// The file that makes a directory a container: a sparse Blosc2 frame.
pub const INDEX: &str = blosc2::INDEX;
/// The file that makes a directory one that has none of those: a store of Blosc2 frames.
pub const STORE: &str = blosc2::STORE;

/// Memory for an object on a server that is opened by itself.
const NEARBY: u64 = 64 << 20;

/// A row of the table of formats.
#[derive(Debug)]
pub struct Format {
    /// Its name in `format=NAME` and `info.json`.
    pub name: &'static str,
    /// The usual extensions of file names.
    pub extensions: &'static [&'static str],
    /// Further ones, of files that are containers only inside of another one: in a stream of which the length may not be
    /// known yet ([`Source::size`]).
    pub enclosed: &'static [&'static str],
    /// Whether the file claims to be of this format: checks magic bytes, not validity.
    pub detect: fn(&Input) -> bool,
    /// Parses the structure; decodes nothing.
    pub open: fn(&Input, &Options) -> Result<Arc<dyn Container>>,
    /// The parts of a file that a GPU decodes, by name.
    pub kernels: &'static [&'static str],
}

/// The user's input: a file, or a directory that is one container (a sparse Blosc2 frame, a store of frames).
#[derive(Debug)]
pub struct Input {
    /// The path as given.
    pub path: PathBuf,
    /// The file; `None` for a directory.
    pub source: Option<Arc<Source>>,
    /// The directory itself, or the one that contains the file; `None` for a container in memory.
    pub dir: Option<Place>,
    /// The first bytes of the file, at most [`Input::HEAD`].
    pub head: Vec<u8>,
    /// The bytes of the file, if they are decoded from a container around it: readers then share its pieces.
    pub content: Option<Content>,
}

impl Input {
    /// How many bytes of the file detection gets without reading itself.
    pub const HEAD: u64 = 4096;

    /// Opens `path` for detection.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &RemoteOptions::default(), &Account::new(NEARBY, 0))
    }

    /// As [`Input::open`], also for a URL: an object on a server, with its bytes kept within `account`.
    ///
    /// # Errors
    /// As [`Source::open`] and [`Source::open_remote`].
    pub fn open_with(path: &Path, remote: &RemoteOptions, account: &Account) -> Result<Self> {
        let path = match Location::of(path)? {
            Location::Remote(url) => return Self::remote(url, remote, account),
            // Absolute, for formats that open more files later: the working directory may change.
            Location::Local(path) => std::path::absolute(&path).unwrap_or_else(|_| path.into_owned()),
        };
        if path.is_dir() {
            let dir = Some(Place::Local(Dir::open(&path)?));
            return Ok(Self { path, source: None, dir, head: Vec::new(), content: None });
        }
        let (source, dir) = Source::open_with_dir(&path)?;
        Ok(Self { dir: dir.map(Place::Local), ..Self::of(source)? })
    }

    /// Opens the `url` of an object; or, if it ends with `/` or there is no such object, of a prefix as a directory
    /// that is one container.
    fn remote(url: &str, options: &RemoteOptions, account: &Account) -> Result<Self> {
        let below = || Objects::below(url, options, account).map(Self::below);
        if url.ends_with('/') {
            return below();
        }
        match Objects::beside(url, options, account) {
            Ok((source, objects)) => Ok(Self { dir: Some(Place::Remote(objects)), ..Self::of(source)? }),
            // Servers answer this for a directory.
            Err(e) if is_refused(&e) => match below() {
                Ok(input) if input.dir.as_ref().is_some_and(blosc2::has_index) => Ok(input),
                _ => Err(e),
            },
            Err(e) => Err(e),
        }
    }

    /// The objects below a prefix, as a directory that is one container.
    pub fn below(objects: Arc<Objects>) -> Self {
        let path = objects.path().to_path_buf();
        Self { path, source: None, dir: Some(Place::Remote(objects)), head: Vec::new(), content: None }
    }

    /// Uses a source that is already open.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn of(source: Arc<Source>) -> Result<Self> {
        let head = source.get_most(FileOffset(0), Self::HEAD, "head")?;
        Ok(Self { path: source.path().to_path_buf(), source: Some(source), dir: None, head, content: None })
    }

    /// The file, for formats that are never directories.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a directory.
    pub fn file(&self) -> Result<Arc<Source>> {
        self.source.clone().ok_or_else(|| Error::unsupported("a directory", "file"))
    }
}

/// Whether a server has answered, but not with an object.
fn is_refused(e: &Error) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    matches!(e.kind(), Kind::Io(e) if matches!(e.kind(), NotFound | PermissionDenied | Unsupported))
}

/// An opened container: its structure is parsed and verified, nothing is decoded.
///
/// A container that shows another one in another way names it as [`Container::wrapped`], and answers as that one does
/// wherever it does not say otherwise.
pub trait Container: Send + Sync {
    /// The container that this one stands for.
    fn wrapped(&self) -> Option<&Arc<dyn Container>> {
        None
    }

    /// The container in this one whose tree is shown instead of its own.
    fn shown(&self) -> Option<Arc<dyn Enclosed>> {
        None
    }

    /// The description of the container; the content of `info.json`.
    fn info(&self) -> Info;

    /// Whether its description is worth an `info.json`.
    fn is_described(&self) -> bool {
        self.wrapped().is_none_or(|inner| inner.is_described())
    }

    /// The entries of the root directory, in container order, without `info.json`, which the tree adds.
    ///
    /// # Errors
    /// Fails if structure is read lazily and is broken.
    fn entries(&self) -> Result<Vec<Entry>>;

    /// A directory with further entries of the root: more than can be collected, or those that are created on access.
    /// Only of a container whose [`Container::entries`] are none.
    fn directory(&self) -> Option<Arc<dyn Directory>> {
        self.wrapped()?.directory()
    }

    /// Whether listing a directory of it may decode all of its stream: that of an archive in it.
    fn lists_by_decoding(&self) -> bool {
        self.wrapped().is_some_and(|inner| inner.lists_by_decoding())
    }

    /// Its stream, if it is no more than a compressed file: that file may be a container itself.
    fn stream(&self) -> Option<BlobRef> {
        self.wrapped()?.stream()
    }

    /// Its arrays, as `data.zarr/` shows them; `None` if it has no element types.
    ///
    /// # Errors
    /// As [`Container::entries`].
    fn arrays(&self) -> Result<Option<Arc<dyn Arrays>>> {
        self.wrapped().map_or(Ok(None), |inner| inner.arrays())
    }

    /// The checks of `verify`; together they cover every checksum and every decoded byte once.
    fn checks(&self) -> Vec<Check>;

    /// Checksums that no check covers because they cannot be verified, in words: `3 digests of the unknown algorithm
    /// "blake3"`. At most a few.
    fn unverifiable(&self) -> Vec<String> {
        self.wrapped().map_or_else(Vec::new, |inner| inner.unverifiable())
    }

    /// The name of the part with stored bytes at `at`: for faults in a file that shows many parts.
    fn part_at(&self, at: FileOffset) -> Option<String> {
        self.wrapped()?.part_at(at)
    }

    /// `error` with the name of the part that it is in, if that has one and it is not named yet.
    fn naming(&self, error: &Error) -> Error {
        match error.offset().and_then(|at| self.part_at(at)) {
            Some(part) if !error.what().contains(&part) => error.clone().within(part),
            _ => error.clone(),
        }
    }

    /// The files that it keeps open, for their identity and times; the first is the main one.
    fn sources(&self) -> Vec<Arc<Source>>;

    /// Tells its versions apart where the main file does not: those of a container that is all files of a directory.
    fn state(&self) -> Option<u64> {
        self.wrapped()?.state()
    }

    /// The folder of the files that it opens on demand, if any.
    fn folder(&self) -> Option<Arc<Folder>> {
        self.wrapped()?.folder()
    }

    /// Verifies that the files have not changed since they were opened. Checks the files kept open; for the others, it
    /// reports the state seen when they were read. Cheap however many files there are.
    ///
    /// # Errors
    /// [`Kind::Changed`] if a file was replaced or modified.
    fn unchanged(&self) -> Result<()> {
        if let Some(inner) = self.wrapped() {
            return inner.unchanged();
        }
        self.sources().iter().try_for_each(|source| source.check())?;
        self.folder().map_or(Ok(()), |folder| folder.unchanged())
    }
}

/// One step of `verify`.
pub enum Check {
    /// Decode every piece of a blob.
    Decode {
        /// Its name in messages.
        name: String,
        /// The blob.
        blob: BlobRef,
    },
    /// Run an independent check, such as a checksum over stored bytes.
    Run {
        /// Its name in messages.
        name: String,
        /// The bytes it covers, for the progress bar.
        bytes: u64,
        /// The check.
        run: Box<dyn Fn() -> Result<()> + Send + Sync>,
    },
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode { name, .. } => write!(f, "Decode({name})"),
            Self::Run { name, bytes, .. } => write!(f, "Run({name}, {bytes})"),
        }
    }
}

/// Detects the format of `input`, or selects the one called `name`.
///
/// # Errors
/// [`Kind::Usage`] for an unknown name; [`Kind::Unsupported`] if no format recognizes the file.
pub fn detect(input: &Input, name: Option<&str>) -> Result<&'static Format> {
    let names = || FORMATS.iter().map(|f| f.name).collect::<Vec<_>>().join(", ");
    match name {
        Some(name) => FORMATS.iter().find(|f| f.name == name).ok_or_else(|| {
            Error::new(Kind::Usage(format!("unknown format {name}; supported formats: {}", names()).into()), "format")
        }),
        None => FORMATS.iter().find(|f| (f.detect)(input)).ok_or_else(|| {
            let magic = input.head.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
            let seen = match to_u64(input.head.len()) {
                0 if input.source.is_none() => "a directory without a frame index".into(),
                0 => "an empty file".to_owned(),
                _ => format!("it starts with {magic}"),
            };
            Error::unsupported(format!("unrecognized format ({seen}); supported formats: {}", names()), "magic")
                .at(FileOffset(0))
        }),
    }
}

/// Opens a container: detects its format and parses it. If it is a compressed container by its name, that is among its
/// entries.
///
/// # Errors
/// As [`detect`] and the format's `open`.
pub fn open(input: &Input, name: Option<&str>, options: &Options) -> Result<Arc<dyn Container>> {
    nested::open(detect(input, name)?, input, options)
}

/// Whether a file called `name` has one of the usual extensions of containers.
pub fn has_usual_extension(name: &[u8]) -> bool {
    has_extension(name, |format| format.extensions)
}

/// Whether a file called `name` has one of the extensions `of` a format.
fn has_extension(name: &[u8], of: impl Fn(&Format) -> &'static [&'static str]) -> bool {
    let Some(dot) = extension_at(name) else { return false };
    let extension = name.get(dot + 1..).unwrap_or_default();
    FORMATS.iter().flat_map(of).any(|known| extension.eq_ignore_ascii_case(known.as_bytes()))
}
