//! Accounts for the memory, disk space and decoding work of a container.
//!
//! Every allocation whose size depends on the container is charged first: memory to `cache=`, disk space to `spill=`,
//! and the bytes decoded for one request to a fixed bound. A charge that does not fit fails;
//! [`Account::buffer`] tries heap memory first and a temporary file second.
//!
//! Limits: memory and disk as configured; disk at most half of the space that was free at the first charge.

mod chunks;
pub mod decode_budget;
mod pieces;
mod records;
mod retained;
mod spill;
mod text;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::limits::{Budget, Charge};

pub use pieces::Pieces;
pub use records::{FREE, Records, charge_or_free};
pub use retained::Retained;
pub use spill::{Buffer, Pages, directory};
pub use text::Text;

/// The account of one container, or of several that share a cache; clones share it.
#[derive(Clone)]
pub struct Account(Arc<Inner>);

struct Inner {
    memory: Budget,
    /// Configured limit on disk space, in bytes; the free space is not considered yet.
    spill: u64,
    /// The limit after the free space was considered; set at the first use.
    disk: OnceLock<Budget>,
    decoded: decode_budget::Peak,
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
        Self(Arc::new(Inner {
            memory: Budget::new(memory),
            spill,
            disk: OnceLock::new(),
            decoded: decode_budget::Peak::default(),
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
            let half = if self.0.spill == 0 { 0 } else { spill::free_space(&directory()).unwrap_or(0) / 2 };
            Budget::new(self.0.spill.min(half).min(spill::largest_file()))
        })
    }

    /// Charges `n` bytes of memory until the returned charge is dropped.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if fewer are left.
    pub fn charge(&self, n: u64, what: &'static str) -> Result<Charge> {
        self.0.memory.charge(n, what).map_err(|_| self.no_room(n, what))
    }

    /// Returns `len` zero bytes: on the heap if the memory budget allows, otherwise in a mapped temporary file.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if neither budget has room; [`Kind::Io`] if the allocation or the file fails.
    pub fn buffer(&self, len: u64, what: &'static str) -> Result<Buffer> {
        self.reserve(len, what)?.allocate()
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
        if let Ok(charge) = self.0.memory.charge(len, what) {
            return Ok(Reserved { len, what, charge, is_spilled: false });
        }
        match self.disk().charge(len, what) {
            Ok(charge) => Ok(Reserved { len, what, charge, is_spilled: true }),
            Err(_) => Err(self.no_room(len, what)),
        }
    }

    /// Returns a copy of `bytes`, as [`Account::buffer`] does. Faster than filling such a buffer if it is in a file.
    ///
    /// # Errors
    /// As [`Account::buffer`].
    pub fn buffer_of(&self, bytes: &[u8], what: &'static str) -> Result<Buffer> {
        let len = to_u64(bytes.len());
        if let Ok(charge) = self.0.memory.charge(len, what) {
            let mut buffer = Buffer::heap(len, charge, what)?;
            buffer.copy_from_slice(bytes);
            return Ok(buffer);
        }
        match self.disk().charge(len, what) {
            Ok(charge) => Buffer::mapped(len, bytes, charge, what),
            Err(_) => Err(self.no_room(len, what)),
        }
    }

    /// The highest amounts charged at any one time.
    pub fn peaks(&self) -> Peaks {
        let disk = self.0.disk.get().map_or(0, Budget::peak);
        Peaks { memory: self.0.memory.peak(), disk, decoded: self.0.decoded.get() }
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
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|i| (i >> 3) as u8).collect();
        let copies = [(); 2].map(|()| account.buffer_of(&bytes, "d").unwrap());
        assert!(copies.iter().all(|copy| **copy == *bytes) && copies[1].is_spilled() && !copies[0].is_spilled());
        drop(copies);
        mapped.fill(7);
        mapped.release(0..16 << 20);
        assert!(mapped.iter().all(|&byte| byte == 7));
        drop((heap, mapped));
        assert_eq!((account.memory().used(), account.disk().used()), (0, 0));
        assert_eq!(account.peaks(), Peaks { memory: (8 << 20) + 2_000_000, disk: (16 << 20) + 2_000_000, decoded: 0 });
    }

    #[test]
    fn without_spill_no_file_is_created() {
        let account = Account::new(10, 0);
        assert!(matches!(account.buffer(11, "a").unwrap_err().kind(), Kind::NoRoom { need: 11, memory: 10, disk: 0 }));
        assert!(account.charge(11, "b").is_err());
    }
}
