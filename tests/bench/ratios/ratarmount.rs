//! ratarmount (`scripts/oracle ratarmount`) on the same Zstandard files: reads here and there on a cold mount. It decodes
//! each file once to find its frames, and keeps them in an index; that is not measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::frames::{floats, frame, seekable};
use super::mount::{Mounted, Place, fzmfs, random_reads};
use super::{median, rounds, row};

/// Reads of 4 KiB on one mount.
const READS: usize = 200;

fn mount(program: &Path, file: &Path, point: &Path) -> Mounted {
    let mut command = Command::new(program);
    let status = command.arg(file).arg(point).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "ratarmount failed");
    Mounted::other(point)
}

pub(super) fn run() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/oracles/ratarmount/bin/ratarmount");
    let program = std::env::var_os("RATARMOUNT").map_or(own, PathBuf::from);
    if !Path::new("/dev/fuse").exists() || !program.exists() {
        println!("SKIPPED: ratarmount: there is no /dev/fuse, or scripts/oracle ratarmount was not run");
        return;
    }
    let (data, place) = (floats(), Place::new());
    let (point, file) = (place.point(), place.path("data.zst"));
    let pzstd: Vec<u8> = data.chunks(8 << 20).flat_map(|part| frame(part, true)).collect();
    for (name, bytes) in [("frames of 8 MiB", pzstd), ("seekable, frames of 1 MiB", seekable(&data, 1 << 20))] {
        std::fs::write(&file, bytes).unwrap();
        std::fs::remove_file(place.path("data.zst.index.sqlite")).ok();
        drop(mount(&program, &file, &point));
        for options in ["ro", "verify=off"] {
            let mut rates: [Vec<f64>; 2] = Default::default();
            for _ in 0..rounds() {
                let mounted = fzmfs(&file, &point, options);
                rates[0].push(random_reads(&point.join("data.raw"), READS).0);
                drop(mounted);
                let mounted = mount(&program, &file, &point);
                rates[1].push(random_reads(&point.join("data"), READS).0);
                drop(mounted);
            }
            let [ours, theirs] = rates.map(|mut rates| median(&mut rates));
            let what = format!("zstd, {name}, random 4 KiB, cold, {options} / ratarmount");
            row(&what, ours, theirs, "reads/s", ">= 1");
        }
    }
}
