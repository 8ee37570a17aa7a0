//! A per-thread buffer for replies that combine several sources.
//!
//! Reused between replies, since allocating fresh pages costs more than the copy.
#![forbid(unsafe_code)]

use std::cell::RefCell;

use crate::bytes::to_usize;
use crate::error::Result;
use crate::limits::zeroed;

thread_local! {
    /// Grows to the longest reply so far; the kernel requests at most 1 MiB.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Passes a buffer of `len` bytes with unspecified contents to `work`.
///
/// # Errors
/// Fails if allocation fails.
pub(in crate::fs) fn with<T>(len: u64, work: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
    let n = to_usize(len, "answer")?;
    BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut buffer) => {
            if buffer.len() < n {
                *buffer = zeroed(len, "answer")?;
            }
            Ok(work(buffer.split_at_mut(n).0))
        }
        // Nested use: a pool without threads runs jobs on the calling thread.
        Err(_) => Ok(work(&mut zeroed(len, "answer")?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_requested_length_also_when_nested() {
        let sizes = with(10, |outer| (outer.len(), with(20, |inner| inner.len()).unwrap())).unwrap();
        assert_eq!(sizes, (10, 20));
        assert_eq!(with(5, |buffer| buffer.len()).unwrap(), 5);
        assert!(with(u64::MAX, |_| ()).is_err());
    }
}
