//! The names in a directory.
#![expect(unsafe_code, reason = "a system call")]

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::mem::offset_of;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::io::{AsRawHandle, OwnedHandle};

use windows_sys::Wdk::Storage::FileSystem::{FILE_DIRECTORY_FILE, FILE_OPEN};
use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_NO_MORE_FILES};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FULL_DIR_INFO, FILE_LIST_DIRECTORY, FILE_READ_ATTRIBUTES, FILE_TRAVERSE, FileFullDirectoryInfo,
    GetFileInformationByHandleEx,
};

use super::{AsFd, Errno, FileType, nt};

/// Words of a part of the list.
const WORDS: usize = 8 << 10;

/// The entries of a directory.
#[derive(Debug)]
pub struct Dir {
    handle: OwnedHandle,
    buffer: Box<[u64]>,
    /// Where the next entry is in the buffer; `None` if more must be read.
    next: Option<usize>,
    is_end: bool,
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry {
    name: CString,
    kind: FileType,
}

impl DirEntry {
    /// Its name.
    pub fn file_name(&self) -> &CStr {
        &self.name
    }

    /// Its type.
    pub fn file_type(&self) -> FileType {
        self.kind
    }
}

impl Dir {
    /// The entries of the directory that is open as `fd`.
    ///
    /// # Errors
    /// From the system.
    #[expect(clippy::needless_pass_by_value, reason = "as on Unix")]
    pub fn new(fd: impl Into<OwnedHandle>) -> Result<Self, Errno> {
        Self::read_from(fd.into())
    }

    /// Likewise; `fd` may have been listed before.
    ///
    /// # Errors
    /// From the system.
    #[expect(clippy::needless_pass_by_value, reason = "as rustix takes it")]
    pub fn read_from(fd: impl AsFd) -> Result<Self, Errno> {
        // How far the list was read belongs to the handle: another one for the same directory.
        let access = FILE_LIST_DIRECTORY | FILE_TRAVERSE | FILE_READ_ATTRIBUTES;
        let handle = nt::open(fd.as_fd(), &[], access, FILE_OPEN, FILE_DIRECTORY_FILE, false)?;
        Ok(Self { handle, buffer: vec![0; WORDS].into(), next: None, is_end: false })
    }

    fn fill(&mut self) -> io::Result<()> {
        let len = size_of_val(&*self.buffer) as u32;
        // SAFETY: fills at most `len` bytes of integers.
        let done = unsafe {
            let buffer = self.buffer.as_mut_ptr().cast();
            GetFileInformationByHandleEx(self.handle.as_raw_handle(), FileFullDirectoryInfo, buffer, len)
        };
        if done != 0 {
            self.next = Some(0);
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let end = [ERROR_NO_MORE_FILES, ERROR_FILE_NOT_FOUND].map(|code| Some(code.cast_signed()));
        if end.contains(&error.raw_os_error()) {
            self.is_end = true;
            return Ok(());
        }
        Err(error)
    }

    /// The entry at byte `at` of the buffer, and where the next one is; `None` if the buffer does not hold it.
    fn entry(&self, at: usize) -> Option<(DirEntry, Option<usize>)> {
        let byte = |at: usize| Some(self.buffer.get(at / 8)?.to_le_bytes()[at % 8]);
        let word = |field: usize| {
            let start = at.checked_add(field)?;
            Some(u32::from_le_bytes([byte(start)?, byte(start + 1)?, byte(start + 2)?, byte(start + 3)?]))
        };
        let next = word(offset_of!(FILE_FULL_DIR_INFO, NextEntryOffset))? as usize;
        let len = word(offset_of!(FILE_FULL_DIR_INFO, FileNameLength))? as usize;
        let attributes = word(offset_of!(FILE_FULL_DIR_INFO, FileAttributes))?;
        // Of a reparse point, its tag.
        let tag = word(offset_of!(FILE_FULL_DIR_INFO, EaSize))?;
        let start = at + offset_of!(FILE_FULL_DIR_INFO, FileName);
        let name: Option<Vec<u16>> =
            (0..len / 2).map(|i| Some(u16::from_le_bytes([byte(start + 2 * i)?, byte(start + 2 * i + 1)?]))).collect();
        let name = OsString::from_wide(&name?).into_encoded_bytes();
        let entry = DirEntry { name: CString::new(name).ok()?, kind: FileType::of(attributes, tag) };
        Some((entry, (next != 0).then_some(at + next)))
    }
}

impl Iterator for Dir {
    type Item = Result<DirEntry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_none()
            && !self.is_end
            && let Err(e) = self.fill()
        {
            self.is_end = true;
            return Some(Err(Errno::of(&e)));
        }
        let (entry, next) = self.entry(self.next?)?;
        self.next = next;
        Some(Ok(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CWD, Mode, OFlags, openat};
    use super::*;

    #[test]
    fn every_name_is_listed_once_however_often_and_however_many() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("d")).unwrap();
        let long = "n".repeat(100);
        for i in 0..1000 {
            std::fs::write(top.path().join(format!("{long}{i}")), "").unwrap();
        }
        let dir = openat(CWD, top.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..2 {
            let entries: Vec<_> = Dir::read_from(&dir).unwrap().map(Result::unwrap).collect();
            let files = entries.iter().filter(|entry| entry.file_type() == FileType::RegularFile).count();
            let is_dir = |entry: &DirEntry| entry.file_name() == c"d" && entry.file_type() == FileType::Directory;
            assert!(files == 1000 && entries.iter().filter(|entry| is_dir(entry)).count() == 1);
        }
    }
}
