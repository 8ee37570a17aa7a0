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
    /// The input cannot be read now, or there is no memory for it; another batch may succeed.
    Unavailable,
}

impl From<DeviceError> for Fallback {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Error> for Fallback {
    /// The CPU will find the error again and report it.
    fn from(error: Error) -> Self {
        if error.is_lasting() { Self::Invalid } else { Self::Unavailable }
    }
}

/// The result of device work.
pub(super) type OpResult<T = ()> = std::result::Result<T, Fallback>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_bytes_say_that_the_input_is_invalid() {
        assert_eq!(Fallback::from(Error::corrupt("no", "x")), Fallback::Invalid);
        assert_eq!(Fallback::from(Error::no_memory("x")), Fallback::Unavailable);
    }
}
