//! Results that stay on the GPU: the bytes of the CPU, only stored bytes up, no decoded ones back, and the errors of
//! the CPU.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr;

use fzmfs::{Archive, Device, DeviceBuffer, Error, ErrorKind, ForeignStream, Options};

use crate::gpu::driver::{device, is_real};
use crate::gpu_driver::{file, files};
use crate::support::alone::alone;

/// A function of the driver, which is loaded.
#[expect(unsafe_code, reason = "dlsym")]
fn function<F: Copy>(name: &CStr) -> F {
    // SAFETY: the driver was loaded before.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the name ends with zero.
    let found = unsafe { libc::dlsym(driver, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    // SAFETY: the caller names the type of the function, which is a pointer.
    unsafe { std::mem::transmute_copy(&found) }
}

/// A stream of the test's own, never destroyed.
#[expect(unsafe_code, reason = "calls of the driver")]
fn stream() -> ForeignStream {
    let create: unsafe extern "C" fn(*mut *mut c_void, u32) -> u32 = function(c"cuStreamCreate");
    let mut stream = ptr::null_mut();
    // SAFETY: it writes one pointer.
    assert_eq!(unsafe { create(&raw mut stream, 1) }, 0);
    // SAFETY: it is of the primary context, and stays.
    unsafe { ForeignStream::from_raw(stream) }
}

/// The bytes of a buffer, as another library would fetch them.
#[expect(unsafe_code, reason = "calls of the driver")]
fn fetched(buffer: &DeviceBuffer) -> Vec<u8> {
    let copy: unsafe extern "C" fn(*mut c_void, u64, usize, *mut c_void) -> u32 = function(c"cuMemcpyDtoHAsync_v2");
    let wait: unsafe extern "C" fn() -> u32 = function(c"cuCtxSynchronize");
    let mut bytes = vec![0x5A_u8; buffer.len() as usize];
    if !bytes.is_empty() {
        // SAFETY: both have as many bytes, and live until the work is waited for.
        assert_eq!(unsafe { copy(bytes.as_mut_ptr().cast(), buffer.address(), bytes.len(), ptr::null_mut()) }, 0);
        // SAFETY: it has no arguments.
        assert_eq!(unsafe { wait() }, 0);
    }
    bytes
}

fn on(path: &Path, device: Device) -> Archive {
    Archive::open(path, &Options::new().device(device)).unwrap()
}

fn decode(archive: &Archive, path: &str, range: Range<u64>) -> Result<DeviceBuffer, Error> {
    archive.file(path)?.decode_to_device(range, None)
}

#[test]
fn ranges_have_the_bytes_of_the_cpu() {
    if device(None).is_none() {
        return;
    }
    for (i, (name, path)) in files().iter().enumerate() {
        let (gpu, cpu) = (on(path, Device::Cuda(0)), on(path, Device::Cpu));
        let want = cpu.file("data.raw").unwrap().read().unwrap();
        let len = want.len() as u64;
        let middle = len / 3;
        let ranges = [0..len, 0..1, len - 1..len, middle..middle, middle..middle + 1_000_001, middle + 3..len - 5];
        for (j, range) in ranges.into_iter().enumerate() {
            // Each range in a stream of one file, and without in another.
            let stream = ((i + j) % 2 == 1).then(stream);
            let file = gpu.file("data.raw").unwrap();
            let buffer = file.decode_to_device(range.clone(), stream).unwrap();
            assert_eq!((buffer.len(), buffer.ordinal(), buffer.address() % 256), (range.end - range.start, 0, 0));
            let want = &want[range.start as usize..range.end as usize];
            assert!(fetched(&buffer) == want, "{name} {range:?} {stream:?}");
        }
        let array = gpu.file("data.npy").unwrap().array().unwrap();
        let buffer = array.decode_to_device(7..array.len() - 2, None).unwrap();
        let own = cpu.file("data.npy").unwrap().array().unwrap().read(7..array.len() - 2).unwrap();
        assert!(fetched(&buffer) == own, "{name}");
    }
}

/// All stages, codes and ranks; also streams that no stage has made, and tails behind arrays.
#[test]
fn every_file_of_the_corpus_has_the_bytes_of_the_cpu() {
    if device(None).is_none() {
        return;
    }
    let folder = |name| std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap();
    let mut paths: Vec<PathBuf> = folder("fzm").chain(folder("fzm2")).map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "fzm"));
    assert!(paths.len() > 50);
    for path in paths {
        let (gpu, cpu) = (on(&path, Device::Cuda(0)), on(&path, Device::Cpu));
        // The file may have a stage that this version does not know.
        let Ok(want) = cpu.file("data.raw").unwrap().read() else { continue };
        match decode(&gpu, "data.raw", 0..want.len() as u64) {
            Ok(buffer) => assert!(fetched(&buffer) == want, "{}", path.display()),
            Err(why) => panic!("{}: {why}", path.display()),
        }
    }
}

