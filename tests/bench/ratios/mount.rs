//! The mount, against the page cache, its own limit, and SquashFS in user space on the same bytes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::random::positions;
use super::{decode, figure, interleaved, median, median_and_late, rate, rivals, rounds, row, time};

/// A directory of our own, on a disk, gone at the end.
pub(super) struct Place(tempfile::TempDir);

impl Place {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A directory to mount on.
    pub(super) fn point(&self) -> PathBuf {
        let point = self.path("mnt");
        std::fs::create_dir(&point).unwrap();
        point
    }
}

/// Something mounted; unmounted when dropped.
pub(super) struct Mounted {
    point: PathBuf,
    ours: bool,
}

impl Mounted {
    /// What something else has mounted on `point`.
    pub(super) fn other(point: &Path) -> Self {
        Self { point: point.to_path_buf(), ours: false }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let point = self.point.as_os_str();
        let done = if self.ours {
            Command::new(FZMFS).arg("umount").arg(point).status()
        } else {
            Command::new("umount").arg(point).status()
        };
        if !done.is_ok_and(|status| status.success()) {
            Command::new("umount").arg("-l").arg(point).status().ok();
        }
    }
}

pub(super) const FZMFS: &str = env!("CARGO_BIN_EXE_fzmfs");

pub(super) fn fzmfs(file: &Path, point: &Path, options: &str) -> Mounted {
    let status = Command::new(FZMFS).arg("mount").args(["-o", options]).arg(file).arg(point).status().unwrap();
    assert!(status.success(), "mount failed");
    Mounted { point: point.to_path_buf(), ours: true }
}

/// Reads a file from its start to its end, a MiB at a time.
pub(super) fn read(path: &Path) -> usize {
    let mut file = File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return sum,
            n => sum += n,
        }
    }
}

#[expect(unsafe_code, reason = "mapping a file of the mount is what is measured")]
fn read_mapped(path: &Path) -> u64 {
    // SAFETY: nobody writes to the file: it lies in a read-only mount or is ours.
    let map = unsafe { memmap2::Mmap::map(&File::open(path).unwrap()) }.unwrap();
    map.chunks_exact(8).fold(0, |sum, word| sum ^ u64::from_le_bytes(word.try_into().unwrap()))
}

/// Drops the kernel's pages of a file; the daemon keeps what it has decoded.
pub(super) fn drop_pages(path: &Path) {
    rustix::fs::fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

/// The time of a read that the daemon answers from memory. Bytes read once in order pass through; from the second
/// pass on it is kept.
pub(super) fn served(path: &Path) -> Duration {
    for _ in 0..3 {
        drop_pages(path);
        read(path);
    }
    drop_pages(path);
    time(|| read(path))
}

/// Reads a second a program makes that reads 4 KiB here and there.
pub(super) fn random_reads(path: &Path, count: usize) -> (f64, Vec<f64>) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
    let len = file.metadata().unwrap().len();
    let mut buffer = [0; 4096];
    let mut micros = Vec::with_capacity(count);
    let all = Instant::now();
    for at in positions(count, len) {
        let start = Instant::now();
        file.read_exact_at(&mut buffer, at).unwrap();
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    (count as f64 / all.elapsed().as_secs_f64(), micros)
}

/// Resident memory of the daemon that serves `point`, in MiB: now and at its peak.
pub(super) fn memory(point: &Path) -> Option<(f64, f64)> {
    let out =
        Command::new("getfattr").args(["--only-values", "-n", "user.fzmfs.daemon.pid"]).arg(point).output().ok()?;
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", String::from_utf8(out.stdout).ok()?.trim())).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1024.0)
    };
    Some((field("VmRSS")?, field("VmHWM")?))
}

pub(super) fn have(program: &str) -> bool {
    Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

pub(super) fn run() {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: the mount: there is no /dev/fuse");
        return;
    }
    for mib in sizes() {
        println!("-- the mount, {mib} MiB");
        array(mib << 20);
    }
    let place = Place::new();
    listing(&place, &place.point());
}

/// MiB of the arrays that are mounted.
fn sizes() -> Vec<usize> {
    let given = super::size() >> 20;
    if std::env::var_os("FZMFS_BENCH_MIB").is_some() { vec![given] } else { vec![given, 1024] }
}

