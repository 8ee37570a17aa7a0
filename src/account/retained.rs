//! The charge of buffers that are kept for reuse and grow.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::limits::Charge;

use super::Account;

/// A charge for the largest size that buffers have had.
#[derive(Debug, Default)]
pub struct Retained {
    bytes: u64,
    charge: Option<Charge>,
}

impl Retained {
    /// Charges `account` so that `bytes` are covered. Returns whether they are; otherwise the caller must free its
    /// buffers, and nothing is charged.
    pub fn cover(&mut self, account: &Account, bytes: u64, what: &'static str) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        // Release the old charge first: it covers the same bytes.
        self.charge = None;
        self.charge = account.charge_spare(bytes, what);
        self.bytes = if self.charge.is_some() { bytes } else { 0 };
        self.charge.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_grows_and_is_dropped_if_it_does_not_fit() {
        let account = Account::new(100, 0);
        let mut retained = Retained::default();
        assert!(retained.cover(&account, 60, "x") && retained.cover(&account, 90, "x"));
        assert!(retained.cover(&account, 10, "x"));
        assert_eq!(account.memory().used(), 90);
        assert!(!retained.cover(&account, 101, "x"));
        assert_eq!(account.memory().used(), 0);
        assert!(retained.cover(&account, 0, "x"));
    }
}
