//! The mount table of this process: `/proc/self/mountinfo`.
//!
//! Used instead of `stat`, since it also covers dead mounts and those of other users, and never waits for a daemon.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::sys;

/// The kernel's mount table for this process.
pub(super) const PATH: &str = "/proc/self/mountinfo";

/// The type of our mounts.
pub(super) const TYPE: &str = "fuse.fzmfs";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountEntry {
    /// The kernel's mount id; reused once the mount is gone.
    pub(super) id: u64,
    /// `major:minor` of the file system.
    pub(super) device: String,
    /// The mount point.
    pub(super) point: PathBuf,
    /// The type, with its subtype: `fuse.fzmfs`.
    pub(super) kind: String,
    /// The source.
    pub(super) source: OsString,
    /// The user who mounted a FUSE file system.
    pub(super) owner: Option<u32>,
}

impl MountEntry {
    /// The user who mounted it, if that is neither root nor this user is.
    pub(super) fn owner_but_us(&self) -> Option<u32> {
        let (user, _) = sys::effective_ids();
        self.owner.filter(|&owner| user != 0 && owner != user)
    }
}

/// The mount table, kept open so that it can be read when no descriptor is left.
#[derive(Debug)]
pub(super) struct MountTable(File);

impl MountTable {
    /// Opens the table.
    ///
    /// # Errors
    /// Fails if `/proc` is missing.
    pub(super) fn open() -> io::Result<Self> {
        File::open(PATH).map(Self)
    }

    /// All current mounts, in the order in which they were made.
    ///
    /// # Errors
    /// From read(2).
    pub(super) fn read(&self) -> io::Result<Vec<MountEntry>> {
        let (mut file, mut text) = (&self.0, Vec::new());
        file.rewind()?;
        file.read_to_end(&mut text)?;
        Ok(text.split(|&b| b == b'\n').filter_map(parse).collect())
    }
}

/// Parses a line: `36 35 98:0 /root /point rw,noatime master:1 - type source options`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let mut text = || str::from_utf8(fields.next()?).ok();
    let (id, _parent) = (text()?.parse().ok()?, text()?);
    let device = text()?.to_owned();
    let point = unescape(fields.nth(1)?).into();
    // Optional fields follow, terminated by a dash.
    fields.find(|f| *f == b"-")?;
    let kind = str::from_utf8(fields.next()?).ok()?.to_owned();
    let source = unescape(fields.next()?);
    let mut options = fields.next().unwrap_or_default().split(|&b| b == b',');
    let owner = options.find_map(|option| option.strip_prefix(b"user_id="));
    let owner = owner.and_then(|id| str::from_utf8(id).ok()?.parse().ok());
    Some(MountEntry { id, device, point, kind, source, owner })
}

/// Decodes the octal escapes (`\040`) that the kernel uses for spaces, tabs, newlines and backslashes.
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

/// Whether the error means that the mount's daemon is gone.
pub(super) fn is_dead(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_line_gives_device_point_type_and_source() {
        let line = br"36 35 0:50 / /mnt/with\040space rw,noatime shared:1 - fuse.fzmfs /a\134b\054.fzm ro,user_id=7,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.device.as_str()), (36, "0:50"));
        assert_eq!(mount.point, Path::new("/mnt/with space"));
        assert_eq!(mount.kind, TYPE);
        assert_eq!((mount.source.as_bytes(), mount.owner), (&br"/a\b,.fzm"[..], Some(7)));
    }

    #[test]
    fn lines_that_are_not_mounts_are_passed_over() {
        for line in [&b""[..], b"36 35", b"36 35 0:50 / /mnt rw shared:1", b"36 35 0:50 / /mnt rw - fuse"] {
            assert_eq!(parse(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn the_table_can_be_read_again() {
        let table = MountTable::open().unwrap();
        let root = |mounts: Vec<MountEntry>| mounts.into_iter().rfind(|m| m.point == Path::new("/"));
        let first = root(table.read().unwrap());
        assert!(first.is_some());
        assert_eq!(first, root(table.read().unwrap()));
    }
}
