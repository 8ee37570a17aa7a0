//! NVIDIA GPUs, through the driver alone: no toolkit is needed to build or run.
//!
//! A queue is a stream with its own staging buffers. Memory is allocated in stream order if the GPU supports it, and
//! charged to the limit set by the user. A PTX file is loaded when one of its kernels is first launched.
//!
//! Every error except lack of memory ends the use of the device: a fault in a kernel poisons the context, and all later
//! calls fail.
#![expect(unsafe_code, reason = "calls of the CUDA driver")]

mod measure;
mod memory;
mod probe;
mod queue;
mod staging;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, result};
use cudarc::nvrtc::Ptx;

use super::{Device, DeviceError, DeviceResult, Kernel, Queue, ptx};
use queue::{CudaQueue, StreamResources};

/// An open GPU.
pub struct Cuda {
    name: String,
    about: String,
    shared: Arc<Shared>,
}

/// State shared by all queues of a GPU.
struct Shared {
    context: Arc<CudaContext>,
    /// Whether allocation is stream-ordered.
    ordered: bool,
    /// Limit of device memory in bytes, and the bytes in use.
    memory_limit: u64,
    used: AtomicU64,
    modules: Mutex<HashMap<&'static str, Arc<CudaModule>>>,
    functions: Mutex<HashMap<Kernel, CudaFunction>>,
    /// Streams and staging buffers of closed queues, for reuse.
    spare: Mutex<Vec<StreamResources>>,
    /// Folder to load PTX from instead of the embedded text, for kernel development.
    folder: Option<PathBuf>,
}

impl Cuda {
    /// Opens GPU `ordinal`. At most `memory_limit` bytes of its memory are used; the default is half of the free
    /// memory.
    ///
    /// # Errors
    /// Fails with [`DeviceError::Lost`] if the GPU cannot be used. Never panics if the driver is missing.
    pub fn open(ordinal: u32, memory_limit: Option<u64>) -> DeviceResult<Self> {
        let version = probe::driver()?;
        let count = probe::count()?;
        let index = usize::try_from(ordinal).ok().filter(|_| ordinal < count);
        let index = index.ok_or_else(|| DeviceError::Lost(absent(ordinal, count)))?;
        let context = CudaContext::new(index).map_err(|e| lost("cannot open the GPU", e))?;
        // SAFETY: cudarc's own buffers are never shared between streams; our queues guard theirs.
        unsafe { context.disable_event_tracking() };
        let (major, minor) =
            context.compute_capability().map_err(|e| lost("cannot get the attributes of the GPU", e))?;
        if major < 7 {
            return Err(DeviceError::Lost(format!(
                "the GPU has compute capability {major}.{minor}; 7.0 or later is required"
            )));
        }
        let name = context.name().map_err(|e| lost("cannot get the name of the GPU", e))?;
        let (free, all) = context.mem_get_info().map_err(|e| lost("cannot get the memory size of the GPU", e))?;
        let free = crate::bytes::to_u64(free);
        let memory_limit = memory_limit.unwrap_or(free / 2).min(free);
        let pools = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
        let ordered = pools.map_err(|e| lost("cannot get the attributes of the GPU", e))? > 0;
        if ordered {
            keep_memory(&context, memory_limit).map_err(|e| lost("cannot configure the memory of the GPU", e))?;
        }
        let shared = Shared {
            context,
            ordered,
            memory_limit,
            used: AtomicU64::new(0),
            modules: Mutex::default(),
            functions: Mutex::default(),
            spare: Mutex::default(),
            folder: std::env::var_os("FZMFS_PTX_DIR").map(PathBuf::from),
        };
        let about = format!("compute capability {major}.{minor}, {} MiB of memory, {version}", all >> 20);
        Ok(Self { name: format!("{name} (cuda:{ordinal})"), about, shared: Arc::new(shared) })
    }
}

/// The message for a GPU number that does not exist.
fn absent(ordinal: u32, count: u32) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("there is no GPU {ordinal}: the system has {count} GPU{plural}, numbered from 0")
}

/// Lets the pool keep up to `memory_limit` bytes of freed memory, so that allocating again is cheap.
fn keep_memory(context: &CudaContext, memory_limit: u64) -> Result<(), DriverError> {
    let device = context.cu_device();
    // SAFETY: the device is the context's.
    let pool = unsafe { result::device::get_default_mem_pool(device) }?;
    let mut memory_limit = memory_limit;
    let value = (&raw mut memory_limit).cast();
    // SAFETY: the pool belongs to the device; the attribute is a u64 and is only read.
    unsafe { result::mem_pool::set_attribute(pool, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value) }
}

impl Device for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn memory_limit(&self) -> u64 {
        self.shared.memory_limit
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        let spare = self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let resources = spare.map_or_else(|| StreamResources::new(&self.shared.context), Ok)?;
        Ok(Box::new(CudaQueue::new(self.shared.clone(), resources)))
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cuda({}, {} of {} bytes)",
            self.name,
            self.shared.used.load(Ordering::Relaxed),
            self.shared.memory_limit
        )
    }
}

impl Shared {
    /// Returns the function, loading it on first use.
    fn function(&self, kernel: Kernel) -> DeviceResult<CudaFunction> {
        let mut functions = lock(&self.functions);
        if let Some(function) = functions.get(&kernel) {
            return Ok(function.clone());
        }
        let module = self.module(kernel.file)?;
        let function = module.load_function(kernel.name).map_err(|e| lost(&format!("kernel {}", kernel.name), e))?;
        functions.insert(kernel, function.clone());
        Ok(function)
    }

    fn module(&self, file: &'static str) -> DeviceResult<Arc<CudaModule>> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(file) {
            return Ok(module.clone());
        }
        let text = match &self.folder {
            Some(folder) => {
                let path = folder.join(file).with_extension("ptx");
                std::fs::read_to_string(&path).map_err(|e| DeviceError::Lost(format!("{}: {e}", path.display())))?
            }
            None => ptx::text(file)
                .ok_or_else(|| DeviceError::Lost(format!("this build lacks the kernels {file}")))?
                .to_owned(),
        };
        if text.contains('\0') {
            return Err(DeviceError::Lost(format!("the kernels {file} are not text")));
        }
        let module = self.context.load_module(Ptx::from_src(text)).map_err(|e| lost(&format!("kernels {file}"), e))?;
        modules.insert(file, module.clone());
        Ok(module)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`DeviceError::Lost`] with the driver's description of the error. Only call this after [`probe::driver`] succeeded:
/// the driver provides the text.
fn lost(what: &str, error: DriverError) -> DeviceError {
    let words = error.error_string().map(|text| text.to_string_lossy().into_owned());
    let words = words.unwrap_or_else(|_| "unknown error".to_owned());
    DeviceError::Lost(format!("{what}: {words} (CUDA error {})", error.0 as u32))
}

/// As [`lost`], except that lack of memory becomes [`DeviceError::OutOfMemory`].
fn refused(what: &str, need: u64, error: DriverError) -> DeviceError {
    if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        DeviceError::OutOfMemory { need }
    } else {
        lost(what, error)
    }
}
