//! Zstandard: files of one frame and of many through the mount, against `zstd -dc` on the same file; frames of zstd 0.7
//! in memory, against libzstd's decoder for them.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fzm_writer::{Dtype, field};
use rustix::time::{ClockId, clock_gettime};
use zstd::stream::Encoder;
use zstd::zstd_safe::{DCtx, find_frame_compressed_size};

use super::mount::{Place, fzmfs, have, memory, read, served};
use super::{decode, figure, interleaved, median, passthrough, random, rate, rounds, row, size, time};

/// Smooth 32-bit floats of which the last bits say nothing, as simulations write them.
pub(super) fn floats() -> Vec<u8> {
    let mut bytes = field::smooth(Dtype::F32, &[(size() / 4) as u32], 0.02, 1);
    for float in bytes.as_chunks_mut::<4>().0 {
        float[0] = 0;
        float[1] &= 0xF8;
    }
    bytes
}

pub(super) fn frame(data: &[u8], checksum: bool) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(checksum).unwrap();
    encoder.set_pledged_src_size(Some(data.len() as u64)).unwrap();
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Frames of `len` bytes with the table of the seekable format behind them.
pub(super) fn seekable(data: &[u8], len: usize) -> Vec<u8> {
    let (mut file, mut table) = (Vec::new(), Vec::new());
    for part in data.chunks(len) {
        let frame = frame(part, true);
        table.extend((frame.len() as u32).to_le_bytes());
        table.extend((part.len() as u32).to_le_bytes());
        file.extend(frame);
    }
    let count = (table.len() / 8) as u32;
    file.extend(0x184D_2A5E_u32.to_le_bytes());
    file.extend((table.len() as u32 + 9).to_le_bytes());
    file.extend(table);
    file.extend(count.to_le_bytes());
    file.push(0);
    file.extend(0x8F92_EAB1_u32.to_le_bytes());
    file
}

/// As pzstd writes: a frame for each thread's share, here of 16 MiB.
pub(super) fn many(data: &[u8]) -> Vec<u8> {
    data.chunks(16 << 20).flat_map(|part| frame(part, true)).collect()
}

/// Makes a file of content.
type Generator = fn(&[u8]) -> Vec<u8>;

pub(super) fn run() {
    old();
    if !Path::new("/dev/fuse").exists() || !have("zstd") {
        println!("SKIPPED: frames through the mount: there is no /dev/fuse, or no zstd");
        return;
    }
    let data = floats();
    let place = Place::new();
    let point = place.point();
    let file = place.path("data.zst");
    let kinds: [(&str, Generator, &str); 5] = [
        ("one frame without a checksum", |d| frame(d, false), ">= 0.95"),
        ("one frame with a checksum", |d| frame(d, true), ">= 0.95"),
        ("frames of 16 MiB", many, ">= 1.05"),
        ("seekable, frames of 1 MiB", |d| seekable(d, 1 << 20), ""),
        ("one frame with a checksum, verify=first", |d| frame(d, true), ""),
    ];
    let virtual_file = point.join("data.raw");
    let (plain, least) = (place.path("plain"), place.path("least"));
    std::fs::write(&plain, &data).unwrap();
    std::fs::create_dir(&least).unwrap();
    for (name, make, aim) in kinds {
        std::fs::write(&file, make(&data)).unwrap();
        // As many decoders as there are processors for them.
        let count = if name.contains("one frame") { 1 } else { 2 };
        let parts: Vec<_> = data
            .chunks(data.len() / count)
            .enumerate()
            .map(|(i, part)| {
                let path = place.path(&format!("part{i}.zst"));
                std::fs::write(&path, make(part)).unwrap();
                path
            })
            .collect();
        let options = if name.contains("verify=first") { "ro,verify=first" } else { "ro" };
        let mut peak = 0.0_f64;
        let mut ours = || {
            let mounted = fzmfs(&file, &point, options);
            let seconds = time(|| assert_eq!(read(&virtual_file), data.len()));
            peak = memory(&point).map_or(f64::NAN, |(_, most)| peak.max(most));
            drop(mounted);
            seconds
        };
        let mut theirs = || time(|| assert!(decoder(&file).wait().unwrap().success()));
        let [ours, theirs, floor] = interleaved([&mut ours, &mut theirs, &mut || floor(&parts, &plain, &least)]);
        let [ours, theirs, floor] = [ours, theirs, floor].map(|seconds| rate(data.len(), seconds));
        row(&format!("zstd, {name}: cold / zstd -dc"), ours, theirs, "GB/s", aim);
        row(&format!("zstd, {name}: cold / zstd -dc beside a trivial file system"), ours, floor, "GB/s", "");
        // Before the first byte the whole frame is decoded, and kept.
        let most = if options == "ro" { "<= 64 MiB" } else { "" };
        figure(&format!("zstd, {name}: memory of the daemon"), &format!("{peak:.0} MiB"), most);
    }
    limit(&seekable(&data, 1 << 20), &file, &point);
    for (name, len) in [("1 MiB", 1 << 20), ("64 KiB", 64 << 10)] {
        std::fs::write(&file, seekable(&data, len)).unwrap();
        random::against_unit(&format!("zstd, seekable, frames of {name}"), &file, &point);
    }
    let parts = seekable(&data, 1 << 20);
    let tensor = place.path("part.zt");
    std::fs::write(&tensor, in_tensor(&parts, data.len() as u32)).unwrap();
    let what = "zTensor, a part of zstd frames of 1 MiB";
    random::against_content(what, &decode::content(parts), (&tensor, "tensors/t.raw"), &point);
    first_byte(&data, &file, &point);
}

