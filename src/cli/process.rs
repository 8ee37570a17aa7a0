//! Resource limits and signals of this process.
#![expect(unsafe_code, reason = "libc has no safe way to set signals and the allocator")]

use rustix::process::{Resource, getrlimit, setrlimit};

use super::size;
use crate::failure::Failure;
use crate::reserve;

/// Address space above which the allocator needs no restriction.
const ROOMY: u64 = 8 << 30;

/// Measured need of every command besides the reserve, with all formats.
const NEEDED: usize = 24 << 20;

/// Adapts to small limits. Must run before any other thread exists.
///
/// # Errors
/// Fails if the limits are too small for any work.
pub(super) fn join() -> Result<(), Failure> {
    use_all_descriptors();
    fail_writes_over_the_limit();
    match getrlimit(Resource::As).current.filter(|limit| *limit < ROOMY) {
        None => Ok(()),
        Some(limit) => {
            share_the_heap();
            if reserve::map_reserve(NEEDED) {
                return Ok(());
            }
            let limit = size::short(limit);
            Err(Failure::new(format!("the address space is limited to {limit} (ulimit -v), which is too little")))
        }
    }
}

/// Raises the soft limit of open files to the hard limit: the soft limit is low only for the sake of select(2).
fn use_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, a lack of descriptors is reported where it occurs.
    setrlimit(Resource::Nofile, limit).ok();
}

/// Makes a write beyond `ulimit -f` fail with EFBIG; otherwise SIGXFSZ would end the process.
fn fail_writes_over_the_limit() {
    // SAFETY: ignores a signal; no other thread exists.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Prevents glibc from reserving 64 MiB of address space per thread.
#[cfg(target_env = "gnu")]
fn share_the_heap() {
    // SAFETY: passes two integers; no other thread is allocating.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(target_env = "gnu"))]
fn share_the_heap() {}

/// Ends this process silently, by SIGPIPE, as `cat` ends when the reader of its output has gone. Only then: a server
/// that resets a connection must not end a command.
pub(super) fn end_with_the_reader() -> ! {
    // SAFETY: sets the default action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGPIPE) };
    // Blocked by the parent.
    std::process::exit(128 + libc::SIGPIPE)
}
