//! Why there is no mount, in words for the terminal.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind};

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

    /// The container `file` cannot be opened.
    pub(super) fn of(file: &Path, error: &Error) -> Self {
        Self { usage: matches!(error.kind(), Kind::Usage(_)), ..Self::new(file, error) }
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
