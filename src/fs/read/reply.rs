//! Destination of a read's bytes: the kernel, or a test.
#![forbid(unsafe_code)]

use fuser::{Errno, ReplyData};

/// A pending reply. If dropped unanswered, the reader gets EIO.
pub(in crate::fs) trait Reply: Send + 'static {
    /// Replies with bytes.
    fn data(self, bytes: &[u8]);

    /// Replies with an error.
    fn error(self, errno: i32);
}

impl Reply for ReplyData {
    fn data(self, bytes: &[u8]) {
        ReplyData::data(self, bytes);
    }

    fn error(self, errno: i32) {
        ReplyData::error(self, Errno::from_i32(errno));
    }
}
