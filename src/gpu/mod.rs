//! Devices that run kernels: memory, work queues, launches.
//!
//! Device decoders depend only on [`Device`] and [`Queue`]. CUDA implements them; the tests implement them with the
//! same kernels compiled for the host, so that plans and launches are tested without a GPU.
//!
//! Invariants: work of a queue runs in order; memory outlives the work that uses it. After [`DeviceError::Lost`] a
//! device is not used again.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod image;
pub mod scheduler;
mod shared;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use scheduler::Backend;

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

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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

type Open = Box<dyn Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync>;

/// The device of a mount. It is opened on first use.
pub struct Gpu {
    open: Open,
    policy: DevicePolicy,
    device: OnceLock<DeviceResult<Arc<dyn Device>>>,
    lost: Mutex<Option<String>>,
    /// Seconds that loading the kernels of a pipeline took last.
    loading: Mutex<Option<f64>>,
    /// Bytes decoded by the CPU and by the device, of streams that both can decode.
    decoded: [AtomicU64; 2],
}

/// The device that the user has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DevicePolicy {
    /// Never use a device.
    Never,
    /// Use it if it is faster.
    Auto,
    /// Use it, or fail.
    Required,
}

impl Gpu {
    fn with_policy(
        open: impl Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync + 'static,
        policy: DevicePolicy,
    ) -> Arc<Self> {
        let (device, lost, loading) = (OnceLock::new(), Mutex::new(None), Mutex::new(None));
        Arc::new(Self { open: Box::new(open), policy, device, lost, loading, decoded: <[AtomicU64; 2]>::default() })
    }

    /// A device that is used if `open` succeeds; without a driver that could open it, no batches are formed for a
    /// device.
    pub fn detected(open: impl Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync + 'static) -> Arc<Self> {
        Self::with_driver(has_driver(), open)
    }

    /// As [`Gpu::detected`], where `has_driver` says whether there is a driver.
    fn with_driver(
        has_driver: bool,
        open: impl Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        if has_driver {
            return Self::new(open);
        }
        Self::with_policy(|| Err(DeviceError::Lost("no driver of a GPU was found".to_owned())), DevicePolicy::Never)
    }

    /// A device that is used if `open` succeeds.
    pub fn new(open: impl Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync + 'static) -> Arc<Self> {
        Self::with_policy(open, DevicePolicy::Auto)
    }

    /// A device that must open.
    pub fn required(open: impl Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync + 'static) -> Arc<Self> {
        Self::with_policy(open, DevicePolicy::Required)
    }

    /// No device.
    pub fn none() -> Arc<Self> {
        Self::with_policy(
            || Err(DeviceError::Lost("decoding on the CPU was requested".to_owned())),
            DevicePolicy::Never,
        )
    }

    /// The device, while it works.
    ///
    /// # Errors
    /// Fails with the reason why there is none.
    pub fn device(&self) -> DeviceResult<Arc<dyn Device>> {
        if let Some(why) = &*self.lost() {
            return Err(DeviceError::Lost(why.clone()));
        }
        let first = || {
            (self.open)()
                .inspect(|device| tracing::info!("{} is available", device.name()))
                .inspect_err(|why| tracing::info!("the CPU decodes: {why}"))
        };
        self.device.get_or_init(first).clone()
    }

    /// Opens the device if the user requires it.
    ///
    /// # Errors
    /// Fails with the reason why it cannot be used.
    pub fn check(&self) -> DeviceResult {
        if self.is_required() { self.device().map(drop) } else { Ok(()) }
    }

    /// Whether the user requires the device.
    pub fn is_required(&self) -> bool {
        self.policy == DevicePolicy::Required
    }

    /// Whether the device may be usable: wanted, not known to be missing, and not lost. Opens nothing.
    pub fn is_possible(&self) -> bool {
        self.policy != DevicePolicy::Never && !matches!(self.device.get(), Some(Err(_))) && self.lost().is_none()
    }

    /// Whether it was opened.
    pub fn is_open(&self) -> bool {
        matches!(self.device.get(), Some(Ok(_)))
    }

    /// Records a failure: after [`DeviceError::Lost`] the device is not used again, which is logged once.
    pub fn record_failure(&self, error: &DeviceError) {
        let DeviceError::Lost(why) = error else { return };
        let mut lost = self.lost();
        if lost.is_none() {
            tracing::warn!("the GPU failed and is no longer used; the CPU decodes: {why}");
            *lost = Some(why.clone());
        }
    }

