//! What a container is to the rest of the program, and the table of those that we open.
//!
//! A format parses its file once ([`Format::open`]) and then answers three questions: what it is
//! ([`Container::info`]), which virtual files it shows ([`Container::entries`]), and what there is
//! to check ([`Container::checks`]). It decodes only when a [`Blob`] is asked for a piece, knows
//! nothing of caches, inodes or mounts, and does all its reading through [`Source`].
//!
//! Adding a format: one folder beside this file, one line in [`FORMATS`].
#![forbid(unsafe_code)]

mod blosc2;
mod content;
mod dtype;
mod entry;
pub mod fzm;
pub mod npy;
#[cfg(test)]
pub(crate) mod testing;
mod zstd;
mod ztensor;
mod zxc;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::account::{Account, Pieces};
use crate::bytes::{FileOffset, to_u64};
use crate::checksum::{Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::gpu::Gpu;
use crate::limits::Limits;
use crate::source::{Dir, Folder, Source};

pub use content::{Blob, BlobRef, Content, Fetch, FileExtent, Generator, Grid, Layout, Piece};
pub use dtype::Dtype;
pub use entry::{Array, Attrs, Directory, Entry, File, IndexedDir, Node};

/// The formats that we open, in the order in which they are asked whether a file is theirs.
pub static FORMATS: &[Format] = &[fzm::FORMAT, zstd::FORMAT, ztensor::FORMAT, zxc::FORMAT, blosc2::FORMAT];

/// One row of the table of formats.
#[derive(Debug)]
pub struct Format {
    /// Its name in `format=NAME` and `info.json`.
    pub name: &'static str,
    /// Whether the file says that it is of this format: magic bytes, not validity.
    pub detect: fn(&Input) -> bool,
    /// Parses the structure; decodes nothing.
    pub open: fn(&Input, &Options) -> Result<Arc<dyn Container>>,
}

/// What the user pointed at: a file, or a directory that is one container (a sparse Blosc2 frame).
#[derive(Debug)]
pub struct Input {
    /// The path as given.
    pub path: PathBuf,
    /// The file; `None` for a directory.
    pub source: Option<Arc<Source>>,
    /// The directory itself, or the one in which the file was found; `None` for a container in memory.
    pub dir: Option<Arc<Dir>>,
    /// The first bytes of the file, at most [`Input::HEAD`].
    pub head: Vec<u8>,
}

impl Input {
    /// How many bytes of the file detection sees without reading itself.
    pub const HEAD: u64 = 4096;

    /// Opens `path` for detection.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            let dir = Some(Dir::open(path)?);
            return Ok(Self { path: path.to_path_buf(), source: None, dir, head: Vec::new() });
        }
        let (source, dir) = Source::open_with_dir(path)?;
        Ok(Self { dir, ..Self::of(source)? })
    }

    /// A source that is already open.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn of(source: Arc<Source>) -> Result<Self> {
        let head = source.get(FileOffset(0), source.len().min(Self::HEAD), "head")?;
        Ok(Self { path: source.path().to_path_buf(), source: Some(source), dir: None, head })
    }

    /// The file, for formats that are never directories.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a directory.
    pub fn file(&self) -> Result<Arc<Source>> {
        self.source.clone().ok_or_else(|| Error::unsupported("a directory", "file"))
    }
}

/// What the user asked for that a format may need to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a checksum over much more than what is read is computed.
    pub verify: Verify,
    /// The threads that compute it, and whatever else goes over a whole file.
    pub threads: Threads,
    /// Files with dictionaries, chosen by their id.
    pub dicts: Vec<PathBuf>,
    /// The element type, for containers that do not say: a NumPy name such as `f4` or `<i8`.
    pub dtype: Option<String>,
    /// The shape, for containers that do not say; slowest dimension first.
    pub shape: Option<Vec<u64>>,
    /// Upper bounds for what a file may ask for.
    pub limits: Limits,
    /// The memory, disk space and work that files may take.
    pub account: Account,
    /// The most bytes of history that a decoder may keep (Zstandard windows).
    pub window: u64,
    /// Decoded pieces that are costly to decode again.
    pub pieces: Arc<Pieces>,
    /// What may decode beside the CPU.
    pub gpu: Arc<Gpu>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: Verify::default(),
            threads: Threads::default(),
            dicts: Vec::new(),
            dtype: None,
            shape: None,
            limits: Limits::default(),
            account: Account::new(1 << 30, 0),
            window: 128 << 20,
            pieces: Pieces::off(),
            gpu: Gpu::none(),
        }
    }
}

