//! Memory of the host that the GPU copies from and to by itself, while the CPU copies beside it.
//!
//! Invariants: a buffer that the GPU reads or writes is not touched until its event was waited for; at most one
//! side has each byte.
#![expect(unsafe_code, reason = "memory shared with the GPU")]

use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};

use crate::bytes::to_u64;

/// Bytes of a buffer.
pub(super) const SIZE: usize = 4 << 20;
/// Buffers of each direction: the GPU has one, the CPU the other.
const TURNS: usize = 2;

/// Buffers that take turns.
#[derive(Default)]
pub(super) struct Ring {
    buffers: Vec<Buffer>,
    /// The one that is being filled, and how far.
    now: usize,
    filled: usize,
}

/// Memory that the GPU can reach.
struct Buffer {
    /// `SIZE` bytes.
    memory: NonNull<u8>,
    /// What the GPU does with it.
    event: CudaEvent,
    context: Arc<CudaContext>,
}

// SAFETY: a buffer belongs to whoever has it; the driver may be called from any thread.
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
        // The GPU may be at it still, where a queue ended early.
        let waited = self.event.synchronize();
        // SAFETY: the pointer is from `malloc_host`, and freed once.
        let freed = unsafe { result::free_host(self.memory.as_ptr().cast()) };
        self.context.record_err(waited.and(freed));
    }
}

/// An event that is waited for without spinning.
pub(super) fn event(context: &Arc<CudaContext>) -> Result<CudaEvent, DriverError> {
    context.new_event(Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC))
}

impl Ring {
    /// Queues copies of `bytes` to device memory at `to`, after copying them here.
    ///
    /// # Safety
    /// `bytes.len()` bytes of device memory at `to` live until the stream has got there.
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
            // Written by the CPU alone, front to back: it need not be cached.
            self.make(self.now + 1, stream.context(), sys::CU_MEMHOSTALLOC_WRITECOMBINED)?;
            let (at, buffer) = (self.filled, &self.buffers[self.now]);
            if at == 0 {
                buffer.event.synchronize()?;
            }
            let (head, tail) = rest.split_at(rest.len().min(SIZE - at));
            // SAFETY: `at` lies inside the buffer.
            let place = unsafe { buffer.memory.as_ptr().add(at) };
            // SAFETY: from `at` on there are at least so many bytes, and the GPU has read what was there.
            unsafe { ptr::copy_nonoverlapping(head.as_ptr(), place, head.len()) };
            // SAFETY: the buffer stays as it is until its event was waited for, `to` by the caller's word.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, place.cast(), head.len(), stream.cu_stream()) }.result()?;
            buffer.event.record(stream)?;
            self.filled += head.len();
            to += to_u64(head.len());
            rest = tail;
        }
        Ok(())
    }

    /// Fills `dst` from device memory at `from`, after all work of the stream. Then nothing of the stream is left to do.
    ///
    /// # Safety
    /// `dst.len()` bytes of device memory at `from` live.
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
            // SAFETY: the CPU is done with the buffer, which holds so many bytes; `from` by the caller's word.
            unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, len, stream.cu_stream()) }.result()?;
            buffer.event.record(stream)
        };
        start(0)?;
        for (chunk, part) in dst.chunks_mut(SIZE).enumerate() {
            start(chunk + 1)?;
            let buffer = &self.buffers[chunk % TURNS];
            buffer.event.synchronize()?;
            // SAFETY: the GPU has written so many bytes, and is done.
            unsafe { ptr::copy_nonoverlapping(buffer.memory.as_ptr(), part.as_mut_ptr(), part.len()) };
        }
        Ok(())
    }

    /// The stream was waited for: every buffer is the CPU's.
    pub(super) fn rest(&mut self) {
        self.filled = 0;
    }

    /// Sees to it that there are at least `count` buffers, each made when it is first needed.
    fn make(&mut self, count: usize, context: &Arc<CudaContext>, flags: u32) -> Result<(), DriverError> {
        while self.buffers.len() < count {
            self.buffers.push(Buffer::new(context, flags)?);
        }
        Ok(())
    }
}
