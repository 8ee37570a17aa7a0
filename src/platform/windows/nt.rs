//! Calls of the kernel that take a name relative to the handle of a directory, which those of Win32 do not.
#![expect(unsafe_code, reason = "system calls")]

use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::{io, ptr};

use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_INFORMATION_CLASS, FILE_OPEN_REPARSE_POINT, FILE_SYNCHRONOUS_IO_NONALERT, FileFsFullSizeInformation,
    NTCREATEFILE_CREATE_DISPOSITION, NTCREATEFILE_CREATE_OPTIONS, NtCreateFile, NtQueryVolumeInformationFile,
    NtSetInformationFile,
};
use windows_sys::Wdk::System::SystemServices::FILE_FS_FULL_SIZE_INFORMATION;
use windows_sys::Win32::Foundation::{
    INVALID_HANDLE_VALUE, NTSTATUS, OBJ_CASE_INSENSITIVE, RtlNtStatusToDosError, STATUS_DELETE_PENDING,
    STATUS_FILE_IS_A_DIRECTORY, STATUS_NOT_A_DIRECTORY, STATUS_OBJECT_NAME_COLLISION, UNICODE_STRING,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_NORMAL, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

use super::{Errno, os_error};

/// The directory in which relative paths begin: not a handle of one. Paths there are the user's, as Windows takes them.
// SAFETY: the value of a handle that is none may be borrowed, and nothing is asked of it.
pub const CWD: BorrowedHandle<'static> = unsafe { BorrowedHandle::borrow_raw(INVALID_HANDLE_VALUE) };

fn done(status: NTSTATUS) -> Result<(), Errno> {
    match status {
        0.. => Ok(()),
        STATUS_FILE_IS_A_DIRECTORY => Err(Errno::of(&os_error(libc::EISDIR))),
        STATUS_NOT_A_DIRECTORY => Err(Errno::NOTDIR),
        STATUS_DELETE_PENDING => Err(Errno::NOENT),
        STATUS_OBJECT_NAME_COLLISION => Err(Errno::EXIST),
        _ => {
            // SAFETY: takes a number.
            let code = unsafe { RtlNtStatusToDosError(status) };
            Err(Errno::of(&io::Error::from_raw_os_error(code.cast_signed())))
        }
    }
}

/// Opens or makes `name` in `dir`; an empty name is `dir` itself. A reparse point is opened itself if `follow` is not
/// set. All others may read, write and delete it meanwhile, as on Unix.
pub(super) fn open(
    dir: BorrowedHandle<'_>,
    name: &[u16],
    access: u32,
    disposition: NTCREATEFILE_CREATE_DISPOSITION,
    options: NTCREATEFILE_CREATE_OPTIONS,
    follow: bool,
) -> Result<OwnedHandle, Errno> {
    let bytes = u16::try_from(size_of_val(name)).map_err(|_| Errno::NOENT)?;
    let name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_ptr().cast_mut() };
    let attributes = OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        RootDirectory: dir.as_raw_handle(),
        ObjectName: &raw const name,
        Attributes: OBJ_CASE_INSENSITIVE,
        SecurityDescriptor: ptr::null(),
        SecurityQualityOfService: ptr::null(),
    };
    let (mut handle, mut status) = (ptr::null_mut(), IO_STATUS_BLOCK::default());
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    let reparse = if follow { 0 } else { FILE_OPEN_REPARSE_POINT };
    // SAFETY: everything it reads and fills lives until it returns.
    let opened = unsafe {
        NtCreateFile(
            &raw mut handle,
            access | SYNCHRONIZE,
            &raw const attributes,
            &raw mut status,
            ptr::null(),
            FILE_ATTRIBUTE_NORMAL,
            share,
            disposition,
            options | reparse | FILE_SYNCHRONOUS_IO_NONALERT,
            ptr::null(),
            0,
        )
    };
    done(opened)?;
    // SAFETY: it was opened by this call, and nothing else owns it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Sets what `information` says, which has the form of `class`.
pub(super) fn set(file: &OwnedHandle, class: FILE_INFORMATION_CLASS, information: &[u64]) -> Result<(), Errno> {
    let mut status = IO_STATUS_BLOCK::default();
    let len = size_of_val(information) as u32;
    // SAFETY: it reads `len` bytes.
    done(unsafe {
        NtSetInformationFile(file.as_raw_handle(), &raw mut status, information.as_ptr().cast(), len, class)
    })
}

/// The size of the file system that `file` is on.
pub(super) fn size(file: BorrowedHandle<'_>) -> Result<FILE_FS_FULL_SIZE_INFORMATION, Errno> {
    let (mut status, mut size) = (IO_STATUS_BLOCK::default(), FILE_FS_FULL_SIZE_INFORMATION::default());
    let len = size_of_val(&size) as u32;
    // SAFETY: it fills `len` bytes, of integers.
    done(unsafe {
        let (status, size) = (&raw mut status, (&raw mut size).cast());
        NtQueryVolumeInformationFile(file.as_raw_handle(), status, size, len, FileFsFullSizeInformation)
    })?;
    Ok(size)
}
