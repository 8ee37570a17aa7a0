//! The mount: FUSE calls translated to tree queries, and the daemon around them.
//!
//! Invariant: event loops answer from memory and offload the rest. All but one of them may parse, sort or wait for a disk
//! for their own request (`offload`); none decodes or waits for a server.
//!
//! How replies reach the kernel: measured with a server of one 512 MiB file in memory (libfuse 3.19, two threads),
//! Linux 6.18 on two cores, medians of 9 interleaved rounds. A way is taken if it makes reads in order 15 % faster and
//! harms nothing else.
//!
//! | way | reads in order | random 4 KiB | verdict |
//! |---|---|---|---|
//! | read and writev on `/dev/fuse`, 1 MiB requests | 2.63 GB/s | 19 us | taken |
//! | FUSE over io_uring, queue depth 8 | 2.35 GB/s | 11 us | no: slower in order, and off unless root sets `enable_uring` |
//! | splice of replies from a memfd | 1.41 GB/s | 20 us | no: a page at a time |
//! | 4 MiB and 16 MiB requests (`max_pages`, readahead) | 0.88 and 0.68 of 1 MiB | - | no: beyond the L2 cache |
//! | 128 KiB readahead, the kernel's default | 2.34 GB/s | - | no: raised to 1 MiB |
//!
//! For a container on a server the kernel's readahead and the block size of files are one page: more would fetch
//! megabytes for a reader that jumps (64 x 64 elements of a mapped 101 MiB b2nd: 10 MB with 1 MiB, 0.5 MB with a page).
//! Large reads still are requests of 128 KiB, and the source fetches ahead of sequential readers.
//!
//! Wake-ups: the thread that decoded a piece answers the requests that wait for it, so a cold read wakes two threads, a
//! worker and the reader. The event loop that read a request answers it if the data is in memory: a handover to a pool
//! costs 12 us. For programs that visit entries in order, entries are prepared in windows (`walks`): 0.6 futex calls
//! for a small file instead of 14.
//!
//! Chunks of `data.zarr` are read directly (`FOPEN_DIRECT_IO`) when they are opened for the first time: a reader of
//! Zarr takes one whole and keeps it, so that pages of the kernel only cost a copy. 256 MiB of b2nd, nothing cached,
//! medians of 7 and 9 interleaved rounds: zarr-python 1.06 to 1.34 times as fast, `TensorStore` 1.12 to 1.24.
//!
//! Readers of windows come back to a chunk. So a prefetched chunk that does not continue the one before is cached like
//! a random read, and chunks in memory are read directly again (0.46 ms for 2 MiB, through new pages 1.1 ms). A chunk
//! that is decoded a second time gets pages, and is read from them (0.3 ms). 200 windows of 64 x 64: 340 instead of 391
//! ms.
//!
//! Pieces are in huge pages (`huge_pages`; medians of 7 interleaved rounds): 2 MiB that are decoded take 0.61
//! instead of 0.85 ms, in memory 0.28 instead of 0.41; 200 windows 275 instead of 327 ms.

mod activity;
mod adapter;
mod daemon;
mod daemon_id;
mod detach;
mod directory;
pub mod doctor;
mod events;
mod faults;
mod fd_passing;
mod held;
mod helper;
mod idle;
mod inode_attr;
mod kernel_tuning;
mod killed;
mod list;
mod loops;
mod mount;
mod mount_lock;
mod mountinfo;
mod offload;
mod opened_inodes;
mod options;
mod pinned;
mod process;
mod read;
mod serve;
mod session;
mod shared;
mod signals;
mod source_watch;
mod stats;
mod sys;
mod umount;
mod visited;
mod wake;
mod walks;
mod xattrs;

use std::path::Path;
use std::sync::Arc;

use crate::failure::Failure;
use crate::format::Container;
use crate::mirror::Containers;

use serve::Served;

pub use daemon::start as start_daemon;
pub use list::{DaemonState, Listed, Listing, answer, list};
pub use options::{Access, MountOptions, Owner};
pub use process::Process;
pub use umount::{Unmounted, umount};

/// Checks that the directory `point` can be mounted on, before the container is opened.
///
/// # Errors
/// A message for the user.
pub fn check_point(point: &Path) -> Result<(), Failure> {
    mount::check_point(point).map(drop)
}

/// Mounts an open container and serves it until the mount has ended.
///
/// # Errors
/// A message for the user.
pub fn mount_container(
    request: &MountOptions,
    container: &Arc<dyn Container>,
    process: Process,
) -> Result<(), Failure> {
    serve::serve(request, Served::Container(container.clone()), process)
}

/// Mounts the containers of a directory, and its other files; otherwise as [`mount_container`].
///
/// # Errors
/// A message for the user.
pub fn mount_directory(request: &MountOptions, containers: Containers, process: Process) -> Result<(), Failure> {
    serve::serve(request, Served::Directory(Box::new(containers)), process)
}