/// Everything that is measured with one array of `bytes` bytes.
fn array(bytes: usize) {
    let place = Place::new();
    let point = place.point();
    let made = decode::file("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", &[(bytes / 4) as u32]);
    let file = place.path("data.fzm");
    std::fs::write(&file, &made).unwrap();
    let virtual_file = point.join("data.raw");

    warm(&place, &file, &point, &virtual_file);
    cold(made, &file, &point, &virtual_file);
    random(&file, &point, &virtual_file);
    rivals::run(&place, &file, &point, &virtual_file);
}

/// Entries of a large directory.
const ENTRIES: usize = 100_000;

/// Lists a directory of 100,000 entries, names alone and with sizes.
fn listing(place: &Place, point: &Path) {
    // Beside the program of the benchmark: target/release/deps and target/release/examples.
    let made = Path::new(FZMFS).with_file_name("examples").join("made");
    if !made.exists() {
        println!("SKIPPED: large directories: run cargo build --release --example made");
        return;
    }
    let plain = place.path("plain");
    std::fs::create_dir(&plain).unwrap();
    for i in 0..ENTRIES {
        File::create(plain.join(format!("{i:06}.raw"))).unwrap();
    }
    let (mut own, mut native, mut first, mut mounting) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds() {
        let start = Instant::now();
        let status = Command::new(&made).arg(point).arg(format!("entries={ENTRIES}")).status().unwrap();
        assert!(status.success(), "made failed");
        let mounted = Mounted { point: point.to_path_buf(), ours: true };
        mounting.push(start.elapsed().as_secs_f64() * 1e3);
        let names =
            |dir: &Path| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().len()).sum::<usize>();
        let sizes =
            |dir: &Path| std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>();
        own.push(ENTRIES as f64 / time(|| names(&point.join("many"))).as_secs_f64() / 1e6);
        native.push(ENTRIES as f64 / time(|| names(&plain)).as_secs_f64() / 1e6);
        first.push(time(|| sizes(&point.join("names"))).as_secs_f64());
        drop(mounted);
    }
    figure("14 mount of 100,000 entries", &format!("{:.1} ms", median(&mut mounting)), "<= 300 ms");
    row("15 readdir of 100,000 entries / disk file system", median(&mut own), median(&mut native), "M/s", ">= 1.5");
    figure("16 names and sizes of 100,000 entries, first time", &format!("{:.2} s", median(&mut first)), "<= 0.7 s");
}

/// Reads that the kernel answers from its pages.
fn warm(place: &Place, file: &Path, point: &Path, virtual_file: &Path) {
    let mounted = fzmfs(file, point, "ro");
    let on_disk = place.path("plain.raw");
    std::fs::copy(virtual_file, &on_disk).unwrap();
    let in_memory = Path::new("/dev/shm").join(format!("fzmfs-bench-{}", std::process::id()));
    std::fs::copy(virtual_file, &in_memory).unwrap();
    let len = read(virtual_file);
    for path in [virtual_file, &on_disk, &in_memory] {
        for _ in 0..3 {
            read(path);
        }
    }
    let [own, shm, disk] =
        interleaved([&mut || time(|| read(virtual_file)), &mut || time(|| read(&in_memory)), &mut || {
            time(|| read(&on_disk))
        }]);
    row("1 warm sequential / tmpfs", rate(len, own), rate(len, shm), "GB/s", ">= 1.0");
    row("2 warm sequential / disk file system", rate(len, own), rate(len, disk), "GB/s", ">= 0.70");
    let [own, shm] =
        interleaved([&mut || time(|| read_mapped(virtual_file)), &mut || time(|| read_mapped(&in_memory))]);
    row("5 warm mapped / tmpfs", rate(len, own), rate(len, shm), "GB/s", ">= 0.95");
    let (mut own, mut disk) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        own.push(random_reads(virtual_file, 100_000).0 / 1e6);
        disk.push(random_reads(&on_disk, 100_000).0 / 1e6);
    }
    row("4 warm random 4 KiB / disk file system", median(&mut own), median(&mut disk), "M/s", ">= 1.0");
    let mut again: Vec<f64> = Vec::new();
    let mut native: Vec<f64> = Vec::new();
    for _ in 0..rounds() {
        drop_pages(virtual_file);
        read(virtual_file);
        again.push(time(|| read(virtual_file)).as_secs_f64());
        native.push(time(|| read(&in_memory)).as_secs_f64());
    }
    row("3 first re-read / tmpfs", rate(len, median(&mut again)), rate(len, median(&mut native)), "GB/s", ">= 0.50");
    std::fs::remove_file(&in_memory).unwrap();
    drop(mounted);
}