/// A zTensor file of one tensor of `len` bytes, which is stored as `part`.
fn in_tensor(part: &[u8], len: u32) -> Vec<u8> {
    let mut manifest = b"\xa2\x67version\x651.1.0\x67objects\xa1\x61t\xa3\x65shape\x81\x1a".to_vec();
    manifest.extend(len.to_be_bytes());
    manifest.extend(b"\x66format\x65dense\x6acomponents\xa1\x64data\xa4\x65dtype\x62u8\x66offset\x18\x40");
    manifest.extend(b"\x68encoding\x64zstd\x66length\x1a");
    manifest.extend((part.len() as u32).to_be_bytes());
    let mut file = b"ZTEN1000".to_vec();
    file.resize(64, 0);
    file.extend(part);
    file.extend(&manifest);
    file.extend((manifest.len() as u64).to_le_bytes());
    file.extend(b"ZTEN1000");
    file
}

/// What the machine gives when decoding and delivery overlap without a wait: `zstd -dc` of each of `parts`, and at the
/// same time as many bytes through a file system that has them in memory.
fn floor(parts: &[PathBuf], plain: &Path, least: &Path) -> Duration {
    let len = plain.metadata().unwrap().len();
    let (mut server, mounted) = passthrough::start(passthrough::From::Memory, plain, 0, len, least);
    let whole = time(|| {
        let decoders: Vec<_> = parts.iter().map(|part| decoder(part)).collect();
        assert_eq!(read(&least.join(passthrough::NAME)) as u64, len);
        for mut decoder in decoders {
            assert!(decoder.wait().unwrap().success());
        }
    });
    drop(mounted);
    server.wait().unwrap();
    whole
}

/// Starts `zstd -dc` of a file to nowhere.
pub(super) fn decoder(file: &Path) -> Child {
    Command::new("zstd").arg("-dcq").arg(file).stdout(Stdio::null()).spawn().unwrap()
}

/// Frames of 1 MiB through the mount, against decoding them on all cores and serving them from memory.
fn limit(bytes: &[u8], file: &Path, point: &Path) {
    std::fs::write(file, bytes).unwrap();
    let blob = decode::data(bytes.to_vec());
    let len = blob.layout().unwrap().len() as usize;
    let mut out = vec![0; len];
    let virtual_file = point.join("data.raw");
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds() {
        seconds[0].push(time(|| decode::decode(&blob, &mut out, true)).as_secs_f64());
        let mounted = fzmfs(file, point, "cache=1G");
        seconds[1].push(served(&virtual_file).as_secs_f64());
        drop(mounted);
        let mounted = fzmfs(file, point, "ro");
        seconds[2].push(time(|| read(&virtual_file)).as_secs_f64());
        drop(mounted);
    }
    let [decoded, served, cold] = seconds.map(|mut s| rate(len, median(&mut s)));
    let limit = 1.0 / (1.0 / decoded + 1.0 / served);
    row("zstd, seekable, frames of 1 MiB: cold / 1/(1/D + 1/F)", cold, limit, "GB/s", ">= 0.9");
}

/// A frame of 1 GiB with a checksum, mounted and opened.
fn first_byte(data: &[u8], file: &Path, point: &Path) {
    const LEN: usize = 1 << 30;
    let mut encoder = Encoder::new(std::fs::File::create(file).unwrap(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.set_pledged_src_size(Some(LEN as u64)).unwrap();
    let mut left = LEN;
    while left > 0 {
        let part = &data[..left.min(data.len())];
        encoder.write_all(part).unwrap();
        left -= part.len();
    }
    encoder.finish().unwrap();
    let mut millis = Vec::new();
    for _ in 0..rounds() {
        let mounted = fzmfs(file, point, "ro");
        let first = || std::fs::File::open(point.join("data.raw")).and_then(|mut f| f.read_exact(&mut [0])).unwrap();
        millis.push(1e3 * time(first).as_secs_f64());
        drop(mounted);
    }
    figure("zstd, one frame of 1 GiB: first byte", &format!("{:.1} ms", median(&mut millis)), "<= 20 ms");
}

/// Time that this thread has computed: a busy machine takes the processor away, but not these.
fn computed(run: impl FnOnce()) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let start = now();
    run();
    now().saturating_sub(start)
}

/// Frames of 0.7, as often as they make some 32 MiB of content.
fn old() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zstd");
    for name in ["v07-level03", "v07-level07", "v07-level19", "v07-flush", "v07-len65792", "v07-fcs8", "v07-len257"] {
        let once = std::fs::read(folder.join(name).with_extension("zst")).unwrap();
        let content = zstd::stream::decode_all(&*once).unwrap();
        let file = once.repeat(((32 << 20) / content.len()).min(40_000));
        let blob = decode::data(file.clone());
        let len = blob.layout().unwrap().len() as usize;
        let (mut own, mut other) = (vec![1; len], vec![2; len]);
        let mut ctx = DCtx::create();
        let mut theirs = || {
            let (mut from, mut to) = (&*file, &mut *other);
            while !from.is_empty() {
                let (frame, rest) = from.split_at(find_frame_compressed_size(from).unwrap());
                let n = ctx.decompress(to, frame).unwrap();
                (from, to) = (rest, &mut to[n..]);
            }
        };
        let [ours, theirs] =
            interleaved([&mut || computed(|| decode::decode(&blob, &mut own, false)), &mut || computed(&mut theirs)]);
        assert!(own == other, "{name}");
        let what = format!("zstd 0.7, frames of {} bytes ({name}) / libzstd", content.len());
        row(&what, rate(len, ours), rate(len, theirs), "GB/s", ">= 0.9");
    }
}
