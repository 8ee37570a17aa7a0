//! A value that only the process that created it may use.
//!
//! A forked process has the memory of an archive without its threads: locks that they held stay locked. There the
//! archive is neither used nor dropped; the Python sources open it again.
#![forbid(unsafe_code)]

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A value of one process.
pub(crate) struct Owned<T> {
    /// Always there, but after `end`.
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    /// A value of this process.
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// The value; an error in a process that was forked since.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let value = self.value.as_ref().filter(|_| self.process == std::process::id());
        value.ok_or_else(|| PyRuntimeError::new_err("it was opened before a fork, in the parent process"))
    }

    /// Drops the value, unless another process created it.
    pub(crate) fn end(&mut self) {
        let value = self.value.take();
        if self.process != std::process::id() {
            std::mem::forget(value);
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.end();
    }
}
