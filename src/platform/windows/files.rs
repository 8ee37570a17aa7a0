//! Files and directories by name, relative to the handle of a directory.
#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "as rustix takes them")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, OwnedHandle};
use std::path::Path;

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_CREATE, FILE_DIRECTORY_FILE, FILE_NON_DIRECTORY_FILE, FILE_OPEN, FileDispositionInformation,
    FileRenameInformation,
};
use windows_sys::Win32::Storage::FileSystem::{
    DELETE, FILE_ATTRIBUTE_TEMPORARY, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_DELETE_ON_CLOSE,
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_READ_ATTRIBUTES,
};

use super::flags::{AtFlags, Mode, OFlags, RenameFlags, SEARCH};
use super::names::{Arg, wide};
use super::nt::{self, CWD};
use super::{AsFd, Errno, FileType, Stat, fstat};

/// Links are not made: ordinary users may not.
pub const MAKES_LINKS: bool = false;

/// `dir`, unless it is [`CWD`].
fn opened(dir: &impl AsFd) -> Option<BorrowedHandle<'_>> {
    Some(dir.as_fd()).filter(|dir| dir.as_raw_handle() != CWD.as_raw_handle())
}

/// The size of a file system.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "as on Unix")]
pub struct StatVfs {
    pub f_blocks: u64,
    pub f_bfree: u64,
    pub f_bavail: u64,
    pub f_frsize: u64,
    /// Not known.
    pub f_files: u64,
    /// Not known.
    pub f_ffree: u64,
}

/// The directory of the last component of `path` below `dir`, unless that is `dir`, and this component in UTF-16; empty
/// for `dir` itself.
fn around(dir: BorrowedHandle<'_>, path: &str) -> Result<(Option<OwnedHandle>, Vec<u16>), Errno> {
    let mut parts = path.split('/').filter(|part| *part != ".");
    let Some(last) = parts.next_back() else { return Ok((None, Vec::new())) };
    let mut at = None;
    for part in parts {
        let from = at.as_ref().map_or(dir, AsFd::as_fd);
        at = Some(directory(from, &wide(part)?, SEARCH.access())?);
    }
    Ok((at, wide(last)?))
}

/// Opens the directory `name`, which is not a link.
fn directory(dir: BorrowedHandle<'_>, name: &[u16], access: u32) -> Result<OwnedHandle, Errno> {
    let opened = nt::open(dir, name, access, FILE_OPEN, FILE_DIRECTORY_FILE, false)?;
    match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
        FileType::Directory => Ok(opened),
        _ => Err(Errno::NOTDIR),
    }
}

/// A name that cannot be is missing.
fn missing(error: Errno) -> Errno {
    if error == Errno::INVAL { Errno::NOENT } else { error }
}

/// Opens or makes a file.
///
/// # Errors
/// As openat(2).
pub fn openat(dir: impl AsFd, path: impl Arg, flags: OFlags, _: Mode) -> Result<OwnedHandle, Errno> {
    let path = path.text().ok_or(Errno::NOENT)?;
    let Some(dir) = opened(&dir) else { return open_named(path, flags) };
    if flags.has(OFlags::CREATE) {
        let (at, name) = around(dir, path)?;
        let dir = at.as_ref().map_or(dir, AsFd::as_fd);
        return nt::open(dir, &name, flags.access(), FILE_CREATE, FILE_NON_DIRECTORY_FILE, false);
    }
    let (at, name) = around(dir, path).map_err(missing)?;
    let dir = at.as_ref().map_or(dir, AsFd::as_fd);
    if flags.has(OFlags::DIRECTORY) {
        return directory(dir, &name, flags.access());
    }
    let follows = !flags.has(OFlags::NOFOLLOW);
    let opened = nt::open(dir, &name, flags.access(), FILE_OPEN, 0, follows)?;
    match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
        FileType::Symlink => Err(Errno::LOOP),
        _ => Ok(opened),
    }
}

/// Opens what the user has named.
fn open_named(path: &str, flags: OFlags) -> Result<OwnedHandle, Errno> {
    let itself = if flags.has(OFlags::NOFOLLOW) { FILE_FLAG_OPEN_REPARSE_POINT } else { 0 };
    let mut options = OpenOptions::new();
    options.access_mode(flags.access()).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | itself);
    let opened = OwnedHandle::from(options.open(path).map_err(|e| Errno::of(&e))?);
    if flags.has(OFlags::DIRECTORY) && FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    Ok(opened)
}

