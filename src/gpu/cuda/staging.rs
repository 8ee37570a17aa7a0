//! Pinned host buffers: the GPU copies from or to some while the CPU fills or drains another.
//!
//! Invariant: the CPU does not touch a buffer that the GPU reads or writes until its event was waited for.
#![expect(unsafe_code, reason = "memory shared with the GPU")]

use std::ffi::c_uint;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::{CU_MEMHOSTALLOC_WRITECOMBINED, CUdeviceptr};

use super::context::{Context, Event, Stream};
use super::driver::{DriverError, DriverResult};
use crate::bytes::to_u64;

/// Bytes of a buffer.
pub(super) const SIZE: usize = 4 << 20;
/// Buffers that uploads use in turn: one for the GPU, one for the CPU.
const UP: usize = 2;
/// Buffers that downloads use in turn: the GPU is ahead of the CPU, which copies more slowly.
const DOWN: usize = 4;

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
    event: Event,
    context: Arc<Context>,
}

// SAFETY: a buffer has one owner at a time, and the driver may be called from any thread.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(context: &Arc<Context>, flags: c_uint) -> DriverResult<Self> {
        let event = Event::new(context)?;
        let mut memory = ptr::null_mut();
        // SAFETY: it writes one address; the memory is written before it is read.
        unsafe { context.driver.cuMemHostAlloc(&raw mut memory, SIZE, flags) }?;
        let memory = NonNull::new(memory.cast()).ok_or(DriverError::OUT_OF_MEMORY)?;
        Ok(Self { memory, event, context: context.clone() })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The GPU may still use it if a queue ended early.
        let waited = self.event.wait();
        // SAFETY: the memory is the driver's and is freed once.
        let freed = unsafe { self.context.driver.cuMemFreeHost(self.memory.as_ptr().cast()) };
        self.context.keep_error(waited.and(freed));
    }
}

/// A range of an allocation of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The address of the allocation.
    pub(super) of: CUdeviceptr,
    pub(super) at: CUdeviceptr,
    pub(super) len: usize,
}

impl Ring {
    /// Copies `bytes` to staging buffers and queues their copy to device memory at `to`.
    ///
    /// # Safety
    /// `bytes.len()` bytes of device memory at `to` must stay allocated until the stream has finished the copy.
    pub(super) unsafe fn upload(&mut self, stream: &Stream, to: CUdeviceptr, bytes: &[u8]) -> DriverResult {
        let (mut to, mut rest) = (to, bytes);
        while !rest.is_empty() {
            if self.filled == SIZE {
                self.now = (self.now + 1) % UP;
                self.filled = 0;
            }
            // The CPU only writes it, in order.
            self.make(self.now + 1, &stream.context, CU_MEMHOSTALLOC_WRITECOMBINED)?;
            let (at, buffer) = (self.filled, &self.buffers[self.now]);
            if at == 0 {
                buffer.event.wait()?;
            }
            let (head, tail) = rest.split_at(rest.len().min(SIZE - at));
            // SAFETY: `at` is within the buffer.
            let place = unsafe { buffer.memory.as_ptr().add(at) };
            // SAFETY: `head.len()` bytes from `at` fit in the buffer, and the GPU has finished reading its old content.
            unsafe { ptr::copy_nonoverlapping(head.as_ptr(), place, head.len()) };
            // SAFETY: the buffer does not change until its event was waited for; `to` is valid by this function's
            // contract.
            unsafe { stream.context.driver.cuMemcpyHtoDAsync_v2(to, place.cast(), head.len(), stream.raw) }?;
            buffer.event.record(stream)?;
            self.filled += head.len();
            to += to_u64(head.len());
            rest = tail;
        }
        Ok(())
    }

