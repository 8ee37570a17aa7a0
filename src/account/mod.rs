//! Accounts for the memory, disk space and decoding work of a container.
//!
//! Every allocation whose size depends on the container is charged first: memory to `cache=`, disk space to `spill=`,
//! and the bytes decoded for one request to a fixed bound. A charge that does not fit fails;
//! [`Account::buffer`] tries heap memory first and a temporary file second.
//!
//! Limits: memory and disk as configured; disk at most half of the space that was free at the first charge. All lists
//! with an entry for each part of a container together ([`Account::charge_list`], [`Records`]) may exceed the memory
//! by 16 MiB, so that a small `cache=` does not refuse an ordinary container; and windows of decoders together
//! ([`Account::charge_window`]) by 4 MiB.

mod chunks;
pub mod decode_budget;
mod hash_index;
mod names;
mod pieces;
mod records;
mod retained;
mod spill;
mod text;
mod turn;
mod users;

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::{Budget, Charge};
use crate::platform;

pub use hash_index::HashIndex;
pub use names::Names;
pub use pieces::Pieces;
pub use records::Records;
pub use retained::Retained;
pub use spill::{Buffer, Pages, directory};
pub use text::Text;
pub use turn::Turn;
pub use users::{Holding, Share, Users};

/// Bytes of lists that are allowed when the memory budget is exhausted.
const LISTS: u64 = 16 << 20;
/// Bytes of windows that are allowed likewise: of a file with the content instead, the kernel maps at least as many.
const WINDOWS: u64 = 4 << 20;
/// The last bytes of the memory, this many or a sixteenth of it: for what cannot go to the disk and must be there. A small
/// block table is not refused because buffers, or what is kept in case it is read again, were there first.
const LAST: u64 = 1 << 20;
/// Lists of at most this many bytes are not charged: each takes no more than its owner.
const SMALL_LIST: u64 = 1 << 10;

/// The account of one container, or of several that share a cache; clones share it.
#[derive(Clone)]
pub struct Account(Arc<AccountInner>);

struct AccountInner {
    memory: Budget,
    /// For lists that do not fit in `memory`.
    lists: Budget,
    /// For windows that do not.
    windows: Budget,
    /// Configured limit on disk space, in bytes; the free space is not considered yet.
    spill: u64,
    /// The limit after the free space was considered; set at the first use.
    disk: OnceLock<Budget>,
    decoded: decode_budget::Peak,
    /// See [`Account::count_beside`].
    decoded_beside: AtomicI64,
    turns: turn::Turns,
}

/// A buffer that is charged but not allocated.
#[derive(Debug)]
pub struct Reserved {
    len: u64,
    what: &'static str,
    charge: Charge,
    is_spilled: bool,
}

impl Reserved {
    /// Allocates the buffer, all zeros.
    ///
    /// # Errors
    /// [`Kind::Io`] if the allocation or the file fails.
    pub fn allocate(self) -> Result<Buffer> {
        let Self { len, what, charge, is_spilled } = self;
        if is_spilled { Buffer::mapped(len, &[], charge, what) } else { Buffer::heap(len, charge, what) }
    }
}

/// The highest amounts charged at any one time since the account was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk space.
    pub disk: u64,
    /// Bytes decoded for one request, or for one index or array that is kept.
    pub decoded: u64,
}

impl Account {
    /// Creates an account with `memory` bytes of memory and at most `spill` bytes of disk space.
    pub fn new(memory: u64, spill: u64) -> Self {
        Self(Arc::new(AccountInner {
            memory: Budget::new(memory),
            lists: Budget::new(LISTS),
            windows: Budget::new(WINDOWS),
            spill,
            disk: OnceLock::new(),
            decoded: decode_budget::Peak::default(),
            decoded_beside: AtomicI64::new(0),
            turns: turn::Turns::default(),
        }))
    }

    /// The memory budget.
    pub fn memory(&self) -> &Budget {
        &self.0.memory
    }

