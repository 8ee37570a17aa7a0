//! Raw copy times of the GPU, as a baseline for benchmarks.
#![expect(unsafe_code, reason = "copies of the CUDA driver")]

use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::memory::{Allocation, alloc};
use super::{Cuda, lost};
use crate::bytes::to_u64;
use crate::gpu::{DeviceError, DeviceResult, Memory};

/// Repetitions; the fastest counts.
const TIMES: usize = 10;

impl Cuda {
    /// The shortest time to copy `bytes` bytes within GPU memory.
    ///
    /// # Errors
    /// As for [`crate::gpu::Queue`].
    pub fn copy_within(&self, bytes: usize) -> DeviceResult<Duration> {
        self.best(bytes, |stream, from, to, _| {
            // SAFETY: both buffers have `bytes` bytes and live until the stream is synchronized.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
        })
    }

    /// The shortest time to copy `bytes` bytes from GPU memory to pinned host memory.
    ///
    /// # Errors
    /// As for [`crate::gpu::Queue`].
    pub fn copy_out(&self, bytes: usize) -> DeviceResult<Duration> {
        self.best(bytes, |stream, from, _, host| {
            // SAFETY: both buffers have `bytes` bytes and live until the stream is synchronized.
            unsafe { sys::cuMemcpyDtoHAsync_v2(host, from, bytes, stream) }
        })
    }

    fn best(
        &self,
        bytes: usize,
        copy: impl Fn(sys::CUstream, sys::CUdeviceptr, sys::CUdeviceptr, *mut std::ffi::c_void) -> sys::CUresult,
    ) -> DeviceResult<Duration> {
        let say = |e| lost("measuring", e);
        let context = &self.shared.context;
        let stream = context.new_stream().map_err(say)?;
        let pair = [alloc(&self.shared, &stream, to_u64(bytes))?, alloc(&self.shared, &stream, to_u64(bytes))?];
        let pointer = |memory: &Memory| memory.allocation::<Allocation>().map(|own| own.pointer);
        let [Some(from), Some(to)] = [pointer(&pair[0]), pointer(&pair[1])] else {
            return Err(DeviceError::Lost("memory of another device".to_owned()));
        };
        // SAFETY: any bytes are valid content, and they are never read.
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
