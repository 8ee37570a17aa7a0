//! Pinned host buffers: the GPU copies from or to one while the CPU fills or drains another.
//!
//! Invariant: the CPU does not touch a buffer that the GPU reads or writes until its event was waited for.
#![expect(unsafe_code, reason = "memory shared with the GPU")]

use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};

use crate::bytes::to_u64;

/// Bytes of a buffer.
pub(super) const SIZE: usize = 4 << 20;
/// Buffers per direction: one for the GPU, one for the CPU.
const TURNS: usize = 2;

/// Buffers used in turn.
#[derive(Default)]
pub(super) struct Ring {
    buffers: Vec<Buffer>,
    /// Index of the buffer being filled, and how many bytes it holds.
    now: usize,
    filled: usize,
}

/// A pinned host buffer.
struct Buffer {
    /// `SIZE` bytes.
    memory: NonNull<u8>,
    /// Completion of the last GPU copy from or to the buffer.
    event: CudaEvent,
    context: Arc<CudaContext>,
}

// SAFETY: a buffer has one owner at a time, and the driver may be called from any thread.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(context: &Arc<CudaContext>, flags: u32) -> Result<Self, DriverError> {
        let event = event(context)?;
        // SAFETY: the memory is written before it is read.
        let memory = unsafe { result::malloc_host(SIZE, flags) }?;
        let memory = NonNull::new(memory.cast()).ok_or(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        Ok(Self { memory, event, context: context.clone() })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The GPU may still use it if a queue ended early.
        let waited = self.event.synchronize();
        // SAFETY: the pointer is from `malloc_host` and is freed once.
        let freed = unsafe { result::free_host(self.memory.as_ptr().cast()) };
        self.context.record_err(waited.and(freed));
    }
}

/// An event that is waited for without spinning.
pub(super) fn event(context: &Arc<CudaContext>) -> Result<CudaEvent, DriverError> {
    context.new_event(Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC))
}

impl Ring {
    /// Copies `bytes` to staging buffers and queues their copy to device memory at `to`.
    ///
    /// # Safety
    /// `bytes.len()` bytes of device memory at `to` must stay allocated until the stream has finished the copy.
    pub(super) unsafe fn upload(
        &mut self,
        stream: &CudaStream,
        to: sys::CUdeviceptr,
        bytes: &[u8],
    ) -> Result<(), DriverError> {
        let (mut to, mut rest) = (to, bytes);
        while !rest.is_empty() {
            if self.filled == SIZE {
                self.now = (self.now + 1) % TURNS;
                self.filled = 0;
            }
            // Written by the CPU only, sequentially, so write-combined memory suffices.
            self.make(self.now + 1, stream.context(), sys::CU_MEMHOSTALLOC_WRITECOMBINED)?;
            let (at, buffer) = (self.filled, &self.buffers[self.now]);
            if at == 0 {
                buffer.event.synchronize()?;
            }
            let (head, tail) = rest.split_at(rest.len().min(SIZE - at));
            // SAFETY: `at` is within the buffer.
            let place = unsafe { buffer.memory.as_ptr().add(at) };
            // SAFETY: `head.len()` bytes from `at` fit in the buffer, and the GPU has finished reading its old content.
            unsafe { ptr::copy_nonoverlapping(head.as_ptr(), place, head.len()) };
            // SAFETY: the buffer does not change until its event was waited for; `to` is valid by this function's
            // contract.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, place.cast(), head.len(), stream.cu_stream()) }.result()?;
            buffer.event.record(stream)?;
            self.filled += head.len();
            to += to_u64(head.len());
            rest = tail;
        }
        Ok(())
    }

    /// Fills `dst` from device memory at `from`, after all queued work. On success the stream is idle.
    ///
    /// # Safety
    /// `dst.len()` bytes of device memory at `from` must be allocated.
    pub(super) unsafe fn download(
        &mut self,
        stream: &CudaStream,
        from: sys::CUdeviceptr,
        dst: &mut [u8],
    ) -> Result<(), DriverError> {
        let (len, chunks) = (dst.len(), dst.len().div_ceil(SIZE));
        self.make(chunks.min(TURNS), stream.context(), 0)?;
        let start = |chunk: usize| -> Result<(), DriverError> {
            if chunk >= chunks {
                return Ok(());
            }
            let (at, buffer) = (chunk * SIZE, &self.buffers[chunk % TURNS]);
            let (from, to, len) = (from + to_u64(at), buffer.memory.as_ptr().cast(), SIZE.min(len - at));
            // SAFETY: the CPU is done with the buffer, which has `len` bytes; `from` is valid by this function's
            // contract.
            unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, len, stream.cu_stream()) }.result()?;
            buffer.event.record(stream)
        };
        start(0)?;
        for (chunk, part) in dst.chunks_mut(SIZE).enumerate() {
            start(chunk + 1)?;
            let buffer = &self.buffers[chunk % TURNS];
            buffer.event.synchronize()?;
            // SAFETY: the GPU has finished writing `part.len()` bytes.
            unsafe { ptr::copy_nonoverlapping(buffer.memory.as_ptr(), part.as_mut_ptr(), part.len()) };
        }
        Ok(())
    }

    /// Marks every buffer as free: the stream was synchronized.
    pub(super) fn rest(&mut self) {
        self.filled = 0;
    }

    /// Allocates buffers until there are at least `count`.
    fn make(&mut self, count: usize, context: &Arc<CudaContext>, flags: u32) -> Result<(), DriverError> {
        while self.buffers.len() < count {
            self.buffers.push(Buffer::new(context, flags)?);
        }
        Ok(())
    }
}
