//! Limits the bytes decoded for one request.
//!
//! A small read can cost far more than its size: a stage that reads its input more than once per window doubles the
//! work at every level, and a whole block is decoded for one page of it. The bytes decoded for each request are
//! therefore counted on the decoding thread, and a request over its limit fails instead of running for minutes.
//!
//! So is the work of opening a nested container: a few bytes of the outer one can make gigabytes of it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Account;
use crate::error::{Error, Kind, Result};
use crate::platform::os_error;

/// Bytes that any request may decode: large blocks of every stage that a graph can have.
const BASE: u64 = 64 << 20;
/// Additional bytes per requested byte: every stage may read several bytes for each output byte.
const PER_BYTE: u64 = 256;
/// Fixed cost of a read, in bytes, on top of its length.
const PER_READ: u64 = 256;

thread_local! {
    /// The request that this thread is working on; `None` outside of requests.
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
}

thread_local! {
    /// The container in another one that this thread is opening.
    static OPENING: Cell<Option<Meter>> = const { Cell::new(None) };
}

/// Bytes decoded for one request, or for one build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Meter {
    spent: u64,
    limit: u64,
    /// `REQUEST`, `BUILD` or `OPEN`; names the field in the error.
    what: &'static str,
}

/// A request.
const REQUEST: &str = "bytes decoded for one request";
/// A value that is computed once and kept.
const BUILD: &str = "bytes decoded for an index or an array that is kept";
/// A container in another one.
const OPEN: &str = "bytes decoded and frames read to open a container in another one";

/// The cost of the most expensive request or build so far.
#[derive(Debug, Default)]
pub(super) struct Peak(AtomicU64);

