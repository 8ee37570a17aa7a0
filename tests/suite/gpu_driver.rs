//! The CUDA code of the program on a driver that runs kernels on the host: every reason to refuse a GPU, every call
//! that can fail, and whole files decoded by the kernels. With a real GPU, whole files are decoded there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use fzm_writer::{Dtype, Form, Pipeline, Source, field};
use fzmfs::gpu::{DeviceError, Download, Memory};
use tempfile::TempDir;

use crate::gpu::driver::{self, device, driver, is_real};
use crate::support::alone::alone;
use crate::support::mounts::{can_mount, has, read_apart, skip};

/// The pipeline that most writers of FZM files use.
const USUAL: &str = "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze";

const PROGRAM: &str = env!("CARGO_BIN_EXE_fzmfs");

/// Containers of several megabytes, so that they are decoded in batches; each with its name.
pub(crate) fn files() -> &'static [(&'static str, PathBuf)] {
    static FILES: OnceLock<(TempDir, Vec<(&'static str, PathBuf)>)> = OnceLock::new();
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        let make = |&(name, stages, dtype, shape): &(&'static str, &str, Dtype, &[u32])| {
            let bytes = field::smooth(dtype, shape, 0.005, 7);
            let source = Source { dtype, shape: shape.to_vec(), bytes };
            let pipeline = Pipeline::parse(stages, std::slice::from_ref(&source)).unwrap();
            let run = pipeline.run(vec![source], false).unwrap();
            let form = Form::default();
            let path = dir.path().join(name).with_extension("fzm");
            let mut file = Vec::new();
            run.file(&form).write_to(&mut file).unwrap();
            fs::write(&path, file).unwrap();
            (name, path)
        };
        let made = [
            ("line", USUAL, Dtype::F32, &[2_000_000][..]),
            ("line64", USUAL, Dtype::F64, &[800_001]),
            ("square", USUAL, Dtype::F32, &[1300, 1500]),
            ("cube", USUAL, Dtype::F32, &[110, 120, 150]),
            ("bytes", "bitshuffle:w=4,rze", Dtype::U32, &[1_700_007]),
        ]
        .iter()
        .map(make)
        .collect();
        (dir, made)
    };
    &FILES.get_or_init(make).1
}

pub(crate) fn file(name: &str) -> &'static Path {
    &files().iter().find(|(n, _)| *n == name).unwrap().1
}

/// Runs the program with the driver in the folder `library`, which behaves as `fake` says; without one, with the driver
/// of this process.
fn run<'a>(library: impl Into<Option<&'a Path>>, fake: &str, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    if let Some(library) = library.into() {
        command.env("LD_LIBRARY_PATH", library);
    }
    command.env("FAKE_CUDA", fake).env("FZMFS_LOG", "info").args(args).output().unwrap()
}

/// As [`run`], with the test driver; `None`, with a message, if there is none.
fn fake(fake: &str, args: &[&str]) -> Option<Output> {
    if is_real() {
        skip("a driver that fails", "there is a real one");
        return None;
    }
    Some(run(driver()?, fake, args))
}

fn log(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that the program refused a GPU with exit code 1 and a message that contains all `words`.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{}", log(output));
    for word in words {
        assert!(log(output).contains(word), "{word:?} is not in {}", log(output));
    }
}

#[test]
fn an_unusable_gpu_is_refused_with_the_reason_and_auto_uses_the_cpu() {
    let sample = file("line").to_str().unwrap();
    let cpu = run(Path::new("/nonexistent"), "", &["cat", "--device", "cpu", sample, "data.raw"]).stdout;
    for (how, reason) in [
        ("init=100", "no CUDA-capable device is detected"),
        ("init=999", "unknown error (CUDA error 999)"),
        ("devices=0", "found no GPU"),
        ("version=11080", "driver for CUDA 11.8 is too old"),
        ("capability=6", "compute capability 6.6; 7.0 or later"),
        ("fail=cuDevicePrimaryCtxRetain@1", "an illegal memory access"),
        ("fail=cuMemGetInfo_v2@1", "cannot get the memory size"),
        ("fail=cuMemPoolSetAttribute@1", "cannot configure the memory"),
    ] {
        let Some(output) = fake(how, &["cat", "--device", "cuda", sample, "data.raw"]) else { return };
        refused(&output, &["fzmfs: device=cuda:0: ", reason, "device=auto"]);
        let doctor = fake(how, &["doctor"]).unwrap();
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(text.contains("GPU              none  ") && text.contains(reason), "{text}");
        let auto = fake(how, &["cat", sample, "data.raw"]).unwrap();
        assert!(auto.status.success() && auto.stdout == cpu, "{how}: {}", log(&auto));
    }
    refused(&fake("", &["info", "--device", "cuda:1", sample]).unwrap(), &["cuda:1", "there is no GPU 1", "1 GPU"]);
    let doctor = fake("", &["doctor"]).unwrap();
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let library = driver().unwrap().join("libcuda.so.1");
    assert!(text.contains("Host (cuda:0): compute capability 9.9"), "{text}");
    assert!(text.contains(&format!("driver for CUDA 12.2, {}", library.display())), "{text}");
}

