//! File identity, and how to tell a write from a change of name or permissions.
//!
//! Compares device, inode, size, modification time and status change time (ctime). A write whose modification time is
//! then set back still changes the ctime; so do rename, link, unlink, chmod and chown, which leave the content
//! unchanged. See [`Identity::verdict`].
#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::platform::{AsFd, FileType, InMemory, Stat, in_memory, mode_of, type_of};

/// Timestamps have a granularity of up to 10 ms on older kernels: a write in the same step in which the file was pinned
/// does not change them.
const STEP: Duration = Duration::from_millis(20);

/// The fields of `stat` used for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    dev: u64,
    ino: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds.
    pub(super) mtime: (i64, i64),
    ctime: (i64, i64),
    nlink: u64,
    mode: u32,
    uid: u32,
    gid: u32,
}

/// Result of comparing a file with its earlier identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Unchanged.
    Same,
    /// Different content, or a different file.
    Changed,
    /// Only the ctime changed: by a change of name or permissions, or by a write whose modification time was set back.
    Doubtful {
        /// Whether the link count, the mode or the owner changed, which explains the ctime.
        explained: bool,
        /// Whether the link count dropped: it was deleted, or another file was renamed over it.
        lost_a_name: bool,
    },
}

/// Converts the integer types of `stat`, which differ between platforms.
fn signed(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

fn unsigned(n: impl TryInto<u64>) -> u64 {
    n.try_into().unwrap_or(u64::MAX)
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            dev: unsigned(stat.st_dev),
            ino: unsigned(stat.st_ino),
            size: unsigned(stat.st_size),
            mtime: (signed(stat.st_mtime), signed(stat.st_mtime_nsec)),
            ctime: (signed(stat.st_ctime), signed(stat.st_ctime_nsec)),
            nlink: unsigned(stat.st_nlink),
            mode: mode_of(stat),
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }

    /// The device it is on.
    pub(super) fn device(&self) -> u64 {
        self.dev
    }

    /// The identity of `file` as the kernel has it in memory: does not wait for a file server, whose file may have
    /// changed since. `None` if the kernel cannot say.
    pub(super) fn cached(file: impl AsFd) -> Option<Self> {
        let InMemory { dev, ino, size, mtime, ctime, nlink, mode, uid, gid } = in_memory(file)?;
        Some(Self { dev, ino, size, mtime, ctime, nlink, mode, uid, gid })
    }

    /// The fields that a write changes, and those that name the file, as bytes.
    pub(super) fn fingerprint(&self) -> Vec<u8> {
        let times = [self.mtime.0, self.mtime.1, self.ctime.0, self.ctime.1];
        let fields = [self.dev, self.ino, self.size].into_iter().chain(times.map(i64::cast_unsigned));
        fields.flat_map(u64::to_le_bytes).collect()
    }

    /// Compares the file with its state `now`.
    pub(super) fn verdict(&self, now: &Self) -> Verdict {
        if (self.dev, self.ino, self.size, self.mtime) != (now.dev, now.ino, now.size, now.mtime) {
            return Verdict::Changed;
        }
        if self.ctime == now.ctime {
            return Verdict::Same;
        }
        let rights = |id: &Self| (id.nlink, id.mode, id.uid, id.gid);
        Verdict::Doubtful { explained: rights(self) != rights(now), lost_a_name: now.nlink < self.nlink }
    }

    /// A compact form, for large numbers of pinned files.
    pub(super) fn pin(&self) -> Pin {
        let nanos = |(seconds, nanos): (i64, i64)| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        Pin {
            place: xxh3_64(&self.dev.to_le_bytes()) ^ self.ino,
            size: self.size,
            mtime: nanos(self.mtime),
            ctime: nanos(self.ctime),
        }
    }

    /// Waits until the timestamp step of the last change is over, so that any later write changes the timestamps.
    /// Returns whether it waited: then the caller must stat the file again.
    pub(super) fn wait_for_step(&self) -> bool {
        let wait = step_left(self.ctime);
        std::thread::sleep(wait);
        !wait.is_zero()
    }

    /// Fails unless it is a regular file.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`].
    pub(super) fn regular(&self) -> Result<()> {
        let what = match type_of(self.mode) {
            FileType::RegularFile => return Ok(()),
            FileType::Symlink => "a symbolic link, which is not followed here",
            FileType::Directory => "a directory",
            FileType::Fifo => "a FIFO",
            FileType::Socket => "a socket",
            FileType::BlockDevice | FileType::CharacterDevice => "a device",
            FileType::Unknown => "of an unknown type",
        };
        Err(Error::unsupported(format!("not a regular file: {what}"), "file"))
    }
}