/// The state of a file.
///
/// # Errors
/// As fstatat(2).
pub fn statat(dir: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<Stat, Errno> {
    let path = path.text().ok_or(Errno::NOENT)?;
    let follows = flags != AtFlags::SYMLINK_NOFOLLOW;
    let Some(dir) = opened(&dir) else {
        let itself = if follows { 0 } else { FILE_FLAG_OPEN_REPARSE_POINT };
        let mut options = OpenOptions::new();
        options.access_mode(FILE_READ_ATTRIBUTES).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | itself);
        return fstat(options.open(path).map_err(|e| Errno::of(&e))?);
    };
    let (at, name) = around(dir, path).map_err(missing)?;
    let dir = at.as_ref().map_or(dir, AsFd::as_fd);
    fstat(nt::open(dir, &name, FILE_READ_ATTRIBUTES, FILE_OPEN, 0, follows)?)
}

/// There is no such system call: paths are resolved component by component.
///
/// # Errors
/// `ENOSYS`.
pub fn open_beneath(_: &OwnedHandle, _: &[u8]) -> Result<OwnedHandle, Errno> {
    Err(Errno::NOSYS)
}

/// Nothing was asked for that would have to be taken back.
///
/// # Errors
/// None.
pub fn fcntl_setfl(_: &OwnedHandle, _: OFlags) -> Result<(), Errno> {
    Ok(())
}

/// The size of the file system.
///
/// # Errors
/// From the system.
pub fn fstatvfs(file: impl AsFd) -> Result<StatVfs, Errno> {
    let size = nt::size(file.as_fd())?;
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(StatVfs {
        f_blocks: count(size.TotalAllocationUnits),
        f_bfree: count(size.ActualAvailableAllocationUnits),
        f_bavail: count(size.CallerAvailableAllocationUnits),
        f_frsize: u64::from(size.SectorsPerAllocationUnit) * u64::from(size.BytesPerSector),
        f_files: 0,
        f_ffree: 0,
    })
}

/// Makes a directory.
///
/// # Errors
/// As mkdirat(2); `EINVAL` if Windows would take the name for another one.
pub fn mkdirat(dir: impl AsFd, path: impl Arg, _: Mode) -> Result<(), Errno> {
    let (dir, path) = (opened(&dir).ok_or(Errno::INVAL)?, path.text().ok_or(Errno::INVAL)?);
    let (at, name) = around(dir, path)?;
    let dir = at.as_ref().map_or(dir, AsFd::as_fd);
    nt::open(dir, &name, SEARCH.access(), FILE_CREATE, FILE_DIRECTORY_FILE, false).map(drop)
}

/// Removes a name.
///
/// # Errors
/// As unlinkat(2).
pub fn unlinkat(dir: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<(), Errno> {
    let (dir, path) = (opened(&dir).ok_or(Errno::INVAL)?, path.text().ok_or(Errno::NOENT)?);
    let (at, name) = around(dir, path).map_err(missing)?;
    let dir = at.as_ref().map_or(dir, AsFd::as_fd);
    let kind = if flags == AtFlags::REMOVEDIR { FILE_DIRECTORY_FILE } else { FILE_NON_DIRECTORY_FILE };
    let file = nt::open(dir, &name, DELETE, FILE_OPEN, kind, false)?;
    // DeleteFile.
    nt::set(&file, FileDispositionInformation, &[1])
}

/// Renames a file; replaces what has the new name.
///
/// # Errors
/// As renameat(2).
pub fn renameat(from: impl AsFd, old: impl Arg, to: impl AsFd, new: impl Arg) -> Result<(), Errno> {
    renamed(from, old, to, new, true)
}

/// Renames a file.
///
/// # Errors
/// As renameat2(2).
pub fn renameat_with(
    from: impl AsFd,
    old: impl Arg,
    to: impl AsFd,
    new: impl Arg,
    flags: RenameFlags,
) -> Result<(), Errno> {
    renamed(from, old, to, new, flags != RenameFlags::NOREPLACE)
}

fn renamed(from: impl AsFd, old: impl Arg, to: impl AsFd, new: impl Arg, replaces: bool) -> Result<(), Errno> {
    let (from, old) = (opened(&from).ok_or(Errno::INVAL)?, old.text().ok_or(Errno::NOENT)?);
    let (at, name) = around(from, old).map_err(missing)?;
    let file = nt::open(at.as_ref().map_or(from, AsFd::as_fd), &name, DELETE, FILE_OPEN, 0, false)?;
    let (to, new) = (opened(&to).ok_or(Errno::INVAL)?, new.text().ok_or(Errno::INVAL)?);
    let (at, name) = around(to, new)?;
    let to = at.as_ref().map_or(to, AsFd::as_fd);
    // FILE_RENAME_INFORMATION: ReplaceIfExists, RootDirectory, the length of the name in bytes and the name.
    let bytes = name.iter().flat_map(|unit| unit.to_le_bytes());
    let len = u32::try_from(size_of_val(name.as_slice())).map_err(|_| Errno::INVAL)?;
    let tail: Vec<u8> = len.to_le_bytes().into_iter().chain(bytes).collect();
    let mut information = vec![u64::from(replaces), to.as_raw_handle().addr() as u64];
    information
        .extend(tail.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))));
    nt::set(&file, FileRenameInformation, &information)
}

