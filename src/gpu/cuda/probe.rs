//! Whether there is a driver that can be called at all.
//!
//! cudarc panics in a call whose library or symbol is missing, even in the words of an error. So the
//! library is loaded and every symbol that we need looked up, before anything is called.
#![expect(unsafe_code, reason = "loads the CUDA driver")]

use cudarc::driver::{result, sys};

use super::lost;
use crate::gpu::{Done, Trouble};

/// The version of CUDA whose functions we use, as the driver counts.
const VERSION: i32 = 12_000;

/// All functions of the driver that we call, ourselves or through cudarc. A driver that has no more than these
/// is what the tests run on.
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

/// Sees to it that the driver is there, has what we need and starts; its version, for people.
///
/// # Errors
/// Why not.
pub(super) fn driver() -> Done<String> {
    // SAFETY: loads the library of the driver, as every program does that uses a GPU.
    if !unsafe { sys::is_culib_present() } {
        return Err(Trouble::Lost("there is no NVIDIA driver: libcuda.so.1 is not found".to_owned()));
    }
    // SAFETY: the library was just seen to load.
    let library = unsafe { sys::culib() };
    for symbol in NEEDED {
        // SAFETY: the symbol is looked up, and not called.
        if unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err() {
            return Err(Trouble::Lost(format!("the NVIDIA driver has no {symbol}: one from 525 on is needed")));
        }
    }
    result::init().map_err(|e| lost("the NVIDIA driver does not start", e))?;
    let mut version = 0;
    // SAFETY: the symbol is there; it writes the number it is given a place for.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    asked.map_err(|e| lost("the NVIDIA driver has no version", e))?;
    let words = format!("driver for CUDA {}.{}", version / 1000, version % 1000 / 10);
    if version < VERSION {
        return Err(Trouble::Lost(format!("the NVIDIA {words} is too old: one from 525 on is needed")));
    }
    Ok(words)
}

/// How many GPUs there are, at least one.
///
/// # Errors
/// Where there is none.
pub(super) fn count() -> Done<u32> {
    let count = result::device::get_count().map_err(|e| lost("the GPUs cannot be counted", e))?;
    let count = u32::try_from(count).ok().filter(|&count| count > 0);
    count.ok_or_else(|| Trouble::Lost("the NVIDIA driver sees no GPU".to_owned()))
}
