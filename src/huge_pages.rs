//! Pieces in huge pages, by mimalloc.
//!
//! A new page of 4 KiB takes about as long as decoding into it. A huge page takes a quarter of that time per byte, and
//! memory freed by one piece serves the next. Freed memory returns to the system when the allocator is used after a
//! second, or at once with [`give_back`].
//!
//! Limits: 8 GiB of address space, not of memory; beyond it, or if it cannot be reserved, plain pages. Where a plain page
//! has 16 or 64 KiB, as on some Arm systems, a huge one has 32 or 512 MiB, which the first byte of it would take: there,
//! plain pages too, which are new less often. A piece of 1 MiB takes 7 % more than its bytes, no piece more than an
//! eighth.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use libmimalloc_sys::{mi_collect, mi_manage_os_memory_ex};
use mimalloc::MiMalloc;

use crate::paging::huge_page_size;
use crate::platform::huge_range;

/// Bytes of addresses reserved. mimalloc manages at most 16 GiB in one range.
const RANGE: usize = 8 << 30;
/// Bytes of a huge page, at most: about a piece. The range begins at a multiple.
const HUGE: usize = 2 << 20;
/// Sizes above this have their own pages in mimalloc, which then takes none in advance.
const SMALL: usize = 512 << 10;
/// Sizes above this are rare, and hardly written: the kernel's requests are received in 16 MiB.
const LARGE: usize = 8 << 20;

static IS_RESERVED: OnceLock<bool> = OnceLock::new();

/// Passes allocations of the size of pieces to mimalloc if its range could be reserved, and all others to `A`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HugePages<A>(pub A);

/// Reserves the range on the first call. Returns whether mimalloc has it.
///
/// Nothing is reserved where addresses are limited, and on systems without huge pages: see `platform::huge_range`.
pub fn reserve() -> bool {
    *IS_RESERVED.get_or_init(|| range().is_some_and(manage))
}

/// Returns all freed memory to the system.
pub fn give_back() {
    // SAFETY: touches nothing that is allocated.
    unsafe { mi_collect(true) };
}

/// Whether huge pages are small enough for pieces.
fn are_huge_pages_small() -> bool {
    huge_page_size() <= HUGE
}

/// The range, with huge pages if they are small.
fn range() -> Option<*mut c_void> {
    huge_range(RANGE, HUGE, are_huge_pages_small())
}

/// Gives mimalloc the range. Returns whether it took it.
fn manage(first: *mut c_void) -> bool {
    // SAFETY: nothing else uses the mapping, which is zero and lasts as long as the process.
    unsafe { mi_manage_os_memory_ex(first, RANGE, true, false, true, -1, false, ptr::null_mut()) }
}

/// Whether mimalloc allocates `size` bytes: always the same answer for the same size.
fn is_ours(size: usize) -> bool {
    (SMALL + 1..=LARGE).contains(&size) && reserve()
}

impl<A: GlobalAlloc> HugePages<A> {
    /// The allocator of `size` bytes.
    fn of(&self, size: usize) -> &dyn GlobalAlloc {
        if is_ours(size) { &MiMalloc } else { &self.0 }
    }
}

// SAFETY: every call is passed to the allocator of its size, which is also that of the call before it.
unsafe impl<A: GlobalAlloc> GlobalAlloc for HugePages<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this function, which is that of the forwarded ones.
        unsafe { self.of(layout.size()).alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.of(layout.size()).alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.of(layout.size()).dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_ours(layout.size()) == is_ours(size) {
            // SAFETY: as above.
            return unsafe { self.of(size).realloc(memory, layout, size) };
        }
        // SAFETY: the caller may ask for this size with this alignment.
        let resized = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as above.
        let moved = unsafe { self.alloc(resized) };
        if !moved.is_null() {
            // SAFETY: both hold as many bytes.
            unsafe { ptr::copy_nonoverlapping(memory, moved, size.min(layout.size())) };
            // SAFETY: as above.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    const ALLOCATOR: HugePages<System> = HugePages(System);

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 64).unwrap()
    }

    #[test]
    fn what_grows_and_shrinks_across_the_limits_keeps_its_bytes() {
        assert_eq!(reserve(), range().is_some());
        let sizes = [100, SMALL, SMALL + 1, LARGE, LARGE + 1, LARGE - 1, SMALL + 2, 2 * LARGE, 50];
        // SAFETY: a size that is not zero.
        let mut memory = unsafe { ALLOCATOR.alloc_zeroed(layout(sizes[0])) };
        let mut kept = 0;
        for pair in sizes.windows(2) {
            // SAFETY: as many bytes as the last call gave.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory, pair[0]) };
            bytes[kept..].fill(7);
            // SAFETY: the layout is that of the last call.
            memory = unsafe { ALLOCATOR.realloc(memory, layout(pair[0]), pair[1]) };
            assert!(!memory.is_null() && memory.addr().is_multiple_of(64), "{pair:?}");
            kept = pair[0].min(pair[1]);
            // SAFETY: both sizes hold as many, all of them written.
            assert!(unsafe { std::slice::from_raw_parts(memory, kept) }.iter().all(|&byte| byte == 7), "{pair:?}");
        }
        // SAFETY: the layout is that of the last call.
        unsafe { ALLOCATOR.dealloc(memory, layout(50)) };
    }

    #[test]
    fn huge_pages_are_advised_only_where_one_is_about_a_piece() {
        let mut advised = Vec::new();
        crate::paging::tests::with_each_page_size(|page| advised.push((page, are_huge_pages_small())));
        assert_eq!(advised, [(4096, true), (16 << 10, false), (64 << 10, false)]);
    }

    #[test]
    fn zeroed_memory_is_zero_after_it_was_written_and_freed() {
        for _ in 0..3 {
            let layout = layout(2 * SMALL);
            // SAFETY: a size that is not zero.
            let memory = unsafe { ALLOCATOR.alloc_zeroed(layout) };
            // SAFETY: as many bytes as were allocated.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory, layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
            // SAFETY: allocated with this layout.
            unsafe { ALLOCATOR.dealloc(memory, layout) };
            give_back();
        }
    }
}
