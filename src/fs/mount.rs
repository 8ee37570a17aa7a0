//! Making the mount: mount(2) where we may, fusermount3 where we may not.
//!
//! Done here and not by fuser, which would lose the type `fuse.fzmfs`, forget a busy mount, and
//! unmount a path a second time after somebody else did. The session gets only the descriptor.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::failure::Failure;
use super::request::{Access, MountRequest};
use super::sys::{self, Detach};
use super::umount::PID_ATTRIBUTE;
use super::{mountinfo, turn};
use crate::error::system_words;

/// The descriptor of the kernel's side, and the program that mounts for those who may not.
pub(super) const DEVICE: &str = "/dev/fuse";
pub(super) const HELPER: &str = "fusermount3";

/// The directory to mount on, as an absolute path without links, after everything that can be
/// wrong with it was looked at.
///
/// # Errors
/// In words, with what to do.
pub(super) fn check_point(point: &Path) -> Result<PathBuf, Failure> {
    let fail = |why: String| Failure::new(point, why);
    let dead = || {
        let shown = point.display();
        fail(format!("a dead mount is in the way (its daemon is gone); detach it with: fzmfs umount {shown}"))
    };
    match std::fs::metadata(point) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(fail("not a directory".into())),
        Err(e) if mountinfo::is_dead(&e) => return Err(dead()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(fail(format!("no such directory; make it with: mkdir -p {}", point.display())));
        }
        Err(e) => return Err(fail(system_words(&e))),
    }
    let path = std::fs::canonicalize(point).map_err(|e| fail(system_words(&e)))?;
    match mountinfo::at(&path) {
        // Attributes are in the kernel's memory; the daemon has to be asked for this one.
        Ok(Some(_)) if sys::getxattr(&path, PID_ATTRIBUTE).is_err_and(|e| mountinfo::is_dead(&e)) => Err(dead()),
        Ok(Some(there)) if there.kind == mountinfo::TYPE => Err(already(point, &there)),
        _ => Ok(path),
    }
}

/// One mount of ours on a directory is enough.
fn already(point: &Path, there: &mountinfo::Mount) -> Failure {
    let source = Path::new(&there.source).display();
    let why = format!("already mounted, from {source}; unmount it first with: fzmfs umount {}", point.display());
    Failure::new(point, why)
}

/// A mount of ours that is in the tree.
#[derive(Debug)]
pub(super) struct Mount {
    point: PathBuf,
    /// `major:minor` of the file system.
    device: String,
    means: Means,
}

/// What a mount was made with, and is undone with.
#[derive(Debug)]
enum Means {
    /// mount(2).
    Here,
    /// fusermount3; with `auto_unmount` it waits for this to be closed, which the kernel does for us whatever
    /// happens.
    Helper { _watcher: Option<UnixStream> },
}

impl Mount {
    /// Mounts on `point`, which [`check_point`] gave; also gives the descriptor for the session.
    ///
    /// # Errors
    /// In words, with what to do.
    pub(super) fn make(request: &MountRequest, point: &Path) -> Result<(Self, OwnedFd), Failure> {
        let fail = |why: String| Failure::new(&request.mountpoint, why);
        let mounts = || mountinfo::mounts().map_err(|e| fail(format!("/proc/self/mountinfo: {}", system_words(&e))));
        let _turn = turn::take(point);
        let before = mounts()?;
        // Since it was looked at, it may have been another's turn.
        if let Some(there) = before.iter().rfind(|m| m.point == point).filter(|m| m.kind == mountinfo::TYPE) {
            return Err(already(&request.mountpoint, there));
        }
        let (means, descriptor) = attach(request, point)?;
        let own = mountinfo::appeared(&before, mounts()?, point);
        let own = own.ok_or_else(|| fail("mounted, but not to be seen in /proc/self/mountinfo".into()))?;
        Ok((Self { point: point.to_path_buf(), device: own.device, means }, descriptor))
    }

    /// Where it was mounted.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// `major:minor` of the file system.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Takes the file system out of the tree, wherever it is mounted by now; open files go on working.
    /// Nothing else that may be mounted there is touched.
    pub(super) fn detach(&self) {
        let Ok(mounts) = mountinfo::mounts() else { return };
        for (i, mount) in mounts.iter().enumerate().filter(|(_, m)| m.device == self.device) {
            if mounts.iter().skip(i + 1).any(|above| above.point == mount.point) {
                tracing::warn!("{}: something else is mounted over it; left there", mount.point.display());
                continue;
            }
            if let Err(e) = self.detach_one(&mount.point) {
                tracing::warn!("{}: cannot detach: {e}", mount.point.display());
            }
        }
    }

    fn detach_one(&self, point: &Path) -> io::Result<()> {
        match self.means {
            Means::Here => sys::umount(point, Detach::Lazy),
            Means::Helper { .. } => helper_umount(point, Detach::Lazy),
        }
    }
}

