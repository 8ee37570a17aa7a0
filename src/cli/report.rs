//! The result of a command: a line on standard error and an exit code.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::error::{Error, Kind, os_message};
use crate::text::{escaped, escaped_lines};

/// The result of a command.
pub(super) type Outcome = Result<(), Failure>;

/// Why a command failed, at least in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// The line for standard error; `None` if everything was reported already.
    line: Option<String>,
    code: u8,
}

impl Failure {
    /// A file is broken, unsupported or changed, or an operation failed: exit code 1.
    pub(super) fn new(line: impl fmt::Display) -> Self {
        Self { line: Some(escaped(&line.to_string()).into_owned()), code: 1 }
    }

    /// The command line is invalid: exit code 2.
    pub(super) fn usage(line: impl fmt::Display) -> Self {
        Self { line: Some(escaped(&line.to_string()).into_owned()), code: 2 }
    }

    /// As [`Failure::usage`], with several lines.
    pub(super) fn usage_lines(lines: &str) -> Self {
        Self { line: Some(escaped_lines(lines)), code: 2 }
    }

    /// An error in the container `file`.
    pub(super) fn of(file: &Path, error: &Error) -> Self {
        let line = format!("{}: {}", file.display(), error.explain());
        if matches!(error.kind(), Kind::Usage(_)) { Self::usage(line) } else { Self::new(line) }
    }

    /// Writing to standard output failed.
    pub(super) fn output(error: &io::Error) -> Self {
        Self::new(format!("standard output: {}", os_message(error)))
    }

    /// A failure that was reported already.
    pub(super) const fn reported() -> Self {
        Self { line: None, code: 1 }
    }

    /// Prints the line, and returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        if let Some(line) = &self.line {
            // If standard error is full or closed, the exit code still reports the failure.
            writeln!(io::stderr(), "fzmfs: {line}").ok();
        }
        ExitCode::from(self.code)
    }
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
        let error = Error::new(Kind::Usage("unknown format x".into()), "format");
        assert_eq!(Failure::of(Path::new("a"), &error).code, 2);
        assert_eq!(Failure::of(Path::new("a"), &Error::new(Kind::NotFound, "path")).code, 1);
    }

    #[test]
    fn a_file_cannot_draw_on_the_terminal() {
        let error = Error::corrupt("not a name: \u{202e}\u{9b}2J", "name\n").within("\u{feff}");
        let failure = Failure::of(Path::new("a\u{1b}]0;b\nfzmfs: c: OK"), &error);
        let want = "a\\u{1b}]0;b\\nfzmfs: c: OK: not a name: \\u{202e}\\u{9b}2J (\\u{feff}: name\\n)";
        assert_eq!(failure.line.as_deref(), Some(want));
        assert_eq!(Failure::usage_lines("a\u{9b}\nb").line.as_deref(), Some("a\\u{9b}\nb"));
    }
}
