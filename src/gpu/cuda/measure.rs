//! Raw copy times of the GPU, as a baseline for benchmarks: by its own clock, the median of several.
#![expect(unsafe_code, reason = "copies of the CUDA driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUdeviceptr;

use super::Cuda;
use super::context::{Context, Event, Stream};
use super::driver::DriverResult;
use super::memory::{Allocation, alloc};
use crate::bytes::to_u64;
use crate::gpu::{DeviceError, DeviceResult, Memory};

/// Repetitions; the median counts.
const TIMES: usize = 21;

/// Pinned memory of the host.
struct Pinned {
    context: Arc<Context>,
    memory: *mut c_void,
}

impl Pinned {
    fn new(context: &Arc<Context>, len: usize) -> DriverResult<Self> {
        let mut memory = ptr::null_mut();
        // SAFETY: it writes one address; the memory is freed when this is dropped.
        unsafe { context.driver.cuMemHostAlloc(&raw mut memory, len.max(1), 0) }?;
        Ok(Self { context: context.clone(), memory })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the memory is the driver's and is freed once, when no copy uses it.
        let freed = unsafe { self.context.driver.cuMemFreeHost(self.memory) };
        self.context.keep_error(freed);
    }
}

impl Cuda {
    /// The time to copy `bytes` bytes within GPU memory.
    ///
    /// # Errors
    /// As for [`crate::gpu::Queue`].
    pub fn copy_within(&self, bytes: usize) -> DeviceResult<Duration> {
        let to = self.baseline_memory(bytes)?;
        let (own, pointer) = (&self.shared.context.driver, pointer(&to)?);
        self.median(bytes, |stream, from| {
            // SAFETY: both buffers have `bytes` bytes and live until the stream is synchronized.
            unsafe { own.cuMemcpyDtoDAsync_v2(pointer, from, bytes, stream.raw) }
        })
    }

    /// The time to copy `bytes` bytes from GPU memory to pinned host memory.
    ///
    /// # Errors
    /// As for [`crate::gpu::Queue`].
    pub fn copy_out(&self, bytes: usize) -> DeviceResult<Duration> {
        let (driver, host) = (self.shared.context.driver, self.pinned(bytes)?);
        self.median(bytes, |stream, from| {
            // SAFETY: as above.
            unsafe { driver.cuMemcpyDtoHAsync_v2(host.memory, from, bytes, stream.raw) }
        })
    }

    /// The time to copy `bytes` bytes from pinned host memory to GPU memory.
    ///
    /// # Errors
    /// As for [`crate::gpu::Queue`].
    pub fn copy_in(&self, bytes: usize) -> DeviceResult<Duration> {
        let (driver, host) = (self.shared.context.driver, self.pinned(bytes)?);
        self.median(bytes, |stream, to| {
            // SAFETY: as above.
            unsafe { driver.cuMemcpyHtoDAsync_v2(to, host.memory, bytes, stream.raw) }
        })
    }

    fn pinned(&self, bytes: usize) -> DeviceResult<Pinned> {
        let context = &self.shared.context;
        let made = context.bind().and_then(|()| Pinned::new(context, bytes));
        made.map_err(|e| context.driver.refused("measuring", to_u64(bytes), e))
    }

    fn baseline_memory(&self, bytes: usize) -> DeviceResult<Memory> {
        let context = &self.shared.context;
        let stream = Stream::new(context).map_err(|e| context.driver.lost("measuring", e))?;
        let memory = alloc(&self.shared, &self.memory, &stream, to_u64(bytes))?;
        self.wait(&stream).map(|()| memory)
    }

    fn wait(&self, stream: &Stream) -> DeviceResult {
        let context = &self.shared.context;
        let waited = Event::new(context).and_then(|event| event.record(stream).and_then(|()| event.wait()));
        waited.map_err(|e| context.driver.lost("measuring", e))
    }

    /// The median time of `copy`, which is given a stream and `bytes` bytes of device memory.
    fn median(&self, bytes: usize, copy: impl Fn(&Stream, CUdeviceptr) -> DriverResult) -> DeviceResult<Duration> {
        let context = &self.shared.context;
        let say = |e| context.driver.lost("measuring", e);
        let stream = Stream::new(context).map_err(say)?;
        let memory = alloc(&self.shared, &self.memory, &stream, to_u64(bytes))?;
        let pointer = pointer(&memory)?;
        let once = || -> DriverResult<f32> {
            let (start, end) = (Event::timed(context)?, Event::timed(context)?);
            start.record(&stream)?;
            copy(&stream, pointer)?;
            end.record(&stream)?;
            end.wait()?;
            end.milliseconds_since(&start)
        };
        // The first one is not measured.
        once().map_err(say)?;
        let mut times = (0..TIMES).map(|_| once()).collect::<DriverResult<Vec<f32>>>().map_err(say)?;
        times.sort_by(f32::total_cmp);
        let median = times.get(TIMES / 2).copied().unwrap_or_default();
        Ok(Duration::from_secs_f64(f64::from(median.max(0.0)) / 1e3))
    }
}

fn pointer(memory: &Memory) -> DeviceResult<CUdeviceptr> {
    let own = memory.allocation::<Allocation>().map(|own| own.pointer);
    own.ok_or_else(|| DeviceError::Lost("memory of another device".to_owned()))
}
