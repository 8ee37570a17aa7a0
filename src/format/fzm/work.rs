//! How much may be decoded for one window.
//!
//! A stage may read its input more than once for a window: blocks that do not line up are torn at both
//! ends. A chain of real stages costs a few times the window; one made to do harm doubles the work with
//! every stage. So the bytes decoded under each outermost read are counted, on the thread that decodes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::cell::Cell;

use crate::error::{Error, Kind, Result};

/// What any window may cost: large blocks of every stage that a graph can have.
const BASE: u64 = 64 << 20;
/// What each of its bytes may cost on top: every stage reading several bytes for one.
const PER_BYTE: u64 = 256;
/// What a read costs beside its bytes.
const PER_READ: u64 = 256;

thread_local! {
    /// The window that this thread decodes; `None` outside of windows.
    static WINDOW: Cell<Option<Window>> = const { Cell::new(None) };
}

/// Bytes decoded for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    spent: u64,
    limit: u64,
}

/// Puts back what was there before, also after a panic.
struct Restore(Option<Window>);

impl Drop for Restore {
    fn drop(&mut self) {
        WINDOW.set(self.0);
    }
}

/// Runs `read`, which gives `len` bytes: as a window of its own, or as a part of the work for one.
///
/// # Errors
/// [`Kind::TooLarge`] when the window costs too much; else what `read` gives.
pub(super) fn read(len: u64, read: impl FnOnce() -> Result<()>) -> Result<()> {
    let cost = len.saturating_add(PER_READ);
    let _restore = if let Some(Window { spent, limit }) = WINDOW.get() {
        let spent = spent.saturating_add(cost);
        if spent > limit {
            return Err(Error::new(Kind::TooLarge { value: spent, limit }, "bytes decoded for one window"));
        }
        WINDOW.set(Some(Window { spent, limit }));
        None
    } else {
        WINDOW.set(Some(Window { spent: 0, limit: BASE.saturating_add(len.saturating_mul(PER_BYTE)) }));
        Some(Restore(None))
    };
    read()
}

/// Runs `make`, which is done once for a stream and not for one window: what it reads counts as windows
/// of their own.
pub(super) fn once<T>(make: impl FnOnce() -> T) -> T {
    let _restore = Restore(WINDOW.take());
    make()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads twice from below, `depth` times over.
    fn torn(depth: u32) -> Result<()> {
        let below = depth.checked_sub(1);
        read(1000, || below.map_or(Ok(()), |below| torn(below).and_then(|()| torn(below))))
    }

    #[test]
    fn work_that_doubles_with_every_stage_ends_in_an_error() {
        torn(6).unwrap();
        let e = torn(31).unwrap_err();
        assert!(matches!(e.kind(), Kind::TooLarge { .. }), "{e}");
        assert_eq!(WINDOW.get(), None);
        torn(6).unwrap();
    }

    #[test]
    fn what_is_made_once_is_not_work_for_the_window_that_needed_it() {
        read(0, || {
            let before = WINDOW.get();
            once(|| {
                for _ in 0..100 {
                    read(BASE, || Ok(()))?;
                }
                Ok(())
            })?;
            assert_eq!(WINDOW.get(), before);
            Ok(())
        })
        .unwrap();
    }
}
