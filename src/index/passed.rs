//! Checks that have passed: a checksum over much of a file is not verified again for each mount.
//!
//! A record is about one version of the file, as any other, and names the checksum: `verify` has no index and always
//! verifies.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use super::{Index, Records};
use crate::bytes::{FileOffset, to_u64};
use crate::error::Result;
use crate::source::Source;

/// Checks that read or decode fewer bytes are repeated.
const LEAST: u64 = 64 << 20;
/// The kind of the records.
const PASSED: &str = "passed-";

impl Index {
    /// `check`, which reads or decodes `cost` bytes of `source` and compares them with the checksum `stored`, of what is
    /// at `at`: once it has passed, it passes at once as long as the file is the same.
    pub fn once(
        &self,
        source: &Arc<Source>,
        at: FileOffset,
        stored: &[u8],
        cost: u64,
        check: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> impl Fn() -> Result<()> + Send + Sync + 'static {
        let kept = Some(source).filter(|_| cost >= LEAST).and_then(|source| self.of(source));
        let kept = kept.map(|records| Passed {
            records,
            name: format!("{PASSED}{:x}", at.0),
            checksum: [stored, &cost.to_le_bytes()].concat(),
        });
        move || {
            if kept.as_ref().is_some_and(Passed::is_kept) {
                return Ok(());
            }
            check()?;
            if let Some(kept) = &kept {
                kept.keep();
            }
            Ok(())
        }
    }
}

/// The record of a check.
struct Passed {
    records: Arc<Records>,
    name: String,
    /// The checksum, and over how much.
    checksum: Vec<u8>,
}

impl Passed {
    fn is_kept(&self) -> bool {
        self.records.get(&self.name, to_u64(self.checksum.len())).is_some_and(|kept| kept == self.checksum)
    }

    fn keep(&self) {
        self.records.put(&self.name, &self.checksum);
    }
}