/// Not needed: a file can be renamed without replacing another one.
///
/// # Errors
/// `ENOTSUP`.
pub fn linkat(_: impl AsFd, _: impl Arg, _: impl AsFd, _: impl Arg, _: AtFlags) -> Result<(), Errno> {
    Err(Errno::NOTSUP)
}

/// See [`MAKES_LINKS`].
///
/// # Errors
/// `ENOTSUP`.
pub fn symlinkat(_: impl Arg, _: impl AsFd, _: impl Arg) -> Result<(), Errno> {
    Err(Errno::NOTSUP)
}

/// As [`symlinkat`].
///
/// # Errors
/// `ENOTSUP`.
pub fn date_link(_: impl AsFd, _: &str, _: (i64, i64)) -> io::Result<()> {
    Err(Errno::NOTSUP.into())
}

/// Links are not followed.
///
/// # Errors
/// `ENOTSUP`.
pub fn readlinkat(_: impl AsFd, _: impl Arg, _: Vec<u8>) -> Result<std::ffi::CString, Errno> {
    Err(Errno::NOTSUP)
}

/// Creates a file in `dir` that nobody else can open, and that is deleted when it is closed.
///
/// # Errors
/// From the system.
pub fn unnamed(dir: &Path) -> io::Result<File> {
    let mut random = [0; 8];
    super::random(&mut random)?;
    let path = dir.join(format!(".fzmfs-{}-{:016x}", std::process::id(), u64::from_le_bytes(random)));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).share_mode(0);
    options.custom_flags(FILE_FLAG_DELETE_ON_CLOSE).attributes(FILE_ATTRIBUTE_TEMPORARY).open(path)
}

/// NTFS writes in place.
pub fn write_in_place(_: &File) {}

/// A pipe keeps the size with which it was made.
pub fn widen_pipe(_: &File, _: usize) {}

/// Extends `file` to `len` bytes, for which the file system has room then.
///
/// # Errors
/// From the system.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn held(dir: &Path) -> OwnedHandle {
        openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn files_are_made_renamed_and_removed_below_a_directory() {
        let top = tempfile::tempdir().unwrap();
        let dir = held(top.path());
        mkdirat(&dir, "a", Mode::RWXU).unwrap();
        assert_eq!(mkdirat(&dir, "a", Mode::RWXU), Err(Errno::EXIST));
        let make = |path: &str| {
            openat(&dir, path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, Mode::RUSR).map(drop)
        };
        make("a/x").unwrap();
        assert_eq!(make("a/x"), Err(Errno::EXIST));
        make("y").unwrap();
        assert_eq!(renameat_with(&dir, "y", &dir, "a/x", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        fs::write(top.path().join("y"), "new").unwrap();
        renameat(&dir, "y", &dir, "a/x").unwrap();
        assert_eq!(fs::read(top.path().join("a/x")).unwrap(), b"new");
        assert_eq!(statat(&dir, "a/x", AtFlags::SYMLINK_NOFOLLOW).unwrap().st_size, 3);
        assert_eq!(statat(&dir, "y", AtFlags::SYMLINK_NOFOLLOW).unwrap_err(), Errno::NOENT);
        unlinkat(&dir, "a/x", AtFlags::empty()).unwrap();
        unlinkat(&dir, "a", AtFlags::REMOVEDIR).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_path_leads_out_of_the_directory() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("in/a")).unwrap();
        fs::write(top.path().join("out"), "secret").unwrap();
        let dir = held(&top.path().join("in"));
        let outside = top.path().join("out").to_str().unwrap().to_owned();
        for path in ["../out", r"..\out", "./../out", "a/../../out", &outside, r"\??\C:\windows", "in:x", "CON"] {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            assert_eq!(openat(&dir, path, flags, Mode::RUSR).unwrap_err(), Errno::INVAL, "{path}");
            assert_eq!(openat(&dir, path, OFlags::RDONLY, Mode::empty()).unwrap_err(), Errno::NOENT, "{path}");
            assert_eq!(mkdirat(&dir, path, Mode::RWXU), Err(Errno::INVAL), "{path}");
            assert_eq!(unlinkat(&dir, path, AtFlags::empty()), Err(Errno::NOENT), "{path}");
        }
        assert_eq!(fs::read(top.path().join("out")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(top.path().join("in")).unwrap().count(), 1);
    }

    #[test]
    fn a_temporary_file_goes_when_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let file = unnamed(dir.path()).unwrap();
        allocate(&file, 10 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10 << 20);
        let name = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        assert!(File::open(name).is_err());
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(unnamed(Path::new(r"C:\nonexistent")).is_err());
    }
}
