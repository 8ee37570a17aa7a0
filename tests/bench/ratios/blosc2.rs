//! Mounted Blosc2 arrays against python-blosc2 reading the file in its own process: whole, in windows, and at random.

use std::path::Path;

use super::mount::{Place, fzmfs, random_reads};
use super::official::Official;
use super::{decode, figure, median, median_and_late, random, rate, rounds, row, size};

/// What the kernel and the daemon may add to the decoding of a block, in microseconds.
const ROUND_TRIP: f64 = 50.0;

pub(super) fn run() {
    let place = Place::new();
    let folder = place.path("");
    let args = ["arrays", folder.to_str().unwrap(), &size().to_string()];
    let Some(mut official) = Official::start("blosc2", "make_blosc2.py", &args) else {
        println!("SKIPPED: Blosc2 arrays: there is no official library; scripts/oracle blosc2 installs it");
        return;
    };
    official.answer();
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: Blosc2 arrays through the mount: there is no /dev/fuse");
        return;
    }
    let point = place.point();
    for name in ["zstd", "lz4", "blocks"] {
        let file = place.path(name).with_extension("b2nd");
        let [own, library] = compare(&mut official, "load", "read", &file, &point).map(|seconds| rate(size(), seconds));
        row(&format!("b2nd, {name}, numpy.load, cold / python-blosc2"), own, library, "GB/s", "");
        let [own, library] = compare(&mut official, "windows", "windows", &file, &point).map(|seconds| 1e3 * seconds);
        row(&format!("b2nd, {name}, 200 windows of 64 x 64, cold / python-blosc2"), own, library, "ms", "<= 2");
    }
    at_random(&place.path("blocks.b2nd"), &point);
}

/// Median seconds of `ours` with the mounted array and of `theirs` with the file, each from the start.
fn compare(official: &mut Official, ours: &str, theirs: &str, file: &Path, point: &Path) -> [f64; 2] {
    let mut seconds: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds() {
        let mounted = fzmfs(file, point, "ro");
        let array = point.join("data.npy");
        seconds[0].push(official.ask(format_args!("{ours} {}", array.display())).as_secs_f64());
        drop(mounted);
        seconds[1].push(official.ask(format_args!("{theirs} {}", file.display())).as_secs_f64());
    }
    seconds.map(|mut s| median(&mut s))
}

/// Small reads all over an array with blocks of 256 KiB, each stored in the order of the array.
fn at_random(file: &Path, point: &Path) {
    let block = median(&mut random::cold(&decode::content(std::fs::read(file).unwrap()), 1000).0);
    let mut micros = Vec::new();
    for _ in 0..rounds() {
        let mounted = fzmfs(file, point, "cache=8M");
        micros.extend(random_reads(&point.join("data.raw"), 500).1);
        drop(mounted);
    }
    let (middle, late) = median_and_late(&mut micros);
    row("b2nd, random 4 KiB, cold / decoding a block + 50 us", middle, block + ROUND_TRIP, "us", "<= 1.5");
    figure("b2nd, random 4 KiB, cold: 99th percentile / median", &format!("{:.1}", late / middle), "<= 4");
}
