//! Why there is no mount, in words for the terminal.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::os_message;

/// What a failure is about, and what is wrong with it; printed as `subject: why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    subject: PathBuf,
    why: String,
}

impl Failure {
    /// Something is wrong with `subject`.
    pub fn new(subject: &Path, why: impl fmt::Display) -> Self {
        Self { subject: subject.to_path_buf(), why: why.to_string() }
    }

    /// The system refused something to do with `subject`.
    pub(super) fn system(subject: &Path, error: &io::Error) -> Self {
        let limit = match error.raw_os_error() {
            Some(libc::EMFILE) => "; ulimit -n sets how many this process may have",
            Some(libc::ENOMEM) => "; ulimit -v sets how much this process may have",
            Some(libc::EAGAIN) => "; no more threads or processes may be started (ulimit -u, pids.max, ulimit -v)",
            _ => "",
        };
        Self::new(subject, format!("{}{limit}", os_message(error)))
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
