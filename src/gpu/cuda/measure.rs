//! What the GPU does by itself, for benchmarks to hold decoding against.
#![expect(unsafe_code, reason = "copies of the CUDA driver")]

use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::memory::{Held, alloc};
use super::{Cuda, lost};
use crate::bytes::to_u64;
use crate::gpu::{Done, Memory, Trouble};

/// Copies that are done to find the fastest.
const TIMES: usize = 10;

impl Cuda {
    /// How long it takes to copy `bytes` bytes within the GPU's memory, at best.
    ///
    /// # Errors
    /// As of [`crate::gpu::Queue`].
    pub fn copy_within(&self, bytes: usize) -> Done<Duration> {
        self.best(bytes, |stream, from, to, _| {
            // SAFETY: both have so many bytes, and live until the stream was waited for.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
        })
    }

    /// How long it takes to copy `bytes` bytes of the GPU's memory to memory of the host that it reaches itself, at best.
    ///
    /// # Errors
    /// As of [`crate::gpu::Queue`].
    pub fn copy_out(&self, bytes: usize) -> Done<Duration> {
        self.best(bytes, |stream, from, _, host| {
            // SAFETY: both have so many bytes, and live until the stream was waited for.
            unsafe { sys::cuMemcpyDtoHAsync_v2(host, from, bytes, stream) }
        })
    }

    fn best(
        &self,
        bytes: usize,
        copy: impl Fn(sys::CUstream, sys::CUdeviceptr, sys::CUdeviceptr, *mut std::ffi::c_void) -> sys::CUresult,
    ) -> Done<Duration> {
        let say = |e| lost("measuring", e);
        let context = &self.shared.context;
        let stream = context.new_stream().map_err(say)?;
        let pair = [alloc(&self.shared, &stream, to_u64(bytes))?, alloc(&self.shared, &stream, to_u64(bytes))?];
        let pointer = |memory: &Memory| memory.held::<Held>().map(|held| held.pointer);
        let [Some(from), Some(to)] = [pointer(&pair[0]), pointer(&pair[1])] else {
            return Err(Trouble::Lost("memory of another device".to_owned()));
        };
        // SAFETY: what is in the memory is bytes, and nobody reads them.
        let mut host = unsafe { context.alloc_pinned_with_flags::<u8>(bytes, 0) }.map_err(say)?;
        let host = host.as_mut_ptr().map_err(say)?;
        let done = super::staging::event(context).map_err(say)?;
        let mut best = Duration::MAX;
        for _ in 0..TIMES {
            let start = Instant::now();
            copy(stream.cu_stream(), from, to, host.cast()).result().map_err(say)?;
            done.record(&stream).and_then(|()| done.synchronize()).map_err(say)?;
            best = best.min(start.elapsed());
        }
        Ok(best)
    }
}
