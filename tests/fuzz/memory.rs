//! The memory that a run takes at most, of Rust and of C libraries alike: AddressSanitizer tells of every allocation.

use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicI64, Ordering};

static NOW: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

unsafe extern "C" {
    fn __sanitizer_install_malloc_and_free_hooks(
        malloc: extern "C" fn(*const c_void, usize),
        free: extern "C" fn(*const c_void),
    ) -> c_int;
    fn __sanitizer_get_allocated_size(pointer: *const c_void) -> usize;
}

extern "C" fn allocated(_: *const c_void, size: usize) {
    let now = NOW.fetch_add(size as i64, Ordering::Relaxed) + size as i64;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

extern "C" fn freed(pointer: *const c_void) {
    if !pointer.is_null() {
        // SAFETY: called for memory of the sanitizer's allocator, before it takes it back.
        let size = unsafe { __sanitizer_get_allocated_size(pointer) };
        NOW.fetch_sub(size as i64, Ordering::Relaxed);
    }
}

/// Runs `case`; what it gives, and the most bytes that were allocated meanwhile on top of those before.
pub fn measured<T>(case: impl FnOnce() -> T) -> (T, u64) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the hooks touch two atomics, from any thread, and do not allocate.
        let installed = unsafe { __sanitizer_install_malloc_and_free_hooks(allocated, freed) };
        assert!(installed > 0, "memory cannot be counted: build with AddressSanitizer");
    });
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let answer = case();
    (answer, (PEAK.load(Ordering::Relaxed) - before).max(0) as u64)
}
