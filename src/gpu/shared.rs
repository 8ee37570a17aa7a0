//! Memory of a device, and streams, that this process shares with other libraries that use the GPU.
#![expect(unsafe_code, reason = "promises about streams of other libraries")]

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::{Device, DeviceResult, Memory};

/// A stream that another library made: a `CUstream` of the driver or a `cudaStream_t` of the CUDA runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignStream(usize);

impl ForeignStream {
    /// The stream with this handle.
    ///
    /// # Safety
    /// The stream is of the primary context of the GPU that it is used with, which is the one of the CUDA runtime,
    /// PyTorch, CuPy and JAX. It lives until the last [`DeviceBuffer`] that was made with it is dropped.
    pub unsafe fn from_raw(handle: *mut c_void) -> Self {
        Self(handle.expose_provenance())
    }

    /// The handle.
    pub fn as_raw(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// Decoded bytes in the memory of a GPU. Complete: work queued on any stream from now on may read and write them.
///
/// They are freed when the last clone is dropped: in the order of the stream that they were made with, if there was
/// one, so that work on it that uses them comes before; otherwise after waiting for all work on the GPU.
#[derive(Clone)]
pub struct DeviceBuffer {
    memory: Memory,
    address: u64,
    ordinal: u32,
    /// Frees it.
    _device: Arc<dyn Device>,
}

impl DeviceBuffer {
    /// `len` bytes on `device`, not yet written; queues write into the memory that is also returned.
    ///
    /// # Errors
    /// As [`Device::alloc_shared`].
    pub(crate) fn alloc(
        device: &Arc<dyn Device>,
        len: u64,
        stream: Option<ForeignStream>,
    ) -> DeviceResult<(Self, Memory)> {
        let memory = device.alloc_shared(len, stream)?;
        let (address, ordinal) = device.address(&memory).unwrap_or_default();
        Ok((Self { memory: memory.clone(), address, ordinal, _device: device.clone() }, memory))
    }

    /// The address of the first byte on the GPU, a `CUdeviceptr`; aligned to 256.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of the GPU.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes at {:#x} of cuda:{})", self.len(), self.address, self.ordinal)
    }
}
