//! Archives and files.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fzmfs::{Device, Options, Spacing, Verify, shown};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::array::{NativeArray, PART, target, writable};
use crate::interrupt::detached;
use crate::listing;
use crate::opened::Opened;
use crate::owned::Owned;
use crate::walk::Walk;

/// The names in the directory `source`, each with whether it is a container; `None` if it is not a directory.
#[pyfunction]
#[pyo3(signature = (source, *, timeout=None, unpinned=None, remote_cache=None))]
pub(crate) fn list_directory(
    py: Python<'_>,
    source: PathBuf,
    timeout: Option<Duration>,
    unpinned: Option<bool>,
    remote_cache: Option<(PathBuf, Option<u64>)>,
) -> PyResult<Option<Vec<(OsString, bool)>>> {
    let mut options = set(Options::new(), timeout, Options::timeout);
    options = set(options, unpinned, Options::unpinned);
    options = set(options, remote_cache, |options, (dir, size)| options.remote_cache(dir, size));
    let shown = shown(&source).display().to_string();
    detached(py, &shown, move || {
        let Some(directory) = fzmfs::Directory::open(source, &options)? else { return Ok(None) };
        let nodes = directory.entries("".as_ref())?.into_iter();
        let listed = nodes.filter(|node| node.is_container() || node.kind == fzmfs::NodeKind::Dir);
        let named = |node: fzmfs::Node| {
            let is_container = node.is_container();
            (node.shown.into(), is_container)
        };
        Ok(Some(listed.map(named).collect()))
    })
}

/// An open container.
#[pyclass(frozen, name = "Archive", module = "fzmfs._native")]
pub(crate) struct NativeArchive {
    archive: Arc<Opened>,
    source: String,
}

impl NativeArchive {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&fzmfs::Archive) -> fzmfs::Result<T> + Send,
    ) -> PyResult<T> {
        let archive = self.archive.get()?;
        detached(py, &self.source, || work(archive))
    }
}

