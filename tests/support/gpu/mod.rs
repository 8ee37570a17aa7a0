//! A device that is the host: kernels compiled by `g++`, with fibers as threads.
//!
//! Memory is followed by guard bytes, checked when it is freed, and is filled with arbitrary bytes at first. A device
//! can have little memory, and can be lost during work.
#![expect(unsafe_code, reason = "calls into what g++ has made")]

pub(crate) mod driver;

use std::alloc::{alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fzmfs::gpu::{Arg, Device, DeviceError, DeviceResult, Download, Kernel, Memory, Queue};

use crate::launches::Launches;

/// The device. If there is a GPU, launches on it are counted.
pub(crate) struct Host(Arc<State>);

struct State {
    gpu: Option<Arc<dyn Device>>,
    memory_limit: u64,
    used: AtomicU64,
    /// Launches until it is lost.
    left: AtomicU64,
    lost: AtomicBool,
}

impl Host {
    /// A device of `memory_limit` bytes that is lost after `launches`; `None` without a compiler, which is a failure if
    /// `FZMFS_REQUIRE_GXX` is set.
    pub(crate) fn new(memory_limit: u64, launches: u64) -> Option<Self> {
        let gpu = if driver::is_real() {
            Some(driver::device((memory_limit < u64::MAX).then_some(memory_limit))?)
        } else {
            None
        };
        if gpu.is_none() {
            libraries()?;
        }
        Some(Self(Arc::new(State {
            gpu,
            memory_limit,
            used: AtomicU64::new(0),
            left: AtomicU64::new(launches),
            lost: AtomicBool::new(false),
        })))
    }

    /// Tells whether work was requested after the device was lost.
    pub(crate) fn lost(&self) -> impl Fn() -> bool + use<> {
        let state = Arc::clone(&self.0);
        move || state.lost.load(Ordering::Relaxed)
    }

    /// A device without limits.
    pub(crate) fn able() -> Option<Self> {
        Self::new(u64::MAX, u64::MAX)
    }
}

impl Device for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn memory_limit(&self) -> u64 {
        self.0.gpu.as_ref().map_or(self.0.memory_limit, |gpu| gpu.memory_limit())
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        let work = Work(Arc::clone(&self.0), Vec::new());
        match &self.0.gpu {
            Some(gpu) => Ok(Box::new(Launches::new(
                gpu.queue()?,
                move |queue: &mut dyn Queue, kernel: Kernel, grid: u32, block: u32, args: &[Arg]| {
                    work.count()?;
                    // SAFETY: the caller of this queue guarantees it.
                    unsafe { queue.launch(kernel, grid, block, args) }
                },
            ))),
            None => Ok(Box::new(work)),
        }
    }
}

/// A queue, and its marks.
struct Work(Arc<State>, Vec<Instant>);

impl Work {
    /// Counts a launch, after the last of which the device is lost.
    fn count(&self) -> DeviceResult {
        let left = self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() {
            self.0.lost.store(true, Ordering::Relaxed);
            return Err(DeviceError::Lost("it was to be lost by now".to_owned()));
        }
        Ok(())
    }
}

/// Number of guard bytes after the end of memory, and their value.
const EDGE: usize = 64;
const MARK: u8 = 0xC3;

struct Held {
    pointer: *mut u8,
    len: usize,
    state: Arc<State>,
}

// SAFETY: only the owner of the queue accesses the bytes.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

fn layout(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len + EDGE, 256).unwrap()
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the memory has this length and is initialized.
        let edge = unsafe { std::slice::from_raw_parts(self.pointer.wrapping_add(self.len), EDGE) };
        let whole = edge.iter().all(|&byte| byte == MARK);
        // SAFETY: it was allocated there, with this layout.
        unsafe { dealloc(self.pointer, layout(self.len)) };
        self.state.used.fetch_sub(self.len as u64, Ordering::Relaxed);
        assert!(whole || std::thread::panicking(), "a kernel has written behind the end");
    }
}

/// Pointer to the bytes `range` of `memory`, which are inside it.
fn place(memory: &Memory, range: Range<u64>) -> DeviceResult<*mut u8> {
    let outside = || DeviceError::Lost(format!("bytes {range:?} are outside the {} bytes of GPU memory", memory.len()));
    let held = memory.allocation::<Held>().filter(|_| range.start <= range.end && range.end <= memory.len());
    Ok(held.ok_or_else(outside)?.pointer.wrapping_add(range.start as usize))
}

impl Queue for Work {
    fn alloc(&mut self, len: u64) -> DeviceResult<Memory> {
        let state = Arc::clone(&self.0);
        if state.used.fetch_add(len, Ordering::Relaxed).checked_add(len).is_none_or(|used| used > state.memory_limit) {
            state.used.fetch_sub(len, Ordering::Relaxed);
            return Err(DeviceError::OutOfMemory { need: len });
        }
        let len = len as usize;
        // SAFETY: the layout is not empty.
        let pointer = unsafe { alloc(layout(len)) };
        assert!(!pointer.is_null());
        // SAFETY: the memory was just allocated with this length.
        let all = unsafe { std::slice::from_raw_parts_mut(pointer, len + EDGE) };
        all[..len].fill(0xA7);
        all[len..].fill(MARK);
        Ok(Memory::new(len as u64, Held { pointer, len, state }))
    }

    fn zero(&mut self, memory: &Memory, range: Range<u64>) -> DeviceResult {
        let to = place(memory, range.clone())?;
        // SAFETY: the range is inside the memory, and a queue runs one operation at a time.
        unsafe { to.write_bytes(0, (range.end - range.start) as usize) };
        Ok(())
    }

