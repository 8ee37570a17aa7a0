//! A value that is made once, by the first caller who needs it.
//!
//! Kept: the value, and an error about the bytes that it was made from. An error of the system or of the moment (a
//! failed read, no room) is not: the next caller tries again.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::account::work;
use crate::error::{Error, Result};

/// The value, the lasting error, or neither yet.
pub struct Once<T> {
    made: OnceLock<Result<T>>,
    /// Held while it is made: others wait instead of making it too.
    making: Mutex<()>,
}

impl<T> Once<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Self { made: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, made by `make` if it was not before. What that reads is not charged to the request that needed it.
    ///
    /// # Errors
    /// That of `make`, from now on where it is lasting (see [`Error::is_lasting`]).
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

    /// The value or the lasting error, if there is either.
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
    fn a_value_and_a_verdict_on_bytes_are_kept_and_a_failure_to_read_is_not() {
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