#[test]
fn what_no_gpu_decodes_is_refused_with_the_reason() {
    if device(None).is_none() {
        return;
    }
    let kind = |result: Result<DeviceBuffer, Error>| {
        let error = result.unwrap_err();
        (format!("{:?}", error.kind()), error.to_string())
    };
    let square = file("square");
    let gpu = on(square, Device::Cuda(0));
    let len = gpu.file("data.raw").unwrap().len();
    for (range, want) in [(0..len + 1, "Truncated"), (len + 1..len + 1, "Truncated")] {
        assert!(kind(decode(&gpu, "data.raw", range.clone())).0.starts_with(want), "{range:?}");
    }
    // The header of a .npy file, and a description.
    for path in ["data.npy", "info.json"] {
        let (kind, text) = kind(decode(&gpu, path, 0..10));
        assert!(kind.starts_with("Unsupported") && text.contains("arrays of FZM"), "{path}: {kind} {text}");
    }
    let blosc = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/o271_nd_2d.b2nd");
    let (unsupported, text) = kind(decode(&on(&blosc, Device::Cuda(0)), "data.raw", 0..10));
    assert!(unsupported.starts_with("Unsupported") && text.contains("FZM"), "{text}");
    let (usage, text) = kind(decode(&on(square, Device::Cpu), "data.raw", 0..10));
    assert!(usage.starts_with("Usage") && text.contains("the CPU was requested"), "{text}");
    let small = Archive::open(square, &Options::new().device(Device::Cuda(0)).gpu_memory(1 << 20)).unwrap();
    let (usage, text) = kind(decode(&small, "data.raw", 0..len));
    assert!(usage.starts_with("Usage") && text.contains("gpu_memory="), "{text}");
}

#[test]
fn broken_bytes_give_the_error_of_the_cpu_and_none_of_them() {
    if device(None).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (n, at) in [(0, 2), (1, 3)] {
        let path = dir.path().join(format!("{n}.fzm"));
        let mut bytes = std::fs::read(file("line")).unwrap();
        let place = bytes.len() / at;
        bytes[place..place + 64].fill(0xFF);
        std::fs::write(&path, bytes).unwrap();
        for options in [Options::new(), Options::new().verify(fzmfs::Verify::Off)] {
            let open = |device| Archive::open(&path, &options.clone().device(device)).unwrap();
            let (gpu, cpu) = (open(Device::Cuda(0)), open(Device::Cpu));
            let len = cpu.file("data.raw").unwrap().len();
            let want = cpu.file("data.raw").unwrap().read();
            match (decode(&gpu, "data.raw", 0..len), want) {
                (Ok(buffer), Ok(want)) => assert!(fetched(&buffer) == want),
                (Err(got), Err(want)) => assert_eq!(got.to_string(), want.to_string()),
                (got, want) => panic!("{got:?}, on the CPU {:?}", want.map(|bytes| bytes.len())),
            }
        }
        let gpu = on(&path, Device::Cuda(0));
        assert!(matches!(decode(&gpu, "data.raw", 0..1).unwrap_err().kind(), ErrorKind::Checksum { .. }));
    }
}

#[test]
fn memory_comes_back_when_the_last_clone_is_dropped() {
    if device(None).is_none() {
        return;
    }
    let path = file("line");
    let gpu = Archive::open(path, &Options::new().device(Device::Cuda(0)).gpu_memory(12 << 20)).unwrap();
    let len = 2 << 20;
    for stream in [None, Some(stream())] {
        for _ in 0..8 {
            let buffer = gpu.file("data.raw").unwrap().decode_to_device(0..len, stream).unwrap();
            // It outlives the archive, too.
            assert_eq!(buffer.clone().len(), len);
        }
    }
    let buffer = decode(&gpu, "data.raw", 0..len).unwrap();
    drop(gpu);
    let mut want = vec![0; len as usize];
    on(path, Device::Cpu).file("data.raw").unwrap().read_exact_at(0, &mut want).unwrap();
    assert!(fetched(&buffer) == want);
}

/// Alone in a process: the driver counts for all of it.
#[test]
fn only_stored_bytes_go_up_and_no_decoded_ones_come_back() {
    if is_real() {
        return crate::support::mounts::skip("counting copies", "the driver is a real one");
    }
    if device(None).is_some() {
        alone("gpu_resident::only_stored_bytes_go_up_and_no_decoded_ones_come_back", &[], copies_are_few);
    }
}

fn copies_are_few() {
    let copied: extern "C" fn(i32) -> u64 = function(c"fake_copied");
    let [up, down] = [0, 1];
    for (name, path) in files() {
        let gpu = on(path, Device::Cuda(0));
        let len = gpu.file("data.raw").unwrap().len();
        let before = [copied(up), copied(down)];
        let buffer = decode(&gpu, "data.raw", 0..len).unwrap();
        let [sent, fetched] = [copied(up) - before[0], copied(down) - before[1]];
        let stored = std::fs::metadata(path).unwrap().len();
        // What tells where chunks and outliers are is sent too; a fault comes back for each batch and index.
        assert!(sent < stored + stored / 8 + 4096 && sent < len / 2, "{name}: {sent} of {stored} bytes sent");
        assert!(fetched <= 64, "{name}: {fetched} bytes fetched");
        assert_eq!(buffer.len(), len);
    }
}
