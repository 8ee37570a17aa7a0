//! Makes the mount: with mount(2) if permitted, otherwise through fusermount3.
//!
//! fuser's own mount code is not used: it would lose the type `fuse.fzmfs`, leave a busy mount behind, and unmount a
//! path a second time after another process did. The session gets only the descriptor.
//!
//! The directory is resolved once, to a descriptor, and the mount is made, checked and undone through descriptors: a
//! user who can rename a parent directory cannot make the mount appear, or stay, elsewhere.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::detach::detach;
use super::helper::{self, AUTO_UNMOUNT};
use super::mountinfo::MountTable;
use super::options::{Access, MountOptions};
use super::pinned::Pinned;
use super::{daemon_id, mount_lock, mountinfo, sys, umount};
use crate::account;
use crate::error::os_explain;
use crate::failure::Failure;

/// The FUSE device.
pub(super) const DEVICE: &str = "/dev/fuse";
/// The remedy where that is missing.
pub(super) const NO_DEVICE: &str = "load the kernel module with: modprobe fuse; in a container, pass it in with: \
    --device /dev/fuse; without it, fzmfs serve shows the same tree over HTTP";

/// A directory to mount on, pinned since it was checked.
#[derive(Debug)]
pub(super) struct Point {
    directory: Pinned,
    name: OsString,
    /// Its path when it was checked, without links.
    path: PathBuf,
}

/// Resolves and checks a mount point.
///
/// # Errors
/// A message for the user, with advice.
pub(super) fn check_point(point: &Path) -> Result<Point, Failure> {
    let fail = |why: String| Failure::at(point, why);
    let refused = |e: io::Error| Failure::system(point, &e);
    let mounts = MountTable::open().and_then(|table| table.read()).unwrap_or_default();
    let dead = || fail(dead(point, &mounts));
    let directory = Pinned::open_directory(point).map_err(|e| match e.kind() {
        io::ErrorKind::NotADirectory => fail("not a directory".into()),
        io::ErrorKind::NotFound => fail(format!("no such directory; make it with: mkdir -p {}", point.display())),
        _ if mountinfo::is_dead(&e) => dead(),
        _ => refused(e),
    })?;
    let path = directory.path().map_err(refused)?;
    let Some(name) = path.file_name() else { return Err(fail("cannot be mounted on".into())) };
    let id = directory.mount_id().map_err(refused)?;
    // The root of a mount, as opposed to a directory inside one.
    match mounts.iter().find(|m| m.id == id).filter(|m| m.point == path) {
        Some(_) if daemon_id::is_dead(&directory) => return Err(dead()),
        Some(there) if there.kind == mountinfo::TYPE => return Err(already(point, there)),
        _ => {}
    }
    if let Some(needed) = needed(&path) {
        return Err(fail(format!("cannot be mounted on: fzmfs itself needs {}", needed.display())));
    }
    let name = name.to_owned();
    // Needed after mounting, when it must not fail.
    directory.parent().map_err(refused)?;
    Ok(Point { directory, name, path })
}

/// A directory that a mount on `path` would hide, or lie in, and that must stay visible: `/proc` to undo the mount, the
/// devices, the program itself, and its temporary files.
fn needed(path: &Path) -> Option<PathBuf> {
    let program = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    let system = ["/proc", "/dev", "/sys"].map(PathBuf::from);
    let all = system.into_iter().chain(program).chain([account::directory()]);
    let mut all = all.map(|dir| dir.canonicalize().unwrap_or(dir));
    all.find(|dir| dir.starts_with(path) || (dir == Path::new("/proc") && path.starts_with(dir)))
}

/// Checks that a mount point is not inside the directory that is to be served, which would then contain itself.
///
/// # Errors
/// Why it cannot be mounted on.
pub(super) fn check_outside(point: &Point, served: &Path) -> Result<(), &'static str> {
    match served.canonicalize() {
        Ok(served) if point.path.starts_with(&served) => {
            Err("inside the directory that is to be mounted; mount on a directory outside of it")
        }
        _ => Ok(()),
    }
}