/// Reads that decode, against the rates of decoding and of serving from memory.
fn cold(bytes: Vec<u8>, file: &Path, point: &Path, virtual_file: &Path) {
    let blob = decode::data(bytes);
    let len = blob.layout().unwrap().len() as usize;
    let mut out = vec![0; len];
    let (mut decoded, mut serving, mut cold, mut small, mut mounting) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut idle, mut peak) = (vec![], vec![]);
    for _ in 0..rounds() {
        decoded.push(time(|| decode::decode(&blob, &mut out, true)).as_secs_f64());
        let start = Instant::now();
        let mounted = fzmfs(file, point, "cache=1G,verify=off");
        std::fs::read_dir(point).unwrap().count();
        mounting.push(start.elapsed().as_secs_f64() * 1e3);
        idle.extend(memory(point).map(|(now, _)| now));
        cold.push(time(|| read(virtual_file)).as_secs_f64());
        serving.push(served(virtual_file).as_secs_f64());
        drop(mounted);
        let mounted = fzmfs(file, point, "cache=16M,verify=off");
        small.push(time(|| read(virtual_file)).as_secs_f64());
        peak.extend(memory(point).map(|(_, peak)| peak));
        drop(mounted);
    }
    let [decoded, served, cold, small] = [decoded, serving, cold, small].map(|mut s| rate(len, median(&mut s)));
    let limit = 1.0 / (1.0 / decoded + 1.0 / served);
    row("7 cold sequential / 1/(1/D + 1/F)", cold, limit, "GB/s", ">= 0.95");
    row("9 cold sequential / D, decoding alone", cold, decoded, "GB/s", ">= 0.55 on two cores");
    row("20 cold with 16 MiB of cache / with 1 GiB", small, cold, "GB/s", ">= 0.95");
    figure("13 mount to first listing", &format!("{:.1} ms", median(&mut mounting)), "<= 10 ms");
    figure("19 memory of the idle daemon", &format!("{:.1} MiB", median(&mut idle)), "<= 10 MiB");
    figure("19 peak memory, 16 MiB of cache", &format!("{:.1} MiB", median(&mut peak)), "<= 16 + workers x piece + 10");
}

/// Small reads all over the file.
fn random(file: &Path, point: &Path, virtual_file: &Path) {
    let mounted = fzmfs(file, point, "cache=8M,verify=off");
    let (_, mut cold) = random_reads(virtual_file, 2000);
    let (middle, late) = median_and_late(&mut cold);
    figure("10 random 4 KiB, cold: median", &format!("{middle:.0} us"), "<= 100 us");
    figure("10 random 4 KiB, cold: 99th percentile / median", &format!("{:.1}", late / middle), "<= 4");
    drop(mounted);
    let mounted = fzmfs(file, point, "cache=2G,verify=off");
    served(virtual_file);
    drop_pages(virtual_file);
    let (_, mut kept) = random_reads(virtual_file, 5000);
    figure("11 random 4 KiB, piece kept by the daemon: median", &format!("{:.0} us", median(&mut kept)), "<= 30 us");
    let readers = |count: usize| {
        drop_pages(virtual_file);
        time(|| {
            std::thread::scope(|scope| {
                for _ in 0..count {
                    scope.spawn(|| random_reads(virtual_file, 4000));
                }
            });
        })
        .as_secs_f64()
    };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        one.push(4000.0 / readers(1) / 1e3);
        two.push(8000.0 / readers(2) / 1e3);
    }
    row("12 two random readers / one, together", median(&mut two), median(&mut one), "k/s", ">= 2.0");
    // Look-ups of names while another reader decodes.
    drop(mounted);
    let mounted = fzmfs(file, point, "cache=16M,verify=off");
    let mut micros = Vec::new();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(virtual_file));
        let mut n = 0;
        while !reading.is_finished() {
            n += 1;
            let start = Instant::now();
            assert!(!point.join(format!("missing-{n}")).exists());
            micros.push(start.elapsed().as_secs_f64() * 1e3);
        }
    });
    let (middle, late) = median_and_late(&mut micros);
    figure("24 look-up while another decodes: median, 99th", &format!("{middle:.2} / {late:.2} ms"), "<= 0.1 / 1 ms");
    drop(mounted);
}
