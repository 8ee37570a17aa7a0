//! An allocator with a reserve, for processes whose address space is limited (`ulimit -v`).
//!
//! Rust ends the process when a small allocation fails. Under a limit that is always possible while pieces are
//! decoded, however much is charged: thread stacks and fragmentation take their share. So some address space is set
//! aside: when the system refuses, it is given up, and from then on [`is_low`] makes larger allocations fail as errors
//! until there is enough for the reserve again.
//!
//! Without [`set_aside`] it is the system's allocator and nothing else.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement, and mmap(2) to call")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes set aside.
const SIZE: usize = 16 << 20;
/// Larger allocations do not touch the reserve: they are made so that they can fail.
const SMALL: usize = SIZE / 4;

/// The start of the reserve, if it is there. No allocation is made while it is locked.
static RESERVE: Mutex<Option<usize>> = Mutex::new(None);
static LOW: AtomicBool = AtomicBool::new(false);

/// The allocator of the program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reserving;

// SAFETY: every call goes to the system's allocator with the caller's arguments, a second time if the first failed.
unsafe impl GlobalAlloc for Reserving {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of this function, which are those of the other one.
        retried(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        retried(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; after a failure the old allocation is as it was.
        retried(size, || unsafe { System.realloc(start, layout, size) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) };
    }
}

/// Sets the reserve aside, if there are `room` more bytes beside it; whether it is there.
pub fn set_aside(room: usize) -> bool {
    let mut reserve = lock();
    if reserve.is_none() {
        let beside = map(room);
        *reserve = beside.and_then(|_| map(SIZE));
        if let Some(start) = beside {
            unmap(start, room);
        }
    }
    reserve.is_some()
}

/// Whether the reserve was given up and there is not enough memory to set it aside again: allocations that can fail
/// should.
pub fn is_low() -> bool {
    if !LOW.load(Ordering::Relaxed) {
        return false;
    }
    let mut reserve = lock();
    if reserve.is_none() {
        *reserve = map(SIZE);
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
        unmap(start, SIZE);
    }
}

fn lock() -> MutexGuard<'static, Option<usize>> {
    RESERVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Address space without memory behind it.
fn map(size: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place that the system chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance())
}

/// Gives back what [`map`] gave.
fn unmap(start: usize, size: usize) {
    // SAFETY: a mapping of this size that `map` made, that was never handed out, and that is taken away once.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), size) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_small_allocation_that_fails_is_tried_again_with_the_reserve_and_a_large_one_is_not() {
        assert!(!set_aside(1 << 60) && set_aside(1 << 20));
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
        // There is enough here to set it aside again.
        assert!(!is_low() && lock().is_some());
    }
}
