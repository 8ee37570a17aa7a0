//! Decoded bytes that stay on a device, for programs that use them there.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::gpu::{DeviceBuffer, ForeignStream};

/// A stream that a device decodes into its own memory.
pub trait DeviceStream: Send + Sync {
    /// Decodes bytes `range` of the stream, which are in it. Only stored bytes are uploaded, and no decoded ones come
    /// back. Verified as by [`Blob::decode`](super::Blob::decode), and complete when this returns.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there is no device or not enough of its memory; otherwise the
    /// fault of the container.
    fn decode(&self, range: Range<u64>, stream: Option<ForeignStream>) -> Result<DeviceBuffer>;
}

/// Where the bytes of a file begin in such a stream.
#[derive(Clone)]
pub struct OnDevice {
    /// The stream.
    pub stream: Arc<dyn DeviceStream>,
    /// Offset of the first byte.
    pub at: u64,
}

impl fmt::Debug for OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnDevice({})", self.at)
    }
}
