//! Directories and mounts by descriptor, so that they cannot be swapped between check and use.
//!
//! An `O_PATH` descriptor refers to one directory of one mount, even if its path changes. It needs no permission on the
//! directory, does not contact the daemon, and works on a dead mount. It keeps its mount busy while open.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::UnmountFlags;

/// A directory, or the root of a mount, pinned by an `O_PATH` descriptor.
#[derive(Debug)]
pub(super) struct Pinned(OwnedFd);

impl Pinned {
    /// Opens `path`, following symbolic links.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path.as_os_str(), OFlags::empty())
    }

    /// As [`Pinned::open`], but only a directory.
    ///
    /// # Errors
    /// From open(2); `ENOTDIR` for anything else.
    pub(super) fn open_directory(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path.as_os_str(), OFlags::DIRECTORY)
    }

    /// As [`Pinned::open`], but does not follow a symbolic link in the last component.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn open_no_follow(path: &Path) -> io::Result<Self> {
        Self::at(CWD, path.as_os_str(), OFlags::NOFOLLOW)
    }

    /// Opens the entry `name` of this directory, or the root of the mount on it. Does not follow symbolic links.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn child(&self, name: &OsStr) -> io::Result<Self> {
        Self::at(self.0.as_fd(), name, OFlags::NOFOLLOW)
    }

    /// Opens the parent directory.
    ///
    /// # Errors
    /// From open(2).
    pub(super) fn parent(&self) -> io::Result<Self> {
        Self::at(self.0.as_fd(), OsStr::new(".."), OFlags::empty())
    }

    fn at(dir: BorrowedFd<'_>, path: &OsStr, more: OFlags) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(dir, path, OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty())?))
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// A path that refers to exactly this directory in calls that follow `/proc` links, except for mounts on top of it.
    pub(super) fn link(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Its current path, without links.
    ///
    /// # Errors
    /// Fails if `/proc` is missing.
    pub(super) fn path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(self.link())
    }

    /// The id of its mount, as shown in `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// Fails if neither statx(2) nor `/proc` provides it.
    pub(super) fn mount_id(&self) -> io::Result<u64> {
        // With an empty mask FUSE answers every user, and without synchronizing never asks its daemon, which may hang, or
        // be this process.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&self.0, "", flags, StatxFlags::empty());
        match stat {
            Ok(stat) if stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 && stat.stx_mnt_id != 0 => Ok(stat.stx_mnt_id),
            // Before Linux 5.8, and in the user mode of qemu, which sets the flag and leaves the id out.
            _ => {
                let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
                let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
                id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| io::Error::other("fdinfo shows no mount id"))
            }
        }
    }

    /// Opens the directory itself for flock(2), which does not accept an `O_PATH` descriptor.
    ///
    /// # Errors
    /// From open(2); the directory must be readable.
    pub(super) fn reopen(&self) -> io::Result<File> {
        File::open(self.link())
    }

    /// Detaches the mount that this is the root of, even if its path has changed.
    ///
    /// # Errors
    /// From umount2(2): `EINVAL` if it is not the root of a mount, or is detached already.
    pub(super) fn detach(&self) -> io::Result<()> {
        Ok(rustix::mount::unmount(self.link(), UnmountFlags::DETACH)?)
    }

    /// As [`Pinned::detach`], by its path `point`, if that still leads to it.
    ///
    /// # Errors
    /// From umount2(2).
    pub(super) fn detach_at(&self, point: &Path) -> io::Result<()> {
        if Self::open_no_follow(point)?.mount_id()? != self.mount_id()? {
            return Err(io::Error::other("it was moved meanwhile, or something else was mounted over it"));
        }
        Ok(rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
    }

    /// Unmounts the mount on the entry `name` of this directory, unless it is in use.
    ///
    /// # Errors
    /// From umount2(2); `EBUSY` if it is in use, which includes an open [`Pinned`] of it.
    pub(super) fn unmount_child(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::mount::unmount(self.link().join(name), UnmountFlags::NOFOLLOW)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_pinned_directory_is_the_same_after_its_path_leads_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::create_dir_all(top.join("other/b")).unwrap();
        let pinned = Pinned::open(&top.join("a/b")).unwrap();
        std::fs::rename(top.join("a"), top.join("moved")).unwrap();
        symlink(top.join("other"), top.join("a")).unwrap();
        assert_eq!(pinned.path().unwrap(), top.join("moved/b"));
        assert_eq!(pinned.parent().unwrap().path().unwrap(), top.join("moved"));
        assert_eq!(Pinned::open(&top.join("a/b")).unwrap().path().unwrap(), top.join("other/b"));
        assert_eq!(pinned.mount_id().unwrap(), pinned.parent().unwrap().mount_id().unwrap());
    }

    #[test]
    fn a_link_is_followed_only_by_open() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/", dir.path().join("link")).unwrap();
        let here = Pinned::open(dir.path()).unwrap();
        let link = here.path().unwrap().join("link");
        assert_eq!(here.child("link".as_ref()).unwrap().path().unwrap(), link);
        assert_eq!(Pinned::open_no_follow(&link).unwrap().path().unwrap(), link);
        assert_eq!(Pinned::open(&link).unwrap().path().unwrap(), Path::new("/"));
        std::fs::write(dir.path().join("file"), b"").unwrap();
        let error = Pinned::open_directory(&dir.path().join("file")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    }

    #[test]
    fn a_directory_that_is_not_a_mount_is_not_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let here = Pinned::open(dir.path()).unwrap();
        assert!(here.detach().is_err());
        assert!(here.unmount_child("a".as_ref()).is_err());
    }
}