/// Only one mount of ours per directory.
fn already(point: &Path, there: &mountinfo::MountEntry) -> Failure {
    let (source, shown) = (Path::new(&there.source).display(), point.display());
    let advice = match there.owner_but_us() {
        Some(owner) => format!("that mount is of the user with the id {owner}: choose another directory"),
        None => format!("unmount it first with: fzmfs umount {shown}"),
    };
    Failure::at(point, format_args!("already mounted, from {source}; {advice}"))
}

/// Advice about a dead mount on `point`, which may be another program's. Its directory cannot be opened, so that it
/// is found by its path.
fn dead(point: &Path, mounts: &[mountinfo::MountEntry]) -> String {
    let (parent, name) = (point.parent().map(Path::canonicalize), point.file_name().unwrap_or_default());
    let path = match (parent, point.is_absolute()) {
        (Some(Ok(parent)), _) => parent.join(name),
        (_, true) => point.to_owned(),
        _ => std::env::current_dir().unwrap_or_default().join(name),
    };
    let (shown, kind) = (point.display(), mounts.iter().rfind(|mount| mount.point == path).map(|mount| &*mount.kind));
    match kind.filter(|kind| *kind != mountinfo::TYPE) {
        Some(kind) => {
            format!("a dead {kind} mount, whose daemon is gone, is there; detach it with: fusermount3 -u {shown}")
        }
        None => format!("a dead mount, whose daemon is gone, is there; detach it with: fzmfs umount {shown}"),
    }
}

/// An attached mount of ours.
#[derive(Debug)]
pub(super) struct Mount {
    point: PathBuf,
    /// `major:minor` of the file system.
    number: String,
    /// Tells whether `number` is still ours: the kernel reuses it once the connection has ended.
    device: OwnedFd,
    /// Opened in advance, in case no descriptor is left at the end.
    table: Option<MountTable>,
    /// While this is open, fusermount3 waits; it unmounts when it closes.
    _watcher: Option<OwnedFd>,
}

impl Mount {
    /// Mounts on `point`; also returns the root of the mount, which keeps it busy, and the descriptor for the session.
    /// On error the mount is undone, unless its root could not be identified: then a dead mount may stay.
    ///
    /// # Errors
    /// A message for the user, with advice.
    pub(super) fn make(request: &MountOptions, point: &Point) -> Result<(Self, Pinned, OwnedFd), Failure> {
        let fail = |why: &str| Failure::at(&request.mountpoint, why);
        let refused = |e: io::Error| Failure::system(&request.mountpoint, &e);
        let lock = mount_lock::take(&point.directory);
        if point.directory.path().map_err(refused)? != point.path {
            return Err(fail("the directory was moved or deleted meanwhile"));
        }
        // All descriptors needed to undo the mount are opened before it is made.
        let table = MountTable::open().map_err(|e| Failure::system(Path::new(mountinfo::PATH), &e))?;
        let before = table.read().map_err(refused)?;
        if let Some(there) = before.iter().rfind(|m| m.point == point.path).filter(|m| m.kind == mountinfo::TYPE) {
            return Err(already(&request.mountpoint, there));
        }
        let reserve = point.directory.duplicate().map_err(refused)?;

        let (watcher, device) = attach(request, point)?;
        drop((lock, reserve));
        // A mount point cannot be renamed: its name still refers to the mount.
        let root = point.directory.parent().and_then(|parent| parent.child(&point.name)).map_err(refused)?;
        let (id, mounts) = match root.mount_id().and_then(|id| Ok((id, table.read()?))) {
            Ok(found) => found,
            Err(e) => {
                detach(root, &point.path).map_err(refused)?;
                return Err(refused(e));
            }
        };
        let Some(own) = new_mount(mounts, &before, id) else {
            return Err(fail("something else was mounted over it at the same moment"));
        };
        let why = match device.try_clone() {
            Ok(again) if own.point == point.path => {
                let (point, number, table) = (own.point, own.device, Some(table));
                return Ok((Self { point, number, device: again, table, _watcher: watcher }, root, device));
            }
            Ok(_) => fail("the directory was moved meanwhile; the mount was undone"),
            Err(e) => refused(e),
        };
        detach(root, &own.point).map_err(refused)?;
        Err(why)
    }

    /// The mount point.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// `major:minor` of the file system.
    pub(super) fn number(&self) -> &str {
        &self.number
    }

