//! A value that is made once, by whoever needs it first; a failure is not kept.
#![forbid(unsafe_code)]

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::account::work;
use crate::error::Result;

/// The value, made or not.
pub(super) struct Lazy<T> {
    value: OnceLock<T>,
    /// Held while it is made: others wait instead of making it too.
    making: Mutex<()>,
}

impl<T> Lazy<T> {
    /// Not made yet.
    pub(super) const fn new() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, made by `make` if nobody did before.
    ///
    /// # Errors
    /// That of `make`; the next caller tries again.
    pub(super) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = work::once(make)?;
        Ok(self.value.get_or_init(|| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_value_is_made_once_and_a_failure_is_tried_again() {
        let lazy = Lazy::new();
        assert!(lazy.get(|| Err(Error::corrupt("no", "x"))).is_err());
        assert_eq!(*lazy.get(|| Ok(1)).unwrap(), 1);
        assert_eq!(*lazy.get(|| Ok(2)).unwrap(), 1);
    }
}
