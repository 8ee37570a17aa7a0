//! A CUDA stream with its own staging buffers for both directions.
#![expect(unsafe_code, reason = "work for the CUDA driver")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};

use super::memory::{Allocation, alloc};
use super::staging::{self, Ring};
use super::{Shared, lock, lost, refused};
use crate::bytes::to_u64;
use crate::gpu::{Arg, DeviceError, DeviceResult, Kernel, Memory, Queue};

/// A stream and its buffers, reused by one queue after another.
pub(super) struct StreamResources {
    stream: Arc<CudaStream>,
    done: CudaEvent,
    up: Ring,
    down: Ring,
}

impl StreamResources {
    pub(super) fn new(context: &Arc<CudaContext>) -> DeviceResult<Self> {
        let make = || -> Result<Self, DriverError> {
            let (stream, done) = (context.new_stream()?, staging::event(context)?);
            Ok(Self { stream, done, up: Ring::default(), down: Ring::default() })
        };
        make().map_err(|e| refused("creating a GPU stream", 0, e))
    }
}

pub(super) struct CudaQueue {
    shared: Arc<Shared>,
    /// Present until drop.
    resources: Option<StreamResources>,
    /// Memory of other streams that queued work uses.
    borrowed: Vec<Memory>,
}

impl CudaQueue {
    pub(super) fn new(shared: Arc<Shared>, resources: StreamResources) -> Self {
        Self { shared, resources: Some(resources), borrowed: Vec::new() }
    }

    fn resources(&mut self) -> DeviceResult<&mut StreamResources> {
        self.shared.context.bind_to_thread().map_err(|e| lost("selecting the GPU", e))?;
        self.resources.as_mut().ok_or_else(|| DeviceError::Lost("the queue is closed".to_owned()))
    }

    /// Device pointer to bytes `range` of `memory`, which is kept alive while queued work may use it.
    fn pointer(&mut self, memory: &Memory, range: &Range<u64>) -> DeviceResult<sys::CUdeviceptr> {
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

    /// Releases what was kept for queued work; the stream was synchronized.
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
        alloc(&self.shared, &stream, len)
    }

    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> DeviceResult {
        let len = to_usize(range.end.saturating_sub(range.start))?;
        let pointer = self.pointer(memory, &range)?;
        let stream = self.resources()?.stream.cu_stream();
        if len == 0 {
            return Ok(());
        }
        // SAFETY: `len` bytes from `pointer` are in the memory, which outlives the work.
        unsafe { sys::cuMemsetD8Async(pointer, 0, len, stream) }.result().map_err(|e| lost("clearing memory", e))
    }

    fn upload(&mut self, to: &Memory, at: u64, bytes: &[u8]) -> DeviceResult {
        let pointer = self.pointer(to, &(at..at.saturating_add(to_u64(bytes.len()))))?;
        let StreamResources { stream, up, .. } = self.resources()?;
        // SAFETY: `bytes.len()` bytes from `pointer` are in the memory, which outlives the work.
        unsafe { up.upload(stream, pointer, bytes) }
            .map_err(|e| refused("copying to the GPU", to_u64(staging::SIZE), e))
    }

    fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        if grid == 0 {
            return Ok(());
        }
        let stream = self.resources()?.stream.cu_stream();
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
        let (function, places, none) = (function.cu_function(), places.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the module stays loaded; every argument has 8 bytes; the memory behind pointers outlives the work.
        // The caller is responsible for what the kernel does with its arguments.
        let launched =
            unsafe { sys::cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, places, none) }.result();
        launched.map_err(|e| lost(&format!("kernel {}", kernel.name), e))
    }

    fn download(&mut self, from: &Memory, at: u64, dst: &mut [u8]) -> DeviceResult {
        if dst.is_empty() {
            return self.finish();
        }
        let pointer = self.pointer(from, &(at..at.saturating_add(to_u64(dst.len()))))?;
        let StreamResources { stream, down, .. } = self.resources()?;
        // SAFETY: `dst.len()` bytes from `pointer` are in the memory, which lives until this returns.
        let done = unsafe { down.download(stream, pointer, dst) };
        done.map_err(|e| refused("copying from the GPU", to_u64(staging::SIZE), e))?;
        self.rest();
        Ok(())
    }

    fn finish(&mut self) -> DeviceResult {
        let StreamResources { stream, done, .. } = self.resources()?;
        done.record(stream).and_then(|()| done.synchronize()).map_err(|e| lost("waiting for the GPU", e))?;
        self.rest();
        Ok(())
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
