//! Arrays.

use std::sync::Arc;

use fzmfs::Steps;
use numpy::{PyArray1, PyArrayMethods, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::device::{DeviceBuffer, Stream};
use crate::interrupt::detached;
use crate::opened::Opened;
use crate::owned::Owned;

/// Approximate bytes read between two checks for an interrupt.
pub(crate) const PART: usize = 256 << 20;

/// An array in a file of an archive.
#[pyclass(frozen, name = "Array", module = "fzmfs._native")]
pub(crate) struct NativeArray {
    owned: Owned<fzmfs::Array>,
    _archive: Arc<Opened>,
    source: String,
}

impl NativeArray {
    pub(crate) fn new(array: fzmfs::Array, archive: Arc<Opened>, source: String) -> Self {
        Self { owned: Owned::new(array), _archive: archive, source }
    }
}

#[pymethods]
impl NativeArray {
    /// The element type, as NumPy writes it in `descr`.
    #[getter]
    fn descr(&self) -> PyResult<&str> {
        Ok(self.owned.get()?.dtype())
    }

    /// The name of the element type in the container, if it has one.
    #[getter]
    fn type_name(&self) -> PyResult<Option<&str>> {
        Ok(self.owned.get()?.type_name())
    }

    #[getter]
    fn shape(&self) -> PyResult<Vec<u64>> {
        Ok(self.owned.get()?.shape().to_vec())
    }

    /// The attributes, as the text of a JSON object.
    fn attributes(&self, py: Python<'_>) -> PyResult<String> {
        let array = self.owned.get()?;
        detached(py, &self.source, || array.attributes().map(|attributes| attributes.to_string()))
    }

    #[getter]
    fn chunks(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let array = self.owned.get()?;
        Ok(py.detach(|| array.chunks()))
    }

    /// Bytes that it takes in the container.
    #[getter]
    fn stored(&self) -> PyResult<u64> {
        Ok(self.owned.get()?.stored())
    }

    /// Decodes `count` elements from number `first` on into the memory of the archive's GPU. `stream`: the handle of
    /// one of its streams, and the owner.
    fn decode_to_device(
        &self,
        py: Python<'_>,
        first: u64,
        count: u64,
        stream: Option<Stream>,
    ) -> PyResult<DeviceBuffer> {
        let (array, foreign) = (self.owned.get()?, stream.as_ref().map(Stream::foreign));
        let end = first.saturating_add(count);
        let made = detached(py, &self.source, || array.decode_to_device(first..end, foreign));
        made.map(|buffer| DeviceBuffer::new(buffer, stream))
    }

    /// Fills `buffer`, an array of bytes, with the elements `steps`: start, count and step of each dimension.
    fn read_steps(
        &self,
        py: Python<'_>,
        steps: Vec<(u64, u64, u64)>,
        buffer: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let mut buffer = writable(buffer)?;
        let (array, bytes) = (self.owned.get()?, target(&mut buffer)?);
        let mut steps: Vec<Steps> =
            steps.into_iter().map(|(start, count, step)| Steps { start, count, step }).collect();
        let chunks = if bytes.len() > PART { py.detach(|| array.chunks()) } else { Vec::new() };
        in_parts(&mut steps, &chunks, bytes, &mut |steps, bytes| {
            py.check_signals()?;
            detached(py, &self.source, || array.read_steps(steps, bytes))
        })
    }
}

/// Fills the buffer with the elements.
type Read<'a> = dyn FnMut(&[Steps], &mut [u8]) -> PyResult<()> + 'a;

/// Calls `read` for parts of `steps`, and of `bytes`, of about [`PART`] bytes and whole chunks.
fn in_parts(steps: &mut [Steps], chunks: &[u64], bytes: &mut [u8], read: &mut Read) -> PyResult<()> {
    let slowest = steps.iter().position(|steps| steps.count > 1).filter(|_| bytes.len() > PART);
    let Some(d) = slowest else { return read(steps, bytes) };
    let (all, chunk) = (steps[d], chunks.get(d).copied().unwrap_or(1).max(1));
    let each = bytes.len() / usize::try_from(all.count).unwrap_or(usize::MAX);
    let most = ((PART / each.max(1)) as u64 / chunk * chunk).max(1);
    let (mut first, mut rest) = (0, bytes);
    while first < all.count {
        let count = most.min(all.count - first);
        steps[d] = Steps { start: all.start + first * all.step, count, step: all.step };
        let (part, after) = rest.split_at_mut(each * count as usize);
        in_parts(steps, chunks, part, read)?;
        (first, rest) = (first + count, after);
    }
    steps[d] = all;
    Ok(())
}

/// `buffer` for writing, until the result is dropped.
pub(crate) fn writable<'a>(buffer: &Bound<'a, PyArray1<u8>>) -> PyResult<PyReadwriteArray1<'a, u8>> {
    let refused = |_| PyValueError::new_err("the memory is read-only, or another thread is reading into it");
    buffer.try_readwrite().map_err(refused)
}

/// The memory of `buffer`.
pub(crate) fn target<'a>(buffer: &'a mut PyReadwriteArray1<'_, u8>) -> PyResult<&'a mut [u8]> {
    buffer.as_slice_mut().map_err(|_| PyValueError::new_err("the bytes of the buffer must follow each other"))
}
