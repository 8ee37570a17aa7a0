//! Why a command or a mount failed: the line for standard error, and the exit code.
//!
//! All commands and the mount word their messages here: `FILE: problem; advice`. Text from a file is escaped, and
//! secrets in a URL are left out.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::Path;

use crate::error::{Error, Kind, os_explain};
use crate::source::location::shown;
use crate::text::{escaped, escaped_lines};

/// Why a command or a mount failed, at least in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The line for standard error; `None` if everything was reported already.
    line: Option<String>,
    code: u8,
}

impl Failure {
    /// A file is broken, unsupported or changed, or an operation failed: exit code 1.
    pub fn new(line: impl fmt::Display) -> Self {
        Self { line: Some(escaped(&line.to_string()).into_owned()), code: 1 }
    }

    /// An operation on `subject` failed.
    pub fn at(subject: &Path, why: impl fmt::Display) -> Self {
        Self::new(format_args!("{}: {why}", shown(subject).display()))
    }

    /// A system call failed for `subject`.
    pub fn system(subject: &Path, error: &io::Error) -> Self {
        Self::at(subject, os_explain(error))
    }

    /// An error in the container `file`.
    pub fn of(file: &Path, error: &Error) -> Self {
        let failure = Self::at(file, error.explain());
        Self { code: if matches!(error.kind(), Kind::Usage(_)) { 2 } else { 1 }, ..failure }
    }

    /// An error in the virtual file `path` of the container `file`.
    pub fn of_entry(file: &Path, path: &str, error: &Error) -> Self {
        match error.kind() {
            // The message names the path, and the names that exist.
            Kind::NotFound => Self::of(file, error),
            _ => Self::at(file, format_args!("{path}: {}", error.explain())),
        }
    }

    /// The command line is invalid: exit code 2.
    pub fn usage(line: impl fmt::Display) -> Self {
        Self { code: 2, ..Self::new(line) }
    }

    /// As [`Failure::usage`], with several lines.
    pub fn usage_lines(lines: &str) -> Self {
        Self { line: Some(escaped_lines(lines)), code: 2 }
    }

    /// A failure that was reported already.
    pub const fn reported() -> Self {
        Self::reported_with(1)
    }

    /// A failure that another process has reported, with its exit code.
    pub const fn reported_with(code: u8) -> Self {
        Self { line: None, code }
    }

    /// The line for standard error, if it was not reported already.
    pub fn line(&self) -> Option<&str> {
        self.line.as_deref()
    }

    /// The exit code.
    pub const fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.line().unwrap_or_default())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::FileOffset;
    use crate::platform::os_error;

    #[test]
    fn a_message_names_the_file_the_problem_the_field_and_the_offset() {
        let error = Error::corrupt("must be 3", "version").at(FileOffset(4));
        let file = Path::new("a.fzm");
        assert_eq!(Failure::of(file, &error).line(), Some("a.fzm: must be 3 (version, at byte 0x4)"));
        let entry = Failure::of_entry(file, "data.raw", &error);
        assert_eq!(entry.line(), Some("a.fzm: data.raw: must be 3 (version, at byte 0x4)"));
    }

    #[test]
    fn an_option_that_does_not_fit_the_file_is_wrong_usage() {
        let error = Error::new(Kind::Usage("unknown format x".into()), "format");
        assert_eq!(Failure::of(Path::new("a"), &error).code(), 2);
        assert_eq!(Failure::of(Path::new("a"), &Error::new(Kind::NotFound, "path")).code(), 1);
    }

    #[test]
    fn a_limit_of_the_process_is_named_wherever_it_is_met() {
        let error = || os_error(libc::EMFILE);
        let (mounted, read) = (Failure::system(Path::new("/mnt"), &error()), Error::io(error(), "file"));
        for failure in [mounted, Failure::of(Path::new("a"), &read)] {
            assert!(failure.to_string().ends_with("; ulimit -n sets how many this process may have"), "{failure}");
        }
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let error = Error::corrupt("not a name: \u{202e}\u{9b}2J", "name\n").within("\u{feff}");
        let failure = Failure::of(Path::new("a\u{1b}]0;b\nfzmfs: c: OK"), &error);
        let want = "a\\u{1b}]0;b\\nfzmfs: c: OK: not a name: \\u{202e}\\u{9b}2J (\\u{feff}: name\\n)";
        assert_eq!(failure.line(), Some(want));
        assert_eq!(Failure::usage_lines("a\u{9b}\nb").line(), Some("a\\u{9b}\nb"));
    }
}
