//! Results that need a whole component decoded: CRC-32 sums, and whether a sparse tensor is consistent. Each is
//! computed on request and kept while there is room; transient failures are not kept.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::account::Account;
use crate::error::Result;
use crate::once::Once;
use crate::recent::Recent;

/// Maximum number of sums, and of checks.
const MOST: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// Bytes charged for a result.
const COST: u64 = 256;

/// CRC-32 sums and sparse checks of one file.
pub(super) struct Sums {
    account: Account,
    /// By tensor and member name.
    crcs: Recent<(usize, &'static str), Arc<Once<u32>>>,
    /// By tensor.
    sparse: Recent<usize, Arc<Once<()>>>,
}

impl Sums {
    /// Keeps results while `account` has room.
    pub(super) fn new(account: &Account) -> Self {
        Self { account: account.clone(), crcs: Recent::new(MOST), sparse: Recent::new(MOST) }
    }

    /// The CRC-32 of member `name` of tensor `index`, computed by `make` on first use. Concurrent callers wait for a
    /// computation in progress.
    ///
    /// # Errors
    /// Fails if `make` fails; permanent failures are kept.
    pub(super) fn crc(&self, index: usize, name: &'static str, make: impl FnOnce() -> Result<u32>) -> Result<u32> {
        self.crcs.charge((index, name), Arc::default(), COST, &self.account).get(make).copied()
    }

    /// Whether tensor `index` is a consistent sparse tensor, checked by `make` on first use.
    ///
    /// # Errors
    /// Fails if `make` fails; permanent failures are kept.
    pub(super) fn sparse(&self, index: usize, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.sparse.charge(index, Arc::default(), COST, &self.account).get(make).copied()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::error::{Error, Kind};
    use crate::platform::os_error;

    #[test]
    fn sums_and_verdicts_are_kept_and_transient_failures_are_not() {
        let account = Account::new(1 << 20, 0);
        let sums = Sums::new(&account);
        let transient = || Err(Error::io(os_error(libc::EIO), "component"));
        assert!(sums.crc(0, "a", transient).is_err());
        assert_eq!(sums.crc(0, "a", || Ok(7)).unwrap(), 7);
        assert_eq!(sums.crc(0, "a", || Ok(8)).unwrap(), 7);
        assert_eq!(sums.crc(1, "a", || Ok(8)).unwrap(), 8);
        assert!(sums.sparse(0, || Err(Error::corrupt("no", "x"))).is_err());
        assert!(sums.sparse(0, || Ok(())).is_err());
        assert!(sums.sparse(1, || Err(Error::new(Kind::Changed, "file"))).is_err());
        sums.sparse(1, || Ok(())).unwrap();
        // A file may have a million sparse tensors.
        (10..10_000).for_each(|index| sums.sparse(index, || Ok(())).unwrap());
        assert!(account.memory().used() <= 1 << 18, "{}", account.memory().used());
    }
}
