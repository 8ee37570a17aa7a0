//! Errors of the library as `fzmfs.Error`.

use fzmfs::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The exception for `error`, which concerns `source`.
pub(crate) fn raised(error: &Error, source: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Python::attach(|py| {
        let offset = error.offset().map(|at| at.0);
        let made = CLASS.import(py, "fzmfs._errors", "Error").and_then(|class| {
            class.call1((error.errno(), error.explain(), source, error.kind().name(), error.what(), offset))
        });
        made.map_or_else(|failed| failed, PyErr::from_value)
    })
}