impl Peak {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Restores the previous meter on drop, also when unwinding.
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

/// Runs `read`, which returns `len` bytes, as a request of its own; inside a request, as a part of that request.
///
/// # Errors
/// [`Kind::TooLarge`] if the request exceeds its limit; otherwise the error of `read`.
pub fn request<T>(account: &Account, len: u64, read: impl FnOnce() -> Result<T>) -> Result<T> {
    if METER.get().is_some() {
        charge(len)?;
        return read();
    }
    METER.set(Some(Meter { spent: 0, limit: BASE.saturating_add(len.saturating_mul(PER_BYTE)), what: REQUEST }));
    let _restore = Restore { before: None, peak: Some(&account.0.decoded) };
    read()
}

/// Charges `len` bytes that are about to be decoded to the current request. Outside of requests it does nothing.
///
/// # Errors
/// [`Kind::TooLarge`] if the request exceeds its limit.
pub fn charge(len: u64) -> Result<()> {
    let Some(Meter { spent, limit, what }) = METER.get() else { return Ok(()) };
    let spent = spent.saturating_add(len).saturating_add(PER_READ);
    if spent > limit {
        return Err(Error::new(Kind::TooLarge { value: spent, limit }, what));
    }
    METER.set(Some(Meter { spent, limit, what }));
    Ok(())
}

/// Runs `make`, with a result that is kept for all requests, without charging the current request.
pub fn once<T>(make: impl FnOnce() -> T) -> T {
    let _restore = Restore { before: METER.take(), peak: None };
    make()
}

/// Runs `make`, with a result that is kept for all requests, with its own limit of `limit` bytes instead of charging
/// the current request. A nested build is charged to the outermost one, so the limit covers all of them together.
///
/// # Errors
/// [`Kind::TooLarge`] if the build exceeds its limit; otherwise the error of `make`.
pub fn build<T>(account: &Account, limit: u64, make: impl FnOnce() -> Result<T>) -> Result<T> {
    if is_building() {
        return make();
    }
    let _restore =
        Restore { before: METER.replace(Some(Meter { spent: 0, limit, what: BUILD })), peak: Some(&account.0.decoded) };
    make()
}

/// Restores the meter of the enclosing opening on drop, also when unwinding.
struct Enclosing(Option<Meter>);

impl Drop for Enclosing {
    fn drop(&mut self) {
        OPENING.set(self.0);
    }
}

/// Runs `make`, which opens a container in another one and charges the work with [`charge_opening`].
///
/// # Errors
/// [`Kind::TooLarge`] if that exceeds `limit`; otherwise the error of `make`.
pub fn opening<T>(limit: u64, make: impl FnOnce() -> Result<T>) -> Result<T> {
    let _enclosing = Enclosing(OPENING.replace(Some(Meter { spent: 0, limit, what: OPEN })));
    let made = make();
    let spent = OPENING.get().map_or(0, |meter| meter.spent);
    made.map_err(|e| if spent > limit { Error::new(Kind::TooLarge { value: spent, limit }, OPEN) } else { e })
}

/// Whether this thread is opening a container in another one.
pub fn is_opening() -> bool {
    OPENING.get().is_some()
}

/// Charges `len` bytes to the container that this thread is opening; does nothing if it is not opening one.
///
/// # Errors
/// Fails if that exceeds the limit; not for good, since it says nothing about the bytes that were to be decoded.
pub fn charge_opening(len: u64) -> Result<()> {
    let Some(meter) = OPENING.get() else { return Ok(()) };
    let spent = meter.spent.saturating_add(len).saturating_add(PER_READ);
    OPENING.set(Some(Meter { spent, ..meter }));
    if spent > meter.limit {
        return Err(Error::io(os_error(libc::EFBIG), OPEN));
    }
    Ok(())
}

/// Whether `error`, from a [`build`] that has ended, is a property of the container's bytes. Exceeding the limit of an
/// enclosing build is not a property of the part that was being built.
pub fn is_final(error: &Error) -> bool {
    error.is_lasting() && !(is_building() && matches!(error.kind(), Kind::TooLarge { .. }))
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

    /// A request that makes two requests of the same kind, `depth` levels deep.
    fn doubled(account: &Account, depth: u32) -> Result<()> {
        let below = depth.checked_sub(1);
        request(account, 1000, || {
            below.map_or(Ok(()), |below| doubled(account, below).and_then(|()| doubled(account, below)))
        })
    }

    #[test]
    fn work_that_doubles_with_every_stage_fails() {
        let account = account();
        doubled(&account, 6).unwrap();
        let e = doubled(&account, 31).unwrap_err();
        assert!(matches!(e.kind(), Kind::TooLarge { .. }), "{e}");
        assert_eq!(METER.get(), None);
        doubled(&account, 6).unwrap();
        let peak = account.peaks().decoded;
        assert!((BASE..=BASE + 1000 * PER_BYTE).contains(&peak), "{peak}");
    }

    #[test]
    fn a_value_computed_once_is_not_charged_to_the_request() {
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
    fn an_opening_is_charged_apart_from_requests_and_from_the_one_around_it() {
        let charges = |n| (0..n).try_for_each(|_| once(|| charge_opening(744)));
        charges(100).unwrap();
        let e = opening(10_000, || {
            assert!(opening(5000, || charges(6)).is_err());
            charges(10)?;
            assert!(!charges(1).unwrap_err().is_lasting());
            charges(1)
        });
        assert!(matches!(e.unwrap_err().kind(), Kind::TooLarge { value: 12_000, limit: 10_000 }));
        assert_eq!(OPENING.get(), None);
    }

    #[test]
    fn what_takes_no_more_than_the_limit_fails_for_its_own_reason() {
        let own = || Err::<(), _>(Error::new(Kind::NotFound, "own"));
        assert!(!is_opening());
        let e = opening(1000, || {
            assert!(is_opening());
            charge_opening(1000 - PER_READ)?;
            own()
        });
        assert!(matches!(e.unwrap_err().kind(), Kind::NotFound));
        let account = account();
        let all = BASE - PER_READ;
        request(&account, 0, || charge(all)).unwrap();
        assert!(request(&account, 0, || charge(all + 1)).is_err());
        assert_eq!(account.peaks().decoded, BASE);
    }

    #[test]
    fn a_nested_build_is_charged_to_the_outer_build() {
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
        assert!(account.peaks().decoded > 9000);
    }
}
