//! zTensor: opening files of many tensors against the official package, listing them through the mount, arrays as NumPy
//! loads them, and raw tensors against the least that a file system in user space can do.
//!
//! The package, and NumPy, are those of `scripts/oracle ztensor`.

use std::path::Path;
use std::time::Instant;

use fzmfs::format::{self, Input, Options};

use super::mount::{Place, drop_pages, fzmfs, memory, read};
use super::official::Official;
use super::{figure, interleaved, median, passthrough, rate, rounds, row, size, time};

pub(super) fn run() {
    let place = Place::new();
    let point = place.point();
    let folder = place.path("");
    let folder = folder.to_str().unwrap();
    let Some(mut official) = Official::start("ztensor", "make_ztensor.py", &["bench", folder, &size().to_string()])
    else {
        println!("SKIPPED: zTensor: there is no official package; scripts/oracle ztensor installs it");
        return;
    };
    let at: u64 = official.answer().parse().unwrap();
    let can_mount = Path::new("/dev/fuse").exists();
    for count in [2000, 100_000] {
        let file = place.path(&format!("{count}.zt"));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds().max(7) {
            ours.push(1e3 * time(|| open(&file)).as_secs_f64());
            theirs.push(1e3 * official.ask(format_args!("open {}", file.display())).as_secs_f64());
        }
        let what = format!("zTensor, opening {count} tensors / the official package");
        row(
            &what,
            median(&mut ours),
            median(&mut theirs),
            "ms",
            if count > 2000 { "<= 1, and <= 40 ms" } else { "<= 1" },
        );
        if can_mount {
            listing(&file, &point, count);
        }
    }
    if can_mount {
        views(&mut official, &place, &point);
        raw(&place, &point, at);
    } else {
        println!("SKIPPED: zTensor through the mount: there is no /dev/fuse");
    }
}

fn open(file: &Path) -> usize {
    let container = format::open(&Input::open(file).unwrap(), None, &Options::default()).unwrap();
    container.entries().unwrap().len()
}

/// Mounting and listing every tensor's files, with sizes.
fn listing(file: &Path, point: &Path, count: usize) {
    let (mut mounting, mut names, mut resident) = (vec![], vec![], vec![]);
    let mut idle = vec![];
    for _ in 0..rounds() {
        let start = Instant::now();
        let mounted = fzmfs(file, point, "ro");
        mounting.push(start.elapsed().as_secs_f64() * 1e3);
        idle.extend(memory(point).map(|(_, peak)| peak));
        names.push(time(|| assert!(walk(&point.join("tensors")) >= 3 * count)).as_secs_f64());
        resident.extend(memory(point).map(|(_, peak)| peak));
        drop(mounted);
    }
    let aims = if count > 2000 { ("<= 20 MiB more than with none", "") } else { ("", "") };
    figure(&format!("zTensor, {count} tensors: mount"), &format!("{:.1} ms", median(&mut mounting)), "");
    figure(&format!("zTensor, {count} tensors: memory, mounted"), &format!("{:.1} MiB", median(&mut idle)), aims.0);
    figure(&format!("zTensor, {count} tensors: all names and sizes"), &format!("{:.2} s", median(&mut names)), "");
    figure(&format!("zTensor, {count} tensors: memory, listed"), &format!("{:.1} MiB", median(&mut resident)), aims.1);
}

/// How many files there are below `dir`; looks at the size of each.
fn walk(dir: &Path) -> usize {
    let one = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            return walk(&entry.path());
        }
        assert!(entry.metadata().unwrap().len() > 0);
        1
    };
    std::fs::read_dir(dir).unwrap().map(one).sum()
}

/// A tensor as NumPy loads it, against a file that NumPy has written.
fn views(official: &mut Official, place: &Place, point: &Path) {
    let mounted = fzmfs(&place.path("one.zt"), point, "ro");
    let (view, native) = (point.join("tensors/w.npy"), place.path("w.npy"));
    for _ in 0..3 {
        official.ask(format_args!("load {}", view.display()));
        official.ask(format_args!("load {}", native.display()));
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds().max(9) {
        ours.push(official.ask(format_args!("load {}", view.display())).as_secs_f64());
        theirs.push(official.ask(format_args!("load {}", native.display())).as_secs_f64());
    }
    let [ours, theirs] = [ours, theirs].map(|mut s| rate(size(), median(&mut s)));
    row("zTensor, numpy.load of a tensor, warm / of a real .npy", ours, theirs, "GB/s", ">= 0.9");
    drop(mounted);
}

/// A raw tensor, against the same bytes through a file system that does nothing else.
fn raw(place: &Place, point: &Path, at: u64) {
    let other = place.path("other");
    std::fs::create_dir(&other).unwrap();
    let (mut server, beside) =
        passthrough::start(passthrough::From::File, &place.path("one.zt"), at, size() as u64, &other);
    let theirs = other.join(passthrough::NAME);
    // Both with the readahead that our mount asks for.
    let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&other).unwrap());
    let bdi =
        format!("/sys/class/bdi/{}:{}/read_ahead_kb", device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00);
    std::fs::write(bdi, "1024").ok();
    let mounted = fzmfs(&place.path("one.zt"), point, "ro");
    let ours = point.join("tensors/w.raw");
    for (name, cold) in [("cold", true), ("warm", false)] {
        let side = |path: &Path| {
            if cold {
                drop_pages(path);
            } else {
                read(path);
            }
            time(|| assert_eq!(read(path), size()))
        };
        let [own, least] = interleaved([&mut || side(&ours), &mut || side(&theirs)]);
        let what = format!("zTensor, a raw tensor, {name} / trivial passthrough");
        row(&what, rate(size(), own), rate(size(), least), "GB/s", ">= 0.9");
    }
    drop(mounted);
    drop(beside);
    server.wait().ok();
}
