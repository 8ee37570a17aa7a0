//! Errors of the library as `fzmfs.Error`.

use std::io::ErrorKind::NotFound;

use fzmfs::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The exception for `error`, which concerns `source`.
pub(crate) fn raised(error: &Error, source: &str) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Python::attach(|py| {
        let offset = error.offset().map(|at| at.0);
        let made = CLASS
            .import(py, "fzmfs._errors", "Error")
            .and_then(|class| class.call1((error.errno(), error.explain(), source, kind(error), error.what(), offset)));
        made.map_or_else(|failed| failed, PyErr::from_value)
    })
}

/// The word for the category.
fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Truncated { .. } => "truncated",
        ErrorKind::Corrupt(_) => "corrupt",
        ErrorKind::Checksum { .. } => "checksum",
        ErrorKind::Unsupported(_) | ErrorKind::Unknown(_) => "unsupported",
        ErrorKind::TooLarge { .. } => "too_large",
        ErrorKind::NoRoom { .. } => "no_room",
        ErrorKind::Changed => "changed",
        ErrorKind::Usage(_) => "usage",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Io(error) if error.kind() == NotFound && error.raw_os_error().is_none() => "missing",
        // And kinds that later versions add.
        _ => "io",
    }
}
