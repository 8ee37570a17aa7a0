//! Differences between operating systems: files by descriptor, their identity, temporary files, memory, limits, signals.
//!
//! All else is written once, against the names of `rustix` and `std::os::unix`. On Unix most of this module is those
//! names; on Windows it has the part of them that is used, over handles. Only here is asked for which system the program
//! is compiled: a test checks that (`tests/suite/layers.rs`).
//!
//! The table says what a system lacks; so do the function that lacks it, and the README:
//!
//! | | Linux | macOS | Windows |
//! | --- | --- | --- | --- |
//! | mounting | FUSE | no | no |
//! | identity of a file | device, inode, times | the same | volume, file index, times |
//! | paths below a directory | one call, or each component | each component | each component |
//! | a look at a file that does not wait for its server | yes | no | no |
//! | directories that may be searched but not listed | yes | no | yes |
//! | access control lists | read | no | no |
//! | `index=`, `remote_cache=` | yes | yes | no: whether others can write there is not known |
//! | temporary files | without a name | unlinked | deleted on close, opened by nobody else |
//! | symbolic links in a directory | shown | shown | neither followed nor shown; `extract` copies |
//! | huge pages | yes | no | no |
//! | a change of a file is noticed | when it is written | the same | when its writer closes it |
//! | names that the system refuses | none | none | `extract` writes `a:b` as `a%3Ab` |
//! | GPUs | CUDA | no | no |

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
compile_error!("known systems are Linux, macOS and Windows: src/platform");
#[cfg(all(feature = "fuse", not(target_os = "linux")))]
compile_error!("mounting needs Linux: --no-default-features --features cli,remote,serve");

/// The identity of an open file, as far as the system has it in memory.
#[derive(Debug, Clone, Copy)]
pub struct InMemory {
    /// The device that the file is on.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Likewise, of the last change of any kind.
    pub ctime: (i64, i64),
    /// The number of links.
    pub nlink: u64,
    /// Type and rights.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}
