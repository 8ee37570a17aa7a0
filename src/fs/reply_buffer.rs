//! A buffer for each thread, for answers that have to be put together from several places.
//!
//! Kept from one answer to the next: fresh memory costs the kernel more than the copy does.
#![forbid(unsafe_code)]

use std::cell::RefCell;

use crate::bytes::to_usize;
use crate::error::Result;
use crate::limits::zeroed;

thread_local! {
    /// As long as the longest answer so far, which the kernel asks for in at most 1 MiB.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` bytes, whatever is in them, to `work`.
///
/// # Errors
/// Where the memory is not to be had.
pub(super) fn with<T>(len: u64, work: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
    let n = to_usize(len, "answer")?;
    ROOM.with(|room| match room.try_borrow_mut() {
        Ok(mut room) => {
            if room.len() < n {
                *room = zeroed(len, "answer")?;
            }
            Ok(work(room.get_mut(..n).unwrap_or_default()))
        }
        // An answer within an answer: a pool that has no thread runs its jobs where they come from.
        Err(_) => Ok(work(&mut zeroed(len, "answer")?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_as_long_as_asked_for_also_within_another() {
        let sizes = with(10, |outer| (outer.len(), with(20, |inner| inner.len()).unwrap())).unwrap();
        assert_eq!(sizes, (10, 20));
        assert_eq!(with(5, |room| room.len()).unwrap(), 5);
        assert!(with(u64::MAX, |_| ()).is_err());
    }
}
