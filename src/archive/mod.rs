//! A container opened for reading: its entries, files, arrays and checks.
//!
//! The library's interface, which the `fzmfs` commands also use; see the crate documentation. An [`Archive`] owns all
//! the resources it needs (descriptors, cache, threads, temporary files); archives share nothing.
//!
//! Invariants: nothing is printed; no local file starts a thread before the first decode; a panic in a decoder becomes
//! an error.
#![forbid(unsafe_code)]

mod array;
mod arrays;
mod copy;
mod direct;
mod directory;
mod entry;
mod file;
pub(crate) mod memory;
mod options;
#[cfg(feature = "serve")]
mod picture;
mod resident;
mod verify;

use std::ffi::OsStr;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::account::Pieces;
use crate::cache::Cache;
use crate::checksum::BackgroundChecks;
use crate::error::{Error, Kind, Result};
use crate::format::{self, Container, Info, Input};
use crate::gpu::Gpu;
use crate::index::Index;
use crate::mirror::{Containers, Found, Opened};
use crate::source::Location;
use crate::tree::Tree;

pub use array::{Array, Steps};
pub use copy::CopyError;
pub use directory::{Directory, Node, NodeKind};
pub use entry::{Entries, Entry, EntryKind};
pub use file::File;
pub use options::{Device, Options, Verify};
pub use verify::{Progress, Report};

#[cfg(feature = "serve")]
pub(crate) use crate::view::preview::{Curve, Drawing};
#[cfg(feature = "cli")]
pub(crate) use directory::Unopened;
pub(crate) use options::Access;

/// An open container. Clones share state; it can be used from any number of threads at once.
///
/// Everything is closed when the last clone and the last [`File`] and [`Array`] of it are dropped.
#[derive(Clone)]
pub struct Archive(Arc<ArchiveInner>);

struct ArchiveInner {
    path: PathBuf,
    input: Input,
    options: Options,
    access: Access,
    context: format::Options,
    container: Arc<dyn Container>,
    tree: Tree,
    cache: Arc<Cache>,
    /// Whether the cache holds pieces of other containers too, so that it cannot check the files of this one.
    shares_cache: bool,
    /// Checks that run concurrently with reads.
    background_checks: BackgroundChecks,
}

/// A container, and the input it was parsed from.
struct Parsed {
    path: PathBuf,
    input: Input,
    container: Arc<dyn Container>,
    background_checks: BackgroundChecks,
}

impl Archive {
    /// Opens the container at `source`: a file, the directory of a sparse Blosc2 frame, or an object on a server by its
    /// URL (`https://`, `http://`, `s3://BUCKET/KEY`). Parses its structure; decodes nothing.
    ///
    /// Reads continue from the file opened here, even if another file is later renamed over it.
    ///
    /// # Errors
    /// [`Kind::Io`] if it cannot be opened, [`Kind::Unsupported`] if the format is unknown, [`Kind::Usage`] if an
    /// option does not apply to it or the requested GPU cannot be used; otherwise the error names the broken field and
    /// its byte.
    pub fn open(source: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let gpu = options.gpu();
        gpu.check().map_err(|why| Error::new(Kind::Usage(why.to_string().into()), "device"))?;
        Self::open_with(source.as_ref(), options, Access::Random, gpu)
    }

    /// As [`Archive::open`], for one access pattern, with a GPU that may be shared. Does not open the device.
    pub(crate) fn open_with(source: &Path, options: &Options, access: Access, gpu: Arc<Gpu>) -> Result<Self> {
        contained("file", || {
            let context = context(source, options, access, gpu);
            let (path, input, container) = parse(source, options, &context)?;
            let background_checks = context.verify.background();
            Self::of(Parsed { path, input, container, background_checks }, options, access, context, None)
        })
    }

