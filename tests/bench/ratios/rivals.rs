//! The same bytes in SquashFS, zstd level 3, mounted by `squashfuse_ll`: reads in order and at random.

use std::path::Path;
use std::process::{Command, Stdio};

use super::mount::{Mounted, Place, fzmfs, have, random_reads, read};
use super::{median, rate, rounds, row, time};

fn squashfuse(image: &Path, point: &Path) -> Mounted {
    let status = Command::new("squashfuse_ll").arg(image).arg(point).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "squashfuse_ll failed");
    // It may return before the mount answers.
    for _ in 0..1000 {
        if point.join("data.raw").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Mounted::other(point)
}

/// `plain.raw` in `place` has the decoded bytes of `file`.
pub(super) fn run(place: &Place, file: &Path, point: &Path, virtual_file: &Path) {
    if !(have("squashfuse_ll") && have("mksquashfs")) {
        println!("SKIPPED: squashfuse: install squashfuse and squashfs-tools");
        return;
    }
    let folder = place.path("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::rename(place.path("plain.raw"), folder.join("data.raw")).unwrap();
    for (block, aim) in [("128K", "<= 0.5"), ("1M", "")] {
        let image = place.path(&format!("{block}.sqfs"));
        let made = Command::new("mksquashfs")
            .args([&folder, &image])
            .args(["-comp", "zstd", "-Xcompression-level", "3", "-b", block, "-quiet", "-no-progress"])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "mksquashfs failed");
        let mut seconds: [Vec<f64>; 4] = std::array::from_fn(|_| Vec::new());
        let mut micros: [Vec<f64>; 2] = Default::default();
        let mut len = 0;
        for _ in 0..rounds() {
            for (side, micros) in micros.iter_mut().enumerate() {
                let mount = |options| if side == 0 { fzmfs(file, point, options) } else { squashfuse(&image, point) };
                let mounted = mount("verify=off");
                seconds[2 * side].push(time(|| len = read(virtual_file)).as_secs_f64());
                read(virtual_file);
                seconds[2 * side + 1].push(time(|| len = read(virtual_file)).as_secs_f64());
                drop(mounted);
                let mounted = mount("cache=8M,verify=off");
                micros.extend(random_reads(virtual_file, 500).1);
                drop(mounted);
            }
        }
        let [cold, warm, rival_cold, rival_warm] = seconds.map(|mut s| rate(len, median(&mut s)));
        row(&format!("cold sequential / squashfuse_ll, zstd, {block} blocks"), cold, rival_cold, "GB/s", "> 1");
        row(&format!("warm sequential / squashfuse_ll, zstd, {block} blocks"), warm, rival_warm, "GB/s", "about 1");
        let [own, rival] = micros.map(|mut m| median(&mut m));
        row(&format!("random 4 KiB, cold / squashfuse_ll, zstd, {block} blocks"), own, rival, "us", aim);
    }
}