/// Mounts with what is at hand.
fn attach(request: &MountRequest, point: &Path) -> Result<(Means, OwnedFd), Failure> {
    let fail = |why: String| Failure::new(&request.mountpoint, why);
    let source = source_name(request);
    // The watcher of auto_unmount is fusermount3 itself.
    if !request.auto_unmount {
        match OpenOptions::new().read(true).write(true).open(DEVICE) {
            Ok(device) => {
                let device = OwnedFd::from(device);
                match mount_direct(&device, &source, point, request) {
                    Ok(()) => return Ok((Means::Here, device)),
                    // Ordinary users are refused here; fusermount3 may do it for them.
                    Err(e) if e.raw_os_error() == Some(libc::EPERM) => {}
                    Err(e) => return Err(fail(format!("mount: {}", system_words(&e)))),
                }
            }
            // Mode 0600: fusermount3, which is setuid, opens it.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => {
                return Err(fail(format!(
                    "{DEVICE}: {}; is the kernel's fuse module loaded (modprobe fuse), and, in a container, the device passed in?",
                    system_words(&e)
                )));
            }
        }
    }
    let (device, socket) = mount_helper(&source, point, request).map_err(fail)?;
    Ok((Means::Helper { _watcher: request.auto_unmount.then_some(socket) }, device))
}

/// fusermount3 -u.
///
/// # Errors
/// With what it said.
pub(super) fn helper_umount(point: &Path, how: Detach) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if how == Detach::Lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(point).stdin(Stdio::null()).output()?;
    if output.status.success() { Ok(()) } else { Err(io::Error::other(said(&output.stderr))) }
}

/// What `mount` and `df` show as the source.
fn source_name(request: &MountRequest) -> OsString {
    match &request.fsname {
        Some(name) => name.clone(),
        None => std::path::absolute(&request.file).unwrap_or_else(|_| request.file.clone()).into_os_string(),
    }
}

fn mount_direct(device: &OwnedFd, source: &OsStr, point: &Path, request: &MountRequest) -> io::Result<()> {
    let (uid, gid) = sys::effective_ids();
    // rootmode is the file type of the root alone: a directory.
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    for option in kernel_options(request) {
        data.push(',');
        data.push_str(option);
    }
    let kind = CString::new(mountinfo::TYPE)?;
    sys::mount(&CString::new(source.as_bytes())?, point, &kind, &CString::new(data)?)
}

/// Options that the kernel reads, beside the flags. It checks modes itself, always: asking us would
/// take a round trip, and `umask` with `allow_other` would protect nothing.
fn kernel_options(request: &MountRequest) -> impl Iterator<Item = &'static str> {
    // The kernel has no word for allow_root: it lets everybody in, and the session turns the others away.
    let others = (request.access != Access::Owner).then_some("allow_other");
    std::iter::once("default_permissions").chain(others)
}

/// Lets fusermount3 mount; gives the descriptor, and the socket whose closing ends `auto_unmount`.
fn mount_helper(source: &OsStr, point: &Path, request: &MountRequest) -> Result<(OwnedFd, UnixStream), String> {
    let (ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let mut options = OsString::from("ro,nosuid,nodev,noatime,subtype=fzmfs");
    for option in kernel_options(request).chain(request.auto_unmount.then_some("auto_unmount")) {
        options.push(",");
        options.push(option);
    }
    options.push(",fsname=");
    options.push(escape_option(source));
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options).arg("--").arg(point);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    sys::inherit(&mut command, theirs.as_fd());
    let mut helper = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            format!("only root may mount without {HELPER}, which is not installed (Debian: apt install fuse3)")
        }
        _ => format!("{HELPER}: {e}"),
    })?;
    drop(theirs);
    if let Ok(Some(device)) = sys::receive_fd(ours.as_fd()) {
        // With auto_unmount it stays until our end is closed; otherwise it is about to end.
        if !request.auto_unmount {
            helper.wait().map_err(|e| format!("{HELPER}: {e}"))?;
        }
        return Ok((device, ours));
    }
    let mut text = Vec::new();
    if let Some(mut stderr) = helper.stderr.take() {
        // What it said, if anything, is all there is to report.
        stderr.read_to_end(&mut text).ok();
    }
    helper.wait().map_err(|e| format!("{HELPER}: {e}"))?;
    let text = said(&text);
    let advice = match () {
        () if text.contains("user_allow_other") => "; root can add that line",
        () if text.contains("not permitted") => "; `fzmfs doctor` says what is missing",
        () if text.contains("no write access") => "; users other than root mount on directories that they may write to",
        () => "",
    };
    Err(format!("{text}{advice}"))
}

/// A value inside `-o`, where commas separate and backslashes escape.
fn escape_option(value: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

/// What a program printed, as one line.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.is_empty() { format!("{HELPER} failed and said nothing") } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_backslashes_in_a_name_do_not_become_options() {
        assert_eq!(escape_option(OsStr::new(r"/a,allow_other\b")), OsStr::new(r"/a\,allow_other\\b"));
    }

    #[test]
    fn a_mount_point_that_cannot_be_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(check_point(&file).unwrap_err().to_string().ends_with("file: not a directory"));
        let missing = check_point(&dir.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("no such directory"), "{missing}");
        assert_eq!(check_point(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
    }
}
