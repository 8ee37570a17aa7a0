//! How much may be decoded for one request.
//!
//! A small read can cost far more than its bytes: a stage that reads its input more than once for a window doubles
//! the work with every stage; a block is decoded whole for one page of it. So the bytes decoded for each request are
//! counted, on the thread that decodes, and a request that costs too much ends in an error instead of minutes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Account;
use crate::error::{Error, Kind, Result};

/// Bytes that any request may cost: large blocks of every stage that a graph can have.
const BASE: u64 = 64 << 20;
/// Bytes that each byte of the request may cost on top: every stage reads several bytes for one.
const PER_BYTE: u64 = 256;
/// What a read costs beside its bytes.
const PER_READ: u64 = 256;

thread_local! {
    /// The request that this thread works on; `None` outside of requests.
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
}

/// Bytes decoded for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Meter {
    spent: u64,
    limit: u64,
    /// What is metered: a request, or something that is made once and kept.
    what: &'static str,
}

/// The meter of a request.
const REQUEST: &str = "bytes decoded for one request";
/// The meter of what is kept.
const BUILD: &str = "bytes decoded for an index or an array that is kept";

/// The costliest request so far.
#[derive(Debug, Default)]
pub(super) struct Peak(AtomicU64);

impl Peak {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Puts back the meter that was there before, also after a panic.
struct Restore<'a> {
    before: Option<Meter>,
    peak: Option<&'a Peak>,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        let spent = METER.replace(self.before).map_or(0, |meter| meter.spent);
        if let Some(peak) = self.peak {
            peak.0.fetch_max(spent, Ordering::Relaxed);
        }
    }
}

/// Runs `read`, which gives `len` bytes: as a request of its own on the meter of `account`, or, where this thread works
/// on one already, as a part of it.
///
/// # Errors
/// [`Kind::TooLarge`] when the request costs too much; else what `read` gives.
pub fn request<T>(account: &Account, len: u64, read: impl FnOnce() -> Result<T>) -> Result<T> {
    if METER.get().is_some() {
        charge(len)?;
        return read();
    }
    METER.set(Some(Meter { spent: 0, limit: BASE.saturating_add(len.saturating_mul(PER_BYTE)), what: REQUEST }));
    let _restore = Restore { before: None, peak: Some(&account.0.work) };
    read()
}

/// Adds `len` bytes that are about to be decoded to the request of this thread; outside of requests nothing is counted.
///
/// # Errors
/// [`Kind::TooLarge`] when the request costs too much.
pub fn charge(len: u64) -> Result<()> {
    let Some(Meter { spent, limit, what }) = METER.get() else { return Ok(()) };
    let spent = spent.saturating_add(len).saturating_add(PER_READ);
    if spent > limit {
        return Err(Error::new(Kind::TooLarge { value: spent, limit }, what));
    }
    METER.set(Some(Meter { spent, limit, what }));
    Ok(())
}

/// Runs `make`, whose result is kept for all requests: what it reads is not charged to the request that needed it.
pub fn once<T>(make: impl FnOnce() -> T) -> T {
    let _restore = Restore { before: METER.take(), peak: None };
    make()
}

/// Runs `make`, whose result is kept for all requests: not on the meter of the request that needed it, but on one of
/// `limit` bytes. What is built while something else is being built is a part of that, so that a tower of indexes
/// costs no more than one.
///
/// # Errors
/// [`Kind::TooLarge`] when it costs too much; else what `make` gives.
pub fn build<T>(account: &Account, limit: u64, make: impl FnOnce() -> Result<T>) -> Result<T> {
    if is_building() {
        return make();
    }
    let _restore =
        Restore { before: METER.replace(Some(Meter { spent: 0, limit, what: BUILD })), peak: Some(&account.0.work) };
    make()
}

/// Whether this thread is inside [`build`].
pub fn is_building() -> bool {
    METER.get().is_some_and(|meter| meter.what == BUILD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::new(0, 0)
    }

    /// Reads twice from below, `depth` times over.
    fn doubled(account: &Account, depth: u32) -> Result<()> {
        let below = depth.checked_sub(1);
        request(account, 1000, || {
            below.map_or(Ok(()), |below| doubled(account, below).and_then(|()| doubled(account, below)))
        })
    }

    #[test]
    fn work_that_doubles_with_every_stage_ends_in_an_error() {
        let account = account();
        doubled(&account, 6).unwrap();
        let e = doubled(&account, 31).unwrap_err();
        assert!(matches!(e.kind(), Kind::TooLarge { .. }), "{e}");
        assert_eq!(METER.get(), None);
        doubled(&account, 6).unwrap();
        let peak = account.peaks().work;
        assert!((BASE..=BASE + 1000 * PER_BYTE).contains(&peak), "{peak}");
    }

    #[test]
    fn what_is_made_once_is_not_charged_to_the_request_that_needed_it() {
        request(&account(), 0, || {
            let before = METER.get();
            once(|| {
                for _ in 0..100 {
                    request(&account(), BASE, || Ok(()))?;
                }
                Ok(())
            })?;
            assert_eq!(METER.get(), before);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn what_is_built_for_something_that_is_built_is_a_part_of_it() {
        let account = account();
        let read = |len| request(&account, len, || Ok(()));
        request(&account, 0, || {
            let before = METER.get();
            let e = build(&account, 10_000, || build(&account, u64::MAX, || (0..11).try_for_each(|_| read(1000))));
            assert!(matches!(e.unwrap_err().kind(), Kind::TooLarge { limit: 10_000, .. }));
            assert_eq!(METER.get(), before);
            build(&account, 10_000, || read(9000))
        })
        .unwrap();
        assert!(!is_building());
        assert!(account.peaks().work > 9000);
    }
}
