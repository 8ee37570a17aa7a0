//! GPU memory, charged to the limit of who has opened the GPU.
//!
//! Invariant: memory is freed once, on the stream that allocated it. Work on another stream keeps a clone of it until
//! that stream is synchronized; where other libraries may use it on any stream, all work on the GPU is waited for.
#![expect(unsafe_code, reason = "memory of the CUDA driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::CUdeviceptr;

use super::OpenedGpu;
use super::context::{Event, Stream};
use crate::gpu::{DeviceError, DeviceResult, ForeignStream, Memory};

/// The allocation behind a [`Memory`].
pub(super) struct Allocation {
    pub(super) pointer: CUdeviceptr,
    pub(super) stream: Arc<Stream>,
    /// Whether unknown streams may use it when it is freed.
    is_lent: bool,
    shared: Arc<OpenedGpu>,
    _charge: Charge,
}

/// The bytes that one who has opened a GPU may use, and uses.
pub(super) struct MemoryLimit {
    pub(super) limit: u64,
    pub(super) used: AtomicU64,
}

impl MemoryLimit {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }
}

/// Bytes charged to a limit.
struct Charge {
    to: Arc<MemoryLimit>,
    bytes: u64,
}

impl Charge {
    fn new(to: &Arc<MemoryLimit>, bytes: u64) -> DeviceResult<Self> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= to.limit);
        let charged = to.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        charged.map_err(|_| DeviceError::OutOfMemory { need: bytes })?;
        Ok(Self { to: to.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.to.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Allocates `len` bytes for `stream`.
pub(super) fn alloc(
    shared: &Arc<OpenedGpu>,
    limit: &Arc<MemoryLimit>,
    stream: &Arc<Stream>,
    len: u64,
) -> DeviceResult<Memory> {
    Ok(Memory::new(len, Allocation::new(shared, limit, stream, len, false)?))
}

/// Allocates `len` bytes that other libraries may use: for their `stream`, or, without one, on any. Every queue may use
/// them when this returns.
pub(super) fn lend(
    shared: &Arc<OpenedGpu>,
    limit: &Arc<MemoryLimit>,
    stream: Option<ForeignStream>,
    len: u64,
) -> DeviceResult<Memory> {
    let context = &shared.context;
    let failed = |e| context.driver.refused("sharing GPU memory", len, e);
    let own = match stream {
        Some(stream) => Stream::foreign(context, stream),
        None => Stream::new(context).map_err(failed)?,
    };
    let allocation = Allocation::new(shared, limit, &own, len, stream.is_none())?;
    // Work that has used the memory before, on that stream, ends first.
    let waited = Event::new(context).and_then(|event| event.record(&own).and_then(|()| event.wait()));
    waited.map_err(failed)?;
    Ok(Memory::new(len, allocation))
}

impl Allocation {
    fn new(
        shared: &Arc<OpenedGpu>,
        limit: &Arc<MemoryLimit>,
        stream: &Arc<Stream>,
        len: u64,
        is_lent: bool,
    ) -> DeviceResult<Self> {
        let none = || DeviceError::OutOfMemory { need: len };
        let bytes = len.max(1).checked_next_multiple_of(256).ok_or_else(none)?;
        let charge = Charge::new(limit, bytes)?;
        let size = usize::try_from(bytes).map_err(|_| none())?;
        let driver = shared.context.driver;
        let refused = |e| driver.refused("allocating GPU memory", bytes, e);
        shared.context.bind().map_err(refused)?;
        let mut pointer = 0;
        let given = if shared.ordered {
            // SAFETY: the stream is alive; other streams use the memory only after this one was synchronized.
            unsafe { driver.cuMemAllocAsync(&raw mut pointer, size, stream.raw) }
        } else {
            // SAFETY: it writes one address.
            unsafe { driver.cuMemAlloc_v2(&raw mut pointer, size) }
        };
        given.map_err(refused)?;
        Ok(Self { pointer, stream: stream.clone(), is_lent, shared: shared.clone(), _charge: charge })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (context, driver) = (&self.shared.context, self.shared.context.driver);
        let bound = if self.is_lent { context.wait() } else { context.bind() };
        let freed = if self.shared.ordered {
            // SAFETY: it was allocated on this stream; work on other streams has finished (see the module header).
            unsafe { driver.cuMemFreeAsync(self.pointer, self.stream.raw) }
        } else {
            // SAFETY: it was allocated without a stream; the driver waits for all work.
            unsafe { driver.cuMemFree_v2(self.pointer) }
        };
        // A drop cannot report the error; the next call on the context fails with it.
        context.keep_error(bound.and(freed));
    }
}
