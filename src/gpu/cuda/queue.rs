//! A CUDA stream with its own staging buffers for both directions.
#![expect(unsafe_code, reason = "work for the CUDA driver")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUdeviceptr;

use super::context::{Context, Event, Stream};
use super::driver::{Driver, DriverResult};
use super::memory::{Allocation, MemoryLimit, alloc};
use super::staging::{self, Extent, Ring};
use super::{OpenedGpu, lock};
use crate::bytes::to_u64;
use crate::gpu::{Arg, DeviceError, DeviceResult, Download, Kernel, Memory, Queue};

/// A stream and its buffers, reused by one queue after another.
pub(super) struct StreamResources {
    stream: Arc<Stream>,
    done: Event,
    up: Ring,
    down: Ring,
}

impl StreamResources {
    pub(super) fn new(context: &Arc<Context>) -> DeviceResult<Self> {
        let make = || -> DriverResult<Self> {
            let (stream, done) = (Stream::new(context)?, Event::new(context)?);
            Ok(Self { stream, done, up: Ring::default(), down: Ring::default() })
        };
        make().map_err(|e| context.driver.refused("creating a GPU stream", 0, e))
    }
}

pub(super) struct CudaQueue {
    shared: Arc<OpenedGpu>,
    memory: Arc<MemoryLimit>,
    /// Present until drop.
    resources: Option<StreamResources>,
    /// Memory of other streams that queued work uses.
    borrowed: Vec<Memory>,
    marks: Vec<Event>,
}

impl CudaQueue {
    pub(super) fn new(shared: Arc<OpenedGpu>, memory: Arc<MemoryLimit>, resources: StreamResources) -> Self {
        Self { shared, memory, resources: Some(resources), borrowed: Vec::new(), marks: Vec::new() }
    }

    fn driver(&self) -> &'static Driver {
        self.shared.context.driver
    }

    fn resources(&mut self) -> DeviceResult<&mut StreamResources> {
        self.shared.context.bind().map_err(|e| self.driver().lost("selecting the GPU", e))?;
        self.resources.as_mut().ok_or_else(|| DeviceError::Lost("the queue is closed".to_owned()))
    }

    /// Device pointer to bytes `range` of `memory`, which is kept alive while queued work may use it.
    fn pointer(&mut self, memory: &Memory, range: &Range<u64>) -> DeviceResult<CUdeviceptr> {
        let outside =
            || DeviceError::Lost(format!("bytes {range:?} are outside the {} bytes of GPU memory", memory.len()));
        let inside = range.start <= range.end && range.end <= memory.len();
        let allocation = memory.allocation::<Allocation>().filter(|_| inside).ok_or_else(outside)?;
        let own = self.resources.as_ref().is_some_and(|resources| Arc::ptr_eq(&resources.stream, &allocation.stream));
        // The memory's own stream frees it only after all work queued before.
        if !own {
            self.borrowed.push(memory.clone());
        }
        allocation.pointer.checked_add(range.start).ok_or_else(outside)
    }

    /// Releases the resources of queued work; the stream was synchronized.
    fn rest(&mut self) {
        self.borrowed.clear();
        if let Some(resources) = &mut self.resources {
            resources.up.rest();
        }
    }
}

impl Queue for CudaQueue {
    fn alloc(&mut self, len: u64) -> DeviceResult<Memory> {
        let stream = self.resources()?.stream.clone();
        alloc(&self.shared, &self.memory, &stream, len)
    }

    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> DeviceResult {
        let (driver, len) = (self.driver(), to_usize(range.end.saturating_sub(range.start))?);
        let pointer = self.pointer(memory, &range)?;
        let stream = &self.resources()?.stream;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: `len` bytes from `pointer` are in the memory, which outlives the work.
        unsafe { driver.cuMemsetD8Async(pointer, 0, len, stream.raw) }.map_err(|e| driver.lost("clearing memory", e))
    }

    fn upload(&mut self, to: &Memory, at: u64, bytes: &[u8]) -> DeviceResult {
        let (driver, pointer) = (self.driver(), self.pointer(to, &(at..at.saturating_add(to_u64(bytes.len()))))?);
        let StreamResources { stream, up, .. } = self.resources()?;
        // SAFETY: `bytes.len()` bytes from `pointer` are in the memory, which outlives the work.
        let queued = unsafe { up.upload(stream, pointer, bytes) };
        queued.map_err(|e| driver.refused("copying to the GPU", to_u64(staging::SIZE), e))
    }

