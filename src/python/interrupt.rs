//! Work without the interpreter lock that Ctrl-C ends.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::rc::Rc;

use fzmfs::while_wanted;
use pyo3::prelude::*;

use crate::failure::raised;

/// Runs `work` on `source` without the interpreter lock. It ends soon after the handler of a signal has raised an
/// exception, as that of Ctrl-C does, with this exception.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    source: &str,
    work: impl FnOnce() -> fzmfs::Result<T> + Send,
) -> PyResult<T> {
    let (result, interrupt) = py.detach(|| {
        let seen = Rc::new(Cell::new(None));
        let interrupt = Rc::clone(&seen);
        // Python runs handlers on the main thread alone.
        let is_wanted = move || {
            let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
            let Some(exception) = raised else { return true };
            seen.set(Some(exception));
            false
        };
        (while_wanted(is_wanted, work), interrupt.take())
    });
    match interrupt {
        Some(exception) => Err(exception),
        None => result.map_err(|error| raised(&error, source)),
    }
}
