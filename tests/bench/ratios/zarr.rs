//! `data.zarr` of mounted Blosc2 arrays in zarr-python and `TensorStore` against python-blosc2 reading the file in its
//! own process: whole, and in windows.

use std::path::Path;
use std::process::Command;

use fzmfs::{Archive, Options};

use super::blosc2::compare;
use super::mount::{FZMFS, Place};
use super::official::Official;
use super::{median, rate, rounds, row, size, time};

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
    let point = place.point();
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
            // Floors: what the reader itself takes, and what a file system adds that decodes on all cores and does
            // nothing else.
            let alone = alone(&mut official, task, &group);
            line("plain Zarr in memory", rates(alone), "");
            line("plain Zarr in memory, and decoding,", rates(alone + decoding), "");
        }
        let [own, library] = compare(&mut official, ("windows", GROUP), "windows", &file, &point);
        let alone = alone(&mut official, "windows", &group);
        // Chunks that 200 windows touch at least once, at least.
        let chunks = (size() / CHUNK) as f64;
        let touched = 1.0 - (-200.0 / chunks).exp();
        for (what, seconds, aim) in [
            ("data.zarr, cold,", own, "<= 2"),
            ("plain Zarr in memory", alone, ""),
            ("plain Zarr in memory, and decoding,", alone + touched * decoding, ""),
        ] {
            let what = format!("b2nd, {name}, 200 windows of 64 x 64, {what} in zarr-python / python-blosc2");
            row(&what, 1e3 * seconds, 1e3 * library, "ms", aim);
        }
        std::fs::remove_dir_all(plain).unwrap();
    }
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
