//! Resource limits of this process.
#![forbid(unsafe_code)]

use super::size;
use crate::failure::Failure;
use crate::{platform, reserve};

/// Address space above which the allocator needs no restriction.
const ROOMY: u64 = 8 << 30;

/// Measured need of every command besides the reserve, with all formats.
const NEEDED: usize = 24 << 20;

/// Adapts to small limits. Must run before any other thread exists.
///
/// # Errors
/// Fails if the limits are too small for any work.
pub(super) fn join() -> Result<(), Failure> {
    platform::use_all_descriptors();
    platform::keep_little_freed_memory();
    platform::fail_writes_over_the_limit();
    match platform::address_space().filter(|limit| *limit < ROOMY) {
        None => Ok(()),
        Some(limit) => {
            platform::share_the_heap();
            if reserve::map_reserve(NEEDED) {
                return Ok(());
            }
            let limit = size::short(limit);
            Err(Failure::new(format!("the address space is limited to {limit} (ulimit -v), which is too little")))
        }
    }
}