#[test]
fn missing_driver_functions_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("old.c");
    fs::write(&source, "int cuInit(unsigned f) { return f; }\nint cuCtxGetCurrent(void **c) { return !c; }\n").unwrap();
    let library = dir.path().join("libcuda.so.1");
    if !has("gcc") {
        return;
    }
    if is_real() {
        return skip("a driver that lacks functions", "there is a real one");
    }
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    let sample = file("line").to_str().unwrap();
    refused(&run(dir.path(), "", &["ls", "--device", "cuda", sample]), &["lacks cuCtxSetCurrent", "525"]);
    // A file that is not a library.
    fs::write(&library, "not a library").unwrap();
    refused(&run(dir.path(), "", &["ls", "--device", "cuda", sample]), &["no NVIDIA driver"]);
    assert!(run(dir.path(), "", &["ls", sample]).status.success());
}

#[test]
fn files_decode_on_the_device_as_on_the_cpu() {
    for (name, path) in files() {
        let path = path.to_str().unwrap();
        let cpu = run(Path::new("/nonexistent"), "", &["cat", "--device", "cpu", path, "data.raw"]);
        assert!(cpu.status.success(), "{name}: {}", log(&cpu));
        for how in ["", "pools=0"] {
            let args = ["cat", "--device", "cuda", path, "data.raw"];
            let library = if is_real() { None } else { driver() };
            if library.is_none() && !is_real() {
                return;
            }
            // On a busy machine the reader may overtake the prefetch; the CPU decodes then.
            let decoded = (0..20).find_map(|_| {
                let gpu = run(library, how, &args);
                assert!(gpu.status.success(), "{name}: {}", log(&gpu));
                assert!(gpu.stdout == cpu.stdout, "{name}: other bytes");
                log(&gpu).contains("(cuda:0): ").then_some(())
            });
            assert!(decoded.is_some(), "{name}: never on the device");
            let verified = run(library, how, &["verify", "--device", "cuda", path]);
            assert!(verified.status.success(), "{name}: {}", log(&verified));
            assert!(log(&verified).contains("(cuda:0): "), "{name}: not on the device: {}", log(&verified));
        }
    }
}

#[test]
fn a_corrupt_file_fails_on_the_device_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("changed.fzm");
    let mut bytes = fs::read(file("line")).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    let cpu = run(Path::new("/nonexistent"), "", &["verify", "--device", "cpu", path]);
    let Some(gpu) = fake("", &["verify", "--device", "cuda", path]) else { return };
    assert_eq!((gpu.status.code(), &gpu.stdout), (Some(1), &cpu.stdout));
    assert!(String::from_utf8_lossy(&gpu.stdout).contains("FAILED"));
}

