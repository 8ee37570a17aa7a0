//! [`Mutex`] of the standard library, with a random delay before it is locked: orders of threads that are rare become
//! common. For `scripts/delays`, which puts it into a copy of the source.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "stands for a type of the standard library")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LockResult, MutexGuard, TryLockResult};
use std::thread;
use std::time::Duration;

/// Of so many locks, one yields; one sleeps up to [`SLEEP`] microseconds; one sleeps for [`LONG`].
const YIELDS: u64 = 4;
const SLEEPS: u64 = 40;
const LONGS: u64 = 20_000;
const SLEEP: u64 = 1_500;
const LONG: Duration = Duration::from_millis(300);

/// A lock that threads come late to.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        delay();
        self.0.lock()
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        delay();
        self.0.try_lock()
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Waits, or not.
fn delay() {
    static SEED: AtomicU64 = AtomicU64::new(0);
    thread_local!(static STATE: Cell<u64> = const { Cell::new(0) });
    // A thread that ends has no state any more.
    let number = STATE.try_with(|state| {
        let mut number = state.get();
        if number == 0 {
            let seed = SEED.fetch_add(1, Ordering::Relaxed) << 32 | u64::from(std::process::id());
            number = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        }
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        state.set(number);
        number >> 11
    });
    match number.unwrap_or(1) {
        n if n % LONGS == 0 => thread::sleep(LONG),
        n if n % SLEEPS == 0 => thread::sleep(Duration::from_micros(n / SLEEPS % SLEEP)),
        n if n % YIELDS == 0 => thread::yield_now(),
        _ => {}
    }
}