    /// Unmounts the file system from every place where it is mounted; stops at the first one that is in use. A file
    /// that is opened meanwhile keeps its mount in use, or is not found.
    ///
    /// # Errors
    /// From umount2(2) or fusermount3, if it is in use.
    pub(super) fn unmount(&self) -> io::Result<()> {
        let mounts = self.table.as_ref().map_or_else(|| MountTable::open()?.read(), MountTable::read)?;
        for mount in mounts.iter().rev().filter(|m| m.device == self.number) {
            let Ok(root) = Pinned::open_no_follow(&mount.point) else { continue };
            // As in `detach`; one unmount may also take away others.
            if root.mount_id()? == mount.id && sys::is_connected(self.device.as_fd()) {
                umount::unmount(root, mount)?;
            }
        }
        Ok(())
    }

    /// Detaches the mount that was just made, by its root.
    pub(super) fn undo(&self, root: Pinned) {
        if let Err(e) = detach(root, &self.point) {
            tracing::warn!("{}: cannot detach: {e}", self.point.display());
        }
    }

    /// Detaches the file system from every place where it is mounted; open files stay usable. Leaves other mounts
    /// alone, and does nothing once the connection has ended.
    pub(super) fn detach(&mut self) {
        let table = self.table.take().map_or_else(MountTable::open, Ok);
        let Ok(mounts) = table.and_then(|table| table.read()) else { return };
        for mount in mounts.iter().filter(|m| m.device == self.number) {
            let point = mount.point.display();
            // A pinned mount keeps its id: if the connection is alive after pinning, this mount is ours.
            let root = match Pinned::open_no_follow(&mount.point) {
                Ok(root) if root.mount_id().is_ok_and(|id| id == mount.id) => root,
                Ok(_) => {
                    tracing::warn!("{point}: something else is mounted over it, or it was moved; left there");
                    continue;
                }
                Err(e) => {
                    tracing::warn!("{point}: cannot detach: {e}");
                    continue;
                }
            };
            if !sys::is_connected(self.device.as_fd()) {
                return;
            }
            if let Err(e) = detach(root, &mount.point) {
                tracing::warn!("{point}: cannot detach: {e}");
            }
        }
    }
}

/// The mount `id` of `mounts`, if it is one of ours that was not there `before`. The id alone is not enough: the kernel
/// reuses the id of a removed mount first.
fn new_mount(
    mounts: Vec<mountinfo::MountEntry>,
    before: &[mountinfo::MountEntry],
    id: u64,
) -> Option<mountinfo::MountEntry> {
    mounts.into_iter().find(|m| m.id == id).filter(|m| m.kind == mountinfo::TYPE && !before.contains(m))
}

/// Mounts directly if possible, otherwise through the helper.
fn attach(request: &MountOptions, point: &Point) -> Result<(Option<OwnedFd>, OwnedFd), Failure> {
    let source = source_name(request);
    // auto_unmount is implemented by fusermount3.
    if !request.auto_unmount {
        match OpenOptions::new().read(true).write(true).open(DEVICE) {
            Ok(device) => {
                let device = OwnedFd::from(device);
                match mount_direct(&device, &source, point, request) {
                    Ok(()) => return Ok((None, device)),
                    // Ordinary users are refused here; fusermount3 may mount for them.
                    Err(e) if e.raw_os_error() == Some(libc::EPERM) => {}
                    Err(e) => return Err(Failure::at(&request.mountpoint, format_args!("mount: {}", os_explain(&e)))),
                }
            }
            // fusermount3 reports this itself; advice is added to its message.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => {
                let advice = match e.kind() {
                    io::ErrorKind::NotFound => format!("; {NO_DEVICE}"),
                    _ => String::new(),
                };
                let why = format_args!("{DEVICE}: {}{advice}", os_explain(&e));
                return Err(Failure::at(&request.mountpoint, why));
            }
        }
    }
    let ours = [(request.noexec, "noexec"), (request.auto_unmount, AUTO_UNMOUNT)];
    let ours = ours.into_iter().filter_map(|(given, word)| given.then_some(word));
    let options: Vec<&str> = kernel_options(request).chain(ours).collect();
    let mounted = helper::mount(&source, &point.directory, &options);
    let (device, watcher) = mounted.map_err(|why| Failure::at(&request.mountpoint, why))?;
    Ok((watcher, device))
}

