//! `data.zarr` of mounted Blosc2 arrays in zarr-python and `TensorStore` against python-blosc2 reading the file in its
//! own process: whole, and in windows.

use std::path::Path;
use std::process::Command;

use fzmfs::{Archive, Options};

use super::blosc2::compare;
use super::mount::{FZMFS, Place};
use super::official::Official;
use super::{median, memory_tree, rate, rounds, row, size, time};

/// The group in a mount.
const GROUP: &str = "data.zarr";
/// Bytes of a chunk.
const CHUNK: usize = 2 << 20;

pub(super) fn run() {
    let place = Place::new();
    let folder = place.path("");
    let args = ["arrays", folder.to_str().unwrap(), &size().to_string(), "zarr", "tensorstore"];
    let Some(mut official) = Official::start("zarr", "make_blosc2.py", &args) else {
        println!("SKIPPED: Zarr: there are no readers; scripts/oracle zarr installs them");
        return;
    };
    official.answer();
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: Zarr through the mount: there is no /dev/fuse");
        return;
    }
    let (point, least) = (place.point(), place.path("least.zarr"));
    std::fs::create_dir(&least).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["zstd", "lz4", "blocks"] {
        let file = place.path(name).with_extension("b2nd");
        let plain = memory.path().join(name);
        let extracted = Command::new(FZMFS).arg("extract").args([&file, &plain]).arg(GROUP).output().unwrap();
        assert!(extracted.status.success(), "{extracted:?}");
        let decoding = decoding(&file);
        let group = plain.join(GROUP);
        for (reader, task, aim) in [("zarr-python", "read", ">= 0.6"), ("TensorStore", "tensorstore", ">= 0.65")] {
            let [own, library] = compare(&mut official, (task, GROUP), "read", &file, &point);
            let rates = |seconds| (rate(size(), seconds), rate(size(), library));
            let line = |what: &str, (ours, theirs), aim| {
                row(&format!("b2nd, {name}, {what} in {reader} / python-blosc2"), ours, theirs, "GB/s", aim);
            };
            line("data.zarr, cold,", rates(own), aim);
            for (what, seconds) in floors(&mut official, task, &group, &least, decoding) {
                line(what, rates(seconds), "");
            }
        }
        let [own, library] = compare(&mut official, ("windows", GROUP), "windows", &file, &point);
        // Chunks that 200 windows touch at least once, at least.
        let chunks = (size() / CHUNK) as f64;
        let touched = 1.0 - (-200.0 / chunks).exp();
        let line = |what: &str, seconds: f64, aim| {
            let what = format!("b2nd, {name}, 200 windows of 64 x 64, {what} in zarr-python / python-blosc2");
            row(&what, 1e3 * seconds, 1e3 * library, "ms", aim);
        };
        line("data.zarr, cold,", own, "<= 2");
        for (what, seconds) in floors(&mut official, "windows", &group, &least, touched * decoding) {
            line(what, seconds, "");
        }
        std::fs::remove_dir_all(plain).unwrap();
    }
}

/// What a task takes at least, in seconds: the reader itself with a group of plain files in memory; the same from the
/// least file system in user space, mounted at `least`; and that after `decoding` on all cores.
fn floors(official: &mut Official, task: &str, group: &Path, least: &Path, decoding: f64) -> [(&'static str, f64); 3] {
    let plain = alone(official, task, group);
    let (mut server, mounted) = memory_tree::start(group, least);
    let in_user_space = alone(official, task, least);
    drop(mounted);
    server.wait().unwrap();
    [
        ("plain Zarr in memory", plain),
        ("plain Zarr in user space", in_user_space),
        ("plain Zarr in user space, and decoding,", in_user_space + decoding),
    ]
}

/// Median seconds of a task with a group of plain files.
fn alone(official: &mut Official, task: &str, group: &Path) -> f64 {
    let ask = |_| official.ask(format_args!("{task} {}", group.display())).as_secs_f64();
    median(&mut (0..rounds()).map(ask).collect::<Vec<_>>())
}

/// Median seconds that decoding all of `file` takes, on all cores and into memory that is used again.
fn decoding(file: &Path) -> f64 {
    let mut buffer = vec![1; size()];
    let run = |_| {
        let archive = Archive::open(file, &Options::new()).unwrap();
        let data = archive.file("data.raw").unwrap();
        time(|| data.read_exact_at(0, &mut buffer).unwrap()).as_secs_f64()
    };
    median(&mut (0..rounds()).map(run).collect::<Vec<_>>())
}
