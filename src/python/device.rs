//! Decoded elements that stay on a GPU.
#![expect(unsafe_code, reason = "handles of streams that Python objects own")]

use std::ffi::c_void;

use fzmfs::ForeignStream;
use pyo3::prelude::*;

use crate::end::at_end;
use crate::owned::Owned;

/// A stream of another library: its handle, and the object that owns it, if that is known.
#[derive(FromPyObject)]
pub(crate) struct Stream {
    #[pyo3(item(0))]
    handle: usize,
    #[pyo3(item(1))]
    _owner: Py<PyAny>,
}

impl Stream {
    pub(crate) fn foreign(&self) -> ForeignStream {
        let handle = std::ptr::with_exposed_provenance_mut::<c_void>(self.handle);
        // SAFETY: libraries of Python make their streams in primary contexts. The owner lives as long as the buffer;
        // for a bare number, the caller guarantees that (see the documentation of `Array.cuda`).
        unsafe { ForeignStream::from_raw(handle) }
    }
}

/// Elements in the memory of a GPU.
#[pyclass(frozen, module = "fzmfs._native")]
pub(crate) struct DeviceBuffer {
    /// Freed before its stream is. Always there, but in `drop`.
    buffer: Option<Owned<fzmfs::DeviceBuffer>>,
    _stream: Option<Stream>,
}

impl DeviceBuffer {
    pub(crate) fn new(buffer: fzmfs::DeviceBuffer, stream: Option<Stream>) -> Self {
        Self { buffer: Some(Owned::new(buffer)), _stream: stream }
    }
}

#[pymethods]
impl DeviceBuffer {
    /// The address of the first element.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        self.buffer.as_ref().map_or(Ok(0), |buffer| Ok(buffer.get()?.address()))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        at_end(|| drop(self.buffer.take()));
    }
}