/// The source shown by `mount` and `df`.
fn source_name(request: &MountOptions) -> OsString {
    match &request.fsname {
        Some(name) => name.clone(),
        None => std::path::absolute(&request.file).unwrap_or_else(|_| request.file.clone()).into_os_string(),
    }
}

/// Mounts a FUSE descriptor with mount(2): always read-only, nosuid, nodev, noatime.
fn mount_direct(device: &OwnedFd, source: &OsStr, point: &Point, request: &MountOptions) -> io::Result<()> {
    let (uid, gid) = sys::effective_ids();
    // rootmode is only the file type of the root: a directory.
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    for option in kernel_options(request) {
        data.push(',');
        data.push_str(option);
    }
    let (source, data) = (CString::new(source.as_bytes())?, CString::new(data)?);
    let mut flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    flags.set(MountFlags::NOEXEC, request.noexec);
    Ok(rustix::mount::mount(source, point.directory.link(), mountinfo::TYPE, flags, data.as_c_str())?)
}

/// The largest read that the kernel may request, in bytes. Without it, that is 256 pages, whatever their size: 16 MiB
/// in pages of 64 KiB, for each of which a thread keeps a buffer.
const MAX_READ: &str = "max_read=1048576";

/// Options for the kernel, besides the flags. The kernel always checks modes itself: asking the daemon would cost a
/// round trip, and `umask` with `allow_other` would have no effect.
fn kernel_options(request: &MountOptions) -> impl Iterator<Item = &'static str> {
    // The kernel has no allow_root: it admits all users, and the session rejects other users.
    let others = (request.access != Access::Owner).then_some("allow_other");
    ["default_permissions", MAX_READ].into_iter().chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_mount_point_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(check_point(&file).unwrap_err().to_string().ends_with("file: not a directory"));
        let missing = check_point(&dir.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("no such directory"), "{missing}");
        assert!(check_point(Path::new("/")).unwrap_err().to_string().contains("cannot be mounted on"));
        assert_eq!(check_point(dir.path()).unwrap().path, dir.path().canonicalize().unwrap());
    }

    #[test]
    fn what_the_program_needs_is_not_mounted_on() {
        let program = std::env::current_exe().unwrap();
        let temporary = account::directory();
        let own = [Path::new("/proc"), Path::new("/dev"), Path::new("/sys"), program.parent().unwrap(), &temporary];
        for point in own.iter().flat_map(|dir| dir.ancestors()).chain([Path::new("/proc/sys")]) {
            let error = check_point(point).unwrap_err().to_string();
            assert!(error.contains("cannot be mounted on"), "{error}");
        }
        let inside = tempfile::tempdir_in(temporary).unwrap();
        check_point(inside.path()).unwrap();
    }

    #[test]
    fn a_new_mount_is_known_also_by_the_id_of_one_that_has_gone() {
        let mount = |id, point: &str, kind: &str| mountinfo::MountEntry {
            id,
            device: "0:50".into(),
            point: point.into(),
            kind: kind.into(),
            source: "x".into(),
            owner: None,
        };
        let before = [mount(7, "/other", mountinfo::TYPE), mount(8, "/mnt", "tmpfs")];
        let own = mount(7, "/mnt", mountinfo::TYPE);
        assert_eq!(new_mount(vec![before[1].clone(), own.clone()], &before, 7), Some(own.clone()));
        assert_eq!(new_mount(before.to_vec(), &before, 7), None, "it was there before");
        assert_eq!(new_mount(vec![own.clone(), before[1].clone()], &before, 8), None, "something else covers it");
        assert_eq!(new_mount(vec![own], &before, 9), None);
    }

    #[test]
    fn a_directory_that_was_moved_since_it_was_checked_is_not_mounted_on() {
        let dir = tempfile::tempdir().unwrap();
        let (point, target) = (dir.path().join("mnt"), dir.path().join("target"));
        std::fs::create_dir(&point).unwrap();
        std::fs::create_dir(&target).unwrap();
        let checked = check_point(&point).unwrap();
        std::fs::rename(&point, dir.path().join("gone")).unwrap();
        std::os::unix::fs::symlink(&target, &point).unwrap();
        let error = Mount::make(&MountOptions::new("x", &point), &checked).unwrap_err();
        assert!(error.to_string().contains("was moved"), "{error}");
    }
}
