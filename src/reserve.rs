//! A global allocator with a reserve, for processes with limited address space (`ulimit -v`).
//!
//! Rust aborts the process if a small allocation fails. Under an address space limit that can happen while pieces are
//! decoded, despite all charges, because of thread stacks and fragmentation. So some address space is reserved: when an
//! allocation fails, the reserve is released, and from then on [`is_low`] makes larger allocations fail with an error
//! until the reserve can be mapped again.
//!
//! Without [`map_reserve`] it behaves like the system allocator.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::platform::{map_addresses, unmap_addresses};

/// Size of the reserve in bytes.
const SIZE: usize = 16 << 20;
/// Larger allocations do not use the reserve: their callers handle failure.
const SMALL: usize = SIZE / 4;

/// The start address of the reserve, if it is mapped. Nothing allocates while holding the lock.
static RESERVE: Mutex<Option<usize>> = Mutex::new(None);
static LOW: AtomicBool = AtomicBool::new(false);

/// The program's global allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reserving;

// SAFETY: every call forwards the caller's arguments to the system allocator, a second time if the first failed.
unsafe impl GlobalAlloc for Reserving {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this function, which is that of the forwarded one.
        retried(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        retried(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; after a failure the old allocation is unchanged, so a retry is valid.
        retried(size, || unsafe { System.realloc(start, layout, size) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) };
    }
}

/// Maps the reserve if `room` more bytes could be mapped after it. Returns whether it is mapped.
pub fn map_reserve(room: usize) -> bool {
    let mut reserve = lock();
    if reserve.is_none() {
        let probe = map_addresses(room);
        *reserve = probe.and_then(|_| map_addresses(SIZE));
        if let Some(start) = probe {
            unmap_addresses(start, room);
        }
    }
    reserve.is_some()
}

/// Whether the reserve was released and cannot be mapped again yet. Fallible allocations should fail then.
pub fn is_low() -> bool {
    if !LOW.load(Ordering::Relaxed) {
        return false;
    }
    let mut reserve = lock();
    if reserve.is_none() {
        *reserve = map_addresses(SIZE);
    }
    LOW.store(reserve.is_none(), Ordering::Relaxed);
    reserve.is_none()
}

fn retried(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let start = allocate();
    if start.is_null() && size <= SMALL {
        give_up();
        return allocate();
    }
    start
}

#[cold]
fn give_up() {
    if let Some(start) = lock().take() {
        LOW.store(true, Ordering::Relaxed);
        unmap_addresses(start, SIZE);
    }
}

fn lock() -> MutexGuard<'static, Option<usize>> {
    RESERVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::ptr;

    #[test]
    fn a_small_allocation_that_fails_is_tried_again_with_the_reserve_and_a_large_one_is_not() {
        assert!(!map_reserve(1 << 60) && map_reserve(1 << 20));
        assert!(lock().is_some() && !is_low());
        let calls = Cell::new(0);
        let fails = || {
            calls.set(calls.get() + 1);
            ptr::null_mut()
        };
        assert!(retried(SMALL + 1, fails).is_null());
        assert!(calls.get() == 1 && lock().is_some());
        assert!(retried(100, fails).is_null());
        assert_eq!(calls.get(), 3);
        assert!(lock().is_none() && LOW.load(Ordering::Relaxed));
        // There is enough memory here to map it again.
        assert!(!is_low() && lock().is_some());
    }
}
