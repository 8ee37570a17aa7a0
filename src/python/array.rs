//! Arrays.

use fzmfs::Steps;
use numpy::PyReadwriteArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::raised;

/// An array in a file of an archive.
#[pyclass(frozen, module = "fzmfs._native")]
pub(crate) struct Array {
    array: fzmfs::Array,
    source: String,
}

impl Array {
    pub(crate) fn new(array: fzmfs::Array, source: String) -> Self {
        Self { array, source }
    }
}

#[pymethods]
impl Array {
    /// The element type, as NumPy writes it in `descr`.
    #[getter]
    fn descr(&self) -> &str {
        self.array.dtype()
    }

    /// The name of the element type in the container, if it has one of its own.
    #[getter]
    fn type_name(&self) -> Option<&str> {
        self.array.type_name()
    }

    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.array.shape().to_vec()
    }

    #[getter]
    fn chunks(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.array.chunks())
    }

    /// Fills `buffer`, an array of bytes, with the elements `steps`: start, count and step of each dimension.
    fn read_steps(
        &self,
        py: Python<'_>,
        steps: Vec<(u64, u64, u64)>,
        mut buffer: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let bytes = target(&mut buffer)?;
        let steps: Vec<Steps> = steps.into_iter().map(|(start, count, step)| Steps { start, count, step }).collect();
        py.detach(|| self.array.read_steps(&steps, bytes)).map_err(|error| raised(&error, &self.source))
    }
}

/// The memory of `buffer`.
pub(crate) fn target<'a>(buffer: &'a mut PyReadwriteArray1<'_, u8>) -> PyResult<&'a mut [u8]> {
    buffer.as_slice_mut().map_err(|_| PyValueError::new_err("the bytes of the buffer must follow each other"))
}