#[pymethods]
impl NativeArchive {
    /// Opens the container at `source`.
    #[new]
    #[pyo3(signature = (source, *, verify=None, cache=None, spill=None, threads=None, device=None, gpu_memory=None,
        format=None, dict=None, dtype=None, shape=None, spacing=None, units=None, window=None, timeout=None,
        expect=None, unpinned=None, remote_cache=None, index=None, index_size=None))]
    #[allow(clippy::too_many_arguments, reason = "the options of the command line, by name")]
    fn new(
        py: Python<'_>,
        source: PathBuf,
        verify: Option<&str>,
        cache: Option<u64>,
        spill: Option<u64>,
        threads: Option<usize>,
        device: Option<&str>,
        gpu_memory: Option<u64>,
        format: Option<String>,
        dict: Option<Vec<PathBuf>>,
        dtype: Option<String>,
        shape: Option<Vec<u64>>,
        spacing: Option<Vec<f64>>,
        units: Option<String>,
        window: Option<u64>,
        timeout: Option<Duration>,
        expect: Option<String>,
        unpinned: Option<bool>,
        remote_cache: Option<(PathBuf, Option<u64>)>,
        index: Option<PathBuf>,
        index_size: Option<u64>,
    ) -> PyResult<Self> {
        let mut options = dict.unwrap_or_default().into_iter().fold(Options::new(), Options::dict);
        if let Some(verify) = verify {
            options = options.verify(when(verify)?);
        }
        if let Some(device) = device {
            let device: Device = device.parse().map_err(|why| PyValueError::new_err(format!("device: {why}")))?;
            options = options.device(device);
        }
        if let Some(threads) = threads {
            options = options.threads(threads);
        }
        options = set(options, cache, Options::cache);
        options = set(options, spill, Options::spill);
        options = set(options, gpu_memory, Options::gpu_memory);
        options = set(options, window, Options::window);
        options = set(options, format, Options::format);
        options = set(options, dtype, Options::dtype);
        options = set(options, shape, Options::shape);
        let wrong = |name| move |why| PyValueError::new_err(format!("{name}: {why}"));
        options = set(options, spacing.map(Spacing::new).transpose().map_err(wrong("spacing"))?, Options::spacing);
        let units = units.map(|units| units.parse()).transpose().map_err(wrong("units"))?;
        options = set(options, units, Options::units);
        options = set(options, timeout, Options::timeout);
        options = set(options, expect, Options::expect);
        options = set(options, unpinned, Options::unpinned);
        options = set(options, remote_cache, |options, (dir, size)| options.remote_cache(dir, size));
        options = set(options, index, Options::index);
        options = set(options, index_size, Options::index_size);
        let shown = shown(&source).display().to_string();
        let archive = detached(py, &shown, move || fzmfs::Archive::open(source, &options))?;
        let source = archive.path().display().to_string();
        Ok(Self { archive: Arc::new(Opened::new(archive)), source })
    }

    /// The absolute path; or the URL, without secrets.
    #[getter]
    fn path(&self) -> PyResult<OsString> {
        // No pathlib.Path, which collapses the `//` of a URL.
        Ok(self.archive.get()?.path().as_os_str().to_owned())
    }

    /// Distinguishes versions of the container.
    #[getter]
    fn identity(&self) -> PyResult<String> {
        Ok(self.archive.get()?.identity())
    }

    /// Modification time of the container, in seconds since 1970.
    #[getter]
    fn modified(&self) -> PyResult<f64> {
        let sources = self.archive.get()?.container().sources();
        let (seconds, nanoseconds) = sources.first().map_or((0, 0), |source| source.mtime());
        Ok(seconds as f64 + nanoseconds as f64 / 1e9)
    }

    /// `info.json`.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        self.run(py, |archive| archive.info().map(|info| info.to_json().to_string()))
    }

    /// The names of the arrays, each with the path of its file.
    fn arrays(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.run(py, fzmfs::Archive::arrays)
    }

    /// The entries of the directory `path`, or of all below it, part by part: path, kind, and size where that is known.
    fn walk(&self, py: Python<'_>, path: &str, below: bool) -> PyResult<Walk> {
        self.run(py, |archive| Walk::new(archive, path, below, (self.archive.clone(), self.source.clone())))
    }

    /// The kind and the size of the entry at `path`.
    fn entry(&self, py: Python<'_>, path: &str) -> PyResult<listing::EntryRow> {
        self.run(py, |archive| archive.entry(path).map(|entry| listing::row(&entry)))
    }

    /// Opens the file at `path`.
    fn file(&self, py: Python<'_>, path: &str) -> PyResult<NativeFile> {
        let file = self.run(py, |archive| archive.file(path))?;
        Ok(NativeFile { owned: Owned::new(file), _archive: self.archive.clone(), source: self.source.clone() })
    }

    /// The array in the file at `path`; `None` if it has none.
    fn array(&self, py: Python<'_>, path: &str) -> PyResult<Option<NativeArray>> {
        let array = self.run(py, |archive| Ok(archive.file(path)?.array()))?;
        Ok(array.map(|array| NativeArray::new(array, self.archive.clone(), self.source.clone())))
    }

    /// Waits for the checks in the background.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, fzmfs::Archive::check)
    }

    /// Verifies everything, and calls `progress` with the bytes checked and their total. Returns the numbers of checks,
    /// bytes and checksums. Ends soon after an exception in `progress`, and after an interrupt.
    fn verify(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<(u64, u64, Option<u64>)> {
        let progress = progress.map(|progress| progress.clone().unbind());
        let failed = Mutex::new(None);
        let call = |report: fzmfs::Progress| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                let call = |progress: &Py<PyAny>| progress.call1(py, (report.checked, report.total)).map(drop);
                progress.as_ref().map_or(Ok(()), call)
            });
            told.map_err(|error| *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error)).is_ok()
        };
        let report = self.run(py, |archive| archive.verify_while(call));
        match (failed.into_inner().unwrap_or_else(PoisonError::into_inner), report?) {
            (Some(error), _) => Err(error),
            (None, report) => Ok(report.map_or((0, 0, None), |report| (report.checks, report.bytes, report.checksums))),
        }
    }
}

/// Applies the option `set` if it was given.
fn set<T>(options: Options, value: Option<T>, set: impl FnOnce(Options, T) -> Options) -> Options {
    match value {
        Some(value) => set(options, value),
        None => options,
    }
}

fn when(word: &str) -> PyResult<Verify> {
    match word {
        "auto" => Ok(Verify::Auto),
        "first" => Ok(Verify::First),
        "background" => Ok(Verify::Background),
        "off" => Ok(Verify::Off),
        _ => Err(PyValueError::new_err("verify: expected auto, first, background or off")),
    }
}

/// An open file of an archive.
#[pyclass(frozen, name = "File", module = "fzmfs._native")]
pub(crate) struct NativeFile {
    owned: Owned<fzmfs::File>,
    _archive: Arc<Opened>,
    source: String,
}

#[pymethods]
impl NativeFile {
    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.owned.get()?.len())
            .map_err(|_| PyValueError::new_err("the file is too large for this machine"))
    }

    /// Fills `buffer`, an array of bytes, from `offset` on; the file must have as many.
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyArray1<u8>>) -> PyResult<()> {
        let mut buffer = writable(buffer)?;
        let (file, bytes) = (self.owned.get()?, target(&mut buffer)?);
        let mut at = offset;
        for part in bytes.chunks_mut(PART) {
            py.check_signals()?;
            detached(py, &self.source, || file.read_exact_at(at, part))?;
            at += part.len() as u64;
        }
        Ok(())
    }
}