    /// The disk budget: `spill=`, but at most half of the free space in the directory for temporary files, and at most
    /// the size that a file of this process may have.
    pub fn disk(&self) -> &Budget {
        self.0.disk.get_or_init(|| {
            let half = if self.0.spill == 0 { 0 } else { platform::free_space(&directory()).unwrap_or(0) / 2 };
            Budget::new(self.0.spill.min(half).min(platform::largest_file()))
        })
    }

    /// Charges `n` bytes of memory until the returned charge is dropped.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if fewer are left.
    pub fn charge(&self, n: u64, what: &'static str) -> Result<Charge> {
        self.0.memory.charge(n, what).map_err(|_| self.no_room(n, what))
    }

    /// Charges `n` bytes of memory for what is kept only if there is room; leaves the last bytes to others.
    pub fn charge_spare(&self, n: u64, what: &'static str) -> Option<Charge> {
        let rest = LAST.min(self.0.memory.total() / 16);
        self.0.memory.charge_leaving(rest, n, what).ok()
    }

    /// Charges a buffer of `len` bytes; returns whether it goes to the disk. That is where it goes rather than to the last
    /// bytes of the memory.
    fn charge_buffer(&self, len: u64, what: &'static str) -> Result<(Charge, bool)> {
        if let Some(charge) = self.charge_spare(len, what) {
            return Ok((charge, false));
        }
        if let Ok(charge) = self.disk().charge(len, what) {
            return Ok((charge, true));
        }
        Ok((self.charge(len, what)?, false))
    }

    /// Charges `n` bytes of a list with an entry for each part of the container: to the memory budget, or if that is
    /// exhausted, to the allowance that all lists share.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if both are exhausted.
    pub fn charge_list(&self, n: u64, what: &'static str) -> Result<Charge> {
        let n = if n > SMALL_LIST { n } else { 0 };
        self.charge(n, what).or_else(|e| self.0.lists.charge(n, what).map_err(|_| e))
    }

    /// Charges `n` bytes of a decoder's window: to the memory budget, or if that is exhausted, to the allowance that all
    /// windows share.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if both are exhausted.
    pub fn charge_window(&self, n: u64, what: &'static str) -> Result<Charge> {
        self.charge(n, what).or_else(|e| self.0.windows.charge(n, what).map_err(|_| e))
    }

    /// An account without memory whose allowance for lists the charge has taken.
    #[cfg(test)]
    pub(crate) fn exhausted() -> (Self, Charge) {
        let account = Self::new(0, 0);
        let fits = |n: u64| account.charge_list(n, "rest").is_ok();
        let rest = (0..40).rev().fold(0, |sum, bit| if fits(sum + (1 << bit)) { sum + (1 << bit) } else { sum });
        let taken = account.charge_list(rest, "others").unwrap();
        (account, taken)
    }

    /// Returns `len` zero bytes: on the heap if the memory budget allows, otherwise in a mapped temporary file.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if neither budget has room; [`Kind::Io`] if the allocation or the file fails.
    pub fn buffer(&self, len: u64, what: &'static str) -> Result<Buffer> {
        self.reserve(len, what)?.allocate()
    }

    /// Returns `len` zero bytes on the heap, for what is of use only there; `None` if there is no room to spare.
    pub fn buffer_in_memory(&self, len: u64, what: &'static str) -> Option<Buffer> {
        Buffer::heap(len, self.charge_spare(len, what)?, what).ok()
    }

    /// Returns `len` zero bytes in a mapped temporary file, to keep them out of memory even if that has room.
    ///
    /// # Errors
    /// As [`Account::buffer`].
    pub fn buffer_on_disk(&self, len: u64, what: &'static str) -> Result<Buffer> {
        let charge = self.disk().charge(len, what).map_err(|_| self.no_room(len, what))?;
        Reserved { len, what, charge, is_spilled: true }.allocate()
    }

