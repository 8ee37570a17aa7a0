//! A device that runs kernels: memory, queues of work, launches.
//!
//! What decodes on a device is written against [`Device`] and [`Queue`] alone. CUDA is one of them; in tests
//! the same kernels, compiled for the host, are another, so that plans and launches are proven without a GPU.
//!
//! Invariants: work of a queue runs in the order it was given; memory outlives the work that uses it.
//! After [`Trouble::Lost`] a device is not used again.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod pace;
pub mod ptx;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pace::Site;

/// Why work for a device did not get done. The CPU does it then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Not enough device memory within the budget: smaller work may fit.
    NoRoom {
        /// Bytes asked for.
        need: u64,
    },
    /// The device cannot be used any more, or never could; the text says why.
    Lost(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { need } => write!(f, "{need} bytes of device memory are not to be had"),
            Self::Lost(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Trouble {}

/// The result of work for a device.
pub type Done<T = ()> = std::result::Result<T, Trouble>;

/// A processor with memory of its own, on which the kernels run.
pub trait Device: Send + Sync {
    /// What it is, for people: `NVIDIA H200 (cuda:0)`.
    fn name(&self) -> &str;

    /// What else there is to say, for people.
    fn about(&self) -> String {
        String::new()
    }

    /// The most bytes of its memory that may be in use at a time.
    fn room(&self) -> u64;

    /// A new queue. Queues run beside each other.
    ///
    /// # Errors
    /// Where the device has no more.
    fn queue(&self) -> Done<Box<dyn Queue>>;
}

/// Work for a device, done in order.
pub trait Queue: Send {
    /// Memory of `len` bytes, with any content, aligned to 256. Belongs to the device's room until its last clone
    /// is dropped; other queues may use it after [`Queue::finish`].
    ///
    /// # Errors
    /// [`Trouble::NoRoom`] where it is not to be had.
    fn alloc(&mut self, len: u64) -> Done<Memory>;

    /// Writes zeros over `range` of `memory`.
    ///
    /// # Errors
    /// [`Trouble::Lost`], as everything below; also for a range that lies outside.
    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> Done;

    /// Copies `bytes` to `to` from `at` on. `bytes` are free for other use when this returns.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    fn upload(&mut self, to: &Memory, at: u64, bytes: &[u8]) -> Done;

    /// Runs `kernel` with `grid` blocks of `block` threads. Nothing runs where `grid` is 0.
    ///
    /// The caller answers for what the kernel does with its arguments: every index that comes from a file is
    /// checked in the kernel or before.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> Done;

    /// Waits for all work before it and fills `dst` with the bytes of `from` from `at` on.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    fn download(&mut self, from: &Memory, at: u64, dst: &mut [u8]) -> Done;

    /// Waits for all work so far.
    ///
    /// # Errors
    /// [`Trouble::Lost`].
    fn finish(&mut self) -> Done;
}

/// A function of kernels/`file`.cu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The source, without its suffix.
    pub file: &'static str,
    /// The `extern "C"` function.
    pub name: &'static str,
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// A pointer to a byte of device memory.
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

/// Memory of a device; clones share it.
#[derive(Clone)]
pub struct Memory {
    len: u64,
    held: Arc<dyn Any + Send + Sync>,
}

impl Memory {
    /// `len` bytes that `held` stands for, given back when it is dropped.
    pub fn new(len: u64, held: impl Any + Send + Sync) -> Self {
        Self { len, held: Arc::new(held) }
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What stands for it, for the device that made it.
    pub fn held<T: Any>(&self) -> Option<&T> {
        self.held.downcast_ref()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.len)
    }
}

/// Opens GPU `ordinal`, of whose memory at most `room` bytes are used, or half of what is free.
///
/// # Errors
/// Why it cannot be used.
#[cfg(feature = "cuda")]
pub fn open(ordinal: u32, room: Option<u64>) -> Done<Arc<dyn Device>> {
    Ok(Arc::new(cuda::Cuda::open(ordinal, room)?))
}

/// Says that there is no GPU.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cuda"))]
pub fn open(_ordinal: u32, _room: Option<u64>) -> Done<Arc<dyn Device>> {
    Err(Trouble::Lost("this build has no CUDA".to_owned()))
}

type Open = Box<dyn Fn() -> Done<Arc<dyn Device>> + Send + Sync>;

/// The device of a mount, opened when it is first needed: never before the daemon has forked.
pub struct Gpu {
    open: Open,
    want: Want,
    device: OnceLock<Done<Arc<dyn Device>>>,
    lost: Mutex<Option<String>>,
    /// Bytes that the CPU and the device have decoded, where both could.
    decoded: [AtomicU64; 2],
}

/// What the user said about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// Not to use any.
    No,
    /// To use it where it is faster.
    Maybe,
    /// To use it, or to fail.
    Must,
}

impl Gpu {
    fn made(open: impl Fn() -> Done<Arc<dyn Device>> + Send + Sync + 'static, want: Want) -> Arc<Self> {
        let (device, lost) = (OnceLock::new(), Mutex::new(None));
        Arc::new(Self { open: Box::new(open), want, device, lost, decoded: <[AtomicU64; 2]>::default() })
    }

    /// A device that `open` will give, if it can.
    pub fn new(open: impl Fn() -> Done<Arc<dyn Device>> + Send + Sync + 'static) -> Arc<Self> {
        Self::made(open, Want::Maybe)
    }

    /// A device that `open` has to give.
    pub fn required(open: impl Fn() -> Done<Arc<dyn Device>> + Send + Sync + 'static) -> Arc<Self> {
        Self::made(open, Want::Must)
    }

    /// No device.
    pub fn none() -> Arc<Self> {
        Self::made(|| Err(Trouble::Lost("decoding on the CPU was asked for".to_owned())), Want::No)
    }

    /// The device, as long as it works.
    ///
    /// # Errors
    /// Why there is none.
    pub fn device(&self) -> Done<Arc<dyn Device>> {
        if let Some(why) = &*self.lost() {
            return Err(Trouble::Lost(why.clone()));
        }
        let first = || {
            (self.open)()
                .inspect(|device| tracing::info!("{} may decode", device.name()))
                .inspect_err(|why| tracing::info!("the CPU decodes: {why}"))
        };
        self.device.get_or_init(first).clone()
    }

    /// Opens the device where the user insists on it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn check(&self) -> Done {
        if self.is_required() { self.device().map(drop) } else { Ok(()) }
    }

    /// Whether the user insists on it.
    pub fn is_required(&self) -> bool {
        self.want == Want::Must
    }

    /// Whether there may be one: not where none was wanted or found, or it was lost. Opens nothing.
    pub fn is_possible(&self) -> bool {
        self.want != Want::No && !matches!(self.device.get(), Some(Err(_))) && self.lost().is_none()
    }

    /// Whether there seems to be one: where the kernel's driver is loaded, or the user says so. Opens nothing.
    pub fn is_likely(&self) -> bool {
        // Of the driver on Linux, and on Linux inside of Windows.
        let there = || ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| std::path::Path::new(path).exists());
        self.is_required() || (self.is_possible() && there())
    }

    /// Whether it was opened.
    pub fn is_open(&self) -> bool {
        matches!(self.device.get(), Some(Ok(_)))
    }

    /// Takes note that work failed: after [`Trouble::Lost`] there is no device any more, which is logged once.
    pub fn note(&self, trouble: &Trouble) {
        let Trouble::Lost(why) = trouble else { return };
        let mut lost = self.lost();
        if lost.is_none() {
            tracing::warn!("the GPU is not used any more, the CPU decodes: {why}");
            *lost = Some(why.clone());
        }
    }

    /// Counts bytes that one of the two has decoded.
    fn count(&self, site: Site, bytes: u64) {
        let [cpu, device] = &self.decoded;
        let counter = if site == Site::Cpu { cpu } else { device };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What will decode, for people.
    pub fn choice(&self) -> String {
        match self.device.get() {
            Some(Ok(device)) => device.name().to_owned(),
            None if self.is_likely() => "the CPU, or a GPU where that is faster".to_owned(),
            _ => "the CPU".to_owned(),
        }
    }

    /// What has decoded so far, for people: `CPU`, or the device and how many bytes each.
    pub fn decoder(&self) -> String {
        let [cpu, device] = [0, 1].map(|i| self.decoded.get(i).map_or(0, |n| n.load(Ordering::Relaxed)));
        match self.device.get() {
            Some(Ok(gpu)) if device > 0 => format!("{}: {device} bytes; CPU: {cpu} bytes", gpu.name()),
            _ => "CPU".to_owned(),
        }
    }

    fn lost(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

        fn room(&self) -> u64 {
            0
        }

        fn queue(&self) -> Done<Box<dyn Queue>> {
            Err(Trouble::NoRoom { need: 0 })
        }
    }

    #[test]
    fn a_device_that_is_lost_stays_lost() {
        let gpu = Gpu::new(|| Ok(Arc::new(Nothing)));
        gpu.note(&Trouble::NoRoom { need: 1 });
        assert_eq!(gpu.device().unwrap().name(), "nothing");
        gpu.note(&Trouble::Lost("it fell over".to_owned()));
        gpu.note(&Trouble::Lost("again".to_owned()));
        assert_eq!(gpu.device().err(), Some(Trouble::Lost("it fell over".to_owned())));
        assert!(Gpu::none().device().is_err() && !Gpu::none().is_possible());
    }

    #[test]
    fn only_a_device_that_is_insisted_on_is_opened_to_be_checked() {
        let gpu = Gpu::new(|| Ok(Arc::new(Nothing)));
        assert!(gpu.check().is_ok() && !gpu.is_open() && gpu.is_possible());
        let gpu = Gpu::required(|| Ok(Arc::new(Nothing)));
        assert!(gpu.check().is_ok() && gpu.is_open());
        let gpu = Gpu::required(|| Err(Trouble::Lost("no".to_owned())));
        assert!(gpu.check().is_err() && !gpu.is_possible());
    }

    #[test]
    fn what_decoded_is_said() {
        let gpu = Gpu::new(|| Ok(Arc::new(Nothing)));
        gpu.count(Site::Cpu, 5);
        assert_eq!(gpu.decoder(), "CPU");
        gpu.device().unwrap();
        gpu.count(Site::Device, 7);
        assert_eq!(gpu.decoder(), "nothing: 7 bytes; CPU: 5 bytes");
    }
}