    /// Fills the parts of `to`, in order, with the bytes of `from`, in order, after all queued work. There are as many
    /// of both. On success the stream is idle.
    ///
    /// # Safety
    /// The device memory must be allocated.
    pub(super) unsafe fn download<'a>(
        &mut self,
        stream: &Stream,
        from: &[Extent],
        to: impl Iterator<Item = &'a mut [u8]>,
    ) -> DriverResult {
        let copies = into_buffers(from);
        self.make(copies.len().min(DOWN), &stream.context, 0)?;
        let start = |turn: usize| -> DriverResult {
            let (Some(copies), buffer) = (copies.get(turn), &self.buffers[turn % DOWN]) else { return Ok(()) };
            let mut place = 0;
            for Extent { at, len, .. } in copies {
                // SAFETY: the copies of a buffer have at most `SIZE` bytes together.
                let to = unsafe { buffer.memory.as_ptr().add(place) };
                // SAFETY: the CPU is done with the buffer; the device memory is valid by this function's contract.
                unsafe { stream.context.driver.cuMemcpyDtoHAsync_v2(to.cast(), *at, *len, stream.raw) }?;
                place += len;
            }
            buffer.event.record(stream)
        };
        (0..DOWN.min(copies.len())).try_for_each(start)?;
        let mut to = to.filter(|part| !part.is_empty());
        let mut part: &mut [u8] = &mut [];
        for (turn, own) in copies.iter().enumerate() {
            let buffer = &self.buffers[turn % DOWN];
            buffer.event.wait()?;
            let (mut at, end) = (0, own.iter().map(|copy| copy.len).sum::<usize>());
            while at < end {
                if part.is_empty() {
                    part = to.next().unwrap_or_default();
                }
                let rest = std::mem::take(&mut part);
                let n = rest.len().min(end - at);
                if n == 0 {
                    break;
                }
                let (head, tail) = rest.split_at_mut(n);
                // SAFETY: `at` is within the buffer.
                let from = unsafe { buffer.memory.as_ptr().add(at) };
                // SAFETY: the GPU has finished writing `end` bytes, which include these.
                unsafe { ptr::copy_nonoverlapping(from, head.as_mut_ptr(), n) };
                at += n;
                part = tail;
            }
            start(turn + DOWN)?;
        }
        Ok(())
    }

    /// Marks every buffer as free: the stream was synchronized.
    pub(super) fn rest(&mut self) {
        self.filled = 0;
    }

    /// Allocates buffers until there are at least `count`.
    fn make(&mut self, count: usize, context: &Arc<Context>, flags: c_uint) -> DriverResult {
        while self.buffers.len() < count {
            self.buffers.push(Buffer::new(context, flags)?);
        }
        Ok(())
    }
}

/// The copies into each buffer, in order: extents that are adjacent in an allocation are copied together. The driver
/// refuses a copy that crosses into another allocation, even if that begins where this one ends.
fn into_buffers(from: &[Extent]) -> Vec<Vec<Extent>> {
    let (mut buffers, mut free) = (Vec::<Vec<Extent>>::new(), 0);
    for extent in from {
        let mut rest = *extent;
        while rest.len > 0 {
            if free == 0 {
                buffers.push(Vec::new());
                free = SIZE;
            }
            let n = rest.len.min(free);
            if let Some(own) = buffers.last_mut() {
                match own.last_mut() {
                    Some(last) if last.of == rest.of && last.at + to_u64(last.len) == rest.at => last.len += n,
                    _ => own.push(Extent { len: n, ..rest }),
                }
            }
            free -= n;
            rest = Extent { at: rest.at + to_u64(n), len: rest.len - n, ..rest };
        }
    }
    buffers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_together_is_copied_together_up_to_a_buffer() {
        let extent = |at, len| Extent { of: 7, at, len };
        assert!(into_buffers(&[extent(7, 0)]).is_empty());
        let pieces = [extent(100, 10), extent(110, 20), extent(200, 5), extent(205, SIZE)];
        let end = SIZE - 35;
        assert_eq!(
            into_buffers(&pieces),
            [vec![extent(100, 30), extent(200, 5 + end)], vec![extent(205 + to_u64(end), 35)]]
        );
        let other = Extent { of: 110, ..extent(110, 20) };
        assert_eq!(into_buffers(&[extent(100, 10), other]), [vec![extent(100, 10), other]]);
    }
}
