//! A CUDA stream with its own staging buffers for both directions.
#![expect(unsafe_code, reason = "work for the CUDA driver")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};

use super::memory::{Held, alloc};
use super::staging::{self, Ring};
use super::{Shared, lock, lost, refused};
use crate::bytes::to_u64;
use crate::gpu::{Arg, Done, Kernel, Memory, Queue, Trouble};

/// A stream and its buffers, reused by one queue after another.
pub(super) struct Lane {
    stream: Arc<CudaStream>,
    done: CudaEvent,
    up: Ring,
    down: Ring,
}

impl Lane {
    pub(super) fn new(context: &Arc<CudaContext>) -> Done<Self> {
        let make = || -> Result<Self, DriverError> {
            let (stream, done) = (context.new_stream()?, staging::event(context)?);
            Ok(Self { stream, done, up: Ring::default(), down: Ring::default() })
        };
        make().map_err(|e| refused("a stream of the GPU", 0, e))
    }
}

pub(super) struct CudaQueue {
    shared: Arc<Shared>,
    /// Present until drop.
    lane: Option<Lane>,
    /// Memory of other streams that queued work uses.
    guests: Vec<Memory>,
}

impl CudaQueue {
    pub(super) fn new(shared: Arc<Shared>, lane: Lane) -> Self {
        Self { shared, lane: Some(lane), guests: Vec::new() }
    }

    fn lane(&mut self) -> Done<&mut Lane> {
        self.shared.context.bind_to_thread().map_err(|e| lost("the GPU", e))?;
        self.lane.as_mut().ok_or_else(|| Trouble::Lost("the queue has ended".to_owned()))
    }

    /// Device pointer to bytes `range` of `memory`, which is kept alive while queued work may use it.
    fn pointer(&mut self, memory: &Memory, range: &Range<u64>) -> Done<sys::CUdeviceptr> {
        let outside = || Trouble::Lost(format!("bytes {range:?} of memory of {} bytes", memory.len()));
        let inside = range.start <= range.end && range.end <= memory.len();
        let held = memory.held::<Held>().filter(|_| inside).ok_or_else(outside)?;
        let own = self.lane.as_ref().is_some_and(|lane| Arc::ptr_eq(&lane.stream, &held.stream));
        // The memory's own stream frees it only after all work queued before.
        if !own {
            self.guests.push(memory.clone());
        }
        held.pointer.checked_add(range.start).ok_or_else(outside)
    }

    /// Releases what was kept for queued work; the stream was synchronized.
    fn rest(&mut self) {
        self.guests.clear();
        if let Some(lane) = &mut self.lane {
            lane.up.rest();
        }
    }
}

impl Queue for CudaQueue {
    fn alloc(&mut self, len: u64) -> Done<Memory> {
        let stream = self.lane()?.stream.clone();
        alloc(&self.shared, &stream, len)
    }

    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> Done {
        let len = to_usize(range.end.saturating_sub(range.start))?;
        let pointer = self.pointer(memory, &range)?;
        let stream = self.lane()?.stream.cu_stream();
        if len == 0 {
            return Ok(());
        }
        // SAFETY: `len` bytes from `pointer` are in the memory, which outlives the work.
        unsafe { sys::cuMemsetD8Async(pointer, 0, len, stream) }.result().map_err(|e| lost("clearing memory", e))
    }

    fn upload(&mut self, to: &Memory, at: u64, bytes: &[u8]) -> Done {
        let pointer = self.pointer(to, &(at..at.saturating_add(to_u64(bytes.len()))))?;
        let Lane { stream, up, .. } = self.lane()?;
        // SAFETY: `bytes.len()` bytes from `pointer` are in the memory, which outlives the work.
        unsafe { up.upload(stream, pointer, bytes) }
            .map_err(|e| refused("copying to the GPU", to_u64(staging::SIZE), e))
    }

    fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> Done {
        if grid == 0 {
            return Ok(());
        }
        let stream = self.lane()?.stream.cu_stream();
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

    fn download(&mut self, from: &Memory, at: u64, dst: &mut [u8]) -> Done {
        if dst.is_empty() {
            return self.finish();
        }
        let pointer = self.pointer(from, &(at..at.saturating_add(to_u64(dst.len()))))?;
        let Lane { stream, down, .. } = self.lane()?;
        // SAFETY: `dst.len()` bytes from `pointer` are in the memory, which lives until this returns.
        let done = unsafe { down.download(stream, pointer, dst) };
        done.map_err(|e| refused("copying from the GPU", to_u64(staging::SIZE), e))?;
        self.rest();
        Ok(())
    }

    fn finish(&mut self) -> Done {
        let Lane { stream, done, .. } = self.lane()?;
        done.record(stream).and_then(|()| done.synchronize()).map_err(|e| lost("work on the GPU", e))?;
        self.rest();
        Ok(())
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // Errors were reported to the user of the queue; a failed stream and its buffers are not reused.
        if self.finish().is_ok()
            && let Some(lane) = self.lane.take()
        {
            lock(&self.shared.lanes).push(lane);
        }
    }
}

fn to_usize(len: u64) -> Done<usize> {
    usize::try_from(len).map_err(|_| Trouble::Lost(format!("{len} bytes are more than there can be")))
}
