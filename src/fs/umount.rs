//! `fzmfs umount`: detaches the mount, and returns when its daemon has ended.
//!
//! The path is resolved once, to a descriptor of the mount's root. Everything that follows refers to that mount, even
//! if the path changes while waiting for the daemon.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use super::daemon_id::{self, Daemon};
use super::mountinfo::{self, MountTable, TYPE};
use super::pinned::Pinned;
use super::{detach, helper, sys};
use crate::error::os_message;
use crate::failure::Failure;

/// How long the daemon may take to end after the unmount.
const PATIENCE: Duration = Duration::from_secs(30);

/// State of the daemon after an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// It has ended.
    Ended,
    /// It cannot be seen from here, so its end was not waited for.
    Unseen,
}

/// Unmounts the fzmfs mount on `mountpoint` and waits until its daemon has ended. Detaches a dead mount, whose daemon
/// is gone.
///
/// # Errors
/// A message for the user: nothing is mounted there, the mount is not ours, or it is in use.
pub fn umount(mountpoint: &Path) -> Result<Unmounted, Failure> {
    let fail = |why: String| Failure::at(mountpoint, why);
    let refused = |e: io::Error| Failure::system(mountpoint, &e);
    let root = Pinned::open(mountpoint).map_err(refused)?;
    let table = MountTable::open().map_err(refused)?;
    let (id, point, mounts) = (root.mount_id().map_err(refused)?, root.path().map_err(refused)?, table.read());
    // A directory inside a mount has the same mount id but another path.
    let mounts = mounts.map_err(refused)?;
    let mount = match mounts.iter().find(|m| m.id == id && m.point == point) {
        None => return Err(fail("nothing is mounted there".into())),
        Some(mount) if mount.kind != TYPE => {
            let shown = mountpoint.display();
            return Err(fail(format!("{}, not fzmfs, is mounted there; unmount it with: umount {shown}", mount.kind)));
        }
        Some(mount) => mount,
    };
    let (daemon, detached) = match daemon_id::find(&root, &mount.device) {
        Ok(daemon) => (daemon, unmount(root, mount)),
        // Open files of a dead mount are lost already, so it is detached even if busy.
        Err(e) if mountinfo::is_dead(&e) => (Daemon::Ended, detach::detach(root, &mount.point)),
        // Another user's mount, which does not even answer root.
        Err(_) => (daemon_id::search(&mount.device), unmount(root, mount)),
    };
    detached.map_err(|e| describe(&e, mountpoint, mount))?;
    let daemon = match daemon {
        Daemon::Running(daemon) => daemon,
        Daemon::Ended => return Ok(Unmounted::Ended),
        Daemon::Unseen => return Ok(Unmounted::Unseen),
    };
    // A bind mount keeps the daemon running, so it is pointless to wait. It must have been there before: another file
    // system may get the device number of this one as soon as it is gone.
    let is_bind = |other: &mountinfo::MountEntry| other.device == mount.device && mounts.contains(other);
    if let Some(other) = table.read().into_iter().flatten().find(is_bind) {
        let other = other.point.display();
        return Err(fail(format!(
            "unmounted, but still mounted on {other}, so the daemon continues; unmount that as well"
        )));
    }
    match sys::wait_readable(&[daemon.as_fd()], Some(PATIENCE)) {
        Ok(ended) if ended == [true] => Ok(Unmounted::Ended),
        Ok(_) => Err(fail(format!("unmounted, but the daemon has not ended within {} s", PATIENCE.as_secs()))),
        Err(e) => Err(fail(format!("unmounted, but waiting for the daemon failed: {e}"))),
    }
}

/// Unmounts `mount`, whose root is `root`, unless it is in use.
///
/// umount2(2) takes a path, and a descriptor of the mount would keep it busy. So the name is looked up in the pinned
/// parent directory: a mount point cannot be renamed or replaced by another directory.
///
/// # Errors
/// From umount2(2) or fusermount3; `EBUSY` or a message if it is in use.
pub(super) fn unmount(root: Pinned, mount: &mountinfo::MountEntry) -> io::Result<()> {
    let moved = || io::Error::other("it was moved meanwhile, or something else was mounted over it");
    let (Some(parent), Some(name)) = (mount.point.parent(), mount.point.file_name()) else { return Err(moved()) };
    let parent = Pinned::open(parent)?;
    // While `root` is open, its mount id is not reused.
    if parent.child(name)?.mount_id()? != root.mount_id()? {
        return Err(moved());
    }
    drop(root);
    match parent.unmount_child(name) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => helper::umount(&mount.point, false),
        other => other,
    }
}

/// Whether an unmount was refused because the mount is in use; the helper says so in words.
pub(super) fn is_busy(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EBUSY) || os_message(e).contains("busy")
}

fn describe(e: &io::Error, mountpoint: &Path, mount: &mountinfo::MountEntry) -> Failure {
    if let Some(owner) = mount.owner_but_us() {
        let why = format!("the mount is of the user with the id {owner}: only that user and root may unmount it");
        return Failure::at(mountpoint, why);
    }
    if !is_busy(e) {
        return Failure::system(mountpoint, e);
    }
    let point = mountpoint.display();
    let why = format!(
        "in use: a file of it is open, a program works inside it (fuser -vm {point} lists them), or something is \
         mounted below it (findmnt -R {point}); \
         end those and try again, or detach it with: umount -l {point}"
    );
    Failure::at(mountpoint, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_other_file_systems_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(umount(dir.path()).unwrap_err().to_string().ends_with("nothing is mounted there"));
        assert!(umount(Path::new("/proc")).unwrap_err().to_string().contains("not fzmfs"));
        assert!(umount(&dir.path().join("missing")).is_err());
    }
}