    /// With a `cache` that others use too, or one of its own.
    fn of(
        parsed: Parsed,
        options: &Options,
        access: Access,
        context: format::Options,
        cache: Option<Arc<Cache>>,
    ) -> Result<Self> {
        let Parsed { path, input, container, background_checks } = parsed;
        let name = path.file_name().unwrap_or(OsStr::new(""));
        let tree = Tree::charging(container.clone(), name, &context.account)?;
        let shares_cache = cache.is_some();
        let cache = cache.unwrap_or_else(|| {
            let (size, total) = (options.cache_for(access, &context.gpu), options.cache_size());
            let cache = Cache::sharing(size, total, options.thread_count(), context.account.clone());
            let files = container.clone();
            cache.source_check(move || files.unchanged());
            cache
        });
        let options = options.clone();
        Ok(Self(Arc::new(ArchiveInner {
            path,
            input,
            options,
            access,
            context,
            container,
            tree,
            cache,
            shares_cache,
            background_checks,
        })))
    }

    /// Opens a container of a directory that was found: with a cache that others use too, for random access; otherwise to
    /// be read once. A broken container has entries that say so.
    fn open_below(containers: &Containers, found: Found, options: &Options, cache: Option<Arc<Cache>>) -> Result<Self> {
        contained("file", || {
            let Opened { container, input, checks: background_checks, threads, .. } = containers.parse(found)?;
            let context = format::Options { threads, ..containers.options.clone() };
            let parsed = Parsed { path: input.path.clone(), input, container, background_checks };
            let access = if cache.is_some() { Access::Random } else { Access::Sequential };
            Self::of(parsed, options, access, context, cache)
        })
    }

    /// Opens the container at `source` for a mount, which has its own tree and cache. Keeps nothing else open.
    #[cfg(all(feature = "cli", feature = "fuse"))]
    pub(crate) fn open_container(
        source: &Path,
        options: &Options,
        gpu: Arc<Gpu>,
    ) -> Result<(Arc<dyn Container>, format::Options)> {
        contained("file", || {
            let context = context(source, options, Access::Random, gpu);
            let (_, _, container) = parse(source, options, &context)?;
            Ok((container, context))
        })
    }

    /// The absolute path of the archive; or its URL, without secrets.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Distinguishes versions of the container: its size in bytes and its time of modification, as text; of a store that
    /// is a directory, also those of all its files.
    pub fn identity(&self) -> String {
        let source = self.0.container.sources().into_iter().next();
        source.map_or_else(String::new, |source| {
            let (seconds, nanoseconds) = source.mtime();
            let etag = source.etag().map_or(String::new(), |etag| format!(", ETag {etag}"));
            let state = self.0.container.state().map_or(String::new(), |state| format!(", files {state:016x}"));
            format!("{} bytes of {seconds}.{nanoseconds:09}{state}{etag}", source.len())
        })
    }

    /// Describes the container: the content of `info.json`.
    ///
    /// # Errors
    /// Fails only on a bug in fzmfs.
    pub fn info(&self) -> Result<Info> {
        contained("info", || Ok(self.0.container.info()))
    }

    /// Lists the directory `path`, for example `buffers`, in container order; `""` is the root. Sizes are computed only
    /// on request, so that a directory of millions of files lists immediately.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the directory is missing; if it is broken, fails here or in the last item.
    pub fn list(&self, path: &str) -> Result<Entries> {
        self.entry(path)?.list()
    }

    /// Lists everything below the directory `path`, each directory before its content.
    ///
    /// # Errors
    /// As [`Archive::list`].
    pub fn walk(&self, path: &str) -> Result<Entries> {
        self.entry(path)?.walk()
    }

    /// Looks up `path`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it is missing; the message lists the names that exist.
    pub fn entry(&self, path: &str) -> Result<Entry> {
        contained("path", || Entry::at(self, path))
    }

    /// Opens the file `path`, for example `data.npy`, for reading; follows a link. Decodes only if the container does
    /// not record the length of the file.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it is missing; the message lists the names that exist. [`Kind::Io`] if it is a directory;
    /// otherwise the fault of the container.
    pub fn file(&self, path: &str) -> Result<File> {
        contained("path", || File::open(self, self.0.tree.resolve(path)?, path))
    }

    /// Confirms all reads so far: waits for checksums that are verified in the background ([`Verify::Background`]), and
    /// checks that the file is unchanged since it was opened.
    ///
    /// # Errors
    /// The first check that failed; [`Kind::Changed`].
    pub fn check(&self) -> Result<()> {
        self.0.background_checks.join()?;
        self.0.container.unchanged()
    }

