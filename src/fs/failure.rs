//! Why there is no mount, in words for the terminal.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, system_words};

/// What a failure is about, and what is wrong with it; printed as `subject: why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    subject: PathBuf,
    why: String,
    usage: bool,
}

impl Failure {
    /// Something is wrong with `subject`.
    pub fn new(subject: &Path, why: impl fmt::Display) -> Self {
        Self { subject: subject.to_path_buf(), why: why.to_string(), usage: false }
    }

    /// The system refused something to do with `subject`.
    pub(super) fn system(subject: &Path, error: &io::Error) -> Self {
        let limit = match error.raw_os_error() {
            Some(libc::EMFILE) => "; ulimit -n sets how many this process may have",
            Some(libc::ENOMEM) => "; ulimit -v sets how much this process may have",
            Some(libc::EAGAIN) => "; no more threads or processes may be started (ulimit -u, pids.max, ulimit -v)",
            _ => "",
        };
        Self::new(subject, format!("{}{limit}", system_words(error)))
    }

    /// Puts `context` in front of what is wrong.
    pub(super) fn within(mut self, context: &str) -> Self {
        self.why = format!("{context}: {}", self.why);
        self
    }

    /// Says what to do, or to look for.
    pub(super) fn with(mut self, advice: &str) -> Self {
        self.why = format!("{}; {advice}", self.why);
        self
    }

    /// The container `file` cannot be opened.
    pub(super) fn of(file: &Path, error: &Error) -> Self {
        Self { usage: matches!(error.kind(), Kind::Usage(_)), ..Self::new(file, error.explain()) }
    }

    /// Whether the user asked for something that cannot be, and nothing else is wrong.
    pub fn is_usage(&self) -> bool {
        self.usage
    }

    /// What is wrong, without what it is about.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject.display(), self.why)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_says_of_a_broken_file_what_the_other_commands_say() {
        let error = Error::new(Kind::Truncated { need: 8, have: 3 }, "header");
        let failure = Failure::of(Path::new("a.fzm"), &error);
        assert_eq!(failure.to_string(), "a.fzm: needs 8 bytes, 3 left (header); is the file complete?");
    }
}
