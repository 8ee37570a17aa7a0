//! An allocator that counts, and the memory of this process as the system sees it.
//!
//! The allocator sees every byte of Rust's own; what C libraries allocate and what is mapped shows in the second.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes at which the allocator refuses: nothing is to take down the machine.
const REFUSED: usize = 2 << 30;

/// Counts the bytes that are allocated now, and the most there were.
pub(crate) struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Called, with the bytes that were asked for, before they are refused; must not allocate.
pub(crate) static ON_REFUSAL: OnceLock<fn(usize)> = OnceLock::new();

/// Bytes that are allocated now; from here on the peak is counted anew.
pub(crate) fn begin() -> usize {
    let now = NOW.load(Ordering::Relaxed);
    PEAK.store(now, Ordering::Relaxed);
    now
}

/// The most bytes that were allocated since [`begin`] gave `before`, on top of those.
pub(crate) fn most_since(before: usize) -> usize {
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

/// Gives memory that is free back to the system: what the next case takes then shows.
pub(crate) fn trim() {
    // SAFETY: glibc's, for any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Bytes of memory that this process has; from here on the most of it is counted anew. 0 where the system does not say.
pub(crate) fn begin_resident() -> usize {
    // 5: the high-water mark, and nothing else.
    if fs::write("/proc/self/clear_refs", "5").is_err() {
        return 0;
    }
    status("VmRSS:")
}

/// The most bytes of memory that this process had since [`begin_resident`] gave `before`, on top of those.
pub(crate) fn most_resident_since(before: usize) -> usize {
    if before == 0 { 0 } else { status("VmHWM:").saturating_sub(before) }
}

fn status(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok()).unwrap_or(0) << 10
}

fn grown(by: usize) -> bool {
    let now = NOW.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(now, Ordering::Relaxed);
    if now < REFUSED {
        return true;
    }
    NOW.fetch_sub(by, Ordering::Relaxed);
    if let Some(notice) = ON_REFUSAL.get() {
        notice(by);
    }
    false
}

// SAFETY: every call is passed on to the system's allocator as it is; counting changes nothing, and
// refusing (a null pointer) is allowed to every allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !grown(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !grown(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !grown(size) {
            return std::ptr::null_mut();
        }
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
