//! Decoding speed of each FZM stage, and of the chain that the command-line tool of the format writes: one thread,
//! pieces of 1 MiB or, as a mount reads, of a larger unit of the stream, from memory, compared with a copy in pieces of
//! 1 MiB.
//!
//! `cargo bench --bench fzm_stages [-- FILTER]`. A rate counts decoded bytes, over the best time of each piece in
//! several rounds, so that other work on the machine has little influence.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark tells what it measures")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fzm_writer::{Dtype, Pipeline, Source, field};
use fzmfs::format::fzm::stream::ByteStream;

#[path = "../support/fzm_inverses.rs"]
mod fzm_inverses;

use fzm_inverses::inverses;

/// Decoded bytes of each case.
const BYTES: usize = 64 << 20;
const PIECE: usize = 1 << 20;
/// Larger units are not read at once.
const LARGEST: usize = 4 << 20;
const ROUNDS: usize = 9;

/// The inverse of the pipeline `text` over a smooth array, and the stored size.
fn inverse(text: &str, dtype: Dtype, shape: &[u32]) -> (Arc<dyn ByteStream>, usize) {
    let sources = vec![Source { dtype, shape: shape.to_vec(), bytes: field::smooth(dtype, shape, 0.02, 1) }];
    let made = Pipeline::parse(text, &sources).and_then(|pipeline| {
        let run = pipeline.run(sources, false)?;
        let stored = run.segments().iter().map(|segment| segment.bytes.len()).sum();
        let inverse = inverses(&run, |_, bytes| bytes).map_err(|e| e.to_string())?.pop();
        let (_, stream) = inverse.ok_or("no stages")?;
        Ok((stream, stored))
    });
    match made {
        Ok(made) => made,
        Err(e) => unreachable!("{text}: {e}"),
    }
}

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let (copied, mut out) = (vec![1_u8; BYTES], vec![0; BYTES]);
    let copy =
        best(&mut out, PIECE, |at, piece| piece.copy_from_slice(std::hint::black_box(&copied[at..at + piece.len()])));
    println!("{copy:6.2} GB/s  copy");
    let flat = |dtype: Dtype| vec![(BYTES / dtype.size()) as u32];
    for (text, dtype, shape) in [
        ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-3,mode=noa,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, vec![4096, 4096]),
        ("lorenzo_quant:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, vec![256, 256, 256]),
        ("quantizer:eb=1e-3,zigzag=1,bitshuffle:w=2,rze", Dtype::F32, flat(Dtype::F32)),
        ("quantizer:eb=1e-3,code=u32,zigzag=1,bitshuffle:w=4,rze", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-2,rle", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-2,radius=512,zigzag=1,huffman", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-2,radius=128,zigzag=1,bitpack:bits=8", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-3", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo_quant:eb=1e-3", Dtype::F32, vec![4096, 4096]),
        ("lorenzo_quant:eb=1e-3", Dtype::F32, vec![16, 1 << 20]),
        ("lorenzo_quant:eb=1e-3", Dtype::F32, vec![256, 256, 256]),
        ("lorenzo_quant:eb=1e-7,code=u32", Dtype::F64, flat(Dtype::F64)),
        ("lorenzo_quant:eb=1e-3", Dtype::F64, vec![2048, 4096]),
        ("quantizer:eb=1e-3", Dtype::F32, flat(Dtype::F32)),
        ("quantizer:eb=1e-3,code=u32,mode=rel", Dtype::F32, flat(Dtype::F32)),
        ("quantizer:eb=1e-3,code=u32,inplace=1,zigzag=1", Dtype::F32, flat(Dtype::F32)),
        ("lorenzo", Dtype::I32, flat(Dtype::I32)),
        ("lorenzo", Dtype::I32, vec![4096, 4096]),
        ("difference", Dtype::F32, flat(Dtype::F32)),
        ("difference", Dtype::U32, flat(Dtype::U32)),
        ("difference:out=u32,chunk=16384", Dtype::I32, flat(Dtype::I32)),
        ("rle", Dtype::U8, flat(Dtype::U8)),
        ("huffman", Dtype::U8, flat(Dtype::U8)),
        ("huffman", Dtype::U16, flat(Dtype::U16)),
        ("bitpack:bits=8", Dtype::U16, flat(Dtype::U16)),
        ("bitpack:bits=4", Dtype::U8, flat(Dtype::U8)),
        ("zigzag", Dtype::I32, flat(Dtype::I32)),
        ("negabinary", Dtype::I32, flat(Dtype::I32)),
        ("bitshuffle:w=1", Dtype::U8, flat(Dtype::U8)),
        ("bitshuffle:w=2", Dtype::U16, flat(Dtype::U16)),
        ("bitshuffle:w=4", Dtype::U32, flat(Dtype::U32)),
        ("bitshuffle:w=8", Dtype::U64, flat(Dtype::U64)),
        ("zigzag,bitshuffle:w=4,rze", Dtype::I32, flat(Dtype::I32)),
        ("rze", Dtype::U32, flat(Dtype::U32)),
    ] {
        let shape_text = shape.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        let name = format!("{text} {} {shape_text}", dtype.name());
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter)) {
            continue;
        }
        let (stream, stored) = inverse(text, dtype, &shape);
        let unit = usize::try_from(stream.unit()).unwrap_or(PIECE);
        let piece = if unit <= LARGEST { PIECE.next_multiple_of(unit) } else { PIECE };
        let rate = best(&mut out, piece, |at, piece| assert!(stream.read(at as u64, piece).is_ok()));
        let stored = stored as f64 / BYTES as f64;
        println!("{rate:6.2} GB/s  {:5.2} x copy  stored {stored:.3}  {name}", rate / copy);
    }
}

/// GB/s of filling `out` in pieces of `size` bytes.
fn best(out: &mut [u8], size: usize, mut fill: impl FnMut(usize, &mut [u8])) -> f64 {
    let mut times = vec![Duration::MAX; out.len().div_ceil(size)];
    for _ in 0..ROUNDS {
        for (i, (piece, best)) in out.chunks_mut(size).zip(&mut times).enumerate() {
            let start = Instant::now();
            fill(i * size, piece);
            *best = start.elapsed().min(*best);
        }
    }
    out.len() as f64 / times.iter().sum::<Duration>().as_secs_f64() / 1e9
}
