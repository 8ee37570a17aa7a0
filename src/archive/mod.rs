//! A container opened for reading: its entries, its files and arrays, and its checks.
//!
//! What stands behind the commands of `fzmfs`, and what Rust programs use: see the crate's documentation. An
//! [`Archive`] owns all that reading it takes (descriptors, cache, threads, temporary files); archives share nothing.
//!
//! Invariants: nothing is printed; no thread is started before the first decode, so that a daemon may fork after
//! [`Archive::open`]; a panic of a decoder is an error.
#![forbid(unsafe_code)]

mod copy;
mod entry;
mod file;
pub(crate) mod memory;
mod options;
mod verify;

use std::ffi::OsStr;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::account::Pieces;
use crate::cache::Cache;
use crate::checksum::{self, BackgroundChecks};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Container, Info, Input};
use crate::gpu::Gpu;
use crate::tree::Tree;

pub use copy::CopyError;
pub use entry::{Entries, Entry, EntryKind};
pub use file::{Array, File};
pub use options::{Device, Options, Verify};
pub use verify::{Progress, Report};

pub(crate) use options::Access;

/// An opened container. Clones share it; it can be used from any number of threads at once.
///
/// Everything is closed when the last clone and the last [`File`] and [`Array`] of it are dropped.
#[derive(Clone)]
pub struct Archive(Arc<Inner>);

struct Inner {
    path: PathBuf,
    input: Input,
    options: Options,
    access: Access,
    context: format::Options,
    container: Arc<dyn Container>,
    tree: Tree,
    cache: Arc<Cache>,
    /// Checks that run beside the reads.
    beside: BackgroundChecks,
}

impl Archive {
    /// Opens the container at `source`: a file, or the directory of a sparse Blosc2 frame. Parses its structure and
    /// decodes nothing.
    ///
    /// The file that is opened is the file that is read, also when another one gets its name later.
    ///
    /// # Errors
    /// [`Kind::Io`] if it cannot be opened, [`Kind::Unsupported`] if its format is unknown, [`Kind::Usage`] if an
    /// option does not fit it or the GPU asked for cannot be used; else what is broken, in which field, at which byte.
    pub fn open(source: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let gpu = options.gpu();
        gpu.check().map_err(|why| Error::new(Kind::Usage(why.to_string().into()), "device"))?;
        Self::open_with(source.as_ref(), options, Access::Random, gpu)
    }

    /// As [`Archive::open`], for one way of reading, on a GPU that others may use too. Opens no device.
    pub(crate) fn open_with(source: &Path, options: &Options, access: Access, gpu: Arc<Gpu>) -> Result<Self> {
        contained("file", || {
            // Absolute, for formats that open further files later: the directory of the process may change.
            let path = std::path::absolute(source).unwrap_or_else(|_| source.to_path_buf());
            let input = Input::open(&path)?;
            let cache_size = options.cache_for(access, &gpu);
            let context = options.context(access, gpu);
            let container = format::open(&input, options.format.as_deref(), &context)?;
            let tree = Tree::new(container.clone(), path.file_name().unwrap_or(OsStr::new("")))?;
            let cache = Cache::sharing(cache_size, options.thread_count(), context.account.memory().clone());
            let files = container.clone();
            cache.source_check(move || files.unchanged());
            let beside = match &context.verify {
                checksum::Verify::Background(beside) => beside.clone(),
                checksum::Verify::First | checksum::Verify::Off => BackgroundChecks::default(),
            };
            let options = options.clone();
            Ok(Self(Arc::new(Inner { path, input, options, access, context, container, tree, cache, beside })))
        })
    }

    /// The path that it was opened by, made absolute.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What it is: the content of `info.json`.
    ///
    /// # Errors
    /// Only after a defect of fzmfs.
    pub fn info(&self) -> Result<Info> {
        contained("info", || Ok(self.0.container.info()))
    }