impl Options {
    /// The array in `len` decoded bytes: what the container says, `own`, with `dtype=` and `shape=` in its place.
    ///
    /// # Errors
    /// [`Kind::Usage`] where the two name no array or one that is larger than `len`.
    pub fn array(&self, own: Option<Array>, len: u64) -> Result<Option<Array>> {
        if self.dtype.is_none() && self.shape.is_none() {
            return Ok(own);
        }
        let usage = |why: String, what: &'static str| Error::new(Kind::Usage(why.into()), what);
        let Dtype { descr, itemsize } = match (&self.dtype, own) {
            (Some(name), _) => {
                Dtype::parse(name).ok_or_else(|| usage(format!("NumPy has no element type {name}"), "dtype"))?
            }
            (None, Some(own)) => Dtype { descr: own.descr, itemsize: own.itemsize },
            (None, None) => return Err(usage("the container has no element type: give dtype= too".into(), "shape")),
        };
        let shape = self.shape.clone().unwrap_or_else(|| vec![len.checked_div(itemsize).unwrap_or(0)]);
        let array = Array { descr, itemsize, shape };
        match array.byte_len() {
            Some(bytes) if bytes <= len => Ok(Some(array)),
            _ => Err(usage(format!("the array would be larger than the {len} decoded bytes"), "shape")),
        }
    }
}

/// An opened container: its structure is parsed and checked, nothing is decoded.
pub trait Container: Send + Sync {
    /// What it is; the content of `info.json`.
    fn info(&self) -> Info;

    /// The entries of the root directory, in container order; `info.json` is added by the tree.
    ///
    /// # Errors
    /// Only where structure is read lazily and turns out broken.
    fn entries(&self) -> Result<Vec<Entry>>;

    /// All that there is to check, together covering every checksum and every decoded byte once.
    fn checks(&self) -> Vec<Check>;

    /// The files that it holds open, for their identity and their times; the first is the main one.
    fn sources(&self) -> Vec<Arc<Source>>;

    /// The files that it opens when they are read, where it has such.
    fn folder(&self) -> Option<Arc<Folder>> {
        None
    }

    /// Whether the files are those that were opened: looks at those that are held open; of the others it says what was seen
    /// when they were read. However many there are, it costs next to nothing.
    ///
    /// # Errors
    /// [`Kind::Changed`].
    fn unchanged(&self) -> Result<()> {
        self.sources().iter().try_for_each(|source| source.check())?;
        self.folder().map_or(Ok(()), |folder| folder.unchanged())
    }
}

/// What a container is: the head of `info.json` that every format has, and the rest.
#[derive(Debug, Clone)]
pub struct Info {
    /// The format's name, as in [`Format::name`].
    pub format: &'static str,
    /// The version of the format, as its document writes it.
    pub format_version: String,
    /// Bytes of the container.
    pub file_size: u64,
    /// Bytes that the container decodes to, where that is known without decoding.
    pub decoded_size: Option<u64>,
    /// The checksums there are, in words or as an object.
    pub checksums: Value,
    /// Everything else, in the order in which it is shown.
    pub details: Map<String, Value>,
}

impl Info {
    /// The object of `info.json`.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("format".into(), self.format.into());
        map.insert("format_version".into(), self.format_version.clone().into());
        map.insert("file_size".into(), self.file_size.into());
        map.insert("decoded_size".into(), self.decoded_size.into());
        map.insert("checksums".into(), self.checksums.clone());
        map.extend(self.details.clone());
        Value::Object(map)
    }
}

/// One thing that `verify` does.
pub enum Check {
    /// Decode every piece of a blob.
    Decode {
        /// What it is called in messages.
        name: String,
        /// The blob.
        blob: BlobRef,
    },
    /// Run a check that stands by itself, such as a checksum over stored bytes.
    Run {
        /// What it is called in messages.
        name: String,
        /// The bytes it goes over, for the progress bar.
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

/// Finds the format of `input`, or takes the one called `name`.
///
/// # Errors
/// [`Kind::Usage`] for a name that is not in the table; [`Kind::Unsupported`] when no format knows the file.
pub fn detect(input: &Input, name: Option<&str>) -> Result<&'static Format> {
    let names = || FORMATS.iter().map(|f| f.name).collect::<Vec<_>>().join(", ");
    match name {
        Some(name) => FORMATS.iter().find(|f| f.name == name).ok_or_else(|| {
            Error::new(Kind::Usage(format!("no format is called {name}; there are {}", names()).into()), "format")
        }),
        None => FORMATS.iter().find(|f| (f.detect)(input)).ok_or_else(|| {
            let magic = input.head.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
            let seen = match to_u64(input.head.len()) {
                0 if input.source.is_none() => "a directory without a frame index".into(),
                0 => "an empty file".to_owned(),
                _ => format!("it starts with {magic}"),
            };
            Error::unsupported(format!("no known container ({seen}); known are {}", names()), "magic").at(FileOffset(0))
        }),
    }
}

/// Opens a container: detection, then the format's own parsing.
///
/// # Errors
/// As [`detect`] and the format's `open`.
pub fn open(input: &Input, name: Option<&str>, options: &Options) -> Result<Arc<dyn Container>> {
    (detect(input, name)?.open)(input, options)
}
