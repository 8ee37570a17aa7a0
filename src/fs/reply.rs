//! Where the bytes of a read go: to the kernel, or to a test.
#![forbid(unsafe_code)]

use fuser::{Errno, ReplyData};

/// An answer that is owed. Dropped without one, the reader gets EIO.
pub(super) trait Reply: Send + 'static {
    /// Answers with bytes.
    fn data(self, bytes: &[u8]);

    /// Answers with an error.
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
