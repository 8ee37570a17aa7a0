//! A list of offsets that is charged as it grows.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt;

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::Result;
use crate::limits::Charge;

/// Name of the list in messages.
const WHAT: &str = "block index";
/// Capacity of a list that begins to grow.
const FIRST: usize = 16;

/// Ascending offsets: of blocks in the file, or of block ends in the decoded bytes.
pub(super) struct OffsetList {
    offsets: Vec<u64>,
    charge: Charge,
    account: Account,
}

impl OffsetList {
    /// An empty list with room for `count` offsets.
    ///
    /// # Errors
    /// Fails if the account has no room.
    pub(super) fn new(account: &Account, count: u64) -> Result<Self> {
        let charge = account.charge(bytes(count), WHAT)?;
        let offsets = Vec::with_capacity(to_usize(count, WHAT)?);
        Ok(Self { offsets, charge, account: account.clone() })
    }

    /// Appends `offset`.
    ///
    /// # Errors
    /// Fails if the list is full and the account has no room for a larger one.
    pub(super) fn push(&mut self, offset: u64) -> Result<()> {
        let len = self.offsets.len();
        if len == self.offsets.capacity() {
            let grown = len.saturating_mul(2).max(FIRST);
            // Both lists exist while the offsets are copied.
            let charge = self.account.charge(bytes(to_u64(grown)), WHAT)?;
            self.offsets.reserve_exact(grown.saturating_sub(len));
            self.charge = charge;
        }
        self.offsets.push(offset);
        Ok(())
    }

    /// The offsets.
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.offsets
    }

    /// Number of offsets.
    pub(super) fn len(&self) -> u64 {
        to_u64(self.offsets.len())
    }

    /// Offset `index`.
    pub(super) fn get(&self, index: u64) -> Option<u64> {
        self.offsets.get(usize::try_from(index).ok()?).copied()
    }
}

/// Size of `count` offsets.
fn bytes(count: u64) -> u64 {
    count.saturating_mul(to_u64(size_of::<u64>()))
}

impl fmt::Debug for OffsetList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OffsetList({})", self.offsets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_within_the_account() {
        let account = Account::new(8 * (64 + 32), 0);
        let mut list = OffsetList::new(&account, 0).unwrap();
        let refused = (0..1000).find_map(|i| list.push(i).err()).unwrap();
        assert_eq!((list.len(), list.get(63), list.get(64)), (64, Some(63), None));
        assert_eq!(refused.what(), WHAT);
        assert_eq!(account.peaks().memory, 8 * (64 + 32));
        drop(list);
        assert_eq!(account.memory().used(), 0);
        assert!(OffsetList::new(&account, 97).is_err());
    }
}