    /// Charges a buffer of `len` bytes without allocating it, which may be slow: for callers that hold a lock.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if neither budget has room.
    pub fn reserve(&self, len: u64, what: &'static str) -> Result<Reserved> {
        let (charge, is_spilled) = self.charge_buffer(len, what)?;
        Ok(Reserved { len, what, charge, is_spilled })
    }

    /// Returns a copy of `bytes`, as [`Account::buffer`] does. Faster than filling such a buffer if it is in a file.
    ///
    /// # Errors
    /// As [`Account::buffer`].
    pub fn buffer_of(&self, bytes: &[u8], what: &'static str) -> Result<Buffer> {
        let len = to_u64(bytes.len());
        match self.charge_buffer(len, what)? {
            (charge, false) => Buffer::heap_of(bytes, charge, what),
            (charge, true) => Buffer::mapped(len, bytes, charge, what),
        }
    }

    /// As [`Account::buffer_of`], for a part of a list, which may also be on the heap within the allowance that all
    /// lists share: if neither budget has room, or rather than on the disk if it is accessed at random. There, writing
    /// a record costs some microseconds.
    ///
    /// # Errors
    /// As [`Account::buffer`].
    fn list_buffer_of(&self, bytes: &[u8], is_random: bool, what: &'static str) -> Result<Buffer> {
        let len = to_u64(bytes.len());
        let allowed = || self.0.lists.charge(len, what);
        if is_random && let Ok(charge) = self.0.memory.charge(len, what).or_else(|_| allowed()) {
            return Buffer::heap_of(bytes, charge, what);
        }
        match self.buffer_of(bytes, what) {
            Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) => {
                Buffer::heap_of(bytes, allowed().map_err(|_| e)?, what)
            }
            made => made,
        }
    }

    /// The highest amounts charged at any one time.
    pub fn peaks(&self) -> Peaks {
        let disk = self.0.disk.get().map_or(0, Budget::peak);
        Peaks { memory: self.0.memory.peak(), disk, decoded: self.0.decoded.get() }
    }

    /// Counts `bytes` that a container has decoded on its own, beyond the requested ones. Bytes that it later copies
    /// instead of decoding are negative, since the cache counts them.
    pub fn count_beside(&self, bytes: i64) {
        self.0.decoded_beside.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sum of [`Account::count_beside`].
    pub fn decoded_beside(&self) -> i64 {
        self.0.decoded_beside.load(Ordering::Relaxed)
    }

    fn no_room(&self, need: u64, what: &'static str) -> Error {
        let left = |budget: &Budget| budget.total().saturating_sub(budget.used());
        let (memory, disk) = (left(&self.0.memory), self.0.disk.get().map_or(self.0.spill, left));
        Error::new(Kind::NoRoom { need, memory, disk }, what)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("memory", &self.0.memory).field("spill", &self.0.spill).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_takes_memory_first_and_disk_second() {
        let account = Account::new(10 << 20, 20 << 20);
        let heap = account.buffer(8 << 20, "a").unwrap();
        let mut mapped = account.buffer(16 << 20, "b").unwrap();
        assert!(!heap.is_spilled() && mapped.is_spilled());
        let refused = account.buffer(8 << 20, "c").unwrap_err();
        assert!(matches!(refused.kind(), Kind::NoRoom { need: 8_388_608, memory: 2_097_152, disk: 4_194_304 }));
        assert!(mapped.iter().all(|&byte| byte == 0) && mapped.len() == 16 << 20);
        let bytes: Vec<u8> = (0..1_400_000_u32).map(|i| (i >> 3) as u8).collect();
        let copies = [(); 2].map(|()| account.buffer_of(&bytes, "d").unwrap());
        assert!(copies.iter().all(|copy| **copy == *bytes) && copies[1].is_spilled() && !copies[0].is_spilled());
        drop(copies);
        mapped.fill(7);
        mapped.release(0..16 << 20);
        assert!(mapped.iter().all(|&byte| byte == 7));
        drop((heap, mapped));
        assert_eq!((account.memory().used(), account.disk().used()), (0, 0));
        assert_eq!(account.peaks(), Peaks { memory: (8 << 20) + 1_400_000, disk: (16 << 20) + 1_400_000, decoded: 0 });
    }

    #[test]
    fn the_disk_is_half_of_what_is_free_at_most_and_bytes_beside_are_summed() {
        let free = platform::free_space(&directory()).unwrap();
        let (most, file) = (Account::new(0, u64::MAX).disk().total(), platform::largest_file());
        // Others write beside this test.
        assert!(((free / 3).min(file)..=(free / 3 * 2).min(file)).contains(&most), "{most} of {free}, {file}");
        let account = Account::new(0, 1000);
        assert_eq!(account.disk().total(), 1000);
        account.count_beside(7);
        account.count_beside(-2);
        assert_eq!(account.decoded_beside(), 5);
    }

    #[test]
    fn the_last_bytes_are_for_what_cannot_go_to_the_disk() {
        let account = Account::new(16 << 20, 8 << 20);
        let spare: Vec<_> = std::iter::from_fn(|| account.charge_spare(1 << 20, "spare")).collect();
        assert_eq!((spare.len(), account.buffer(1 << 20, "buffer").unwrap().is_spilled()), (15, true));
        let needed = account.charge(1000, "block index").unwrap();
        // Before a buffer is refused, it takes them too.
        let disk = account.buffer(8 << 20, "disk").unwrap();
        assert!(!account.buffer(1000, "buffer").unwrap().is_spilled() && account.charge_spare(1, "spare").is_none());
        drop((spare, needed, disk));
        assert!(
            account.charge_spare(15 << 20, "spare").is_some() && account.charge_spare((15 << 20) + 1, "x").is_none()
        );
    }

    #[test]
    fn all_lists_share_one_allowance() {
        let account = Account::new(2 << 20, 0);
        let lists: Vec<_> = (0..9).map(|_| account.charge_list(2 << 20, "list").unwrap()).collect();
        assert_eq!((account.memory().used(), account.0.lists.used()), (2 << 20, LISTS));
        assert!(
            account.list_buffer_of(&[0; 2000], false, "list").is_err() && account.charge_list(1025, "list").is_err()
        );
        // Too small to count.
        drop(account.charge_list(1024, "list").unwrap());
        drop(lists);
        assert_eq!((account.memory().used(), account.0.lists.used()), (0, 0));
        drop(account.list_buffer_of(&[0; 2000], false, "list").unwrap());
    }

    #[test]
    fn a_list_accessed_at_random_takes_the_allowance_before_the_disk() {
        let account = Account::new(10, 1 << 20);
        let lists = [true, false].map(|is_random| account.list_buffer_of(&[7; 2000], is_random, "list").unwrap());
        assert_eq!(lists.each_ref().map(Buffer::is_spilled), [false, true]);
        assert_eq!((account.0.lists.used(), account.disk().used()), (2000, 2000));
    }

    #[test]
    fn all_windows_share_another() {
        let account = Account::new(2 << 20, 0);
        let windows = [2 << 20, 3 << 20, 1 << 20].map(|n| account.charge_window(n, "window").unwrap());
        assert_eq!((account.memory().used(), account.0.windows.used()), (2 << 20, WINDOWS));
        let refused = account.charge_window(1, "window").unwrap_err();
        assert!(matches!(refused.kind(), Kind::NoRoom { need: 1, memory: 0, .. }));
        drop(windows);
        assert_eq!((account.memory().used(), account.0.windows.used()), (0, 0));
    }

    #[test]
    fn without_spill_no_file_is_created() {
        let account = Account::new(10, 0);
        assert!(matches!(account.buffer(11, "a").unwrap_err().kind(), Kind::NoRoom { need: 11, memory: 10, disk: 0 }));
        assert!(account.charge(11, "b").is_err());
    }
}
