//! Limits on the cost of a container: counts, sizes, and shared byte budgets.
//!
//! No number from a file sizes an allocation before it was checked against a limit and against the bytes that are
//! present.
#![expect(unsafe_code, reason = "the standard library cannot fail to allocate zeros, only abort")]

use std::alloc::{Layout, alloc_zeroed};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Kind, Result};
use crate::platform::os_error;
use crate::reserve;

/// Upper bounds on the cost of a container.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one piece of decoded data (an indivisible chunk, a window).
    pub piece: u64,
    /// Bytes of structure (tables, manifests, dictionaries, indexes) that one container may keep.
    pub structure: u64,
    /// Entries in one table.
    pub entries: u64,
    /// Nesting depth.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { piece: 1 << 30, structure: 1 << 30, entries: 100_000_000, depth: 32 }
    }
}

impl Limits {
    /// Returns `n` if it is at most `limit`.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] otherwise.
    pub fn check(n: u64, limit: u64, what: &'static str) -> Result<u64> {
        if n <= limit { Ok(n) } else { Err(Error::new(Kind::TooLarge { value: n, limit }, what)) }
    }
}

/// Allocates `len` zero bytes. Fresh pages from the system are not written a second time.
///
/// # Errors
/// `ENOMEM` if the allocation fails, or if memory is low ([`reserve::is_low`]).
pub fn zeroed(len: u64, what: &'static str) -> Result<Vec<u8>> {
    let refused = || Error::io(os_error(libc::ENOMEM), what);
    let n = usize::try_from(len).map_err(|_| refused())?;
    if n == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(n).map_err(|_| refused())?;
    if reserve::is_low() {
        return Err(refused());
    }
    // SAFETY: the layout has a nonzero size.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return Err(refused());
    }
    #[expect(clippy::same_length_and_capacity, reason = "allocated with this capacity, and all of it is initialised")]
    // SAFETY: the global allocator has just returned `start` for this layout, and all its bytes are zero.
    let bytes = unsafe { Vec::from_raw_parts(start, n, n) };
    Ok(bytes)
}

/// A shared byte counter with a limit; a charge that does not fit fails.
#[derive(Debug, Clone)]
pub struct Budget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    total: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// Creates a budget of `total` bytes.
    pub fn new(total: u64) -> Self {
        Self(Arc::new(BudgetState { total, used: AtomicU64::new(0), peak: AtomicU64::new(0) }))
    }

    /// The limit in bytes.
    pub fn total(&self) -> u64 {
        self.0.total
    }

    /// The bytes charged now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The most bytes charged at any one time.
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Ordering::Relaxed)
    }

    /// Charges `n` bytes until the returned charge is dropped.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] if fewer are left.
    pub fn charge(&self, n: u64, what: &'static str) -> Result<Charge> {
        self.charge_leaving(0, n, what)
    }

    /// As [`Budget::charge`], if `rest` bytes are left then.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] otherwise.
    pub fn charge_leaving(&self, rest: u64, n: u64, what: &'static str) -> Result<Charge> {
        let most = self.0.total.saturating_sub(rest);
        let fits = |used: u64| used.checked_add(n).filter(|&sum| sum <= most);
        match self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(used) => {
                self.0.peak.fetch_max(used.saturating_add(n), Ordering::Relaxed);
                Ok(Charge { budget: self.clone(), bytes: n })
            }
            Err(used) => Err(Error::new(Kind::TooLarge { value: n, limit: most.saturating_sub(used) }, what)),
        }
    }
}

/// Bytes charged to a [`Budget`]; released on drop.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refuses_what_does_not_fit_and_takes_back_what_is_dropped() {
        let budget = Budget::new(10);
        let first = budget.charge(7, "a").unwrap();
        assert!(matches!(budget.charge(4, "b").unwrap_err().kind(), Kind::TooLarge { value: 4, limit: 3 }));
        assert!(budget.charge(u64::MAX, "c").is_err());
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.charge_leaving(1, 10, "d").is_err());
        drop(budget.charge_leaving(1, 9, "e").unwrap());
        drop(budget.charge(10, "f").unwrap());
    }

    #[test]
    fn an_absurd_allocation_is_an_error() {
        for len in [u64::MAX, 1 << 62, 1 << 46] {
            assert_eq!(zeroed(len, "x").unwrap_err().errno(), libc::ENOMEM, "{len}");
        }
        assert!(zeroed(0, "x").unwrap().is_empty());
        assert_eq!(zeroed(3, "x").unwrap(), [0, 0, 0]);
    }
}