    fn copy(&mut self, from: &Memory, from_at: u64, to: &Memory, to_at: u64, len: u64) -> DeviceResult {
        let (driver, bytes) = (self.driver(), to_usize(len)?);
        let from = self.pointer(from, &(from_at..from_at.saturating_add(len)))?;
        let to = self.pointer(to, &(to_at..to_at.saturating_add(len)))?;
        let stream = &self.resources()?.stream;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: `len` bytes from both pointers are in memory that outlives the work.
        let copied = unsafe { driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw) };
        copied.map_err(|e| driver.lost("copying on the GPU", e))
    }

    unsafe fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        if grid == 0 {
            return Ok(());
        }
        let (driver, stream) = (self.driver(), self.resources()?.stream.raw);
        let function = self.shared.function(kernel)?;
        // 8 bytes per value; a kernel reads the lower 4 for a 32-bit argument.
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(match arg {
                Arg::Memory(memory, at) => self.pointer(memory, &(*at..memory.len()))?,
                Arg::U32(value) => u64::from(*value),
                Arg::U64(value) => *value,
                Arg::F32(value) => u64::from(value.to_bits()),
                Arg::F64(value) => value.to_bits(),
            });
        }
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
        let (places, none) = (places.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the module stays loaded; every argument has 8 bytes; the memory behind pointers outlives the work.
        // The caller guarantees what the kernel does with its arguments.
        let launched = unsafe { driver.cuLaunchKernel(function.raw, grid, 1, 1, block, 1, 1, 0, stream, places, none) };
        launched.map_err(|e| driver.lost(&format!("kernel {}", kernel.name), e))
    }

    fn download(&mut self, parts: &mut [Download]) -> DeviceResult {
        let driver = self.driver();
        let mut from = Vec::with_capacity(parts.len());
        for Download { memory, at, dst } in &*parts {
            let len = dst.len();
            let start = self.pointer(memory, &(*at..at.saturating_add(to_u64(len))))?;
            from.push(Extent { of: start.saturating_sub(*at), at: start, len });
        }
        if from.iter().all(|extent| extent.len == 0) {
            return self.finish();
        }
        let StreamResources { stream, down, .. } = self.resources()?;
        // SAFETY: the extents are in memory that lives until this returns.
        let done = unsafe { down.download(stream, &from, parts.iter_mut().map(|part| &mut *part.dst)) };
        done.map_err(|e| driver.refused("copying from the GPU", to_u64(staging::SIZE), e))?;
        self.rest();
        Ok(())
    }

    fn finish(&mut self) -> DeviceResult {
        let driver = self.driver();
        let StreamResources { stream, done, .. } = self.resources()?;
        done.record(stream).and_then(|()| done.wait()).map_err(|e| driver.lost("waiting for the GPU", e))?;
        self.rest();
        Ok(())
    }

    fn mark(&mut self) -> DeviceResult {
        let driver = self.driver();
        let stream = self.resources()?.stream.clone();
        let mark = || -> DriverResult<Event> {
            let event = Event::timed(&stream.context)?;
            event.record(&stream).map(|()| event)
        };
        self.marks.push(mark().map_err(|e| driver.lost("taking the time on the GPU", e))?);
        Ok(())
    }

    fn times(&mut self) -> DeviceResult<Vec<Duration>> {
        self.finish()?;
        let (driver, marks) = (self.driver(), std::mem::take(&mut self.marks));
        let since = |mark: &Event| match marks.first() {
            Some(first) => mark.milliseconds_since(first),
            None => Ok(0.0),
        };
        let times: DriverResult<Vec<f32>> = marks.iter().map(since).collect();
        let times = times.map_err(|e| driver.lost("taking the time on the GPU", e))?;
        Ok(times.into_iter().map(|ms| Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3)).collect())
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // Errors were reported to the user of the queue; a failed stream and its buffers are not reused.
        if self.finish().is_ok()
            && let Some(resources) = self.resources.take()
        {
            lock(&self.shared.spare).push(resources);
        }
    }
}

fn to_usize(len: u64) -> DeviceResult<usize> {
    usize::try_from(len).map_err(|_| DeviceError::Lost(format!("{len} bytes exceed the address space")))
}
