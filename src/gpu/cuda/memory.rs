//! Memory of a GPU, charged to its room.
//!
//! Invariant: it is given back once, on the stream that it was had on; whoever uses it on another stream holds
//! on to it until that stream has been waited for.
#![expect(unsafe_code, reason = "memory of the CUDA driver")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::{CudaStream, result, sys};

use super::{Shared, refused};
use crate::gpu::{Done, Memory, Trouble};

/// What stands for a [`Memory`].
pub(super) struct Held {
    pub(super) pointer: sys::CUdeviceptr,
    pub(super) stream: Arc<CudaStream>,
    charge: Charge,
}

/// Bytes of the room of a GPU that are in use.
struct Charge {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Charge {
    fn new(shared: &Arc<Shared>, bytes: u64) -> Done<Self> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= shared.room);
        let charged = shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        charged.map_err(|_| Trouble::NoRoom { need: bytes })?;
        Ok(Self { shared: shared.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory of `len` bytes for `stream`.
pub(super) fn alloc(shared: &Arc<Shared>, stream: &Arc<CudaStream>, len: u64) -> Done<Memory> {
    let none = || Trouble::NoRoom { need: len };
    let bytes = len.max(1).checked_next_multiple_of(256).ok_or_else(none)?;
    let charge = Charge::new(shared, bytes)?;
    let size = usize::try_from(bytes).map_err(|_| none())?;
    shared.context.bind_to_thread().map_err(|e| refused("memory of the GPU", bytes, e))?;
    let pointer = if shared.ordered {
        // SAFETY: the stream lives; the memory is used on it, or on another after this one was waited for.
        unsafe { result::malloc_async(stream.cu_stream(), size) }
    } else {
        // SAFETY: what is in the memory is bytes.
        unsafe { result::malloc_sync(size) }
    };
    let pointer = pointer.map_err(|e| refused("memory of the GPU", bytes, e))?;
    Ok(Memory::new(len, Held { pointer, stream: stream.clone(), charge }))
}

impl Drop for Held {
    fn drop(&mut self) {
        let shared = &self.charge.shared;
        let bound = shared.context.bind_to_thread();
        let freed = if shared.ordered {
            // SAFETY: the pointer is from `malloc_async` on this stream; work on other streams is done, see above.
            unsafe { result::free_async(self.pointer, self.stream.cu_stream()) }
        } else {
            // SAFETY: the pointer is from `malloc_sync`; this waits for all work.
            unsafe { result::free_sync(self.pointer) }
        };
        // What failed once fails again, where somebody can be told.
        shared.context.record_err(bound.and(freed));
    }
}