#[test]
fn after_any_failed_call_the_cpu_decodes_with_one_warning() {
    // Two launches per batch, and one thread, so that the sequence of calls is always the same.
    let path = file("square").to_str().unwrap();
    let cpu = run(Path::new("/nonexistent"), "", &["cat", "--device", "cpu", path, "data.raw"]).stdout;
    let calls = [
        "cuLaunchKernel@1",
        "cuLaunchKernel@2",
        "cuMemAllocAsync@2",
        "cuMemHostAlloc@1",
        "cuMemcpyHtoDAsync_v2@3",
        "cuMemcpyDtoHAsync_v2@1",
        "cuMemcpyDtoHAsync_v2@2",
        "cuMemsetD8Async@1",
        "cuModuleLoadData@1",
        "cuModuleGetFunction@1",
        "cuStreamCreate@1",
        "cuEventCreate@2",
        "cuEventRecord@2",
        "cuEventSynchronize@3",
        "cuMemFreeAsync@1",
        "cuCtxGetCurrent@20",
    ];
    for call in calls {
        let fail = format!("fail={call}");
        let Some(output) = fake(&fail, &["verify", "--threads", "1", "--device", "cuda", path]) else { return };
        assert!(output.status.success(), "{call}: {}", log(&output));
        let said = log(&output).matches("the GPU failed and is no longer used").count();
        assert_eq!(said, 1, "{call}: {}", log(&output));
        let output = fake(&fail, &["cat", "--device", "cuda", path, "data.raw"]).unwrap();
        assert!(output.status.success() && output.stdout == cpu, "{call}: {}", log(&output));
        assert!(log(&output).matches("the GPU failed and is no longer used").count() <= 1, "{call}: {}", log(&output));
    }
}

#[test]
fn too_little_memory_does_not_disable_the_device() {
    let path = file("line").to_str().unwrap();
    let cpu = run(Path::new("/nonexistent"), "", &["cat", "--device", "cpu", path, "data.raw"]).stdout;
    for (how, memory_limit) in [("memory=1000000", "1G"), ("", "64K"), ("", "0")] {
        let args = ["cat", "--device", "cuda", "-o", &format!("gpu_memory={memory_limit}"), path, "data.raw"];
        let Some(output) = fake(how, &args) else { return };
        assert!(output.status.success() && output.stdout == cpu, "{how} {memory_limit}: {}", log(&output));
        assert!(!log(&output).contains("no longer used"), "{}", log(&output));
    }
}

#[test]
fn mounting_fails_if_a_required_gpu_is_missing() {
    if !can_mount() {
        return;
    }
    if is_real() {
        return skip("a machine without a GPU", "there is one");
    }
    let dir = tempfile::tempdir().unwrap();
    let (point, sample) = (dir.path().to_str().unwrap(), file("line").to_str().unwrap());
    let mount = run(Path::new("/nonexistent"), "", &["mount", sample, point, "-o", "device=cuda"]);
    refused(&mount, &["device=cuda:0: no NVIDIA driver"]);
    assert_eq!(fs::read_dir(point).unwrap().count(), 0);
}

