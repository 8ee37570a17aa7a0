//! What the policy costs, exactly, for a dozen traces and three budgets: any change of it shows.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::*;

/// Requests pieces of blob 9.
fn random(reader: &mut Reader, pieces: impl Iterator<Item = u64>) {
    pieces.take(6000).for_each(|piece| reader.read((9, piece)));
}

type Trace = fn(&mut Reader);

const TRACES: [(&str, Trace); 12] = [
    ("two passes", |r| [300, 300].into_iter().for_each(|pieces| r.pass(1, pieces))),
    ("three short passes", |r| [50, 50, 50].into_iter().for_each(|pieces| r.pass(1, pieces))),
    ("zipf", |r| random(r, zipf(700, 3))),
    ("uniform", |r| random(r, uniform(150, 4))),
    ("zipf, a pass, zipf", |r| {
        random(r, zipf(300, 5));
        r.pass(2, 400);
        random(r, zipf(300, 6));
    }),
    ("zipf beside a pass", |r| {
        for ((i, key), hot) in scan(1, 700).enumerate().zip(zipf(120, 7)) {
            r.read(key);
            if i % 3 == 0 {
                r.read((2, hot));
            }
        }
    }),
    ("rows of chunks", |r| {
        for row in 0..8 {
            for _ in 0..6 {
                (0..45).for_each(|chunk| r.read((1, row * 45 + chunk)));
            }
        }
        r.pass(2, 300);
    }),
    ("whole files", |r| {
        (0..200).for_each(|file| r.whole(1, file * 3..file * 3 + 3));
        uniform(60, 8).take(600).for_each(|file| r.whole(2, file * 3..file * 3 + 3));
    }),
    ("prefetched and not read", |r| {
        (0..90).for_each(|piece| r.prefetch((1, piece)));
        r.pass(2, 100);
        (0..90).for_each(|piece| r.read((1, piece)));
    }),
    ("prefetched and given up", |r| {
        (0..50).for_each(|piece| r.prefetch((1, piece)));
        r.store.clock.pass(Duration::from_secs(3));
        r.pass(2, 100);
        (0..50).for_each(|piece| r.read((1, piece)));
    }),
    ("prefetched and left", |r| {
        (0..25).for_each(|piece| r.prefetch((1, piece)));
        r.store.clock.pass(Duration::from_secs(10));
        random(r, zipf(50, 2));
        (0..25).for_each(|piece| r.read((1, piece)));
    }),
    ("readers apart", |r| {
        for at in 0..200 {
            [0, 30, 70, 150].into_iter().filter(|&behind| at >= behind).for_each(|behind| r.read((1, at - behind)));
        }
    }),
];

/// Any change of the policy changes some of the numbers; that is right if the sum of the decodes becomes smaller.
#[test]
fn decodes_and_memory_of_all_traces_are_those_of_the_policy() {
    let mut got = Vec::new();
    for (name, trace) in TRACES {
        for budget in [12, 40, 160] {
            let mut reader = Reader::new(budget);
            trace(&mut reader);
            let stats = reader.store.stats();
            let row = [reader.decodes, reader.fresh, stats.peak / MIB, stats.held / MIB, reader.store.ghosts() as u64];
            got.push((name, budget, row));
        }
    }
    assert_eq!(got, POLICY);
}

/// Trace, budget; decodes, of these into new memory; the most MiB held, those at the end; pieces that are remembered.
const POLICY: [(&str, u64, [u64; 5]); 36] = [
    ("two passes", 12, [600, 12, 12, 12, 12]),
    ("two passes", 40, [600, 16, 16, 16, 40]),
    ("two passes", 160, [600, 16, 16, 16, 160]),
    ("three short passes", 12, [150, 12, 12, 12, 12]),
    ("three short passes", 40, [124, 40, 40, 40, 2]),
    ("three short passes", 160, [85, 50, 50, 50, 0]),
    ("zipf", 12, [3734, 12, 12, 12, 12]),
    ("zipf", 40, [2740, 40, 40, 40, 40]),
    ("zipf", 160, [1617, 160, 160, 160, 159]),
    ("uniform", 12, [5501, 12, 12, 12, 12]),
    ("uniform", 40, [4409, 40, 40, 40, 38]),
    ("uniform", 160, [150, 150, 150, 150, 0]),
    ("zipf, a pass, zipf", 12, [7378, 12, 12, 12, 12]),
    ("zipf, a pass, zipf", 40, [5242, 40, 40, 40, 39]),
    ("zipf, a pass, zipf", 160, [2064, 160, 160, 160, 126]),
    ("zipf beside a pass", 12, [1661, 12, 12, 12, 12]),
    ("zipf beside a pass", 40, [1272, 40, 40, 40, 39]),
    ("zipf beside a pass", 160, [822, 136, 136, 136, 160]),
    ("rows of chunks", 12, [2432, 12, 12, 12, 12]),
    ("rows of chunks", 40, [1309, 40, 40, 22, 40]),
    ("rows of chunks", 160, [713, 114, 111, 75, 160]),
    ("whole files", 12, [2315, 12, 12, 12, 11]),
    ("whole files", 40, [2089, 40, 40, 40, 39]),
    ("whole files", 160, [947, 160, 160, 160, 149]),
    ("prefetched and not read", 12, [190, 12, 12, 12, 12]),
    ("prefetched and not read", 40, [190, 30, 30, 16, 40]),
    ("prefetched and not read", 160, [190, 120, 120, 110, 80]),
    ("prefetched and given up", 12, [151, 12, 12, 12, 12]),
    ("prefetched and given up", 40, [150, 36, 36, 16, 40]),
    ("prefetched and given up", 160, [150, 81, 81, 81, 69]),
    ("prefetched and left", 12, [2521, 12, 12, 12, 12]),
    ("prefetched and left", 40, [524, 40, 40, 40, 29]),
    ("prefetched and left", 160, [84, 67, 67, 67, 8]),
    ("readers apart", 12, [550, 12, 12, 12, 12]),
    ("readers apart", 40, [535, 40, 40, 40, 40]),
    ("readers apart", 160, [255, 142, 142, 142, 58]),
];
