//! The mounts of this process: `/proc/self/mountinfo`.
//!
//! Asked instead of `stat`: it answers for dead and for foreign mounts alike, and never waits for a daemon.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type that our mounts show.
pub(super) const TYPE: &str = "fuse.fzmfs";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// `major:minor` of the file system.
    pub(super) device: String,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// The type, with its subtype: `fuse.fzmfs`.
    pub(super) kind: String,
    /// What it was mounted from.
    pub(super) source: OsString,
}

/// All mounts, in the order in which they were made.
///
/// # Errors
/// Where `/proc` is not there.
pub(super) fn mounts() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read("/proc/self/mountinfo")?.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// The uppermost mount on exactly `point`, which is an absolute path without links.
///
/// # Errors
/// As [`mounts`].
pub(super) fn at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rfind(|m| m.point == point))
}

/// The mount of ours on `point` that is in `after` and not in `before`; others may lie over it.
pub(super) fn appeared(before: &[Mount], after: Vec<Mount>, point: &Path) -> Option<Mount> {
    after.into_iter().rfind(|m| m.point == point && m.kind == TYPE && !before.contains(m))
}

/// One line: `36 35 98:0 /root /point rw,noatime master:1 - type source options`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let device = str::from_utf8(fields.nth(2)?).ok()?.to_owned();
    let point = unescape(fields.nth(1)?).into();
    // Optional fields follow, ended by a dash.
    fields.find(|f| *f == b"-")?;
    let kind = str::from_utf8(fields.next()?).ok()?.to_owned();
    let source = unescape(fields.next()?);
    Some(Mount { device, point, kind, source })
}

/// Undoes the `\040` by which the kernel writes spaces, tabs, line ends and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\').and_then(|o| str::from_utf8(o).ok());
        let (byte, tail) = octal
            .and_then(|o| u8::from_str_radix(o, 8).ok())
            .map_or((byte, tail), |value| (value, tail.get(3..).unwrap_or_default()));
        bytes.push(byte);
        rest = tail;
    }
    OsString::from_vec(bytes)
}

/// `path` without links, even where it is a mount whose daemon is dead and answers nothing.
///
/// # Errors
/// Where a directory above it is missing.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(e) if is_dead(&e) || e.kind() == io::ErrorKind::PermissionDenied => {
            let path = std::path::absolute(path)?;
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(std::fs::canonicalize(parent)?.join::<&OsStr>(name)),
                _ => Err(e),
            }
        }
        other => other,
    }
}

/// Whether an error says that a mount's daemon is gone.
pub(super) fn is_dead(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_line_gives_device_point_type_and_source() {
        let line = br"36 35 0:50 / /mnt/with\040space rw,noatime shared:1 - fuse.fzmfs /a\134b\054.fzm ro,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, "0:50");
        assert_eq!(mount.point, Path::new("/mnt/with space"));
        assert_eq!(mount.kind, TYPE);
        assert_eq!(mount.source.as_bytes(), br"/a\b,.fzm");
    }

    #[test]
    fn lines_that_are_not_mounts_are_passed_over() {
        for line in [&b""[..], b"36 35", b"36 35 0:50 / /mnt rw shared:1", b"36 35 0:50 / /mnt rw - fuse"] {
            assert_eq!(parse(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_new_mount_is_found_under_what_covers_it() {
        let mount = |device: &str, point: &str, kind: &str| Mount {
            device: device.into(),
            point: point.into(),
            kind: kind.into(),
            source: "a.fzm".into(),
        };
        let before = [mount("0:40", "/mnt", TYPE), mount("0:41", "/mnt", "tmpfs")];
        let point = Path::new("/mnt");
        let with = |more: &[Mount]| appeared(&before, [&before, more].concat(), point).map(|m| m.device);
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[mount("0:42", "/other", TYPE), mount("0:43", "/mnt", "tmpfs")]), None);
        let covered = [mount("0:42", "/mnt", TYPE), mount("0:43", "/mnt", "tmpfs"), mount("0:44", "/other", TYPE)];
        assert_eq!(with(&covered).as_deref(), Some("0:42"));
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(at(Path::new("/no/such/place")).unwrap(), None);
    }
}
