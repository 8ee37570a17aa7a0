//! The checksums that have failed: gates are dropped with the parts of a file that they belong to.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::Verify;
use crate::bytes::FileOffset;
use crate::error::Error;

/// The checksums of one file that were found to differ.
#[derive(Debug, Clone, Default)]
pub struct FailedChecks(Arc<Mutex<HashSet<FileOffset>>>);

impl FailedChecks {
    /// When to verify the checksum described at `at`: as `verify` says, or before the first byte if it has failed before.
    pub fn mode(&self, at: FileOffset, verify: &Verify) -> Verify {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.contains(&at) && !matches!(verify, Verify::Off) { Verify::First } else { verify.clone() }
    }

    /// Notes that the checksum described at `at` has failed with `error`, if that is lasting.
    pub fn note(&self, at: FileOffset, error: &Error) {
        if error.is_lasting() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(at);
        }
    }
}
