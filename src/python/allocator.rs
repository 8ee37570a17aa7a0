//! The allocator of the module: mimalloc for everything, in the range of `fzmfs::huge_pages`.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};

use fzmfs::huge_pages;
use mimalloc::MiMalloc;

/// mimalloc, after its range was reserved.
pub(crate) struct Allocator;

// SAFETY: every call is passed to mimalloc; reserving its range allocates nothing.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        huge_pages::reserve();
        // SAFETY: the caller's contract.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        huge_pages::reserve();
        // SAFETY: the caller's contract.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { MiMalloc.realloc(memory, layout, size) }
    }
}
