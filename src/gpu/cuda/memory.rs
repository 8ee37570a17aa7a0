//! GPU memory, charged to the device's memory limit.
//!
//! Invariant: memory is freed once, on the stream that allocated it. Work on another stream keeps a clone of it until
//! that stream is synchronized.
#![expect(unsafe_code, reason = "memory of the CUDA driver")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::{CudaStream, result, sys};

use super::{Shared, refused};
use crate::gpu::{DeviceError, DeviceResult, Memory};

/// The allocation behind a [`Memory`].
pub(super) struct Allocation {
    pub(super) pointer: sys::CUdeviceptr,
    pub(super) stream: Arc<CudaStream>,
    charge: Charge,
}

/// Bytes charged to the device's memory limit.
struct Charge {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Charge {
    fn new(shared: &Arc<Shared>, bytes: u64) -> DeviceResult<Self> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= shared.memory_limit);
        let charged = shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        charged.map_err(|_| DeviceError::OutOfMemory { need: bytes })?;
        Ok(Self { shared: shared.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Allocates `len` bytes for `stream`.
pub(super) fn alloc(shared: &Arc<Shared>, stream: &Arc<CudaStream>, len: u64) -> DeviceResult<Memory> {
    let none = || DeviceError::OutOfMemory { need: len };
    let bytes = len.max(1).checked_next_multiple_of(256).ok_or_else(none)?;
    let charge = Charge::new(shared, bytes)?;
    let size = usize::try_from(bytes).map_err(|_| none())?;
    shared.context.bind_to_thread().map_err(|e| refused("allocating GPU memory", bytes, e))?;
    let pointer = if shared.ordered {
        // SAFETY: the stream is alive; other streams use the memory only after this one was synchronized.
        unsafe { result::malloc_async(stream.cu_stream(), size) }
    } else {
        // SAFETY: any bytes are valid content.
        unsafe { result::malloc_sync(size) }
    };
    let pointer = pointer.map_err(|e| refused("allocating GPU memory", bytes, e))?;
    Ok(Memory::new(len, Allocation { pointer, stream: stream.clone(), charge }))
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let shared = &self.charge.shared;
        let bound = shared.context.bind_to_thread();
        let freed = if shared.ordered {
            // SAFETY: the pointer is from `malloc_async` on this stream; work on other streams has finished (see the
            // module header).
            unsafe { result::free_async(self.pointer, self.stream.cu_stream()) }
        } else {
            // SAFETY: the pointer is from `malloc_sync`; `free_sync` waits for all work.
            unsafe { result::free_sync(self.pointer) }
        };
        // A drop cannot report the error; the next call on the context fails with it.
        shared.context.record_err(bound.and(freed));
    }
}
