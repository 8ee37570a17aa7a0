//! `data.zarr` of mounted Blosc2 arrays in zarr-python and `TensorStore` against python-blosc2 reading the file in its
//! own process: whole, and in windows.

use std::path::Path;
use std::process::Command;

use super::blosc2::compare;
use super::mount::{FZMFS, Place};
use super::official::Official;
use super::{figure, median, rate, rounds, row, size};

/// The group in a mount.
const GROUP: &str = "data.zarr";

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
        let mut compared = |ours, theirs| compare(&mut official, (ours, GROUP), theirs, &file, &point);
        for (reader, task, aim) in [("zarr-python", "read", ">= 0.6"), ("TensorStore", "tensorstore", ">= 0.65")] {
            let [own, library] = compared(task, "read").map(|seconds| rate(size(), seconds));
            row(&format!("b2nd, {name}, data.zarr in {reader}, cold / python-blosc2"), own, library, "GB/s", aim);
        }
        let [own, library] = compared("windows", "windows").map(|seconds| 1e3 * seconds);
        let what = format!("b2nd, {name}, data.zarr, 200 windows of 64 x 64 in zarr-python, cold / python-blosc2");
        row(&what, own, library, "ms", "<= 2");
        // What the reader itself takes.
        let group = plain.join(GROUP);
        let mut alone = |task| {
            let ask = |_| official.ask(format_args!("{task} {}", group.display())).as_secs_f64();
            median(&mut (0..rounds()).map(ask).collect::<Vec<_>>())
        };
        for (reader, task) in [("zarr-python", "read"), ("TensorStore", "tensorstore")] {
            let what = format!("b2nd, {name}, plain Zarr in memory in {reader}");
            figure(&what, &format!("{:.2} GB/s", rate(size(), alone(task))), "");
        }
        let what = format!("b2nd, {name}, plain Zarr in memory, 200 windows in zarr-python");
        figure(&what, &format!("{:.0} ms", 1e3 * alone("windows")), "");
        std::fs::remove_dir_all(plain).unwrap();
    }
}
