//! A value computed once, by the first caller that needs it.
//!
//! The value is kept, and so is an error that is a property of the container's bytes. Other errors (a failed read, no
//! room) are not: the next caller tries again.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{OnceLock, PoisonError};

use crate::account::{Account, decode_budget};
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::Condition;

/// The value, the lasting error, or neither yet.
pub struct Once<T> {
    value: OnceLock<Result<T>>,
    /// Whether the value is being computed: other callers wait instead of computing it too.
    computing: Mutex<bool>,
    computed: Condition,
}

impl<T> Once<T> {
    /// Creates an empty cell.
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), computing: Mutex::new(false), computed: Condition::new() }
    }

    /// Returns the value, computing it with `compute` if necessary. `compute` is not charged to the current request.
    ///
    /// # Errors
    /// The error of `compute`; kept for later calls if it is lasting (see [`Error::is_lasting`]).
    pub fn get(&self, compute: impl FnOnce() -> Result<T>) -> Result<&T> {
        self.get_or(|| decode_budget::once(compute), Error::is_lasting)
    }

    /// As [`Once::get`], but `compute` decodes at most `limit` bytes, or the rest of the limit of an enclosing build.
    ///
    /// # Errors
    /// As for [`Once::get`], and [`Kind::TooLarge`](crate::error::Kind::TooLarge) if `compute` exceeds the limit.
    /// Exceeding the limit of an enclosing build says nothing about this value, and is not kept.
    pub fn build(&self, account: &Account, limit: u64, compute: impl FnOnce() -> Result<T>) -> Result<&T> {
        self.get_or(|| decode_budget::build(account, limit, compute), decode_budget::is_final)
    }

    /// The value, or the result of `compute`: a value is kept, and an error for which `lasts` returns true.
    fn get_or(&self, compute: impl FnOnce() -> Result<T>, lasts: impl FnOnce(&Error) -> bool) -> Result<&T> {
        if let Some(value) = self.ready() {
            return value;
        }
        let is_computing = self.computed.wait_while(&self.computing, self.lock(), |is| *is);
        *is_computing? = true;
        let _computing = Computing(self);
        if let Some(value) = self.ready() {
            return value;
        }
        match compute() {
            Err(error) if !lasts(&error) => Err(error),
            value => self.value.get_or_init(|| value).as_ref().map_err(Clone::clone),
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.computing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value or the lasting error, if there is one.
    pub fn ready(&self) -> Option<Result<&T>> {
        self.value.get().map(|value| value.as_ref().map_err(Error::clone))
    }
}

/// Lets the next caller compute the value, also after a panic.
struct Computing<'a, T>(&'a Once<T>);

impl<T> Drop for Computing<'_, T> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.computed.notify_all();
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.value.get()).finish()
    }
}

#[cfg(all(test, shuttle))]
#[path = "../tests/models/once.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::platform::os_error;

    #[test]
    fn values_and_lasting_errors_are_kept_and_read_failures_are_not() {
        let once = Once::new();
        assert!(once.get(|| Err(Error::io(os_error(libc::EIO), "x"))).is_err());
        assert!(once.ready().is_none());
        assert_eq!(*once.get(|| Ok(1)).unwrap(), 1);
        assert_eq!(*once.get(|| Ok(2)).unwrap(), 1);
        let broken = Once::<u8>::new();
        assert!(broken.get(|| Err(Error::corrupt("no", "x"))).is_err());
        assert!(broken.get(|| Ok(1)).is_err() && broken.ready().is_some());
    }

    #[test]
    fn exceeding_the_limit_of_an_enclosing_build_is_no_verdict_on_a_part_of_it() {
        let (outer, inner, account) = (Once::new(), Once::new(), Account::new(0, 0));
        let read = |len| decode_budget::request(&account, len, || Ok(1));
        let value = outer.build(&account, 1000, || inner.build(&account, u64::MAX, || read(2000)).copied());
        assert!(matches!(value.unwrap_err().kind(), Kind::TooLarge { .. }));
        assert!(outer.build(&account, u64::MAX, || Ok(1)).is_err());
        assert_eq!(*inner.build(&account, 0, || Ok(2)).unwrap(), 2);
        let full = Once::new();
        assert!(
            full.build(&account, 0, || Err(Error::new(Kind::NoRoom { need: 2, memory: 1, disk: 0 }, "x"))).is_err()
        );
        assert_eq!(*full.build(&account, 0, || Ok(3)).unwrap(), 3);
    }
}