    fn upload(&mut self, to: &Memory, at: u64, from: &[u8]) -> DeviceResult {
        let to = place(to, at..at + from.len() as u64)?;
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn copy(&mut self, from: &Memory, from_at: u64, to: &Memory, to_at: u64, len: u64) -> DeviceResult {
        let (from, to) = (place(from, from_at..from_at + len)?, place(to, to_at..to_at + len)?);
        // SAFETY: as above; they are different memory, or the same place.
        unsafe { to.copy_from(from, len as usize) };
        Ok(())
    }

    unsafe fn launch(&mut self, kernel: Kernel, grid: u32, block: u32, args: &[Arg]) -> DeviceResult {
        self.count()?;
        let (mut words, mut floats) = (Vec::new(), Vec::new());
        for arg in args {
            match *arg {
                Arg::Memory(memory, at) => words.push(place(memory, at..memory.len())?.addr() as u64),
                Arg::U32(value) => words.push(value.into()),
                Arg::U64(value) => words.push(value),
                Arg::F32(value) => floats.push(f64::from_bits(value.to_bits().into())),
                Arg::F64(value) => floats.push(value),
            }
        }
        assert!(words.len() <= 28 && floats.len() <= 2, "host_launch takes no more");
        words.resize(28, 0);
        floats.resize(2, 0.0);
        let libraries = libraries().unwrap();
        let library = &libraries[kernel.file];
        // There is one block of shared memory.
        let launch = library.lock().unwrap_or_else(PoisonError::into_inner);
        let done = launch.run(kernel.name, grid, block, &words, &floats);
        assert_eq!(done, 0, "{kernel:?}: threads wait for others that do not come");
        Ok(())
    }

    fn download(&mut self, parts: &mut [Download]) -> DeviceResult {
        for Download { memory, at, dst } in parts {
            let from = place(memory, *at..*at + dst.len() as u64)?;
            // SAFETY: as above.
            unsafe { from.copy_to_nonoverlapping(dst.as_mut_ptr(), dst.len()) };
        }
        Ok(())
    }

    fn finish(&mut self) -> DeviceResult {
        Ok(())
    }

    fn mark(&mut self) -> DeviceResult {
        self.1.push(Instant::now());
        Ok(())
    }

    fn times(&mut self) -> DeviceResult<Vec<Duration>> {
        let marks = std::mem::take(&mut self.1);
        Ok(marks.iter().map(|mark| *mark - marks[0]).collect())
    }
}

/// A file of kernels, compiled and loaded.
struct Library(*mut c_void);

// SAFETY: the handle may be used from any thread.
unsafe impl Send for Library {}

type Launch = unsafe extern "C" fn(*mut c_void, u32, u32, *const u64, *const f64) -> i32;

impl Library {
    fn find(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded, and the name ends with zero.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "there is no {name:?}");
        found
    }

    fn run(&self, kernel: &str, grid: u32, block: u32, words: &[u64], floats: &[f64]) -> i32 {
        // SAFETY: host.h defines this type.
        let launch = unsafe { std::mem::transmute::<*mut c_void, Launch>(self.find("host_launch")) };
        // SAFETY: it reads as many words and floats as there are; the accesses of the kernel are what is tested.
        unsafe { launch(self.find(kernel), grid, block, words.as_ptr(), floats.as_ptr()) }
    }
}

type Libraries = HashMap<String, Mutex<Library>>;

/// Every kernels/*.cu, compiled once.
fn libraries() -> Option<&'static Libraries> {
    static ALL: OnceLock<Option<Libraries>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        if Command::new("g++").arg("--version").output().is_err() {
            assert!(std::env::var_os("FZMFS_REQUIRE_GXX").is_none(), "FZMFS_REQUIRE_GXX is set, and there is no g++");
            return None;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // A sanitizer reports lines of the sources.
        folder.disable_cleanup(!flags().is_empty());
        Some(sources(root).iter().map(|source| compile(root, source, folder.path())).collect())
    });
    if all.is_none() {
        crate::support::mounts::skip("kernels on the host", "there is no g++");
    }
    all.as_ref()
}

/// Additional compiler flags, from scripts/sanitize-kernels.
fn flags() -> String {
    std::env::var("FZMFS_GXX_FLAGS").unwrap_or_default()
}

/// Every kernels/*.cu.
fn sources(root: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(root.join("kernels")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e == "cu")).collect()
}

/// Compiles a file of kernels to a library in `folder`.
fn build(root: &Path, source: &Path, folder: &Path) -> PathBuf {
    let out = folder.join(source.file_stem().unwrap()).with_extension("so");
    let mut gxx = Command::new("g++");
    gxx.args(["-std=c++17", "-O2", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC"]);
    // Every file has its own variables, also inside of templates.
    gxx.args(["-fno-gnu-unique", "-fvisibility-inlines-hidden", "-U_FORTIFY_SOURCE"]);
    gxx.arg("-include").arg(root.join("tests/support/gpu/host.h")).arg("-I").arg(root.join("kernels"));
    gxx.args(flags().split_whitespace());
    gxx.args(["-x", "c++"]).arg(source).arg("-o").arg(&out);
    let made = gxx.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    out
}

fn compile(root: &Path, source: &Path, folder: &Path) -> (String, Mutex<Library>) {
    let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
    let out = build(root, source, folder);
    let path = CString::new(out.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with zero; the library runs nothing when it is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{} does not load", out.display());
    (name, Mutex::new(Library(handle)))
}
