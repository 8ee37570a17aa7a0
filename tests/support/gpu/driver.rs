//! The GPU that tests use: a real one if present, otherwise the host behind a test driver (driver.cpp), below the same
//! CUDA code.
//!
//! With `FZMFS_REQUIRE_GPU` set, a real GPU is required.

use std::collections::hash_map::DefaultHasher;
use std::ffi::CString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use fzmfs::gpu::{self, Device, DeviceResult, image};

use crate::support::mounts::skip;

/// File name of the CUDA driver.
const NAME: &str = "libcuda.so.1";

/// Whether a real GPU is required.
pub(crate) fn is_required() -> bool {
    std::env::var_os("FZMFS_REQUIRE_GPU").is_some()
}

/// Whether the driver of a real GPU is present.
pub(crate) fn is_real() -> bool {
    is_required() || Path::new("/dev/nvidiactl").exists()
}

/// The device that this process decodes on, limited to `memory_limit` bytes; `None`, with a message, if there is none.
pub(crate) fn device(memory_limit: Option<u64>) -> Option<Arc<dyn Device>> {
    static LOADED: OnceLock<bool> = OnceLock::new();
    // It stays open, so that others open quickly.
    static FIRST: OnceLock<DeviceResult<Arc<dyn Device>>> = OnceLock::new();
    let loaded = *LOADED.get_or_init(|| is_real() || driver().is_some_and(|folder| load(&folder.join(NAME))));
    let first = FIRST.get_or_init(|| gpu::open(0, None));
    match if memory_limit.is_none() { first.clone() } else { gpu::open(0, memory_limit) } {
        Ok(device) => Some(device),
        Err(why) => {
            assert!(!is_required() && !loaded, "no GPU: {why}");
            skip("there is no GPU", &why.to_string());
            None
        }
    }
}

/// A folder with the test driver as libcuda.so.1, for `LD_LIBRARY_PATH`; `None`, with a message, without g++.
pub(crate) fn driver() -> Option<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(build).as_deref().inspect_err(|why| skip("no driver for the host", why)).ok()
}

/// Bytes of freed memory that the test driver was asked to keep; `None` where it is not loaded.
#[expect(unsafe_code, reason = "a call of the test driver")]
pub(crate) fn kept_memory() -> Option<u64> {
    device(None)?;
    if is_real() {
        skip("what the test driver was asked", "the driver is a real one");
        return None;
    }
    // SAFETY: the library is loaded for all, under this name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fake_kept_memory".as_ptr()) };
    assert!(!found.is_null());
    // SAFETY: it has this type.
    let call = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> u64>(found) };
    Some(call())
}

/// Loads a library and keeps it loaded; later loads by its name find this one.
#[expect(unsafe_code, reason = "dlopen")]
fn load(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the library is ours; loading it runs only its own constructors.
    !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null()
}

/// Compiles the driver and the kernels for the host, once for each version of their sources.
fn build() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut hash = DefaultHasher::new();
    for folder in ["kernels", "tests/support/gpu"] {
        let mut all: Vec<PathBuf> = fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        all.sort();
        all.iter().filter(|path| path.is_file()).for_each(|path| (path, fs::read(path).unwrap()).hash(&mut hash));
    }
    for images in image::FILES {
        images.ptx.hash(&mut hash);
    }
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = parent.join(format!("libcuda-{:016x}", hash.finish()));
    if folder.join(NAME).is_file() {
        return Ok(folder);
    }
    fs::create_dir_all(parent).unwrap();
    let work = tempfile::tempdir_in(parent).unwrap();
    let mut gxx = Command::new("g++");
    gxx.args(["-std=c++17", "-O2", "-Wall", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    // It also runs where there is only a C library.
    gxx.args(["-static-libstdc++", "-static-libgcc", "-o"]);
    gxx.arg(work.path().join(NAME)).arg(root.join("tests/support/gpu/driver.cpp")).arg("-ldl");
    let done = gxx.output().map_err(|e| format!("g++: {e}"))?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for source in super::sources(root) {
        super::build(root, &source, work.path());
    }
    // The driver finds by it what arguments the kernels of a cubin have.
    for images in image::FILES {
        fs::write(work.path().join(images.file).with_extension("ptx"), images.text().unwrap()).unwrap();
    }
    // If another process was faster, its libraries are the same.
    let work = work.keep();
    fs::rename(&work, &folder).or_else(|_| fs::remove_dir_all(&work)).unwrap();
    Ok(folder)
}
