//! Checks that the CUDA driver can be called at all.
//!
//! cudarc panics on a call if the library or a symbol is missing, even while formatting an error. So the library is
//! loaded, and every symbol we need is looked up, before the first call.
#![expect(unsafe_code, reason = "loads the CUDA driver")]

use cudarc::driver::{result, sys};

use super::lost;
use crate::gpu::{DeviceError, DeviceResult};

/// The minimum CUDA version, in the driver's numbering.
const VERSION: i32 = 12_000;

/// All driver functions that we call, directly or through cudarc. The tests run on a driver that has only these.
const NEEDED: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemPoolSetAttribute",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
];

/// Checks that the driver is present, complete and initialized. Returns its version as text.
///
/// # Errors
/// Fails with the reason why the driver cannot be used.
pub(super) fn driver() -> DeviceResult<String> {
    // SAFETY: loads the driver library, as every program that uses a GPU does.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::Lost("no NVIDIA driver: libcuda.so.1 was not found".to_owned()));
    }
    // SAFETY: the library was just loaded.
    let library = unsafe { sys::culib() };
    for symbol in NEEDED {
        // SAFETY: the symbol is looked up, not called.
        if unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err() {
            return Err(DeviceError::Lost(format!(
                "the NVIDIA driver lacks {symbol}: version 525 or later is required"
            )));
        }
    }
    result::init().map_err(|e| lost("cannot initialize the NVIDIA driver", e))?;
    let mut version = 0;
    // SAFETY: the symbol exists; it writes one integer to the given address.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    asked.map_err(|e| lost("cannot get the version of the NVIDIA driver", e))?;
    let words = format!("driver for CUDA {}.{}", version / 1000, version % 1000 / 10);
    if version < VERSION {
        return Err(DeviceError::Lost(format!("the NVIDIA {words} is too old: version 525 or later is required")));
    }
    Ok(words)
}

/// The number of GPUs, at least 1.
///
/// # Errors
/// Fails if there is none.
pub(super) fn count() -> DeviceResult<u32> {
    let count = result::device::get_count().map_err(|e| lost("cannot count the GPUs", e))?;
    let count = u32::try_from(count).ok().filter(|&count| count > 0);
    count.ok_or_else(|| DeviceError::Lost("the NVIDIA driver found no GPU".to_owned()))
}
