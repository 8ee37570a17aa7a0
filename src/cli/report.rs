//! What a command ends with: a line on standard error, and an exit code.
#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use crate::error::{Error, Kind, system_words};
use crate::fs;

/// What a command gives back.
pub(super) type Outcome = Result<(), Failure>;

/// Why a command did not do all that it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The line for standard error; `None` where everything was said already.
    line: Option<String>,
    code: u8,
}

impl Failure {
    /// A file is broken, unsupported or changed, or something could not be done.
    pub(super) fn new(line: impl fmt::Display) -> Self {
        Self { line: Some(line.to_string()), code: 1 }
    }

    /// The command line asks for something that cannot be.
    pub(super) fn usage(line: impl fmt::Display) -> Self {
        Self { line: Some(line.to_string()), code: 2 }
    }

    /// `error`, met in the container `file`.
    pub(super) fn of(file: &Path, error: &Error) -> Self {
        let line = format!("{}: {}", file.display(), error.explain());
        if matches!(error.kind(), Kind::Usage(_)) { Self::usage(line) } else { Self::new(line) }
    }

    /// There is no mount, or it stays.
    pub(super) fn of_mount(failure: fs::Failure) -> Self {
        if failure.is_usage() { Self::usage(failure) } else { Self::new(failure) }
    }

    /// Standard output took no more.
    pub(super) fn output(error: &io::Error) -> Self {
        Self::new(format!("standard output: {}", system_words(error)))
    }

    /// Something failed before, and was reported then.
    pub(super) const fn reported() -> Self {
        Self { line: None, code: 1 }
    }

    /// Prints the line, and gives the exit code.
    pub(super) fn report(&self) -> ExitCode {
        if let Some(line) = &self.line {
            // Where it cannot be printed (standard error is full or closed) the exit code still says it.
            writeln!(io::stderr(), "fzmfs: {}", printable(line)).ok();
        }
        ExitCode::from(self.code)
    }
}

/// `text` with control characters written out, so that no file can draw on the terminal.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            // Writing to a string cannot fail.
            write!(out, "{}", c.escape_default()).ok();
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::FileOffset;

    #[test]
    fn a_message_names_the_file_the_problem_the_field_and_the_place() {
        let error = Error::corrupt("must be 3", "version").at(FileOffset(4));
        let failure = Failure::of(Path::new("a.fzm"), &error);
        assert_eq!(failure, Failure::new("a.fzm: must be 3 (version, at byte 0x4)"));
    }

    #[test]
    fn an_option_that_does_not_fit_is_wrong_usage() {
        let error = Error::new(Kind::Usage("no format is called x".into()), "format");
        assert_eq!(Failure::of(Path::new("a"), &error).code, 2);
        assert_eq!(Failure::of(Path::new("a"), &Error::new(Kind::NotFound, "path")).code, 1);
    }

    #[test]
    fn a_file_cannot_draw_on_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\tc\nd\u{9b}"), "a\\u{1b}[2Jb\\tc\nd\\u{9b}");
    }
}
