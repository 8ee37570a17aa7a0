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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::BackgroundChecks;
    use crate::error::Kind;

    #[test]
    fn a_checksum_that_has_failed_is_verified_first_from_then_on() {
        let (failed, at) = (FailedChecks::default(), FileOffset(64));
        let modes = [Verify::Off, Verify::First, Verify::Auto(BackgroundChecks::default())];
        let now = |at| {
            modes.each_ref().map(|mode| match failed.mode(at, mode) {
                Verify::Off => "off",
                Verify::First => "first",
                _ => "auto",
            })
        };
        let before = now(at);
        failed.note(at, &Error::new(Kind::NoRoom { need: 1, memory: 0, disk: 0 }, "x"));
        assert_eq!((now(at), before), (["off", "first", "auto"], before), "for now only");
        failed.note(at, &Error::corrupt("no", "x"));
        assert_eq!(now(at), ["off", "first", "first"]);
        assert_eq!(now(FileOffset(65)), before);
    }
}
