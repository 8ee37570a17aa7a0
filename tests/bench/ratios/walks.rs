//! Many small files and many names: what programs that go through a directory in order wait for.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::mount::{Place, fzmfs, memory, read};
use super::{figure, interleaved, median, passthrough, row, time, trivial_names};

/// Chunks of [`LEN`] bytes each.
const FILES: usize = 20_000;
const LEN: usize = 16 << 10;
/// Tensors, each of which is seven names in the mount.
const TENSORS: u32 = 100_000;

pub(super) fn run() {
    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: small files and names: there is no /dev/fuse");
        return;
    }
    small_files(&Place::new());
    names(&Place::new());
}

/// Reads chunk after chunk, against the round trips alone.
fn small_files(place: &Place) {
    let frame = |i: usize| zstd::bulk::compress(&(i as u64).to_le_bytes().repeat(LEN / 8), 1).unwrap();
    let file = place.path("chunks.zst");
    std::fs::write(&file, (0..FILES).flat_map(frame).collect::<Vec<u8>>()).unwrap();
    let (point, least) = (place.point(), place.path("least"));
    std::fs::create_dir(&least).unwrap();
    let all = |dir: &Path| {
        time(|| (0..FILES).for_each(|i| assert_eq!(read(&dir.join(format!("{i:06}.raw"))), LEN, "{}", dir.display())))
    };
    let ours = || {
        let mounted = fzmfs(&file, &point, "ro");
        let whole = all(&point.join("chunks"));
        drop(mounted);
        whole
    };
    let trips = || {
        let (mut server, mounted) = passthrough::start(passthrough::From::File, &file, 0, LEN as u64, &least);
        let whole = all(&least);
        drop(mounted);
        server.wait().unwrap();
        whole
    };
    let [own, floor] = interleaved([&mut { ours }, &mut { trips }]);
    row(&format!("{FILES} files of 16 KiB in order / round trips alone"), own * 1e3, floor * 1e3, "ms", "<= 1.3");
}

/// Visits all names of nested tensors, as `find` does.
fn names(place: &Place) {
    let file = place.path("nested.zt");
    nested(&file).unwrap();
    let (point, least) = (place.point(), place.path("least"));
    std::fs::create_dir(&least).unwrap();
    let all = |dir: &Path| {
        time(|| {
            // Not the Zarr group, which has further names for the same tensors.
            let output = Command::new("find").args(["tensors", "stored"]).current_dir(dir).output().unwrap();
            assert!(output.stdout.split(|&byte| byte == b'\n').count() >= 7 * TENSORS as usize);
        })
    };
    let mut resident = vec![];
    let ours = || {
        let mounted = fzmfs(&file, &point, "ro");
        let whole = all(&point);
        resident.extend(memory(&point).map(|(_, peak)| peak));
        drop(mounted);
        whole
    };
    let trivial = || {
        let (mut server, mounted) = trivial_names::start(TENSORS.into(), &least);
        let whole = all(&least);
        drop(mounted);
        server.wait().unwrap();
        whole
    };
    let [own, floor] = interleaved([&mut { ours }, &mut { trivial }]);
    let what = format!("find over {} nested names", 7 * TENSORS);
    row(&format!("{what} / a trivial file system"), own, floor, "s", "<= 15 s");
    figure(&format!("{what}: memory"), &format!("{:.0} MiB", median(&mut resident)), "<= 190 MiB");
}

/// A zTensor file of empty tensors `g000000/x`, `g000001/x`, ...
fn nested(path: &Path) -> std::io::Result<()> {
    let mut manifest = b"\xa2\x67version\x651.1.0\x67objects\xba".to_vec();
    manifest.extend(TENSORS.to_be_bytes());
    for i in 0..TENSORS {
        manifest.extend(format!("\x69g{i:06}/x").bytes());
        manifest.extend(b"\xa3\x65shape\x81\x00\x66format\x65dense\x6acomponents\xa1\x64data");
        manifest.extend(b"\xa3\x65dtype\x62u8\x66offset\x18\x40\x66length\x00");
    }
    let mut file = File::create(path)?;
    file.write_all(b"ZTEN1000")?;
    file.write_all(&[0; 56])?;
    file.write_all(&manifest)?;
    file.write_all(&(manifest.len() as u64).to_le_bytes())?;
    file.write_all(b"ZTEN1000")
}
