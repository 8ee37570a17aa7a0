//! Huffman (section 5.10): canonical codes, in partitions of a fixed number of symbols.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::{Encoded, Stage, lossless};
use crate::Result;
use crate::dtype::Dtype;
use crate::elements::{Record, load, store, whole};
use crate::spec::Params;

/// The longest code.
const LONGEST: usize = 27;

#[derive(Debug)]
pub(crate) struct Huffman {
    dtype: Dtype,
    bklen: usize,
    sublen: usize,
}

/// The code book: what the stream holds to decode it, and the codes.
struct Book {
    first: [u32; 32],
    base: [u32; 32],
    /// Symbols by code length, then by value.
    keys: Vec<usize>,
    /// Code and its length per symbol.
    codes: Vec<(u32, u32)>,
}

/// Lengths of a Huffman tree for the symbols that occur; 0 for the others, and for a symbol that is alone.
fn lengths(counts: &[u64]) -> Vec<usize> {
    let mut counts = counts.to_vec();
    loop {
        let mut lengths = vec![0; counts.len()];
        let mut heap: BinaryHeap<Reverse<(u64, Vec<usize>)>> =
            counts.iter().enumerate().filter(|c| *c.1 > 0).map(|(s, &c)| Reverse((c, vec![s]))).collect();
        while heap.len() > 1 {
            let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) else { break };
            let both = [a.1, b.1].concat();
            for &symbol in &both {
                lengths[symbol] += 1;
            }
            heap.push(Reverse((a.0 + b.0, both)));
        }
        if lengths.iter().all(|&l| l <= LONGEST) {
            return lengths;
        }
        // Flatter counts make a flatter tree.
        for c in counts.iter_mut().filter(|c| **c > 0) {
            *c = *c / 4 + 1;
        }
    }
}

impl Book {
    fn new(counts: &[u64]) -> Self {
        let lengths = lengths(counts);
        let mut keys: Vec<usize> = (0..counts.len()).filter(|&s| counts[s] > 0).collect();
        keys.sort_by_key(|&s| lengths[s]);
        let mut num = [0_u32; 32];
        for &s in &keys {
            num[lengths[s]] += 1;
        }
        let longest = keys.last().map_or(0, |&s| lengths[s]);
        let mut first = [0; 32];
        for l in (1..longest).rev() {
            first[l] = u32::div_ceil(first[l + 1] + num[l + 1], 2);
        }
        first[0] = 255;
        let mut base = [0; 32];
        for l in 1..32 {
            base[l] = base[l - 1] + num[l - 1];
        }
        let mut codes = vec![(0, 0); counts.len()];
        for (j, &s) in keys.iter().enumerate() {
            let l = lengths[s];
            if l > 0 {
                codes[s] = (first[l] + j as u32 - base[l], l as u32);
            }
        }
        Self { first, base, keys, codes }
    }
}

impl Huffman {
    pub(crate) fn new(p: &mut Params, input: Dtype) -> Result<Self> {
        let dtype = p.dtype("t", if input == Dtype::Opaque { Dtype::U8 } else { input.unsigned() })?;
        let stage = Self {
            dtype,
            bklen: p.take("bklen", if dtype == Dtype::U8 { 256 } else { 1024 })?,
            sublen: p.take("sublen", 768)?,
        };
        if !matches!(dtype, Dtype::U8 | Dtype::U16 | Dtype::U32) {
            return Err(format!("does not know {}", dtype.name()));
        }
        if stage.bklen == 0 || stage.bklen > 32767 || stage.sublen == 0 {
            return Err("bklen must be 1 to 32767 and sublen positive".into());
        }
        Ok(stage)
    }

    /// The cells of one partition, and its bits.
    fn partition(symbols: impl Iterator<Item = usize>, book: &Book) -> (Vec<u32>, u32) {
        let (mut cells, mut bits) = (Vec::new(), 0_u32);
        for symbol in symbols {
            let (code, length) = book.codes[symbol];
            for k in (0..length).rev() {
                if bits.is_multiple_of(32) {
                    cells.push(0);
                }
                if let Some(cell) = cells.last_mut() {
                    *cell |= (code >> k & 1) << (31 - bits % 32);
                }
                bits += 1;
            }
        }
        (cells, bits)
    }
}

impl Stage for Huffman {
    fn kind(&self) -> u16 {
        6
    }

    fn name(&self) -> &'static str {
        "huffman"
    }

    fn output(&self) -> Dtype {
        Dtype::Opaque
    }

    fn keeps_shape(&self) -> bool {
        false
    }

    fn encode(&self, input: &[u8], _: &[bool]) -> Result<Encoded> {
        let size = self.dtype.size();
        let input = whole(input, size);
        let n = input.len() / size;
        let config = Record::default().u8(self.dtype.code()).u16(self.bklen as u16).u64(n as u64).0;
        if n == 0 {
            return Ok(Encoded::one(config, Vec::new()));
        }
        let mut counts = vec![0; self.bklen];
        for element in input.chunks_exact(size) {
            let symbol = load(element, size);
            *counts
                .get_mut(symbol as usize)
                .ok_or_else(|| format!("huffman: the symbol {symbol} is not below bklen={}", self.bklen))? += 1;
        }
        let book = Book::new(&counts);
        let partitions: Vec<(Vec<u32>, u32)> = input
            .par_chunks(self.sublen * size)
            .map(|part| Self::partition(part.chunks_exact(size).map(|e| load(e, size) as usize), &book))
            .collect();
        let cells: usize = partitions.iter().map(|p| p.0.len()).sum();
        let bits: u64 = partitions.iter().map(|p| u64::from(p.1)).sum();
        let mut end = 128_usize;
        let sections = [0, 128].into_iter().chain(
            [256 + self.bklen * size, partitions.len() * 4, partitions.len() * 4, cells * 4].map(|len| {
                end += len;
                end as u32
            }),
        );
        let mut out = Record::default()
            .u16(self.bklen as u16)
            .zeros(2)
            .u32(self.sublen as u32)
            .u32(partitions.len() as u32)
            .zeros(4)
            .u64(n as u64)
            .u64(bits)
            .u64(cells as u64);
        for offset in sections {
            out = out.u32(offset);
        }
        let mut out = out.0;
        // What a real writer leaves here was never initialised.
        out.resize(128, 0xA5);
        out.extend(book.first.iter().chain(&book.base).flat_map(|v| v.to_le_bytes()));
        let mut keys = vec![0; self.bklen * size];
        for (slot, &key) in keys.chunks_exact_mut(size).zip(&book.keys) {
            store(slot, size, key as u64);
        }
        out.extend(keys);
        out.extend(partitions.iter().flat_map(|p| p.1.to_le_bytes()));
        let mut entry = 0_u32;
        for (cells, _) in &partitions {
            out.extend(entry.to_le_bytes());
            entry += cells.len() as u32;
        }
        for (cells, _) in &partitions {
            out.extend(cells.iter().flat_map(|c| c.to_le_bytes()));
        }
        Ok(Encoded::one(config, out))
    }

    fn inverse<'a>(&self, input: &'a [u8], ports: Option<&[&[u8]]>, _: &Encoded) -> Result<Cow<'a, [u8]>> {
        lossless(whole(input, self.dtype.size()), ports)
    }
}
