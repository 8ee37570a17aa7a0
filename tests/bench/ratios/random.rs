//! Random 4 KiB reads: how many bytes a cold one decodes, and how long it takes, in memory and through the mount.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fzmfs::cache::Cache;
use fzmfs::format::Content;
use fzmfs::view::View;

use super::mount::{fzmfs, random_reads};
use super::{decode, figure, median, median_and_late, rounds, row, setting};

/// What the kernel and the daemon may add to decoding, in microseconds.
const ROUND_TRIP: f64 = 50.0;

/// Positions from a fixed seed.
pub(super) fn positions(count: usize, len: u64) -> impl Iterator<Item = u64> {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    (0..count).map(move |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % (len / 4096) * 4096
    })
}

/// Reads 4 KiB of `content` `count` times with a cache of a few pieces: the microseconds that each read takes, and the
/// bytes that were decoded.
pub(super) fn cold(content: &Content, count: usize) -> (Vec<f64>, u64) {
    let cache = Cache::new(8 << 20, 1);
    let view = Arc::new(View::new(content, &*cache).unwrap());
    let len = view.len();
    let before = cache.stats().decoded_bytes;
    let mut buffer = [0; 4096];
    let one = |at: u64| {
        let start = Instant::now();
        let fragments = view.by_fragments(&(at..at + 4096), &|blob, piece| cache.is_known(blob, piece));
        fragments.map_or(&view, |fragments| fragments).read(at, &mut buffer, &*cache).unwrap();
        start.elapsed().as_secs_f64() * 1e6
    };
    let micros = positions(count, len).map(one).collect();
    (micros, cache.stats().decoded_bytes - before)
}

pub(super) fn run() {
    const COUNT: usize = 10_000;
    let elements = (setting("FZMFS_BENCH_RANDOM_MIB", 1024) << 18) as u32;
    let array = decode::content(decode::file("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", &[elements]));
    let (mut micros, decoded) = cold(&array, COUNT);
    let (middle, late) = median_and_late(&mut micros);
    let kib = decoded as f64 / COUNT as f64 / 1024.0;
    figure("random 4 KiB of 1 GiB: decoded per read", &format!("{kib:.1} KiB"), "<= 32 KiB");
    figure("random 4 KiB of 1 GiB: median and 99th percentile", &format!("{middle:.0} / {late:.0} us"), "");
}

/// Small reads all over the `data.raw` of `file`, against decoding what one of them needs.
pub(super) fn against_unit(name: &str, file: &Path, point: &Path) {
    against_content(name, &decode::content(std::fs::read(file).unwrap()), (file, "data.raw"), point);
}

/// Small reads all over what the mount of `file` shows as `shown`, against decoding what one of them needs of
/// `content`.
pub(super) fn against_content(name: &str, content: &Content, (file, shown): (&Path, &str), point: &Path) {
    let unit = median(&mut cold(content, 1000).0);
    let mut micros = Vec::new();
    for _ in 0..rounds() {
        let mounted = fzmfs(file, point, "cache=8M");
        micros.extend(random_reads(&point.join(shown), 500).1);
        drop(mounted);
    }
    let (middle, late) = median_and_late(&mut micros);
    row(&format!("{name}, random 4 KiB, cold / decoding + 50 us"), middle, unit + ROUND_TRIP, "us", "<= 1.5");
    figure(&format!("{name}, random 4 KiB, cold: 99th / median"), &format!("{:.1}", late / middle), "<= 4");
}
