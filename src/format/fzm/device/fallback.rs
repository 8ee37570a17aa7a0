//! Why device work does not complete, so that the CPU decodes.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::gpu::DeviceError;

/// Why a window was not decoded on the device. The CPU decodes it, or reports the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fallback {
    /// The device is out of memory, or lost.
    Device(DeviceError),
    /// The input is invalid, or too large for a launch.
    Invalid,
}

impl From<DeviceError> for Fallback {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Error> for Fallback {
    /// The CPU will find the error again and report it.
    fn from(_: Error) -> Self {
        Self::Invalid
    }
}

/// The result of device work.
pub(super) type OpResult<T = ()> = std::result::Result<T, Fallback>;
