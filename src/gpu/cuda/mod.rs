//! NVIDIA GPUs, through the driver alone: no toolkit is needed to build or run.
//!
//! A queue is a stream with its own staging buffers. Memory is allocated in stream order if the GPU supports it, and
//! charged to the limit set by the user. A file of kernels is loaded when one of them is first launched: the machine
//! code for the GPU if this build has it and the driver takes it, else the PTX, which the driver compiles. All
//! openings of a GPU in a process share its kernels, streams and staging buffers, which take longer to make than an
//! array to decode; each has its own limit.
//!
//! Every error except lack of memory ends the use of the device: a fault in a kernel poisons the context, and all later
//! calls fail.
#![expect(unsafe_code, reason = "images for the CUDA driver")]

mod context;
mod driver;
mod measure;
mod memory;
mod queue;
mod staging;

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::{Device, DeviceError, DeviceResult, ForeignStream, Kernel, Memory, Queue};
use crate::gpu::image::Images;
use context::{Context, Function, Module};
use driver::Driver;
use memory::{Allocation, MemoryLimit};
use queue::{CudaQueue, StreamResources};

/// An open GPU.
pub struct Cuda {
    ordinal: u32,
    name: String,
    about: String,
    shared: Arc<OpenedGpu>,
    memory: Arc<MemoryLimit>,
}

/// State shared by all who have opened a GPU.
struct OpenedGpu {
    context: Arc<Context>,
    /// Compute capability: major and minor.
    capability: (u32, u32),
    /// Whether allocation is stream-ordered.
    ordered: bool,
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
    functions: Mutex<HashMap<Kernel, Function>>,
    /// Streams and staging buffers of closed queues, for reuse.
    spare: Mutex<Vec<StreamResources>>,
}

impl Cuda {
    /// Opens GPU `ordinal`. At most `memory_limit` bytes of its memory are used; the default is half of the free
    /// memory.
    ///
    /// # Errors
    /// Fails with [`DeviceError::Lost`] if the GPU cannot be used. Never panics if the driver is missing.
    pub fn open(ordinal: u32, memory_limit: Option<u64>) -> DeviceResult<Self> {
        let driver = Driver::get()?;
        let shared = OpenedGpu::of(driver, ordinal)?;
        let context = &shared.context;
        let lost = |what: &'static str| move |e| driver.lost(what, e);
        let name = context.name().map_err(lost("cannot get the name of the GPU"))?;
        let (free, all) = context.memory().map_err(lost("cannot get the memory size of the GPU"))?;
        let free = crate::bytes::to_u64(free);
        let memory_limit = memory_limit.unwrap_or(free / 2).min(free);
        if shared.ordered {
            context.keep_memory(memory_limit).map_err(lost("cannot configure the memory of the GPU"))?;
        }
        let (driver, (major, minor)) = (driver.about(), shared.capability);
        let about = format!("compute capability {major}.{minor}, {} MiB of memory, {driver}", all >> 20);
        let memory = MemoryLimit::new(memory_limit);
        Ok(Self { ordinal, name: format!("{name} (cuda:{ordinal})"), about, shared, memory })
    }
}

/// The message for a GPU number that does not exist.
fn absent(ordinal: u32, count: u32) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("there is no GPU {ordinal}: the system has {count} GPU{plural}, numbered from 0")
}

impl Device for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn memory_limit(&self) -> u64 {
        self.memory.limit
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        let spare = self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let resources = spare.map_or_else(|| StreamResources::new(&self.shared.context), Ok)?;
        Ok(Box::new(CudaQueue::new(self.shared.clone(), self.memory.clone(), resources)))
    }

    fn alloc_shared(&self, len: u64, stream: Option<ForeignStream>) -> DeviceResult<Memory> {
        memory::lend(&self.shared, &self.memory, stream, len)
    }

    fn address(&self, memory: &Memory) -> Option<(u64, u32)> {
        memory.allocation::<Allocation>().map(|allocation| (allocation.pointer, self.ordinal))
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}, {} of {} bytes)", self.name, self.memory.used.load(Ordering::Relaxed), self.memory.limit)
    }
}

