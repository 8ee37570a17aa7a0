//! The state of a file, in the terms of stat(2).
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::windows::io::{AsRawHandle, BorrowedHandle};

use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_READONLY, FILE_ATTRIBUTE_REPARSE_POINT,
    FILE_ATTRIBUTE_TAG_INFO, FILE_BASIC_INFO, FILE_ID_INFO, FILE_INFO_BY_HANDLE_CLASS, FILE_STANDARD_INFO,
    FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, FileAttributeTagInfo, FileBasicInfo, FileIdInfo, FileStandardInfo,
    GetFileInformationByHandle, GetFileInformationByHandleEx, GetFileType,
};

use super::{AsFd, Errno};

// Types, as in `st_mode`.
const TYPES: u32 = 0o170_000;
const SOCKET: u32 = 0o140_000;
const LINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;
const BLOCK: u32 = 0o060_000;
const DIRECTORY: u32 = 0o040_000;
const CHARACTER: u32 = 0o020_000;
const FIFO: u32 = 0o010_000;
/// The bit of the tag of a reparse point that stands for another file: a symbolic link, a junction.
const STANDS_FOR_ANOTHER: u32 = 0x2000_0000;
/// Steps of 100 nanoseconds from 1601 to 1970.
const EPOCH: i64 = 116_444_736_000_000_000;
const STEPS: i64 = 10_000_000;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as on Unix")]
pub enum FileType {
    RegularFile,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

impl FileType {
    /// From `st_mode`.
    pub const fn from_raw_mode(mode: u32) -> Self {
        match mode & TYPES {
            REGULAR => Self::RegularFile,
            DIRECTORY => Self::Directory,
            LINK => Self::Symlink,
            FIFO => Self::Fifo,
            SOCKET => Self::Socket,
            CHARACTER => Self::CharacterDevice,
            BLOCK => Self::BlockDevice,
            _ => Self::Unknown,
        }
    }

    /// Of a file with these attributes; `tag` is that of a reparse point.
    pub(super) fn of(attributes: u32, tag: u32) -> Self {
        Self::from_raw_mode(kind_of(attributes, tag))
    }
}

fn kind_of(attributes: u32, tag: u32) -> u32 {
    match attributes {
        _ if attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 && tag & STANDS_FOR_ANOTHER != 0 => LINK,
        // A placeholder, of a cloud for example: what is behind it is not known.
        _ if attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 => 0,
        _ if attributes & FILE_ATTRIBUTE_DIRECTORY != 0 => DIRECTORY,
        _ => REGULAR,
    }
}

/// Type and rights of a file.
pub fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode
}

/// The type of a file of this mode.
pub fn type_of(mode: u32) -> FileType {
    FileType::from_raw_mode(mode)
}

/// The state of a file.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as on Unix")]
pub struct Stat {
    /// The serial number of its volume.
    pub st_dev: u64,
    /// Its index there.
    pub st_ino: u64,
    pub st_mode: u32,
    pub st_nlink: u64,
    /// 0: there are no numbers for owners.
    pub st_uid: u32,
    pub st_gid: u32,
    pub st_size: i64,
    pub st_blocks: i64,
    pub st_mtime: i64,
    pub st_mtime_nsec: u64,
    /// The time of the last change of any kind; where it is not kept (FAT), that of the last write.
    pub st_ctime: i64,
    pub st_ctime_nsec: u64,
}

/// The information `class` of a file: integers.
fn ask<T: Default>(file: BorrowedHandle<'_>, class: FILE_INFO_BY_HANDLE_CLASS) -> io::Result<T> {
    let mut out = T::default();
    // SAFETY: it fills the size of `out`, which the caller has chosen for this class.
    let done = unsafe {
        GetFileInformationByHandleEx(file.as_raw_handle(), class, (&raw mut out).cast(), size_of::<T>() as u32)
    };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(out) }
}

/// Volume and index.
fn place(file: BorrowedHandle<'_>) -> io::Result<(u64, u64)> {
    if let Ok(id) = ask::<FILE_ID_INFO>(file, FileIdInfo) {
        let (low, high) = id.FileId.Identifier.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        // On NTFS the upper half is zero.
        return Ok((id.VolumeSerialNumber, word(low) ^ word(high).rotate_left(32)));
    }
    let mut about = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: fills a structure of integers.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut about) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let index = u64::from(about.nFileIndexHigh) << 32 | u64::from(about.nFileIndexLow);
    Ok((about.dwVolumeSerialNumber.into(), index))
}

/// Seconds since 1970 and nanoseconds.
fn unix_time(steps: i64) -> (i64, u64) {
    let since = steps.saturating_sub(EPOCH);
    (since.div_euclid(STEPS), since.rem_euclid(STEPS).unsigned_abs() * 100)
}

/// The state of an open file.
///
/// # Errors
/// From the system.
#[expect(clippy::needless_pass_by_value, reason = "as rustix takes it")]
pub fn fstat(file: impl AsFd) -> Result<Stat, Errno> {
    let file = file.as_fd();
    stat(file).map_err(|e| Errno::of(&e))
}

fn stat(file: BorrowedHandle<'_>) -> io::Result<Stat> {
    // SAFETY: asks about a handle.
    let kind = unsafe { GetFileType(file.as_raw_handle()) };
    if kind != FILE_TYPE_DISK {
        let mode = match kind {
            FILE_TYPE_CHAR => CHARACTER,
            FILE_TYPE_PIPE => FIFO,
            _ => 0,
        };
        return Ok(Stat { st_mode: mode, ..Stat::none() });
    }
    let basic: FILE_BASIC_INFO = ask(file, FileBasicInfo)?;
    let about: FILE_STANDARD_INFO = ask(file, FileStandardInfo)?;
    let is_reparse = basic.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0;
    let tag = if is_reparse { ask::<FILE_ATTRIBUTE_TAG_INFO>(file, FileAttributeTagInfo)?.ReparseTag } else { 0 };
    let kind = kind_of(basic.FileAttributes, tag);
    let rights = match (kind, basic.FileAttributes & FILE_ATTRIBUTE_READONLY) {
        (DIRECTORY, _) => 0o755,
        (_, 0) => 0o644,
        _ => 0o444,
    };
    let (dev, ino) = place(file)?;
    let changed = if basic.ChangeTime == 0 { basic.LastWriteTime } else { basic.ChangeTime };
    let (mtime, ctime) = (unix_time(basic.LastWriteTime), unix_time(changed));
    Ok(Stat {
        st_dev: dev,
        st_ino: ino,
        st_mode: kind | rights,
        st_nlink: about.NumberOfLinks.into(),
        st_size: about.EndOfFile,
        st_blocks: about.AllocationSize / 512,
        st_mtime: mtime.0,
        st_mtime_nsec: mtime.1,
        st_ctime: ctime.0,
        st_ctime_nsec: ctime.1,
        ..Stat::none()
    })
}

impl Stat {
    const fn none() -> Self {
        Self {
            st_dev: 0,
            st_ino: 0,
            st_mode: 0,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_size: 0,
            st_blocks: 0,
            st_mtime: 0,
            st_mtime_nsec: 0,
            st_ctime: 0,
            st_ctime_nsec: 0,
        }
    }
}