    /// Records the seconds that the first batch of a pipeline took beyond the usual time.
    fn record_loading(&self, seconds: f64) {
        *self.loading.lock().unwrap_or_else(PoisonError::into_inner) = Some(seconds);
    }

    /// The value recorded last; `None` before the first.
    fn loading(&self) -> Option<f64> {
        *self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes decoded by `backend`.
    pub fn count(&self, backend: Backend, bytes: u64) {
        let [cpu, device] = &self.decoded;
        let counter = if backend == Backend::Cpu { cpu } else { device };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The device that will decode, for display.
    pub fn choice(&self) -> String {
        match self.device.get() {
            Some(Ok(device)) => device.name().to_owned(),
            None if self.is_possible() => "the CPU, or a GPU if it is faster".to_owned(),
            _ => "the CPU".to_owned(),
        }
    }

    /// The devices that have decoded so far, for display: `CPU`, or, once the device is open, its name and the bytes of
    /// each.
    pub fn decoder(&self) -> String {
        let [cpu, device] = [0, 1].map(|i| self.decoded.get(i).map_or(0, |n| n.load(Ordering::Relaxed)));
        match self.device.get() {
            Some(Ok(gpu)) => format!("{}: {device} bytes; CPU: {cpu} bytes", gpu.name()),
            _ => "CPU".to_owned(),
        }
    }

    fn lost(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is a driver that might open a GPU. Looks at a few paths; loads nothing.
fn has_driver() -> bool {
    // The kernel driver on Linux; on Linux under Windows (WSL); on boards whose GPU is part of the processor. A device
    // node may be missing until the GPU is first used.
    let kernel = ["/dev/nvidiactl", "/sys/module/nvidia", "/dev/dxg", "/dev/nvmap"];
    // Another driver that the user names.
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    cfg!(feature = "cuda")
        && (kernel.iter().any(|path| Path::new(path).exists())
            || std::env::split_paths(&folders).any(|folder| folder.join("libcuda.so.1").exists()))
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device.get() {
            None => f.write_str("Gpu(not opened)"),
            Some(Ok(device)) => write!(f, "Gpu({})", device.name()),
            Some(Err(why)) => write!(f, "Gpu({why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) struct Nothing;

    impl Device for Nothing {
        fn name(&self) -> &'static str {
            "nothing"
        }

        fn memory_limit(&self) -> u64 {
            0
        }

        fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
            Err(DeviceError::OutOfMemory { need: 0 })
        }
    }

    #[test]
    fn a_device_that_is_lost_stays_lost() {
        let gpu = Gpu::new(|| Ok(Arc::new(Nothing)));
        gpu.record_failure(&DeviceError::OutOfMemory { need: 1 });
        assert_eq!(gpu.device().unwrap().name(), "nothing");
        gpu.record_failure(&DeviceError::Lost("it fell over".to_owned()));
        gpu.record_failure(&DeviceError::Lost("again".to_owned()));
        assert_eq!(gpu.device().err(), Some(DeviceError::Lost("it fell over".to_owned())));
        assert!(Gpu::none().device().is_err() && !Gpu::none().is_possible());
    }

    #[test]
    fn only_a_required_device_is_opened_by_check() {
        let gpu = Gpu::new(|| Ok(Arc::new(Nothing)));
        assert!(gpu.check().is_ok() && !gpu.is_open() && gpu.is_possible());
        let gpu = Gpu::required(|| Ok(Arc::new(Nothing)));
        assert!(gpu.check().is_ok() && gpu.is_open());
        let gpu = Gpu::required(|| Err(DeviceError::Lost("no".to_owned())));
        assert!(gpu.check().is_err() && !gpu.is_possible());
    }

    #[test]
    fn without_a_driver_no_device_is_opened() {
        let gpu = Gpu::with_driver(false, || unreachable!("there is no driver"));
        assert!(!gpu.is_possible() && gpu.device().is_err() && gpu.check().is_ok());
        assert_eq!((gpu.choice(), gpu.decoder()), ("the CPU".to_owned(), "CPU".to_owned()));
        assert!(Gpu::with_driver(true, || Ok(Arc::new(Nothing))).is_possible());
    }

    #[test]
    fn the_decoder_is_reported() {
        let gpu = Gpu::new(|| Ok(Arc::new(Nothing)));
        gpu.count(Backend::Cpu, 5);
        assert_eq!(gpu.decoder(), "CPU");
        gpu.device().unwrap();
        assert_eq!(gpu.decoder(), "nothing: 0 bytes; CPU: 5 bytes");
        gpu.count(Backend::Device, 7);
        assert_eq!(gpu.decoder(), "nothing: 7 bytes; CPU: 5 bytes");
    }
}
