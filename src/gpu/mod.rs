//! Devices that run kernels: memory, work queues, launches.
//!
//! Device decoders depend only on [`Device`] and [`Queue`]. CUDA implements them; the tests implement them with the
//! same kernels compiled for the host, so that plans and launches are tested without a GPU.
//!
//! Invariants: work of a queue runs in order; memory outlives the work that uses it. After [`DeviceError::Lost`] a
//! device is not used again.

mod choice;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod image;
pub mod scheduler;
mod shared;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use choice::Gpu;
pub use shared::{DeviceBuffer, ForeignStream};

/// Why device work failed. The CPU does it instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceError {
    /// Too little device memory within the limit; less work may fit.
    OutOfMemory {
        /// Bytes requested.
        need: u64,
    },
    /// The device does not work; the text says why.
    Lost(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { need } => write!(f, "cannot allocate {need} bytes of GPU memory"),
            Self::Lost(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DeviceError {}

/// The result of device work.
pub type DeviceResult<T = ()> = std::result::Result<T, DeviceError>;

/// A processor with its own memory that runs the kernels.
pub trait Device: Send + Sync {
    /// Display name: `NVIDIA H200 (cuda:0)`.
    fn name(&self) -> &str;

    /// Further details, for display.
    fn about(&self) -> String {
        String::new()
    }

    /// Limit of device memory in use, in bytes.
    fn memory_limit(&self) -> u64;

    /// Opens a new queue. Queues run concurrently.
    ///
    /// # Errors
    /// Fails if the device cannot open another.
    fn queue(&self) -> DeviceResult<Box<dyn Queue>>;

    /// Allocates `len` bytes that other libraries may use too, at [`Device::address`]; queues may use them at once.
    /// Allocated and freed in the order of `stream`; without one, freed after waiting for all work on the device.
    ///
    /// # Errors
    /// As [`Queue::alloc`]; fails with [`DeviceError::Lost`] if the device has no memory to share.
    fn alloc_shared(&self, len: u64, stream: Option<ForeignStream>) -> DeviceResult<Memory> {
        let _ = (len, stream);
        Err(DeviceError::Lost(format!("{} shares no memory", self.name())))
    }

    /// The address of `memory`, and the number of the GPU that it is on; `None` if it is not the device's.
    fn address(&self, memory: &Memory) -> Option<(u64, u32)> {
        let _ = memory;
        None
    }
}

/// Device work, done in order.
pub trait Queue: Send {
    /// Allocates `len` bytes, uninitialized, aligned to 256. They count against the device's limit until the last clone
    /// is dropped. Other queues may use them after [`Queue::finish`].
    ///
    /// # Errors
    /// Fails with [`DeviceError::OutOfMemory`] if there is not enough memory.
    fn alloc(&mut self, len: u64) -> DeviceResult<Memory>;

    /// Writes zeros over `range` of `memory`.
    ///
    /// # Errors
    /// Fails with [`DeviceError::Lost`] if the device fails or the range is out of bounds; so do all methods below.
    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> DeviceResult;

    /// Copies `bytes` to `to` at offset `at`. The caller may reuse `bytes` when this returns.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn upload(&mut self, to: &Memory, at: u64, bytes: &[u8]) -> DeviceResult;

    /// Copies `len` bytes of `from` at offset `from_at` to `to` at offset `to_at`.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn copy(&mut self, from: &Memory, from_at: u64, to: &Memory, to_at: u64, len: u64) -> DeviceResult;

    /// Runs `kernel` with `grid` blocks of `block` threads. Does nothing if `grid` is 0.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    ///
    /// # Safety
    /// `args` must match the kernel's parameters, and the kernel must stay within the memory among them: every index
    /// that comes from a file must be checked, in the kernel or before.
    #[expect(unsafe_code, reason = "a kernel is code that the compiler does not see")]
    unsafe fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult;

    /// Waits for all earlier work, then fills the destinations of `parts`. Copies overlap: ask for all of them at once.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn download(&mut self, parts: &mut [Download]) -> DeviceResult;

    /// Waits for all work queued so far.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn finish(&mut self) -> DeviceResult;

    /// Marks this point in the queue's work, for [`Queue::times`].
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn mark(&mut self) -> DeviceResult;

    /// Waits for all work queued so far. Returns when each mark was reached, by the device's clock, since the first;
    /// forgets the marks.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn times(&mut self) -> DeviceResult<Vec<Duration>>;
}

/// Bytes to copy to the host.
#[derive(Debug)]
pub struct Download<'a> {
    /// Where they are.
    pub memory: &'a Memory,
    /// Their offset in it.
    pub at: u64,
    /// Where they go; its length says how many there are.
    pub dst: &'a mut [u8],
}

/// A function of kernels/`file`.cu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The source file name without suffix.
    pub file: &'static str,
    /// The `extern "C"` function name.
    pub name: &'static str,
}

/// A kernel argument.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// A pointer into device memory, at a byte offset.
    Memory(&'a Memory, u64),
    /// `u32`.
    U32(u32),
    /// `u64`.
    U64(u64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
}

/// Device memory; clones share it.
#[derive(Clone)]
pub struct Memory {
    len: u64,
    allocation: Arc<dyn Any + Send + Sync>,
}

impl Memory {
    /// Memory of `len` bytes that dropping `allocation` frees.
    pub fn new(len: u64, allocation: impl Any + Send + Sync) -> Self {
        Self { len, allocation: Arc::new(allocation) }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The allocation behind it, for the device that made it.
    pub fn allocation<T: Any>(&self) -> Option<&T> {
        self.allocation.downcast_ref()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.len)
    }
}

/// Opens GPU `ordinal`. At most `memory_limit` bytes of its memory are used; the default is half of the free memory.
///
/// # Errors
/// Fails with the reason why the GPU cannot be used.
#[cfg(feature = "cuda")]
pub fn open(ordinal: u32, memory_limit: Option<u64>) -> DeviceResult<Arc<dyn Device>> {
    Ok(Arc::new(cuda::Cuda::open(ordinal, memory_limit)?))
}

/// Always fails: this build has no GPU support.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cuda"))]
pub fn open(_ordinal: u32, _memory_limit: Option<u64>) -> DeviceResult<Arc<dyn Device>> {
    Err(DeviceError::Lost("this build has no GPU support".to_owned()))
}
