//! The allocator of the module: mimalloc, in a range of memory that the kernel may back with huge pages.
//!
//! A new page of 4 KiB takes about as long as decoding into it. A huge page takes a quarter of that time per byte, and
//! what an archive frees serves the next one. Freed memory returns to the system when the allocator is used after a
//! second, or at once with [`give_back`].
//!
//! Limits: [`RANGE`] bytes of addresses, not of memory; beyond them, and where they cannot be had, plain memory.
#![expect(unsafe_code, reason = "a global allocator, in memory of its own")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libmimalloc_sys::{mi_collect, mi_manage_os_memory_ex};
use mimalloc::MiMalloc;

/// Bytes of addresses reserved for all archives. mimalloc manages at most 16 GiB in one range.
const RANGE: usize = 8 << 30;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// mimalloc, after its range was reserved.
pub(crate) struct Allocator;

static IS_RESERVED: AtomicBool = AtomicBool::new(false);

impl Allocator {
    /// Reserves the range on first use. A thread that allocates meanwhile gets plain memory.
    fn prepare() {
        if !IS_RESERVED.load(Ordering::Relaxed) && !IS_RESERVED.swap(true, Ordering::Relaxed) {
            reserve();
        }
    }
}

/// Gives mimalloc a range of addresses that is advised to have huge pages.
fn reserve() {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), RANGE, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return;
    }
    let start = start.cast::<u8>();
    let skipped = start.align_offset(HUGE);
    // SAFETY: the first huge page's boundary is within the mapping.
    let first = unsafe { start.add(skipped) }.cast::<libc::c_void>();
    let len = (RANGE - skipped) / HUGE * HUGE;
    // Without huge pages the range serves as well.
    // SAFETY: a part of the mapping.
    unsafe { libc::madvise(first, len, libc::MADV_HUGEPAGE) };
    // SAFETY: nothing else uses the mapping, which is zero and lasts as long as the process.
    unsafe { mi_manage_os_memory_ex(first, len, true, false, true, -1, false, ptr::null_mut()) };
}

/// Returns all freed memory to the system.
pub(crate) fn give_back() {
    // SAFETY: touches nothing that is allocated.
    unsafe { mi_collect(true) };
}

// SAFETY: every call is passed to an allocator; preparing it allocates nothing.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::prepare();
        // SAFETY: the caller's contract.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::prepare();
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
