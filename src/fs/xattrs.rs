//! The extended attributes of entries in a container.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Errno, ReplyXattr};

use super::shared::Shared;
use super::{daemon_id, stats};
use crate::tree::{ATTRS_OF_ROOT, Ino, ROOT};

/// The device that has decoded so far, for the whole mount.
const DECODER: &[u8] = b"user.fzmfs.decoder";

impl Shared {
    /// An extended attribute, if it is known from memory alone.
    pub(super) fn known_xattr(&self, ino: Ino, name: &OsStr) -> Option<Result<Vec<u8>, Errno>> {
        if let Some(value) = self.mount_attribute(name).filter(|_| ino == ROOT) {
            return Some(Ok(value));
        }
        self.activity.request();
        if !name.as_bytes().starts_with(b"user.") {
            // No security labels or ACLs: with EOPNOTSUPP `ls` asks once per mount, not once per file.
            return Some(Err(Errno::EOPNOTSUPP));
        }
        (name.as_bytes() == DECODER).then(|| Ok((self.decoder)().into_bytes()))
    }

    /// An attribute of the root that describes the mount. Reading it does not count as use.
    fn mount_attribute(&self, name: &OsStr) -> Option<Vec<u8>> {
        let has_changed = self.watch.has_changed();
        let stats = || stats::value(&self.activity, &self.cache, &(self.decoder)(), has_changed);
        daemon_id::attribute(name).or_else(|| (name.as_bytes() == stats::NAME.to_bytes()).then(stats))
    }

    /// An extended attribute from the tree, or `NO_XATTR`.
    pub(super) fn xattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let all = self.tree.xattrs(ino).map_err(|e| self.errno(ino, &e))?;
        let found = all.into_iter().find(|(known, _)| known.as_bytes() == name.as_bytes());
        found.map(|(_, value)| value.into_bytes()).ok_or(Errno::NO_XATTR)
    }

    pub(super) fn xattr_names(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let all = self.tree.xattrs(ino).map_err(|e| self.errno(ino, &e))?;
        Ok(xattr_list(all.into_iter().map(|(name, _)| name)))
    }
}

/// The attributes `names` plus those of every inode, in the format of listxattr.
fn xattr_list(names: impl Iterator<Item = String>) -> Vec<u8> {
    let names = names.map(String::into_bytes).chain([DECODER.to_vec()]);
    names.flat_map(|name| name.into_iter().chain([0])).collect()
}

/// The attribute names common to the roots of all containers: listing a directory with its attributes opens no
/// container. A root may have more.
pub(super) fn xattr_names_of_root() -> Vec<u8> {
    xattr_list(ATTRS_OF_ROOT.into_iter().map(|name| format!("user.fzmfs.{name}")))
}

/// Replies to getxattr or listxattr: the size if `limit` is 0, otherwise the bytes if they fit.
pub(super) fn answer_xattr(value: Result<Vec<u8>, Errno>, limit: u32, reply: ReplyXattr) {
    match value {
        Err(e) => reply.error(e),
        Ok(bytes) => match u32::try_from(bytes.len()) {
            Ok(len) if limit == 0 => reply.size(len),
            Ok(len) if len <= limit => reply.data(&bytes),
            _ => reply.error(Errno::ERANGE),
        },
    }
}
