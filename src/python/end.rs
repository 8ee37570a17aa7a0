//! The end of an object that may wait: for a disk, for threads, for a GPU.
#![expect(unsafe_code, reason = "which interpreter this is")]

use pyo3::ffi::{PyInterpreterState_Get, PyInterpreterState_GetID};
use pyo3::prelude::*;

/// Runs `end` so that other threads of Python need not wait too, where that can be.
///
/// At the end of the process Python gives its lock back to the main interpreter alone: in another one, who released it
/// would wait for it for ever. There `end` runs with the lock; and without one if no interpreter runs any more.
pub(crate) fn at_end(end: impl FnOnce() + Send) {
    let mut end = Some(end);
    Python::try_attach(|py| {
        if let Some(end) = end.take_if(|_| is_main(py)) {
            py.detach(end);
        }
    });
    if let Some(end) = end {
        end();
    }
}

fn is_main(_: Python<'_>) -> bool {
    // SAFETY: this thread is attached to an interpreter.
    let interpreter = unsafe { PyInterpreterState_Get() };
    // SAFETY: it has just been returned.
    unsafe { PyInterpreterState_GetID(interpreter) == 0 }
}
