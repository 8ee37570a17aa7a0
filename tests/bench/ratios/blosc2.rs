//! Mounted Blosc2 arrays against python-blosc2 reading the file in its own process: whole, in windows, and at random.

use std::path::Path;

use super::mount::{Place, fzmfs};
use super::official::Official;
use super::{median, random, rate, rounds, row, size};

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
        let [own, library] =
            compare(&mut official, ("load", "data.npy"), "read", &file, &point).map(|seconds| rate(size(), seconds));
        row(&format!("b2nd, {name}, numpy.load, cold / python-blosc2"), own, library, "GB/s", "");
        let [own, library] =
            compare(&mut official, ("windows", "data.npy"), "windows", &file, &point).map(|seconds| 1e3 * seconds);
        row(&format!("b2nd, {name}, 200 windows of 64 x 64, cold / python-blosc2"), own, library, "ms", "<= 2");
    }
    random::against_unit("b2nd, blocks of 256 KiB", &place.path("blocks.b2nd"), &point);
}

/// Median seconds of a task with what the mount shows, and of `theirs` with the file, each from the start.
pub(super) fn compare(
    official: &mut Official,
    (ours, shown): (&str, &str),
    theirs: &str,
    file: &Path,
    point: &Path,
) -> [f64; 2] {
    let mut seconds: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds() {
        let mounted = fzmfs(file, point, "ro");
        let array = point.join(shown);
        seconds[0].push(official.ask(format_args!("{ours} {}", array.display())).as_secs_f64());
        drop(mounted);
        seconds[1].push(official.ask(format_args!("{theirs} {}", file.display())).as_secs_f64());
    }
    seconds.map(|mut s| median(&mut s))
}
