//! `cat`, `verify` and `extract` of Zstandard files against `zstd -d`: time, and the most memory that each takes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::frames::{decoder, floats, frame, many};
use super::mount::{FZMFS, Place, have};
use super::{figure, interleaved, median, once, rate, rounds, row, time};

pub(super) fn run() {
    if !have("zstd") {
        println!("SKIPPED: commands against zstd -dc: there is no zstd");
        return;
    }
    let data = floats();
    let place = Place::new();
    // A disk would be all that is measured.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (file, out, plain) = (place.path("data.zst"), memory.path().join("out"), memory.path().join("plain"));
    at_once(&data, &place, memory.path());
    for (kind, bytes, aim) in
        [("frames of 16 MiB", many(&data), ">= 1.7 on two"), ("one frame", frame(&data, true), "")]
    {
        std::fs::write(&file, bytes).unwrap();
        let commands: [(&str, &[&str]); 3] = [
            ("cat", &["cat", "FILE", "data.raw"]),
            ("verify", &["verify", "FILE"]),
            ("extract", &["extract", "--force", "FILE", "OUT", "data.raw"]),
        ];
        for (name, args) in commands {
            let mut seconds: [Vec<f64>; 2] = Default::default();
            let mut peak = 0.0_f64;
            for _ in 0..rounds() {
                let mut ours = Command::new(FZMFS);
                ours.args(args.iter().map(|&arg| match arg {
                    "FILE" => file.as_path(),
                    "OUT" => out.as_path(),
                    arg => Path::new(arg),
                }));
                let (time, most) = once::run(&ours);
                seconds[0].push(time);
                peak = peak.max(most);
                let mut theirs = Command::new("zstd");
                let theirs = match name {
                    "extract" => theirs.arg("-dqf").arg(&file).arg("-o").arg(&plain),
                    _ => theirs.arg("-dcq").arg(&file),
                };
                seconds[1].push(once::run(theirs).0);
            }
            let [own, official] = seconds.map(|mut s| rate(data.len(), median(&mut s)));
            let rival = if name == "extract" { "zstd -d" } else { "zstd -dc" };
            row(&format!("zstd, {kind}: fzmfs {name} / {rival}"), own, official, "GB/s", aim);
            figure(&format!("zstd, {kind}: memory of fzmfs {name}"), &format!("{peak:.0} MiB"), "<= 64 MiB");
        }
    }
}

/// What two processors give the official decoder: two processes, each on half of the frames, against one on all; to
/// nowhere as for `cat`, and into memory as for `extract`.
fn at_once(data: &[u8], place: &Place, memory: &Path) {
    let (first, second) = data.split_at(data.len() / 2);
    let files = [("all", data), ("first", first), ("second", second)].map(|(name, part)| {
        std::fs::write(place.path(name), many(part)).unwrap();
        place.path(name)
    });
    let written = |file: &Path| {
        let out = memory.join(file.file_name().unwrap());
        Command::new("zstd").arg("-dqf").arg(file).arg("-o").arg(out).spawn().unwrap()
    };
    for (rival, start) in [("zstd -dc", &decoder as &dyn Fn(&Path) -> Child), ("zstd -d", &written)] {
        let run = |files: &[PathBuf]| {
            time(|| {
                let all: Vec<_> = files.iter().map(|file| start(file)).collect();
                for mut child in all {
                    assert!(child.wait().unwrap().success());
                }
            })
        };
        let [two, one] = interleaved([&mut || run(&files[1..]), &mut || run(&files[..1])]).map(|s| rate(data.len(), s));
        row(&format!("zstd, frames of 16 MiB: two {rival} at once, on half each / one"), two, one, "GB/s", "");
    }
}