/// The rest of the step that began at `ctime`. Zero for a time in the future, which comes from another machine's clock.
fn step_left((seconds, nanos): (i64, i64)) -> Duration {
    let then = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok()).map(|(s, n)| Duration::new(s, n));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let age = now.zip(then).and_then(|(now, then)| now.checked_sub(then));
    age.map_or(Duration::ZERO, |age| STEP.saturating_sub(age))
}

/// A compact [`Identity`] in which any difference counts as a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin {
    /// Combined device and inode.
    place: u64,
    pub(super) size: u64,
    mtime: i64,
    ctime: i64,
}

impl Pin {
    /// Its size in words.
    pub(super) const WORDS: usize = 4;

    /// The words that [`Pin::from_words`] reads.
    pub(super) fn words(&self) -> [u64; Self::WORDS] {
        [self.place, self.size, self.mtime.cast_unsigned(), self.ctime.cast_unsigned()]
    }

    pub(super) fn from_words([place, size, mtime, ctime]: [u64; Self::WORDS]) -> Self {
        Self { place, size, mtime: mtime.cast_signed(), ctime: ctime.cast_signed() }
    }

    /// Status change time in nanoseconds.
    pub(super) fn ctime(&self) -> i64 {
        self.ctime
    }

    /// Modification time: seconds and nanoseconds.
    pub(super) fn mtime(&self) -> (i64, i64) {
        (self.mtime.div_euclid(1_000_000_000), self.mtime.rem_euclid(1_000_000_000))
    }

    /// The rest of the timestamp step of the last change.
    pub(super) fn step_left(&self) -> Duration {
        step_left((self.ctime.div_euclid(1_000_000_000), self.ctime.rem_euclid(1_000_000_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_has_the_times_of_the_file() {
        let file = tempfile::tempfile().unwrap();
        for mtime in [(5, 7), (-1, 999_999_999)] {
            let was = Identity::of(&crate::platform::fstat(&file).unwrap());
            let pin = Identity { mtime, ctime: (2, 3), ..was }.pin();
            assert_eq!((pin.mtime(), pin.ctime()), (mtime, 2_000_000_003));
            assert_eq!(Pin::from_words(pin.words()), pin);
        }
    }

    #[test]
    fn of_a_file_that_has_just_changed_the_step_is_awaited() {
        // This thread may be stopped for longer than a step.
        let is_seen = |seen: fn(&Identity) -> bool| {
            (0..1000).any(|_| seen(&Identity::of(&crate::platform::fstat(tempfile::tempfile().unwrap()).unwrap())))
        };
        assert!(is_seen(|now| !now.pin().step_left().is_zero()) && is_seen(Identity::wait_for_step));
    }

    #[test]
    fn a_status_change_alone_is_doubtful_and_says_what_may_explain_it() {
        let file = tempfile::tempfile().unwrap();
        let was = Identity::of(&crate::platform::fstat(&file).unwrap());
        assert_eq!(was.verdict(&was), Verdict::Same);
        let doubt = |explained, lost_a_name| Verdict::Doubtful { explained, lost_a_name };
        let later = Identity { ctime: (was.ctime.0 + 1, 0), ..was };
        for (now, want) in [
            (later, doubt(false, false)),
            (Identity { mode: was.mode ^ 0o100, ..later }, doubt(true, false)),
            (Identity { uid: was.uid + 1, ..later }, doubt(true, false)),
            (Identity { nlink: was.nlink + 1, ..later }, doubt(true, false)),
            (Identity { size: 1, ..was }, Verdict::Changed),
            (Identity { mtime: (1, 1), ..later }, Verdict::Changed),
            (Identity { ino: was.ino + 1, ..was }, Verdict::Changed),
            (Identity { dev: was.dev + 1, ..was }, Verdict::Changed),
        ] {
            assert_eq!(was.verdict(&now), want, "{now:?}");
            assert_eq!(was.pin() == now.pin(), want == Verdict::Same);
        }
        let linked = Identity { nlink: 2, ..was };
        assert_eq!(linked.verdict(&Identity { nlink: 1, ..later }), doubt(true, true));
    }

    #[test]
    fn the_identity_in_memory_is_the_one_that_stat_gives() {
        for file in [tempfile::tempfile().unwrap(), std::fs::File::open("/proc/self/exe").unwrap()] {
            assert_eq!(Identity::cached(&file), Some(Identity::of(&crate::platform::fstat(&file).unwrap())));
        }
    }

    #[test]
    fn a_file_that_was_changed_just_now_is_waited_for_and_no_other() {
        let file = tempfile::tempfile().unwrap();
        let now = Identity::of(&crate::platform::fstat(&file).unwrap());
        now.wait_for_step();
        assert!(!now.wait_for_step());
        for seconds in [i64::MIN, -1, 0, now.ctime.0 - 1, now.ctime.0 + 100, i64::MAX] {
            assert!(!Identity { ctime: (seconds, 0), ..now }.wait_for_step(), "{seconds}");
        }
    }
}
