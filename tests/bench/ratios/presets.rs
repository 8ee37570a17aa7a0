//! Decoding a file of each preset of today's library in memory, against copying as many bytes; and random 4 KiB of it.

use fzm_writer::PRESETS;
use fzmfs::format::{BlobRef, Content};

use super::decode::{content, decode, file};
use super::random::cold;
use super::{figure, interleaved, median, rate, row, size, table, time};

/// Aims for one thread, as a part of the speed of copying.
const AIMS: &[(&str, &str)] = &[
    ("cuszp", ">= 0.25"),
    ("cuszp2", ">= 0.25"),
    ("cuszp3", ">= 0.25"),
    ("fzgpu", ">= 0.25"),
    ("szx", ">= 0.25"),
    ("lorenzo_golomb_rice", ">= 0.12"),
    ("diffplain_golomb_rice", ">= 0.12"),
    ("gpu_zstd", ">= 0.10"),
];
/// Elements of the slower dimensions.
const SIDES: [u32; 2] = [1024, 256];

/// The shape of an array of `rank` dimensions with about `elements` elements.
fn shape(rank: usize, elements: u32) -> Vec<u32> {
    let [plane, cube] = SIDES;
    match rank {
        1 => vec![elements / 4096 * 4096],
        2 => vec![plane, (elements / plane).clamp(1, 4096)],
        _ => vec![(elements / cube / cube).clamp(1, cube), cube, cube],
    }
}

/// The blob of the decoded data.
fn blob(content: &Content) -> &BlobRef {
    match content {
        Content::Blob(blob) => blob,
        Content::Grid(grid) => &grid.blob,
        other => unreachable!("{other:?}"),
    }
}

pub(super) fn run() {
    for (name, stages, rank) in PRESETS {
        let shape = shape(*rank, (size() / 4) as u32);
        let named = shape.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        let bytes = file(&stages.replace("SHAPE", &named), &shape);
        // Opened anew for each round: some stages keep what they have decoded.
        let decoded = |dst: &mut [u8], parallel| {
            let content = content(bytes.clone());
            time(|| decode(blob(&content), dst, parallel))
        };
        let opened = content(bytes.clone());
        let len = blob(&opened).layout().unwrap().len() as usize;
        let (from, mut to) = (vec![1_u8; len], vec![2_u8; len]);
        let mut out = [vec![3_u8; len], vec![4_u8; len]];
        let [one_dst, all_dst] = &mut out;
        let [copy, one, all] = interleaved([
            &mut || time(|| to.copy_from_slice(std::hint::black_box(&from))),
            &mut || decoded(one_dst, false),
            &mut || decoded(all_dst, true),
        ]);
        assert!(out[0] == out[1], "{name}: threads change what is decoded");
        let aim = AIMS.iter().find(|(own, _)| own == name).map_or("", |(_, aim)| aim);
        row(&format!("FZM, preset {name}, 1 thread / memcpy"), rate(len, one), rate(len, copy), "GB/s", aim);
        let what = format!("FZM, preset {name}, {} / 1 thread", table::threads(rayon::current_num_threads()));
        row(&what, rate(len, all), rate(len, one), "GB/s", "");
        let micros = median(&mut cold(&opened, 1000).0);
        figure(&format!("FZM, preset {name}, random 4 KiB in memory"), &format!("{micros:.0} us"), "");
    }
}
