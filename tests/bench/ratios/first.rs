//! The first read of a mount: at the end of a long frame, against decoding that in order; of many small containers,
//! against opening each in process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fzmfs::{Archive, Device, Options};

use super::frames::{decoder, floats, frame};
use super::mount::{Place, fzmfs, have, read};
use super::{interleaved, rate, row, size, time};

/// Small containers, and the bytes of each.
const MANY: (usize, usize) = (200, 64 << 10);

pub(super) fn run() {
    if !Path::new("/dev/fuse").exists() || !have("zstd") {
        println!("SKIPPED: first reads of a mount: there is no /dev/fuse, or no zstd");
        return;
    }
    let (data, place) = (floats(), Place::new());
    end(&data, &place);
    many(&data, &place);
}

/// The last bytes of one frame.
fn end(data: &[u8], place: &Place) {
    let (point, file) = (place.point(), place.path("data.zst"));
    std::fs::write(&file, frame(data, true)).unwrap();
    let mut ours = || {
        let mounted = fzmfs(&file, &point, "ro");
        let raw = File::open(point.join("data.raw")).unwrap();
        let seconds = time(|| raw.read_exact_at(&mut [0; 4096], (data.len() - 4096) as u64).unwrap());
        drop((raw, mounted));
        seconds
    };
    let mut theirs = || time(|| assert!(decoder(&file).wait().unwrap().success()));
    let [ours, theirs] = interleaved([&mut ours, &mut theirs]).map(|seconds| rate(size(), seconds));
    row("zstd, one frame with a checksum: first read at its end / zstd -dc", ours, theirs, "GB/s", ">= 0.8");
}

/// Small files in a directory.
fn many(data: &[u8], place: &Place) {
    let (point, dir) = (place.path("mnt"), place.path("many"));
    std::fs::create_dir(&dir).unwrap();
    let (count, len) = MANY;
    let names: Vec<_> = (0..count).map(|i| format!("{i:03}.zst")).collect();
    for (name, part) in names.iter().zip(data.chunks(len)) {
        std::fs::write(dir.join(name), frame(part, true)).unwrap();
    }
    let mut ours = || {
        let mounted = fzmfs(&dir, &point, "ro");
        let all = || names.iter().map(|name| read(&point.join(name).join("data.raw"))).sum::<usize>();
        let seconds = time(|| assert_eq!(all(), count * len));
        drop(mounted);
        seconds
    };
    let options = Options::new().device(Device::Cpu);
    let open =
        |name: &String| Archive::open(dir.join(name), &options).unwrap().file("data.raw").unwrap().read().unwrap();
    let mut theirs = || time(|| assert_eq!(names.iter().map(|name| open(name).len()).sum::<usize>(), count * len));
    let [ours, theirs] = interleaved([&mut ours, &mut theirs]);
    row(
        &format!("{count} containers of 64 KiB, cold mount / Archive::open in a loop"),
        1e3 * ours,
        1e3 * theirs,
        "ms",
        "<= 1.5",
    );
}
