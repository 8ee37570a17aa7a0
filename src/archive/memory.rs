//! The memory available to this process, and the default cache size.
#![forbid(unsafe_code)]

use std::sync::OnceLock;

use crate::platform;

/// Maximum default cache size.
const MOST: u64 = 1 << 30;
/// Assumed if the system does not report it.
const UNKNOWN: u64 = 2 << 30;

/// Bytes of memory available to this process.
pub(crate) fn total() -> u64 {
    platform::available_memory().unwrap_or(UNKNOWN)
}

/// Default cache size: an eighth of the memory that was available at first, at most 1 GiB.
pub(crate) fn default_cache() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| share(total()))
}

/// The cache of a process with `total` bytes of memory.
fn share(total: u64) -> u64 {
    (total / 8).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_cache_is_within_its_bounds() {
        assert!((1 << 20..=MOST).contains(&default_cache()) && default_cache() <= total() / 8);
    }

    #[test]
    fn the_default_cache_is_an_eighth_of_the_memory_or_a_gigabyte() {
        assert_eq!([800, 8 << 30, 64 << 30].map(share), [100, 1 << 30, 1 << 30]);
    }
}
