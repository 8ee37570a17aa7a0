//! An open GPU as the driver sees it, and the objects created on it: streams, events and modules.
//!
//! Invariant: objects are destroyed once, before their context is released.
#![expect(unsafe_code, reason = "objects of the CUDA driver")]

use std::ffi::{CStr, CString, c_int, c_uint};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_flags, CUfunction, CUmemPool_attribute, CUmodule,
    CUstream, CUstream_flags,
};

use super::driver::{Driver, DriverError, DriverResult};
use crate::gpu::ForeignStream;

/// The primary context of a GPU, which all of a process share.
pub(super) struct Context {
    pub(super) driver: &'static Driver,
    device: CUdevice,
    raw: CUcontext,
    /// An error that a destructor met; the next call reports it.
    error: AtomicU32,
}

// SAFETY: a context may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of GPU `ordinal`.
    pub(super) fn primary(driver: &'static Driver, ordinal: c_int) -> DriverResult<Arc<Self>> {
        let (mut device, mut raw) = (0, ptr::null_mut());
        // SAFETY: it writes one integer.
        unsafe { driver.cuDeviceGet(&raw mut device, ordinal) }?;
        // SAFETY: it writes one pointer; the context is released when this is dropped.
        unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut raw, device) }?;
        let own = Arc::new(Self { driver, device, raw, error: AtomicU32::new(0) });
        own.bind()?;
        Ok(own)
    }

    /// Makes it this thread's context, for the calls that follow. Reports errors that a destructor met.
    pub(super) fn bind(&self) -> DriverResult {
        match self.error.swap(0, Ordering::Relaxed) {
            0 => {}
            error => return Err(DriverError(error)),
        }
        let mut current = ptr::null_mut();
        // SAFETY: it writes one pointer.
        unsafe { self.driver.cuCtxGetCurrent(&raw mut current) }?;
        if current == self.raw {
            return Ok(());
        }
        // SAFETY: the context is retained.
        unsafe { self.driver.cuCtxSetCurrent(self.raw) }
    }

    /// Waits for all work on the GPU, of other users of the context too.
    pub(super) fn wait(&self) -> DriverResult {
        self.bind()?;
        // SAFETY: the context is this thread's.
        unsafe { self.driver.cuCtxSynchronize() }
    }

    /// Keeps the error of a destructor for the next call.
    pub(super) fn keep_error(&self, result: DriverResult) {
        if let Err(DriverError(error)) = result {
            self.error.store(error, Ordering::Relaxed);
        }
    }

    pub(super) fn attribute(&self, attribute: CUdevice_attribute) -> DriverResult<c_int> {
        let mut value = 0;
        // SAFETY: it writes one integer.
        unsafe { self.driver.cuDeviceGetAttribute(&raw mut value, attribute, self.device) }.map(|()| value)
    }

    pub(super) fn name(&self) -> DriverResult<String> {
        let mut name = [0_u8; 256];
        // SAFETY: it writes at most 256 bytes, with a terminating zero.
        unsafe { self.driver.cuDeviceGetName(name.as_mut_ptr().cast(), 256, self.device) }?;
        Ok(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Free and total bytes of its memory.
    pub(super) fn memory(&self) -> DriverResult<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        self.bind()?;
        // SAFETY: it writes two integers.
        unsafe { self.driver.cuMemGetInfo_v2(&raw mut free, &raw mut total) }.map(|()| (free, total))
    }

    /// Lets the pool of the GPU keep at least `bytes` bytes of freed memory, so that allocating again is cheap. The
    /// pool is shared by the process: a higher threshold that others have set stays.
    pub(super) fn keep_memory(&self, bytes: u64) -> DriverResult {
        const KEPT: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut pool = ptr::null_mut();
        // SAFETY: it writes one pointer.
        unsafe { self.driver.cuDeviceGetDefaultMemPool(&raw mut pool, self.device) }?;
        let mut kept = 0_u64;
        // SAFETY: the pool is the device's; the attribute is a u64, which is written.
        unsafe { self.driver.cuMemPoolGetAttribute(pool, KEPT, (&raw mut kept).cast()) }?;
        if kept >= bytes {
            return Ok(());
        }
        let mut bytes = bytes;
        // SAFETY: as above; it is only read.
        unsafe { self.driver.cuMemPoolSetAttribute(pool, KEPT, (&raw mut bytes).cast()) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. An error cannot be reported any more.
        let _ = unsafe { self.driver.cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A queue of the driver.
pub(super) struct Stream {
    pub(super) context: Arc<Context>,
    pub(super) raw: CUstream,
    /// Whether another library made it, and destroys it.
    is_foreign: bool,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> DriverResult<Arc<Self>> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: it writes one pointer; the stream is destroyed when this is dropped.
        unsafe { context.driver.cuStreamCreate(&raw mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint) }?;
        Ok(Arc::new(Self { context: context.clone(), raw, is_foreign: false }))
    }

    /// A stream of another library.
    pub(super) fn foreign(context: &Arc<Context>, stream: ForeignStream) -> Arc<Self> {
        Arc::new(Self { context: context.clone(), raw: stream.as_raw().cast(), is_foreign: true })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_foreign {
            return;
        }
        let bound = self.context.bind();
        // SAFETY: the stream is destroyed once; the driver finishes its work first.
        let destroyed = unsafe { self.context.driver.cuStreamDestroy_v2(self.raw) };
        self.context.keep_error(bound.and(destroyed));
    }
}

/// A point in the work of a stream.
pub(super) struct Event {
    context: Arc<Context>,
    raw: CUevent,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Event {}

impl Event {
    /// An event that is waited for without spinning.
    pub(super) fn new(context: &Arc<Context>) -> DriverResult<Self> {
        Self::with_flags(context, CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint)
    }

    /// As [`Event::new`], with the time.
    pub(super) fn timed(context: &Arc<Context>) -> DriverResult<Self> {
        Self::with_flags(context, CUevent_flags::CU_EVENT_DEFAULT as c_uint)
    }

    fn with_flags(context: &Arc<Context>, flags: c_uint) -> DriverResult<Self> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: it writes one pointer; the event is destroyed when this is dropped.
        unsafe { context.driver.cuEventCreate(&raw mut raw, CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint | flags) }?;
        Ok(Self { context: context.clone(), raw })
    }

    /// Records the work that `stream` was given so far.
    pub(super) fn record(&self, stream: &Stream) -> DriverResult {
        // SAFETY: both are alive, and of one context.
        unsafe { self.context.driver.cuEventRecord(self.raw, stream.raw) }
    }

    /// Waits for that work; not at all if there is none.
    pub(super) fn wait(&self) -> DriverResult {
        // SAFETY: the event is alive.
        unsafe { self.context.driver.cuEventSynchronize(self.raw) }
    }

    /// Milliseconds from `earlier` to this; both are timed and were waited for.
    pub(super) fn milliseconds_since(&self, earlier: &Self) -> DriverResult<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both are alive; it writes one number.
        unsafe { self.context.driver.cuEventElapsedTime(&raw mut milliseconds, earlier.raw, self.raw) }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let bound = self.context.bind();
        // SAFETY: the event is destroyed once.
        let destroyed = unsafe { self.context.driver.cuEventDestroy_v2(self.raw) };
        self.context.keep_error(bound.and(destroyed));
    }
}

/// Loaded kernels.
pub(super) struct Module {
    context: Arc<Context>,
    raw: CUmodule,
}

// SAFETY: a module may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above, at the same time.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) raw: CUfunction,
    _module: Arc<Module>,
}

// SAFETY: a function may be launched from any thread.
unsafe impl Send for Function {}

impl Module {
    /// From an image: PTX that ends with zero, or a whole cubin.
    ///
    /// # Safety
    /// The image is one of these.
    pub(super) unsafe fn load(context: &Arc<Context>, image: &[u8]) -> DriverResult<Arc<Self>> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the image is complete, by this function's contract.
        unsafe { context.driver.cuModuleLoadData(&raw mut raw, image.as_ptr().cast()) }?;
        Ok(Arc::new(Self { context: context.clone(), raw }))
    }

    pub(super) fn function(self: &Arc<Self>, name: &str) -> DriverResult<Function> {
        self.context.bind()?;
        let name = CString::new(name).map_err(|_| DriverError::NOT_FOUND)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the module is loaded; the name ends with zero; one pointer is written.
        unsafe { self.context.driver.cuModuleGetFunction(&raw mut raw, self.raw, name.as_ptr()) }?;
        Ok(Function { raw, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let bound = self.context.bind();
        // SAFETY: the module is unloaded once; functions keep it.
        let unloaded = unsafe { self.context.driver.cuModuleUnload(self.raw) };
        self.context.keep_error(bound.and(unloaded));
    }
}
