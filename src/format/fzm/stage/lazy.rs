//! A value that is made once, by the first caller that needs it. Errors about the file's bytes are kept too.
#![forbid(unsafe_code)]

use std::sync::{Mutex, OnceLock, PoisonError};

use super::Context;
use crate::account::work;
use crate::error::{Error, Kind, Result};

/// The value, or its error, once made.
pub(super) struct Lazy<T> {
    value: OnceLock<Result<T>>,
    /// Held while the value is made, so that other callers wait for it.
    making: Mutex<()>,
}

impl<T> Lazy<T> {
    /// Creates an empty cell.
    pub(super) const fn new() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, made by `make` on first use; `kept` is the size of what it keeps, in bytes.
    ///
    /// # Errors
    /// Fails as `make` does. Errors about the bytes are kept and returned again at once; after others (no space, an I/O
    /// error) the next caller retries.
    pub(super) fn get(&self, cx: &Context, kept: u64, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(value) = self.value.get() {
            return value.as_ref().map_err(Error::clone);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.get() {
            return value.as_ref().map_err(Error::clone);
        }
        match work::build(&cx.account, cx.build_limit(kept), make) {
            Err(e) if !is_verdict(&e) => Err(e),
            made => self.value.get_or_init(|| made).as_ref().map_err(Error::clone),
        }
    }
}

/// Whether `e`, from a [`work::build`], is about the bytes of the file and therefore permanent.
pub(super) fn is_verdict(e: &Error) -> bool {
    match e.kind() {
        Kind::Truncated { .. } | Kind::Corrupt(_) | Kind::Checksum { .. } | Kind::Unsupported(_) => true,
        // Exceeding the limit of an enclosing build says nothing about this part.
        Kind::TooLarge { .. } => !work::is_building(),
        // Space may become free later, and it is reserved before anything is decoded.
        Kind::NoRoom { .. } | Kind::Changed | Kind::Usage(_) | Kind::NotFound | Kind::Io(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    #[test]
    fn a_value_is_made_once() {
        let lazy = Lazy::new();
        assert_eq!(*lazy.get(&context(), 0, || Ok(1)).unwrap(), 1);
        assert_eq!(*lazy.get(&context(), 0, || Ok(2)).unwrap(), 1);
    }

    #[test]
    fn verdicts_about_bytes_are_remembered_and_other_errors_are_tried_again() {
        let error = |kind| Error::new(kind, "x");
        for (kind, remembered) in [
            (Kind::Corrupt("no".into()), true),
            (Kind::TooLarge { value: 2, limit: 1 }, true),
            (Kind::NoRoom { need: 2, memory: 1, disk: 0 }, false),
            (Kind::Io(std::sync::Arc::new(std::io::Error::other("no"))), false),
        ] {
            let lazy = Lazy::new();
            assert!(lazy.get(&context(), 0, || Err(error(kind.clone()))).is_err());
            assert_eq!(lazy.get(&context(), 0, || Ok(1)).is_err(), remembered, "{kind:?}");
        }
    }

    #[test]
    fn too_much_for_the_whole_is_no_verdict_on_a_part() {
        let (outer, inner, cx) = (Lazy::new(), Lazy::new(), context());
        let read = |len| work::request(&cx.account, len, || Ok(1));
        let made = outer.get(&cx, 0, || inner.get(&cx, 0, || read(u64::MAX / 2)).copied());
        assert!(matches!(made.unwrap_err().kind(), Kind::TooLarge { .. }));
        assert!(outer.get(&cx, 0, || Ok(1)).is_err());
        assert_eq!(*inner.get(&cx, 0, || Ok(2)).unwrap(), 2);
    }
}