#[test]
fn the_root_of_a_mount_says_how_much_the_gpu_has_decoded() {
    if !can_mount() || !has("getfattr") {
        return;
    }
    if is_real() {
        return skip("the name of the test driver", "the driver is a real one");
    }
    let dir = tempfile::tempdir().unwrap();
    let (point, sample) = (dir.path().to_str().unwrap(), file("line").to_str().unwrap());
    let Some(library) = driver() else { return };
    let cpu = run(Path::new("/nonexistent"), "", &["cat", "--device", "cpu", sample, "data.raw"]).stdout;
    let decoder = || {
        let output =
            Command::new("getfattr").args(["--only-values", "-n", "user.fzmfs.decoder", point]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers = text.strip_prefix("Host (cuda:0): ").and_then(|text| text.strip_suffix(" bytes"));
        let numbers = numbers.and_then(|text| text.split_once(" bytes; CPU: ")).unwrap_or_else(|| panic!("{text:?}"));
        [numbers.0, numbers.1].map(|n| n.parse::<usize>().unwrap())
    };
    // Pieces that are read before the prefetch has come to them are decoded one by one, on the CPU.
    let on_device = (0..20).find_map(|_| {
        let mount = run(library, "", &["mount", sample, point, "-o", "device=cuda"]);
        assert!(mount.status.success(), "{}", log(&mount));
        let before = decoder();
        let got = read_apart(&dir.path().join("data.raw"));
        let [on_device, on_cpu] = decoder();
        assert!(run(library, "", &["umount", point]).status.success());
        assert!(got == cpu);
        assert!(before == [0, 0] && on_device + on_cpu >= cpu.len(), "{on_device} + {on_cpu} of {}", cpu.len());
        (on_device > 0).then_some(on_device)
    });
    assert!(on_device.is_some(), "never on the device");
}

#[test]
fn memory_is_charged_and_accesses_outside_it_are_refused() {
    let Some(device) = device(Some(10_000)) else { return };
    assert_eq!(device.memory_limit(), 10_000);
    let mut queue = device.queue().unwrap();
    let memory = queue.alloc(9_000).unwrap();
    assert_eq!(queue.alloc(1_000).err(), Some(DeviceError::OutOfMemory { need: 1_024 }));
    assert_eq!(memory.len(), 9_000);
    let bytes: Vec<u8> = (0..9_000_u32).map(|i| (i * 7) as u8).collect();
    queue.upload(&memory, 0, &bytes).unwrap();
    queue.zero(&memory, 10..20).unwrap();
    queue.upload(&memory, 15, &[1, 2, 3]).unwrap();
    let mut got = vec![9; 8_995];
    queue.download(&mut [Download { memory: &memory, at: 5, dst: &mut got }]).unwrap();
    let mut want = bytes[5..].to_vec();
    want[5..15].fill(0);
    want[10..13].copy_from_slice(&[1, 2, 3]);
    assert!(got == want);
    for refused in [
        queue.upload(&memory, 8_999, &[1, 2]),
        queue.zero(&memory, 0..9_001),
        queue.download(&mut [Download { memory: &memory, at: 9_001, dst: &mut [] }]),
        queue.download(&mut [Download { memory: &memory, at: u64::MAX, dst: &mut [0] }]),
    ] {
        assert!(matches!(refused, Err(DeviceError::Lost(_))), "{refused:?}");
    }
    drop(memory);
    assert_eq!(queue.alloc(9_984).unwrap().len(), 9_984);
    assert!(queue.alloc(0).unwrap().len() == 0 && queue.alloc(u64::MAX).is_err());
}

/// Downloads memory that adjoins on the GPU; with the test driver, in a process in which all of it does.
#[test]
fn no_copy_crosses_from_one_buffer_to_the_next() {
    if is_real() {
        return adjacent_buffers_are_downloaded();
    }
    if driver().is_some() {
        let name = "gpu_driver::no_copy_crosses_from_one_buffer_to_the_next";
        alone(name, &[("FAKE_CUDA", "adjacent=1")], adjacent_buffers_are_downloaded);
    }
}

fn adjacent_buffers_are_downloaded() {
    let Some(device) = device(None) else { return };
    let mut queue = device.queue().unwrap();
    let buffers: Vec<Memory> = (0..100_u8)
        .map(|n| {
            let memory = queue.alloc(512).unwrap();
            queue.upload(&memory, 0, &[n; 512]).unwrap();
            memory
        })
        .collect();
    let neighbours = buffers.iter().zip(&buffers[1..]);
    let at = |memory: &Memory| device.address(memory).unwrap().0;
    assert!(is_real() || neighbours.filter(|(one, next)| at(one) + 512 == at(next)).count() > 10);
    let mut got = vec![[0xFF; 512]; 100];
    let mut parts: Vec<_> = buffers.iter().zip(&mut got).map(|(memory, dst)| Download { memory, at: 0, dst }).collect();
    queue.download(&mut parts).unwrap();
    assert!(got.iter().zip(0..).all(|(bytes, n)| *bytes == [n; 512]));
}

#[test]
fn transfers_larger_than_a_staging_buffer_round_trip() {
    let Some(device) = device(None) else { return };
    std::thread::scope(|scope| {
        for seed in 0..3_u64 {
            let device = &device;
            scope.spawn(move || {
                let mut queue = device.queue().unwrap();
                for len in [1, 4095, 4 << 20, (4 << 20) + 1, 13 << 20] {
                    let bytes: Vec<u8> =
                        (0..len).map(|i: u64| (i.wrapping_mul(seed + 0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
                    let memory = queue.alloc(len + 7).unwrap();
                    queue.upload(&memory, 7, &bytes[..bytes.len() / 3]).unwrap();
                    queue.upload(&memory, 7 + bytes.len() as u64 / 3, &bytes[bytes.len() / 3..]).unwrap();
                    let mut got = vec![0; bytes.len()];
                    // In parts of any size, of which one is empty.
                    let (front, back) = got.split_at_mut(bytes.len() / 2);
                    let (middle, back) = back.split_at_mut(back.len() / 3);
                    let at = |n: usize| 7 + n as u64;
                    let [first, second] = [front.len(), front.len() + middle.len()].map(at);
                    let mut parts = [(7, front), (3, &mut [][..]), (first, middle), (second, back)]
                        .map(|(at, dst)| Download { memory: &memory, at, dst });
                    queue.download(&mut parts).unwrap();
                    assert!(got == bytes, "{len}");
                    // Used on another queue after this one has finished; it must live until that one has finished too.
                    queue.finish().unwrap();
                    let mut other = device.queue().unwrap();
                    other.zero(&memory, 0..7).unwrap();
                    drop(memory);
                    queue.finish().unwrap();
                    other.finish().unwrap();
                }
            });
        }
    });
}

#[test]
fn baseline_copies_are_measured() {
    if device(None).is_none() {
        return;
    }
    if is_real() {
        return skip("copies of the test driver", "the driver is a real one");
    }
    let cuda = fzmfs::gpu::cuda::Cuda::open(0, None).unwrap();
    assert!(cuda.copy_within(1 << 20).unwrap() > std::time::Duration::ZERO);
    assert!(cuda.copy_out(1 << 20).unwrap() > std::time::Duration::ZERO);
    assert!(cuda.copy_in(1 << 20).unwrap() > std::time::Duration::ZERO);
}

#[test]
fn the_device_tells_when_its_work_was_done() {
    let Some(device) = device(None) else { return };
    let mut queue = device.queue().unwrap();
    assert!(queue.times().unwrap().is_empty());
    let memory = queue.alloc(1 << 20).unwrap();
    for _ in 0..3 {
        queue.mark().unwrap();
        queue.zero(&memory, 0..1 << 20).unwrap();
    }
    queue.mark().unwrap();
    let times = queue.times().unwrap();
    assert_eq!((times.len(), times[0]), (4, std::time::Duration::ZERO));
    assert!(times.is_sorted() && times[3] > std::time::Duration::ZERO, "{times:?}");
    assert!(queue.times().unwrap().is_empty());
}

/// The files of the folder of the test driver, linked in another one.
fn linked(driver: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(driver).unwrap() {
        let entry = entry.unwrap();
        std::os::unix::fs::symlink(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    dir
}

#[test]
fn the_driver_is_preferred_to_a_stub_of_a_toolkit() {
    if is_real() {
        return skip("a stub of the driver", "there is a real one");
    }
    let Some(library) = driver() else { return };
    let dir = linked(library);
    let source = dir.path().join("stub.c");
    fs::write(&source, "int cuInit(unsigned f) { return f + 34; }\n").unwrap();
    let stub = dir.path().join("libcuda.so");
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&stub).arg(&source).status();
    assert!(built.unwrap().success());
    let doctor = run(dir.path(), "", &["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains(dir.path().join("libcuda.so.1").to_str().unwrap()), "{text}");
    let verified = run(dir.path(), "", &["verify", "--device", "cuda", file("square").to_str().unwrap()]);
    assert!(log(&verified).contains("decoded by Host"), "{}", log(&verified));
    // Without the driver, the stub says what it is.
    fs::remove_file(dir.path().join("libcuda.so.1")).unwrap();
    refused(&run(dir.path(), "", &["ls", "--device", "cuda", file("square").to_str().unwrap()]), &["lacks cu"]);
}

#[test]
fn machine_code_that_the_driver_refuses_is_compiled_from_ptx() {
    let path = file("square").to_str().unwrap();
    let compiled = "the driver compiles the kernels";
    for (how, refuses) in [("", false), ("cubins=0", true), ("capability=7", false), ("capability=12", false)] {
        let Some(output) = fake(how, &["verify", "--device", "cuda", path]) else { return };
        assert!(output.status.success() && log(&output).contains("decoded by Host"), "{how}: {}", log(&output));
        assert_eq!(log(&output).contains(compiled), refuses, "{how}: {}", log(&output));
    }
    let broken = fake("cubins=0,fail=cuModuleLoadData@2", &["verify", "--device", "cuda", path]).unwrap();
    assert!(broken.status.success() && log(&broken).contains("no longer used"), "{}", log(&broken));
}

/// Memory that the driver's pool keeps is for all devices of the process.
#[test]
fn a_device_with_little_memory_takes_none_from_others() {
    let Some(before) = driver::kept_memory() else { return };
    let _all = device(None).unwrap();
    let most = driver::kept_memory().unwrap();
    assert!(most >= before && most > 0);
    let _small = device(Some(10_000)).unwrap();
    assert_eq!(driver::kept_memory().unwrap(), most);
}
