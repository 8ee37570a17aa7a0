//! The functions of the CUDA driver that we call. The library is loaded when a GPU is first asked for.
//!
//! `libcuda.so.1` is what a driver installs. `libcuda.so` alone may be a stub that toolkits bring for linking, so it is
//! only tried if the other is missing; a stub refuses to initialize.
#![expect(unsafe_code, reason = "loads the CUDA driver")]
#![expect(clippy::too_many_arguments, reason = "the arguments are the driver's")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::gpu::{DeviceError, DeviceResult};

/// An object of the driver: a context, a stream, an event, a module, a function or a pool.
pub(super) type Handle = *mut c_void;
/// An address in device memory.
pub(super) type Pointer = u64;

/// The number of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DriverError(pub(super) u32);

impl DriverError {
    pub(super) const OUT_OF_MEMORY: Self = Self(2);
}

pub(super) type DriverResult<T = ()> = Result<T, DriverError>;

/// The minimum CUDA version, in the driver's numbering.
const VERSION: c_int = 12_000;
/// File names of the driver, the best first.
const NAMES: [&CStr; 2] = [c"libcuda.so.1", c"libcuda.so"];

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// The driver, with all functions that we call: the tests run on a driver that has only these.
        #[expect(non_snake_case, reason = "the names are the driver's")]
        pub(super) struct Driver {
            /// Where the library was found.
            path: PathBuf,
            $($name: unsafe extern "C" fn($($ty),*) -> c_uint,)*
        }

        #[expect(non_snake_case, reason = "the names are the driver's")]
        impl Driver {
            /// Looks all functions up; fails with the name of one that is missing.
            fn find(library: &Library) -> Result<Self, &'static str> {
                $(
                    let name = concat!(stringify!($name), "\0");
                    let $name = library.find(name).ok_or(stringify!($name))?;
                    // SAFETY: the driver's function of this name has this type.
                    let $name = unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> c_uint>($name) };
                )*
                Ok(Self { path: library.path(), $($name,)* })
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
    cuCtxGetCurrent(context: *mut Handle);
    cuCtxSetCurrent(context: Handle);
    cuDeviceGet(device: *mut c_int, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut Handle, flags: c_uint);
    cuEventDestroy_v2(event: Handle);
    cuEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventSynchronize(event: Handle);
    cuGetErrorString(error: c_uint, text: *mut *const c_char);
    cuInit(flags: c_uint);
    cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        args: *mut *mut c_void,
        extra: *mut *mut c_void
    );
    cuMemAllocAsync(pointer: *mut Pointer, len: usize, stream: Handle);
    cuMemAlloc_v2(pointer: *mut Pointer, len: usize);
    cuMemFreeAsync(pointer: Pointer, stream: Handle);
    cuMemFreeHost(memory: *mut c_void);
    cuMemFree_v2(pointer: Pointer);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostAlloc(memory: *mut *mut c_void, len: usize, flags: c_uint);
    cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cuMemcpyDtoDAsync_v2(to: Pointer, from: Pointer, len: usize, stream: Handle);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Pointer, len: usize, stream: Handle);
    cuMemcpyHtoDAsync_v2(to: Pointer, from: *const c_void, len: usize, stream: Handle);
    cuMemsetD8Async(to: Pointer, value: u8, len: usize, stream: Handle);
    cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    cuModuleLoadData(module: *mut Handle, image: *const c_void);
    cuModuleUnload(module: Handle);
    cuStreamCreate(stream: *mut Handle, flags: c_uint);
    cuStreamDestroy_v2(stream: Handle);
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
            let library = NAMES.into_iter().find_map(Library::load);
            let library =
                library.ok_or_else(|| DeviceError::Lost("no NVIDIA driver: libcuda.so.1 was not found".to_owned()))?;
            Self::find(&library).map_err(|name| {
                DeviceError::Lost(format!("the NVIDIA driver lacks {name}: version 525 or later is required"))
            })
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
        format!("{}, {}", version_text(self.version().unwrap_or_default()), self.path.display())
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

/// A library, which is never unloaded.
struct Library {
    handle: *mut c_void,
    name: &'static CStr,
}

impl Library {
    fn load(name: &'static CStr) -> Option<Self> {
        // SAFETY: loads the driver, as every program that uses a GPU does.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Self { handle, name })
    }

    /// The address of a symbol; `name` ends with zero.
    fn find(&self, name: &str) -> Option<*mut c_void> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        // SAFETY: the library is loaded; the symbol is looked up, not called.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// The file that it was loaded from.
    fn path(&self) -> PathBuf {
        let function = self.find("cuInit\0").unwrap_or_default().cast_const();
        // SAFETY: all of it is integers and pointers, which may be zero.
        let mut info: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: it only fills `info`.
        let known = unsafe { libc::dladdr(function, &raw mut info) } != 0 && !info.dli_fname.is_null();
        // SAFETY: the name ends with zero, and stays while the library does.
        let name = if known { unsafe { CStr::from_ptr(info.dli_fname) } } else { self.name };
        Path::new(OsStr::from_bytes(name.to_bytes())).to_owned()
    }
}
