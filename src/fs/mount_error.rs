//! Why mounting or unmounting failed, as a message for the user.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::os_message;

/// The subject of a failure and the reason; printed as `subject: why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    subject: PathBuf,
    why: String,
}

impl Failure {
    /// A failure concerning `subject`.
    pub fn new(subject: &Path, why: impl fmt::Display) -> Self {
        Self { subject: subject.to_path_buf(), why: why.to_string() }
    }

    /// A system call failed for `subject`.
    pub(super) fn system(subject: &Path, error: &io::Error) -> Self {
        let limit = match error.raw_os_error() {
            Some(libc::EMFILE) => "; ulimit -n sets how many this process may have",
            Some(libc::ENOMEM) => "; ulimit -v sets how much this process may have",
            Some(libc::EAGAIN) => "; no more threads or processes may be started (ulimit -u, pids.max, ulimit -v)",
            _ => "",
        };
        Self::new(subject, format!("{}{limit}", os_message(error)))
    }

    /// Prepends `context` to the reason.
    pub(super) fn within(mut self, context: &str) -> Self {
        self.why = format!("{context}: {}", self.why);
        self
    }

    /// Appends advice.
    pub(super) fn with(mut self, advice: &str) -> Self {
        self.why = format!("{}; {advice}", self.why);
        self
    }

    /// The reason, without the subject.
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
