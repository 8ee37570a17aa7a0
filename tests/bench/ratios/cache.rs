//! How many requests the cache answers without decoding, against an LRU list of the same budget.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fzmfs::cache::Cache;
use fzmfs::view::View;
use lru::LruCache;

use super::{decode, figure, row};

/// Bytes of a piece.
const LEN: usize = 1 << 20;
/// Pieces that the cache has room for.
const BUDGET: u64 = 256;
/// Pieces of each of the two files.
const PIECES: u64 = 4 * BUDGET;

/// A file and a piece.
type Visit = (usize, u64);

pub(super) fn run() {
    let frame = |i: u64| zstd::bulk::compress(&i.to_le_bytes().repeat(LEN / 8), 1).unwrap();
    let contents = [(); 2].map(|()| decode::content((0..PIECES).flat_map(frame).collect()));
    let pass = |pieces: u64| (0..pieces).map(|piece| (0, piece));
    let hot = |count: usize, pieces: u64| zipf(pieces, count).map(|piece| (1, piece));
    let traces: [(&str, Vec<Visit>); 6] = [
        ("one pass over 4 x its budget", pass(PIECES).collect()),
        ("random reads of 4 x its budget, Zipf", hot(20_000, PIECES).collect()),
        ("two passes at once", (0..PIECES).flat_map(|piece| [(0, piece), (1, piece)]).collect()),
        ("a pass beside a hot set", pass(PIECES).zip(hot(PIECES as usize, 100)).flat_map(<[Visit; 2]>::from).collect()),
        ("a hot set, a pass, the hot set", hot(4000, 200).chain(pass(PIECES)).chain(hot(4000, 200)).collect()),
        (".npy after .raw of 0.8 x its budget, twice", (0..4).flat_map(|_| pass(BUDGET * 4 / 5)).collect()),
    ];
    for (name, trace) in traces {
        let cache = Cache::new(BUDGET * LEN as u64, 1);
        let views = contents.each_ref().map(|content| Arc::new(View::new(content, &*cache).unwrap()));
        let mut list = LruCache::new(NonZeroUsize::new(BUDGET as usize).unwrap());
        let mut bytes = [0; 4096];
        let mut missing = 0;
        for &(file, piece) in &trace {
            views[file].read(piece * LEN as u64, &mut bytes, &*cache).unwrap();
            assert_eq!(bytes[..8], piece.to_le_bytes());
            missing += u64::from(list.put((file, piece), ()).is_none());
        }
        let hits = |missing: u64| 100.0 * (1.0 - missing as f64 / trace.len() as f64);
        row(&format!("cache, {name}: hits / LRU"), hits(cache.stats().decodes), hits(missing), "%", "");
        figure(&format!("cache, {name}: held"), &format!("{} MiB", cache.stats().peak >> 20), "");
    }
}

/// `count` numbers below `n`; the k-th of a random order has a probability proportional to 1/k.
fn zipf(n: u64, count: usize) -> impl Iterator<Item = u64> {
    let sums: Vec<f64> = (1..=n).scan(0.0, |sum, k| Some((*sum += 1.0 / k as f64, *sum).1)).collect();
    let random = super::random::positions(count, 1 << 52).map(|at| at as f64 / (1_u64 << 52) as f64);
    // An odd factor spreads neighbours: the most frequent pieces do not lie side by side.
    random.map(move |random| sums.partition_point(|&sum| sum <= random * sums[sums.len() - 1]) as u64 % n * 611_953 % n)
}