/// A process and the number of a GPU, and what is shared there.
type OpenGpu = ((u32, u32), Weak<OpenedGpu>);

impl OpenedGpu {
    /// That of GPU `ordinal`: of those who have it open in this process, or a new one. A process that was forked
    /// meanwhile has none: the driver does not work there.
    fn of(driver: &'static Driver, ordinal: u32) -> DeviceResult<Arc<Self>> {
        static OPEN: Mutex<Vec<OpenGpu>> = Mutex::new(Vec::new());
        let own = (std::process::id(), ordinal);
        let find = |open: &[OpenGpu]| open.iter().filter(|(of, _)| *of == own).find_map(|(_, shared)| shared.upgrade());
        let found = find(&lock(&OPEN));
        if let Some(shared) = found {
            return Ok(shared);
        }
        // Not under the lock, which a fork may leave locked.
        let made = Arc::new(Self::new(driver, ordinal)?);
        let mut open = lock(&OPEN);
        if let Some(shared) = find(&open) {
            return Ok(shared);
        }
        open.retain(|(_, shared)| shared.strong_count() > 0);
        open.push((own, Arc::downgrade(&made)));
        Ok(made)
    }

    fn new(driver: &'static Driver, ordinal: u32) -> DeviceResult<Self> {
        let count = driver.devices()?;
        let index = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let index = index.ok_or_else(|| DeviceError::Lost(absent(ordinal, count)))?;
        let lost = |what: &'static str| move |e| driver.lost(what, e);
        let context = Context::primary(driver, index).map_err(lost("cannot open the GPU"))?;
        let attribute = |which| context.attribute(which).map_err(lost("cannot get the attributes of the GPU"));
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if major < 7 {
            return Err(DeviceError::Lost(format!(
                "the GPU has compute capability {major}.{minor}; 7.0 or later is required"
            )));
        }
        let ordered = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? > 0;
        Ok(Self {
            context,
            capability: (major.unsigned_abs(), minor.unsigned_abs()),
            ordered,
            modules: Mutex::default(),
            functions: Mutex::default(),
            spare: Mutex::default(),
        })
    }

    /// Returns the function, loading it on first use.
    fn function(&self, kernel: Kernel) -> DeviceResult<Function> {
        let mut functions = lock(&self.functions);
        if let Some(function) = functions.get(&kernel) {
            return Ok(function.clone());
        }
        let function = self.module(kernel.file)?.function(kernel.name);
        let function = function.map_err(|e| self.context.driver.lost(&format!("kernel {}", kernel.name), e))?;
        functions.insert(kernel, function.clone());
        Ok(function)
    }

    fn module(&self, file: &'static str) -> DeviceResult<Arc<Module>> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(file) {
            return Ok(module.clone());
        }
        let module = match self.assembled(file) {
            Some(module) => module,
            None => self.compiled(file)?,
        };
        modules.insert(file, module.clone());
        Ok(module)
    }

    /// The machine code of kernels/`file`.cu for this GPU, if there is any and the driver takes it.
    fn assembled(&self, file: &str) -> Option<Arc<Module>> {
        let image = Images::of(file)?.machine_code(self.capability)?;
        // SAFETY: the image is a whole cubin.
        let loaded = unsafe { Module::load(&self.context, &image) };
        loaded.inspect_err(|e| tracing::info!("the driver compiles the kernels {file}: error {}", e.0)).ok()
    }

    /// The PTX of kernels/`file`.cu, compiled by the driver.
    fn compiled(&self, file: &str) -> DeviceResult<Arc<Module>> {
        let text = Images::of(file).and_then(Images::text);
        let mut text = text.ok_or_else(|| DeviceError::Lost(format!("this build lacks the kernels {file}")))?;
        if text.contains('\0') {
            return Err(DeviceError::Lost(format!("the kernels {file} are not text")));
        }
        text.push('\0');
        // SAFETY: the text ends with zero.
        let loaded = unsafe { Module::load(&self.context, text.as_bytes()) };
        loaded.map_err(|e| self.context.driver.lost(&format!("kernels {file}"), e))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
