//! The functions of the CUDA driver that we call. The library is loaded on first use of a GPU.
//!
//! The types are cudarc's. Its functions are not called: they take the first library found of a list that begins with
//! `libcuda.so`, and panic if a function is missing. A driver installs `libcuda.so.1`; `libcuda.so` alone may be a stub
//! that toolkits bring for linking, which refuses to initialize, so it is only tried if the other is missing.
#![expect(unsafe_code, reason = "loads the CUDA driver")]
#![expect(clippy::too_many_arguments, reason = "the arguments are the driver's")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUmemPool_attribute, CUmemoryPool,
    CUmodule, CUresult, CUstream,
};
use libloading::Library;

use crate::gpu::{DeviceError, DeviceResult};
use crate::platform::library_of;

/// The number of an error. Not [`CUresult`]: drivers newer than cudarc have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DriverError(pub(super) u32);

impl DriverError {
    pub(super) const OUT_OF_MEMORY: Self = Self(CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
    pub(super) const NOT_FOUND: Self = Self(CUresult::CUDA_ERROR_NOT_FOUND as u32);
}

pub(super) type DriverResult<T = ()> = Result<T, DriverError>;

/// The minimum CUDA version, in the driver's numbering.
const VERSION: c_int = 12_000;
/// File names of the driver, the best first.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// The driver, with all functions that we call: the tests run on a driver that has only these.
        #[expect(non_snake_case, reason = "the names are the driver's")]
        pub(super) struct Driver {
            $($name: unsafe extern "C" fn($($ty),*) -> c_uint,)*
        }

        #[expect(non_snake_case, reason = "the names are the driver's")]
        impl Driver {
            /// Looks all functions up; fails with the name of one that is missing.
            fn find(library: &Library) -> Result<Self, &'static str> {
                $(
                    // SAFETY: the driver's function of this name has this type.
                    let $name = unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> c_uint>(stringify!($name)) };
                    let $name = *$name.map_err(|_| stringify!($name))?;
                )*
                Ok(Self { $($name,)* })
            }

            $(
                /// # Safety
                /// As the driver's documentation of this function says.
                pub(super) unsafe fn $name(&self, $($arg: $ty),*) -> DriverResult {
                    // SAFETY: by this function's contract.
                    match unsafe { (self.$name)($($arg),*) } {
                        0 => Ok(()),
                        error => Err(DriverError(error)),
                    }
                }
            )*
        }
    };
}

functions! {
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxSynchronize();
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);
    cuGetErrorString(error: c_uint, text: *mut *const c_char);
    cuInit(flags: c_uint);
    cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        args: *mut *mut c_void,
        extra: *mut *mut c_void
    );
    cuMemAllocAsync(pointer: *mut CUdeviceptr, len: usize, stream: CUstream);
    cuMemAlloc_v2(pointer: *mut CUdeviceptr, len: usize);
    cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
    cuMemFreeHost(memory: *mut c_void);
    cuMemFree_v2(pointer: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostAlloc(memory: *mut *mut c_void, len: usize, flags: c_uint);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, len: usize, stream: CUstream);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, len: usize, stream: CUstream);
    cuMemsetD8Async(to: CUdeviceptr, value: u8, len: usize, stream: CUstream);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleUnload(module: CUmodule);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
}

impl Driver {
    /// The driver of this machine, initialized.
    ///
    /// # Errors
    /// Fails with the reason why it cannot be used.
    pub(super) fn get() -> DeviceResult<&'static Self> {
        let driver = Self::loaded()?;
        // SAFETY: no flag is defined.
        unsafe { driver.cuInit(0) }.map_err(|e| driver.lost("cannot initialize the NVIDIA driver", e))?;
        let version = driver.version().map_err(|e| driver.lost("cannot get the version of the NVIDIA driver", e))?;
        if version < VERSION {
            return Err(DeviceError::Lost(format!(
                "the NVIDIA {} is too old: version 525 or later is required",
                version_text(version)
            )));
        }
        Ok(driver)
    }

    /// The driver of this machine; loads it on first use.
    fn loaded() -> DeviceResult<&'static Self> {
        static DRIVER: OnceLock<DeviceResult<Driver>> = OnceLock::new();
        let load = || {
            // SAFETY: loads the driver, as every program that uses a GPU does.
            let library = NAMES.into_iter().find_map(|name| unsafe { Library::new(name) }.ok());
            let library =
                library.ok_or_else(|| DeviceError::Lost("no NVIDIA driver: libcuda.so.1 was not found".to_owned()))?;
            let driver = Self::find(&library).map_err(|name| {
                DeviceError::Lost(format!("the NVIDIA driver lacks {name}: version 525 or later is required"))
            });
            // It is never unloaded: its functions are called until the process ends.
            mem::forget(library);
            driver
        };
        DRIVER.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The number of GPUs, at least 1.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(super) fn devices(&self) -> DeviceResult<u32> {
        let mut count = 0;
        // SAFETY: it writes one integer to the given address.
        unsafe { self.cuDeviceGetCount(&raw mut count) }.map_err(|e| self.lost("cannot count the GPUs", e))?;
        let count = u32::try_from(count).ok().filter(|&count| count > 0);
        count.ok_or_else(|| DeviceError::Lost("the NVIDIA driver found no GPU".to_owned()))
    }

    fn version(&self) -> DriverResult<c_int> {
        let mut version = 0;
        // SAFETY: it writes one integer to the given address.
        unsafe { self.cuDriverGetVersion(&raw mut version) }.map(|()| version)
    }

    /// Version and place, for display.
    pub(super) fn about(&self) -> String {
        format!("{}, {}", version_text(self.version().unwrap_or_default()), path(self.cuInit).display())
    }

    /// [`DeviceError::Lost`] with the driver's description of the error.
    pub(super) fn lost(&self, what: &str, error: DriverError) -> DeviceError {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: it writes one pointer to the given address.
        let known = unsafe { self.cuGetErrorString(error.0, &raw mut text) }.is_ok() && !text.is_null();
        // SAFETY: the text is the driver's, ends with zero, and stays.
        let words = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "unknown error".into() };
        DeviceError::Lost(format!("{what}: {words} (CUDA error {})", error.0))
    }

    /// As [`Driver::lost`], except that lack of memory becomes [`DeviceError::OutOfMemory`].
    pub(super) fn refused(&self, what: &str, need: u64, error: DriverError) -> DeviceError {
        if error == DriverError::OUT_OF_MEMORY { DeviceError::OutOfMemory { need } } else { self.lost(what, error) }
    }
}

fn version_text(version: c_int) -> String {
    format!("driver for CUDA {}.{}", version / 1000, version % 1000 / 10)
}

/// The file that a function of the driver was loaded from.
fn path(function: unsafe extern "C" fn(c_uint) -> c_uint) -> PathBuf {
    library_of(function as usize)
}
