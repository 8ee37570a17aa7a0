//! The result of a command: nothing, or a line on standard error and an exit code.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

pub(super) use crate::failure::Failure;

/// The result of a command.
pub(super) type Outcome = Result<(), Failure>;

/// Writing to standard output failed. Does not return if its reader has gone.
pub(super) fn output(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        crate::platform::end_with_the_reader();
    }
    Failure::system(Path::new("standard output"), error)
}

/// Prints a notice about an operation on `subject` that has succeeded.
pub(super) fn notice(subject: &Path, what: impl fmt::Display) {
    report(&Failure::at(subject, what));
}

/// Prints the line, and returns the exit code.
pub(super) fn report(failure: &Failure) -> ExitCode {
    if let Some(line) = failure.line() {
        // If standard error is full or closed, the exit code still reports the failure.
        writeln!(io::stderr(), "fzmfs: {line}").ok();
    }
    ExitCode::from(failure.code())
}
