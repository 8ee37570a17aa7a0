//! The page size of the system: 4 KiB on x86-64; on Arm 4, 16 or 64 KiB, as the kernel was built.
#![forbid(unsafe_code)]

use crate::platform;

/// Bytes that Linux maps around the page of a file that is accessed, unless pages are larger: its default.
const FAULT_AROUND: usize = 64 << 10;

/// Bytes of a memory page, a power of two.
pub fn page_size() -> usize {
    #[cfg(test)]
    if let Some(size) = tests::PRETENDED.get() {
        return size;
    }
    platform::page_size().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Bytes of a huge page: what one page of a page table maps. 2 MiB for pages of 4 KiB, 32 MiB for 16, 512 MiB for 64.
pub fn huge_page_size() -> usize {
    page_size() * (page_size() / size_of::<u64>())
}

/// Bytes that an access to a mapped file makes resident, aligned to as many.
pub fn mapped_at_once() -> usize {
    page_size().max(FAULT_AROUND)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// The page size that [`page_size`] says to this thread.
        pub(super) static PRETENDED: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Calls `run` for each page size that Linux has on Arm, as if it were that of the system.
    pub(crate) fn with_each_page_size(mut run: impl FnMut(usize)) {
        for size in [4, 16, 64].map(|kib| kib << 10) {
            PRETENDED.set(Some(size));
            run(size);
            PRETENDED.set(None);
        }
    }

    #[test]
    fn the_page_size_is_that_of_the_system() {
        let size = page_size();
        assert!(size >= 4096 && size.is_power_of_two(), "{size}");
        assert!(!cfg!(target_arch = "x86_64") || size == 4096, "{size}");
    }

    #[test]
    fn larger_pages_make_larger_huge_pages() {
        let mut sizes = Vec::new();
        with_each_page_size(|_| sizes.push((huge_page_size() >> 20, mapped_at_once() >> 10)));
        assert_eq!(sizes, [(2, 64), (32, 64), (512, 64)]);
    }
}
