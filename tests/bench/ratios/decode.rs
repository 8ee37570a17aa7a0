//! Decoding `data.raw` in memory, against copying as many bytes.

use std::path::Path;

use fzm_writer::{Dtype, Form, Pipeline, Source as Array, field};
use fzmfs::format::{self, BlobRef, Content, Entry, Input, Node, Options};
use fzmfs::source::Source;
use rayon::prelude::*;

use super::{interleaved, rate, row, size, table, time};

/// Name, pipeline, shape for a number of elements, aim for one thread.
type Case = (&'static str, &'static str, fn(u32) -> Vec<u32>, &'static str);

const CASES: &[Case] = &[
    ("1-D lorenzo_quant, bitshuffle, rze", ZIGZAG, |n| vec![n], ">= 0.28"),
    ("2-D lorenzo_quant, bitshuffle, rze", ZIGZAG, |n| vec![n / 4096, 4096], ">= 0.25"),
    ("3-D lorenzo_quant, bitshuffle, rze", ZIGZAG, |n| vec![n >> 16, 256, 256], ">= 0.25"),
    ("1-D lorenzo_quant, rle", "lorenzo_quant:eb=1e-2,rle", |n| vec![n], ">= 0.12"),
    ("1-D lorenzo_quant, huffman", "lorenzo_quant:eb=1e-3,radius=512,zigzag=1,huffman", |n| vec![n], ">= 0.12"),
    ("quantizer, bitshuffle, rze", "quantizer:eb=1e-3,code=u32,zigzag=1,bitshuffle:w=4,rze", |n| vec![n], ">= 0.25"),
];
const ZIGZAG: &str = "lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze";

/// A file of `bytes` bytes of smooth 32-bit floats.
pub(super) fn file(stages: &str, shape: &[u32]) -> Vec<u8> {
    let bytes = field::smooth(Dtype::F32, shape, 0.02, 1);
    let source = Array { dtype: Dtype::F32, shape: shape.to_vec(), bytes };
    let pipeline = Pipeline::parse(stages, std::slice::from_ref(&source)).unwrap();
    pipeline.run(vec![source], false).unwrap().file(&Form::default()).to_vec()
}

/// The blob that `data.raw` is read from.
pub(super) fn data(file: Vec<u8>) -> BlobRef {
    match content(file) {
        Content::Blob(blob) => blob,
        other => unreachable!("{other:?}"),
    }
}

/// What `data.raw` is read from.
pub(super) fn content(file: Vec<u8>) -> Content {
    let container = format::open(&Input::of(Source::from_bytes(file)).unwrap(), None, &Options::default()).unwrap();
    let content = |entry: Entry| match entry.node {
        Node::File(file) if &*entry.stem == b"data" => Some(file.content),
        _ => None,
    };
    container.entries().unwrap().into_iter().find_map(content).unwrap()
}

/// Decodes every piece into its place, in turn or on all cores.
pub(super) fn decode(blob: &BlobRef, dst: &mut [u8], parallel: bool) {
    let layout = blob.layout().unwrap();
    let mut pieces = Vec::new();
    let mut rest = dst;
    for piece in 0..layout.count() {
        let range = layout.range(piece);
        let (head, tail) = rest.split_at_mut((range.end - range.start) as usize);
        pieces.push((piece, head));
        rest = tail;
    }
    if parallel {
        pieces.into_par_iter().for_each(|(piece, dst)| blob.decode(piece, dst).unwrap());
    } else {
        for (piece, dst) in pieces {
            blob.decode(piece, dst).unwrap();
        }
    }
}

/// For each line of standard input decodes `data.raw` of the FZM file at `path` on all cores, into memory of its own,
/// and says how many seconds that took.
pub(super) fn answer(path: &Path) {
    for line in std::io::stdin().lines() {
        line.unwrap();
        let seconds = time(|| {
            let content = content(std::fs::read(path).unwrap());
            let blob = match &content {
                Content::Blob(blob) => blob,
                Content::Grid(grid) => &grid.blob,
                other => unreachable!("{other:?}"),
            };
            decode(blob, &mut vec![0; blob.layout().unwrap().len() as usize], true);
        });
        println!("{}", seconds.as_secs_f64());
    }
}

pub(super) fn run() {
    for (name, stages, shape, aim) in CASES {
        let blob = data(file(stages, &shape((size() / 4) as u32)));
        let len = blob.layout().unwrap().len() as usize;
        let (from, mut to) = (vec![1_u8; len], vec![2_u8; len]);
        let mut out = [vec![3_u8; len], vec![4_u8; len]];
        let [one_dst, all_dst] = &mut out;
        let [copy, one, all] = interleaved([
            &mut || time(|| to.copy_from_slice(std::hint::black_box(&from))),
            &mut || time(|| decode(&blob, one_dst, false)),
            &mut || time(|| decode(&blob, all_dst, true)),
        ]);
        assert!(out[0] == out[1], "{name}: threads change what is decoded");
        let cores = rayon::current_num_threads();
        row(&format!("FZM, {name}, 1 thread / memcpy"), rate(len, one), rate(len, copy), "GB/s", aim);
        let what = format!("FZM, {name}, {} / 1 thread", table::threads(cores));
        row(&what, rate(len, all), rate(len, one), "GB/s", ">= 1.8 on two");
    }
}
