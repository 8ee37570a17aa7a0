//! Zstandard: files of one frame and of many through the mount, against `zstd -dc` on the same file; frames of zstd 0.7
//! in memory, against libzstd's decoder for them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fzm_writer::{Dtype, field};
use rustix::time::{ClockId, clock_gettime};
use zstd::stream::Encoder;
use zstd::zstd_safe::{DCtx, find_frame_compressed_size};

use super::mount::{Place, fzmfs, have, read};
use super::{decode, interleaved, rate, row, size, time};

/// Smooth 32-bit floats of which the last bits say nothing, as simulations write them.
fn floats() -> Vec<u8> {
    let mut bytes = field::smooth(Dtype::F32, &[(size() / 4) as u32], 0.02, 1);
    for float in bytes.as_chunks_mut::<4>().0 {
        float[0] = 0;
        float[1] &= 0xF8;
    }
    bytes
}

fn frame(data: &[u8], checksum: bool) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(checksum).unwrap();
    encoder.set_pledged_src_size(Some(data.len() as u64)).unwrap();
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Frames of 1 MiB with the table of the seekable format behind them.
fn seekable(data: &[u8]) -> Vec<u8> {
    let (mut file, mut table) = (Vec::new(), Vec::new());
    for part in data.chunks(1 << 20) {
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
fn many(data: &[u8]) -> Vec<u8> {
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
        ("one frame without a checksum", |d| frame(d, false), ">= 0.9"),
        ("one frame with a checksum", |d| frame(d, true), ">= 0.9"),
        ("frames of 16 MiB", many, ">= 0.9"),
        ("seekable, frames of 1 MiB", seekable, ">= 0.9"),
        ("one frame with a checksum, verify=background", |d| frame(d, true), ""),
    ];
    for (name, make, aim) in kinds {
        std::fs::write(&file, make(&data)).unwrap();
        let options = if name.contains("background") { "ro,verify=background" } else { "ro" };
        let mut ours = || {
            let mounted = fzmfs(&file, &point, options);
            let seconds = time(|| assert_eq!(read(&point.join("data.raw")), data.len()));
            drop(mounted);
            seconds
        };
        let mut theirs = || {
            time(|| {
                let status = Command::new("zstd").arg("-dcq").arg(&file).stdout(Stdio::null()).status().unwrap();
                assert!(status.success());
            })
        };
        let [ours, theirs] = interleaved([&mut ours, &mut theirs]);
        row(&format!("zstd, {name}: cold / zstd -dc"), rate(data.len(), ours), rate(data.len(), theirs), "GB/s", aim);
    }
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