    /// Verifies every checksum and decodes every byte, on all threads, without keeping data: the same as `fzmfs
    /// verify`. Reads the file again, regardless of cached data and of [`Options::verify`].
    ///
    /// `progress` is called in order, from one thread at a time: once at the start, then after each step.
    ///
    /// # Errors
    /// The first error, in container order.
    pub fn verify(&self, mut progress: impl FnMut(Progress) + Send) -> Result<Report> {
        let (report, error) = self.verify_all(&mut progress)?;
        error.map_or(Ok(report), Err)
    }

    /// As [`Archive::verify`], but ends soon after `progress` has returned `false`, then with `None`.
    ///
    /// # Errors
    /// As [`Archive::verify`].
    pub fn verify_while(&self, mut progress: impl FnMut(Progress) -> bool + Send) -> Result<Option<Report>> {
        let verify::Outcome { report, error, is_stopped } = verify::run(self, &mut progress)?;
        error.map_or(Ok((!is_stopped).then_some(report)), Err)
    }

    /// As [`Archive::verify`], but returns the report together with the first error.
    #[doc(hidden)]
    pub fn verify_all(&self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<(Report, Option<Error>)> {
        let mut go_on = |now| {
            progress(now);
            true
        };
        verify::run(self, &mut go_on).map(|outcome| (outcome.report, outcome.error))
    }

    /// The container.
    #[doc(hidden)]
    pub fn container(&self) -> &Arc<dyn Container> {
        &self.0.container
    }

    /// The virtual tree.
    #[doc(hidden)]
    pub fn tree(&self) -> &Tree {
        &self.0.tree
    }

    /// Decodes and caches its pieces.
    #[doc(hidden)]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.0.cache
    }

    /// After a read: checks that the files are unchanged, where the cache cannot.
    fn confirm_shared(&self) -> Result<()> {
        if self.0.shares_cache { self.0.container.unchanged() } else { Ok(()) }
    }

    /// A container for [`verify`] to decode from: parsed again from the same descriptor, unless this one keeps nothing
    /// and verifies everything first.
    fn fresh(&self) -> Result<Arc<dyn Container>> {
        let ArchiveInner { input, options, access, context, container, .. } = &*self.0;
        if !options.keeps(*access) && options.verify == Verify::First {
            return Ok(container.clone());
        }
        format::open(input, options.format.as_deref(), &thorough(options, context.gpu.clone()))
    }
}

/// Options for the formats of a container that is verified: nothing that was found before is trusted, and nothing kept.
fn thorough(options: &Options, gpu: Arc<Gpu>) -> format::Options {
    let context = options.context(Access::Sequential, gpu, options.account());
    format::Options { verify: Verify::First.into(), pieces: Pieces::off(), index: Index::off(), ..context }
}

/// Options for the formats, for the container at `source`.
fn context(source: &Path, options: &Options, access: Access, gpu: Arc<Gpu>) -> format::Options {
    let context = options.context(access, gpu, options.account());
    if !Location::is_remote(source) {
        return context;
    }
    format::Options { verify: context.verify.far(), ..context }
}

/// Opens and parses the file at `source`; also returns its absolute path.
fn parse(source: &Path, options: &Options, context: &format::Options) -> Result<(PathBuf, Input, Arc<dyn Container>)> {
    let input = Input::open_with(source, &options.remote, &context.account)?;
    let container = format::open(&input, options.format.as_deref(), context)?;
    Ok((input.path.clone(), input, container))
}

impl Drop for ArchiveInner {
    fn drop(&mut self) {
        // Checks over whole files end soon, not when they are done.
        self.context.threads.close();
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

/// Runs `work`; turns a panic into an error, so that a broken file cannot end the caller.
fn contained<T>(what: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(defect(what)))
}

/// The error reported after a panic.
fn defect(what: &'static str) -> Error {
    Error::corrupt("the decoder failed on it, which is a bug of fzmfs; please report it", what)
}

#[cfg(test)]
mod tests;
