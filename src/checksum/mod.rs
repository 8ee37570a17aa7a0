//! Checksums over ranges of the container, the threads that compute them, and the gate that withholds bytes until they
//! are verified.
#![forbid(unsafe_code)]

mod background;
mod failed;
mod gate;
mod shared_check;
mod stream_hash;
mod threads;

use std::sync::{Mutex, PoisonError};

use crate::bytes::{FileOffset, to_usize};
use crate::error::Result;
use crate::limits::zeroed;
use crate::parallel;
use crate::source::Source;

pub use background::BackgroundChecks;
pub use failed::FailedChecks;
pub use gate::ChecksumGate;
pub use stream_hash::StreamHash;
pub use threads::{Helpers, Threads};

/// When to verify checksums that cover more than the bytes read.
#[derive(Debug, Clone)]
pub enum Verify {
    /// `First` where the check reads or decodes at most [`AT_ONCE`] bytes, else `Background`.
    Auto(BackgroundChecks),
    /// Before the first byte that it covers is served.
    First,
    /// While bytes are served. The last bytes that it covers are served after the check; all reads fail once it has
    /// failed.
    Background(BackgroundChecks),
    /// As `Background`, but only over bytes that readers read and decode: a check that would fetch bytes of its own
    /// does not run. For objects on servers.
    Passive(BackgroundChecks),
    /// Never.
    Off,
}

/// The most bytes that are read or decoded to verify a checksum before the first byte is served, if the user does not
/// say when.
pub const AT_ONCE: u64 = 64 << 20;

impl Default for Verify {
    fn default() -> Self {
        Self::Auto(BackgroundChecks::default())
    }
}

impl Verify {
    /// The same for another container, with separate background checks.
    #[must_use]
    pub fn renewed(&self) -> Self {
        match self {
            Self::Auto(_) => Self::Auto(BackgroundChecks::default()),
            Self::Background(_) => Self::Background(BackgroundChecks::default()),
            Self::Passive(_) => Self::Passive(BackgroundChecks::default()),
            Self::First => Self::First,
            Self::Off => Self::Off,
        }
    }

    /// Resolves [`Verify::Auto`] for a check that reads or decodes `cost` bytes, and [`Verify::Passive`] for a check
    /// over decoded bytes of readers.
    #[must_use]
    pub fn resolve(&self, cost: u64) -> Self {
        match self {
            Self::Auto(_) if cost <= AT_ONCE => Self::First,
            Self::Auto(checks) | Self::Passive(checks) => Self::Background(checks.clone()),
            other => other.clone(),
        }
    }

    /// The mode for a checksum over little more than the bytes read: that is verified at any cost.
    #[must_use]
    pub fn of_piece(&self) -> Self {
        if matches!(self, Self::Passive(_)) { Self::First } else { self.clone() }
    }

    /// The mode for an object on a server: nothing is fetched to verify a checksum unless the user asks for it.
    #[must_use]
    pub fn far(self) -> Self {
        match self {
            Self::Auto(checks) => Self::Passive(checks),
            other => other,
        }
    }

    /// The checks that run in the background of reads; a new collection if there are none.
    pub fn background(&self) -> BackgroundChecks {
        match self {
            Self::Auto(checks) | Self::Background(checks) | Self::Passive(checks) => checks.clone(),
            Self::First | Self::Off => BackgroundChecks::default(),
        }
    }
}

/// State of the verification of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verified {
    /// It matches.
    Yes,
    /// There is none, or it is not verified.
    No,
    /// It is not verified yet.
    Pending,
    /// It differs.
    Failed,
}

impl Verified {
    /// The word for it in `user.fzmfs.verified`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Pending => "pending",
            Self::Failed => "failed",
        }
    }
}

/// Bytes read at a time while a checksum is computed.
const STRIDE: u64 = 1 << 20;

/// CRC-32 (IEEE, reflected, as in zlib) of `len` bytes at `at`, computed on the calling thread and any available
/// helpers.
///
/// # Errors
/// As [`Source::read`]; `ECANCELED` if the container is closed meanwhile.
pub fn crc32(source: &Source, at: FileOffset, len: u64, threads: &Threads, what: &'static str) -> Result<u32> {
    let buffers = Mutex::new(Vec::new());
    let idle = || buffers.lock().unwrap_or_else(PoisonError::into_inner);
    let hash = |start: u64| -> Result<crc32fast::Hasher> {
        threads.check_open(what)?;
        let kept = idle().pop();
        let mut buffer = kept.map_or_else(|| zeroed(STRIDE.min(len), what), Ok)?;
        let n = to_usize(STRIDE.min(len.saturating_sub(start)), what)?;
        let bytes = buffer.get_mut(..n).unwrap_or_default();
        source.read(at.plus(start), bytes, what)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        idle().push(buffer);
        Ok(hasher)
    };
    let strides = (0..len).step_by(to_usize(STRIDE, what)?);
    let helpers = threads.helpers(len.div_ceil(STRIDE).saturating_sub(1));
    let mut whole = crc32fast::Hasher::new();
    parallel::in_order(helpers.workers(), strides, hash, |part| part.map(|part| whole.combine(&part)))?;
    Ok(whole.finalize())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::bytes::to_u64;

    #[test]
    fn crc32_in_parts_equals_crc32_of_the_whole() {
        let bytes: Vec<u8> = (0..3_500_001_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        let source = Source::from_bytes(bytes.clone());
        for (at, len) in [(0, bytes.len()), (5, 0), (7, 1), (1, 3_400_000)] {
            let want = crc32fast::hash(&bytes[at..at + len]);
            assert_eq!(crc32(&source, FileOffset(to_u64(at)), to_u64(len), &Threads::new(3), "payload").unwrap(), want);
        }
    }

    #[test]
    fn a_mode_depends_on_what_the_check_costs_and_where_the_object_is() {
        let kind = |mode: &Verify| match mode {
            Verify::Auto(_) => "auto",
            Verify::First => "first",
            Verify::Background(_) => "background",
            Verify::Passive(_) => "passive",
            Verify::Off => "off",
        };
        let none = BackgroundChecks::default;
        // Resolved for a check at once and for a larger one; of a piece; on a server.
        for (mode, want) in [
            (Verify::default(), ["auto", "first", "background", "auto", "passive"]),
            (Verify::First, ["first"; 5]),
            (Verify::Background(none()), ["background"; 5]),
            (Verify::Passive(none()), ["passive", "background", "background", "first", "passive"]),
            (Verify::Off, ["off"; 5]),
        ] {
            let of =
                [mode.clone(), mode.resolve(AT_ONCE), mode.resolve(AT_ONCE + 1), mode.of_piece(), mode.clone().far()];
            assert_eq!(of.each_ref().map(kind), want);
            assert_eq!(kind(&mode.renewed()), want[0]);
        }
    }

    #[test]
    fn a_checksum_over_a_huge_range_ends_when_the_container_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        std::fs::File::create(&path).unwrap().set_len(1 << 42).unwrap();
        let (source, threads) = (Source::open(&path).unwrap(), Threads::new(2));
        let check = |threads: &Threads| crc32(&source, FileOffset(0), 1 << 42, threads, "payload").unwrap_err();
        thread::scope(|scope| {
            let running = scope.spawn(|| check(&threads));
            threads.close();
            let e = running.join().unwrap();
            assert!(e.errno() == libc::ECANCELED && !e.is_lasting(), "{e}");
        });
        assert_eq!(check(&threads).errno(), libc::ECANCELED);
    }
}
