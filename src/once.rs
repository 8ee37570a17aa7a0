//! A value computed once, by the first caller that needs it.
//!
//! The value is kept, and so is an error that is a property of the container's bytes. Other errors (a failed read, no
//! room) are not: the next caller tries again.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::account::work;
use crate::error::{Error, Result};

/// The value, the lasting error, or neither yet.
pub struct Once<T> {
    made: OnceLock<Result<T>>,
    /// Held while the value is computed: other callers wait instead of computing it too.
    making: Mutex<()>,
}

impl<T> Once<T> {
    /// Creates an empty cell.
    pub const fn new() -> Self {
        Self { made: OnceLock::new(), making: Mutex::new(()) }
    }

    /// Returns the value, computing it with `make` if necessary. `make` is not charged to the current request.
    ///
    /// # Errors
    /// The error of `make`; kept for later calls if it is lasting (see [`Error::is_lasting`]).
    pub fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(made) = self.ready() {
            return made;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = self.ready() {
            return made;
        }
        match work::once(make) {
            Err(error) if !error.is_lasting() => Err(error),
            made => self.made.get_or_init(|| made).as_ref().map_err(Clone::clone),
        }
    }

    /// The value or the lasting error, if there is one.
    pub fn ready(&self) -> Option<Result<&T>> {
        self.made.get().map(|made| made.as_ref().map_err(Error::clone))
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.made.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn values_and_lasting_errors_are_kept_and_read_failures_are_not() {
        let once = Once::new();
        assert!(once.get(|| Err(Error::io(io::Error::from_raw_os_error(libc::EIO), "x"))).is_err());
        assert!(once.ready().is_none());
        assert_eq!(*once.get(|| Ok(1)).unwrap(), 1);
        assert_eq!(*once.get(|| Ok(2)).unwrap(), 1);
        let broken = Once::<u8>::new();
        assert!(broken.get(|| Err(Error::corrupt("no", "x"))).is_err());
        assert!(broken.get(|| Ok(1)).is_err() && broken.ready().is_some());
    }
}
