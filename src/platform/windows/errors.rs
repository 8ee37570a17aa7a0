//! Numbers of errors as on Unix: the code above branches on them, and readers get them.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind};

use windows_sys::Win32::Foundation::{
    ERROR_COMMITMENT_LIMIT, ERROR_DELETE_PENDING, ERROR_DIRECTORY, ERROR_DISK_FULL, ERROR_INVALID_NAME,
    ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY, ERROR_SHARING_VIOLATION,
    ERROR_TOO_MANY_OPEN_FILES,
};

/// The number of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// No permission.
    pub const ACCESS: Self = Self(libc::EACCES);
    /// Try again.
    pub const AGAIN: Self = Self(libc::EAGAIN);
    /// No such handle.
    pub const BADF: Self = Self(libc::EBADF);
    /// It exists.
    pub const EXIST: Self = Self(libc::EEXIST);
    /// Not a name, or not an argument.
    pub const INVAL: Self = Self(libc::EINVAL);
    /// A link.
    pub const LOOP: Self = Self(libc::ELOOP);
    /// No such attribute.
    pub const NODATA: Self = Self(libc::ENODATA);
    /// It does not exist.
    pub const NOENT: Self = Self(libc::ENOENT);
    /// There is no such call.
    pub const NOSYS: Self = Self(libc::ENOSYS);
    /// Not a directory.
    pub const NOTDIR: Self = Self(libc::ENOTDIR);
    /// Not supported.
    pub const NOTSUP: Self = Self(libc::ENOTSUP);
    /// Not permitted.
    pub const PERM: Self = Self(libc::EPERM);
    /// On another file system.
    pub const XDEV: Self = Self(libc::EXDEV);

    /// The number of an error of Windows.
    pub(super) fn of(error: &io::Error) -> Self {
        Self(errno(error).unwrap_or(libc::EIO))
    }

    /// The kind and the message, as on Unix.
    fn meaning(self) -> (ErrorKind, &'static str) {
        match self.0 {
            libc::EACCES => (ErrorKind::PermissionDenied, "Permission denied"),
            libc::EAGAIN => (ErrorKind::WouldBlock, "Resource temporarily unavailable"),
            libc::ECANCELED => (ErrorKind::Other, "Operation canceled"),
            libc::EEXIST => (ErrorKind::AlreadyExists, "File exists"),
            libc::EFBIG => (ErrorKind::FileTooLarge, "File too large"),
            libc::EINTR => (ErrorKind::Interrupted, "Interrupted system call"),
            libc::EINVAL => (ErrorKind::InvalidInput, "Invalid argument"),
            libc::EISDIR => (ErrorKind::IsADirectory, "Is a directory"),
            libc::ELOOP => (ErrorKind::Other, "A link, which is not followed"),
            libc::EMFILE | libc::ENFILE => (ErrorKind::Other, "Too many open files"),
            libc::ENOENT => (ErrorKind::NotFound, "No such file or directory"),
            libc::ENOMEM => (ErrorKind::OutOfMemory, "Cannot allocate memory"),
            libc::ENOSPC => (ErrorKind::StorageFull, "No space left on device"),
            libc::ENOTDIR => (ErrorKind::NotADirectory, "Not a directory"),
            libc::ENOSYS | libc::ENOTSUP => (ErrorKind::Unsupported, "Not supported by Windows"),
            libc::EXDEV => (ErrorKind::CrossesDevices, "Not below the directory"),
            _ => (ErrorKind::Other, "Input/output error"),
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.meaning().1)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::new(errno.meaning().0, errno)
    }
}

/// The error with the number `errno`.
pub fn os_error(errno: i32) -> io::Error {
    Errno(errno).into()
}

/// The number of an error of the system.
pub fn errno(error: &io::Error) -> Option<i32> {
    if let Some(errno) = error.get_ref().and_then(|inner| inner.downcast_ref::<Errno>()) {
        return Some(errno.0);
    }
    let code = error.raw_os_error()?.cast_unsigned();
    Some(match code {
        ERROR_TOO_MANY_OPEN_FILES => libc::EMFILE,
        ERROR_NOT_ENOUGH_MEMORY | ERROR_OUTOFMEMORY | ERROR_COMMITMENT_LIMIT | ERROR_NO_SYSTEM_RESOURCES => {
            libc::ENOMEM
        }
        ERROR_INVALID_NAME | ERROR_DELETE_PENDING => libc::ENOENT,
        ERROR_DIRECTORY => libc::ENOTDIR,
        ERROR_SHARING_VIOLATION => libc::EACCES,
        ERROR_DISK_FULL => libc::ENOSPC,
        _ => match error.kind() {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::PermissionDenied => libc::EACCES,
            ErrorKind::AlreadyExists => libc::EEXIST,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::StorageFull => libc::ENOSPC,
            ErrorKind::NotADirectory => libc::ENOTDIR,
            ErrorKind::IsADirectory => libc::EISDIR,
            ErrorKind::CrossesDevices => libc::EXDEV,
            ErrorKind::Unsupported => libc::ENOTSUP,
            ErrorKind::BrokenPipe => libc::EPIPE,
            _ => libc::EIO,
        },
    })
}

/// There are no limits that a user could raise.
pub fn advice(_: i32) -> &'static str {
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_number_and_says_what_it_means() {
        for number in [libc::ENOENT, libc::EIO, libc::ENOMEM, libc::EMFILE, libc::ELOOP, libc::EFBIG] {
            assert_eq!(errno(&os_error(number)), Some(number));
        }
        let error = std::fs::File::open(r"C:\no\such\file").unwrap_err();
        assert_eq!(errno(&error), Some(libc::ENOENT));
        assert_eq!(os_error(libc::ENOENT).to_string(), "No such file or directory");
    }
}
