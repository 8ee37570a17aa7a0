//! Asks the kernel to forget inodes: it keeps them as long as it has memory, and each takes some here.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use fuser::INodeNo;

use super::MirroredDir;

/// Inodes that one request asks to forget: more than a request adds on average, so that they become fewer.
const AT_ONCE: usize = 64;

impl MirroredDir {
    /// If user `uid`, whose request was answered, holds many inodes, asks the kernel to forget the oldest. Must not be
    /// called inside a request: to forget an inode, the kernel waits for the requests in its directory.
    pub(super) fn forget_some(&self, uid: u32) {
        if !self.users.is_short(uid) || self.is_forgetting.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(notifier) = self.notifier.get() {
            let oldest = self.state().nodes.oldest(AT_ONCE);
            for (parent, name) in oldest {
                // Fails if it has been forgotten meanwhile.
                let _ = notifier.inval_entry(INodeNo(parent), OsStr::from_bytes(&name));
            }
        }
        self.is_forgetting.store(false, Ordering::Release);
    }
}
