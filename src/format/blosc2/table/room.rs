//! Memory for values that are collected: charged as it grows, and limited.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::Account;
use crate::error::Result;
use crate::limits::{Charge, Limits};

/// Bytes that are charged at least.
const LEAST: u64 = 1 << 20;

/// Room for at most `limit` bytes.
#[derive(Debug)]
pub(super) struct Room {
    limit: u64,
    pub(super) account: Account,
    /// Bytes of what was collected.
    pub(super) used: u64,
    charged: u64,
    charge: Option<Charge>,
}

impl Room {
    /// Room for at most `limit` bytes, which are charged to `account`.
    pub(super) fn within(limit: u64, account: &Account) -> Self {
        Self { limit, account: account.clone(), used: 0, charged: 0, charge: None }
    }

    /// Charges room for `len` bytes in all.
    ///
    /// # Errors
    /// [`crate::error::Kind::TooLarge`] beyond the limit; as [`Account::charge`].
    pub(super) fn hold(&mut self, len: u64, what: &'static str) -> Result<()> {
        let need = Limits::check(len, self.limit, what)?;
        if need > self.charged {
            // Vectors double too; another copy may be made of what is added.
            self.charged = need.saturating_mul(2).max(LEAST);
            self.charge = None;
            self.charge = Some(self.account.charge(self.charged.saturating_mul(2), what)?);
        }
        Ok(())
    }

    /// Charges room for `len` more bytes.
    ///
    /// # Errors
    /// As [`Room::hold`].
    pub(super) fn take(&mut self, len: u64, what: &'static str) -> Result<()> {
        self.used = self.used.saturating_add(len);
        self.hold(self.used, what)
    }
}
