//! The device of a mount: whether there is one, whether it may be used, and what it has decoded.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::scheduler::Backend;
use super::{Device, DeviceError, DeviceResult};

type OpenDevice = Box<dyn Fn() -> DeviceResult<Arc<dyn Device>> + Send + Sync>;

/// The device of a mount. It is opened on first use.
pub struct Gpu {
    open: OpenDevice,
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
    pub(super) fn with_driver(
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
    pub(super) fn record_loading(&self, seconds: f64) {
        *self.loading.lock().unwrap_or_else(PoisonError::into_inner) = Some(seconds);
    }

    /// The value recorded last; `None` before the first.
    pub(super) fn loading(&self) -> Option<f64> {
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
pub(super) mod tests {
    use super::super::Queue;
    use super::*;

    pub(in crate::gpu) struct Nothing;

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
