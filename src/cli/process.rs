//! The limits of this process, and how it lives within them.
#![expect(unsafe_code, reason = "libc has no safe way to set signals and the allocator")]

use rustix::process::{Resource, getrlimit, setrlimit};

use super::report::{Failure, Outcome};
use super::size;
use crate::reserve;

/// Address space from which on the allocator may do as it likes.
const ROOMY: u64 = 8 << 30;

/// What every command needs beside the reserve: measured, with all formats.
const NEEDED: usize = 24 << 20;

/// Makes the most of small limits, before there is any other thread.
///
/// # Errors
/// If they are too small for any work.
pub(super) fn join() -> Outcome {
    use_all_descriptors();
    match getrlimit(Resource::As).current.filter(|limit| *limit < ROOMY) {
        None => Ok(()),
        Some(limit) => {
            share_the_heap();
            if reserve::set_aside(NEEDED) {
                return Ok(());
            }
            let limit = size::short(limit);
            Err(Failure::new(format!("the address space is limited to {limit} (ulimit -v), which is too little")))
        }
    }
}

/// Raises the soft limit of open files to the hard one: the soft one is low for the sake of select(2) alone.
fn use_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What is not granted is not needed, or its lack is reported where it is.
    setrlimit(Resource::Nofile, limit).ok();
}

/// Keeps glibc from reserving 64 MiB of address space for each thread.
#[cfg(target_env = "gnu")]
fn share_the_heap() {
    // SAFETY: two numbers; there is no other thread that could be allocating.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(target_env = "gnu"))]
fn share_the_heap() {}

/// Ends this process, silently, when it writes to a pipe that nobody reads any more: as `cat` does.
pub(super) fn end_with_the_reader() {
    // SAFETY: sets the default action, before there is any other thread.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