    /// The entries of the directory `path`, such as `buffers`, in container order; `""` is the root. Sizes are not
    /// found out before they are asked for, so that a directory of millions of files is listed at once.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is no such directory; else what is broken in it, now or as the last item.
    pub fn list(&self, path: &str) -> Result<Entries> {
        self.entry(path)?.list()
    }

    /// Everything below the directory `path`, each directory before what is in it.
    ///
    /// # Errors
    /// As [`Archive::list`].
    pub fn walk(&self, path: &str) -> Result<Entries> {
        self.entry(path)?.walk()
    }

    /// What `path` is.
    ///
    /// # Errors
    /// [`Kind::NotFound`] with what there is instead.
    pub fn entry(&self, path: &str) -> Result<Entry> {
        contained("path", || Entry::at(self, path))
    }

    /// The file `path`, such as `data.npy`, ready to be read; a link is followed. Decodes only if the container does
    /// not say how long the file is.
    ///
    /// # Errors
    /// [`Kind::NotFound`] with what there is instead; [`Kind::Io`] for a directory; else what is broken.
    pub fn file(&self, path: &str) -> Result<File> {
        contained("path", || File::open(self, self.0.tree.resolve(path)?, path))
    }

    /// Whether what was read so far counts: waits for checksums that are verified beside the reads
    /// ([`Verify::Background`]), and sees to it that the file is still the one that was opened.
    ///
    /// # Errors
    /// The first check that failed; [`Kind::Changed`].
    pub fn check(&self) -> Result<()> {
        self.0.beside.join()?;
        self.0.container.unchanged()
    }

    /// Computes every checksum and decodes every byte, on all threads, and keeps nothing: what `fzmfs verify` does.
    /// Reads the file anew, whatever is in memory and whatever [`Options::verify`] says.
    ///
    /// `progress` is called in order from one thread at a time: once at the start, then after each step.
    ///
    /// # Errors
    /// The first thing that is broken, in the order of the container.
    pub fn verify(&self, mut progress: impl FnMut(Progress) + Send) -> Result<Report> {
        match verify::run(self, &mut progress)? {
            (report, None) => Ok(report),
            (_, Some(error)) => Err(error),
        }
    }

    /// As [`Archive::verify`]: what was checked, and the first thing that is broken.
    #[doc(hidden)]
    pub fn verify_all(&self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(Report, Option<Error>)> {
        verify::run(self, progress)
    }

    /// The container.
    #[doc(hidden)]
    pub fn container(&self) -> &Arc<dyn Container> {
        &self.0.container
    }

    /// Its virtual tree.
    #[doc(hidden)]
    pub fn tree(&self) -> &Tree {
        &self.0.tree
    }

    /// What decodes and keeps its pieces.
    #[doc(hidden)]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.0.cache
    }

    /// What its format was given.
    #[doc(hidden)]
    pub fn context(&self) -> &format::Options {
        &self.0.context
    }

    /// A container for [`verify`] to decode from: parsed anew from the same descriptor, unless this one keeps nothing
    /// and checks everything.
    fn fresh(&self) -> Result<Arc<dyn Container>> {
        let Inner { input, options, access, context, container, .. } = &*self.0;
        if !options.keeps(*access) && options.verify == Verify::First {
            return Ok(container.clone());
        }
        let (verify, pieces) = (Verify::First.into(), Pieces::off());
        let context = format::Options { verify, pieces, ..options.context(Access::Sequential, context.gpu.clone()) };
        format::open(input, options.format.as_deref(), &context)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.access == Access::Sequential {
            tracing::info!("decoded by {}", self.context.gpu.decoder());
        }
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("path", &self.0.path).field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// Runs `work`; a panic in it is an error, for a caller must not end because of a file.
fn contained<T>(what: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(defect(what)))
}

/// What is said after a panic.
fn defect(what: &'static str) -> Error {
    Error::corrupt("the decoder failed on it, which is a bug of fzmfs; please report it", what)
}
