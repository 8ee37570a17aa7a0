//! Huffman trees for literals: descriptions, decoding tables, streams.
//!
//! Reference: section 2.4, "Huffman tree" and "Literals section".
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::bits::ReverseBitReader;
use super::fse;
use super::tables::Dialect;
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};

/// Maximum code length, in bits.
const MAX_BITS: u32 = 12;
/// Cells of the largest table.
const SIZE: usize = 1 << MAX_BITS;
/// Number of weights of 1 for header bytes 242 to 255.
const ONES: [usize; 14] = [1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128];
const WHAT: &str = "Huffman tree";

/// A decoding table: `2^bits` cells of symbol (low byte) and code length (high byte).
///
/// The default table is empty but has memory for all cells.
#[derive(Debug, Clone)]
pub(in crate::codec::zstd) struct HuffmanTable {
    /// 0 if no table was read yet.
    bits: u32,
    cells: Box<[u16; SIZE]>,
}

impl Default for HuffmanTable {
    fn default() -> Self {
        Self { bits: 0, cells: Box::new([0; SIZE]) }
    }
}

impl HuffmanTable {
    /// Clears the table.
    pub(in crate::codec::zstd) fn clear(&mut self) {
        self.bits = 0;
    }

    /// Whether a table was read.
    pub(in crate::codec::zstd) fn is_given(&self) -> bool {
        self.bits > 0
    }

    /// Reads a tree description and builds the table; returns the bytes after it.
    ///
    /// # Errors
    /// Fails if the weights are malformed or do not form a tree.
    pub(in crate::codec::zstd) fn read<'a>(&mut self, src: &'a [u8], dialect: Dialect) -> Result<&'a [u8]> {
        let Some((&header, rest)) = src.split_first() else {
            return Err(Error::corrupt("missing", WHAT));
        };
        let header = usize::from(header);
        let short = || Error::corrupt("the description runs past the end", WHAT);
        let mut weights = Weights { all: [0; 256], count: 0 };
        if let Some(ones) = header.checked_sub(242).filter(|_| dialect == Dialect::V07) {
            weights.count = ONES[ones];
            weights.all[..weights.count].fill(1);
            self.set(&weights)?;
            return Ok(rest);
        }
        if header >= 128 {
            let count = header - 127;
            let (packed, rest) = rest.split_at_checked(count.div_ceil(2)).ok_or_else(short)?;
            for (pair, byte) in weights.all.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
                *pair = [byte >> 4, byte & 15];
            }
            weights.count = count;
            weights.all[count..].fill(0);
            self.set(&weights)?;
            return Ok(rest);
        }
        let (packed, rest) = rest.split_at_checked(header).ok_or_else(short)?;
        weights.read(packed)?;
        self.set(&weights)?;
        Ok(rest)
    }

    fn set(&mut self, weights: &Weights) -> Result<()> {
        self.bits = 0;
        let &Weights { mut all, count } = weights;
        let weights = all.get(..count).unwrap_or_default();
        let cells_of = |w: u8| (1_u32 << w) >> 1;
        if weights.iter().any(|&w| u32::from(w) > MAX_BITS) {
            return Err(Error::corrupt("a weight above 12", WHAT));
        }
        let sum: u32 = weights.iter().map(|&w| cells_of(w)).sum();
        if sum == 0 {
            return Err(Error::corrupt("all weights are 0", WHAT));
        }
        let bits = sum.ilog2() + 1;
        let last = (1_u32 << bits) - sum;
        if bits > MAX_BITS || !last.is_power_of_two() || count > 255 {
            return Err(Error::corrupt("the weights do not form a tree of at most 12 bits", WHAT));
        }
        all[count] = last.ilog2() as u8 + 1;
        let all = &all[..=count];
        let mut ranks = [0_u16; 16];
        for &weight in all {
            ranks[usize::from(weight & 15)] += 1;
        }
        if ranks[1] < 2 || !ranks[1].is_multiple_of(2) {
            return Err(Error::corrupt("the number of longest codes is not even", WHAT));
        }
        // Ordered by weight, then by symbol.
        let (mut starts, mut end) = ([0_usize; 16], 0);
        for weight in 1..=bits as usize {
            starts[weight] = end;
            end += usize::from(ranks[weight]) << (weight - 1);
        }
        for (symbol, &weight) in (0_u16..).zip(all).filter(|(_, w)| **w > 0) {
            let (start, count) = (&mut starts[usize::from(weight & 15)], cells_of(weight) as usize);
            let cell = (bits as u16 + 1 - u16::from(weight)) << 8 | symbol;
            if let Some(own) = self.cells.get_mut(*start..*start + count) {
                own.fill(cell);
            }
            *start += count;
        }
        self.bits = bits;
        Ok(())
    }

    /// Decodes `streams`, one or four, into `dst`; the last bit of a stream must complete its part.
    ///
    /// # Errors
    /// Fails if a stream ends early or is longer, or the jump table does not fit.
    pub(in crate::codec::zstd) fn decode(&self, streams: &[u8], is_four: bool, dst: &mut [u8]) -> Result<()> {
        simd_dispatch::run(HuffmanStreams { table: self, streams, is_four, dst })
    }

    /// Decodes one stream into `dst`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn decode_one(&self, src: &[u8], dst: &mut [u8]) -> Result<()> {
        let mut bits = ReverseBitReader::new(src, STREAM)?;
        let mut groups = dst.chunks_exact_mut(4);
        for group in &mut groups {
            bits.refill();
            for byte in group {
                *byte = self.next(&mut bits);
            }
        }
        bits.refill();
        for byte in groups.into_remainder() {
            *byte = self.next(&mut bits);
        }
        finish(bits)
    }

    /// Decodes four streams, each into a quarter of `dst`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn decode_four(&self, src: &[u8], dst: &mut [u8]) -> Result<()> {
        let broken = || Error::corrupt("the sizes of the four streams do not fit", STREAM);
        let (jump, mut rest) = src.split_first_chunk::<6>().ok_or_else(broken)?;
        let quarter = dst.len().div_ceil(4);
        let mut streams = [&[][..]; 4];
        for (stream, size) in streams.iter_mut().zip(jump.as_chunks::<2>().0) {
            let (head, tail) = rest.split_at_checked(usize::from(u16::from_le_bytes(*size))).ok_or_else(broken)?;
            (*stream, rest) = (head, tail);
        }
        streams[3] = rest;
        let (a, tail) = dst.split_at_mut_checked(quarter).ok_or_else(broken)?;
        let (b, tail) = tail.split_at_mut_checked(quarter).ok_or_else(broken)?;
        let (c, d) = tail.split_at_mut_checked(quarter).ok_or_else(broken)?;
        let [mut sa, mut sb, mut sc, mut sd] = [
            ReverseBitReader::new(streams[0], STREAM)?,
            ReverseBitReader::new(streams[1], STREAM)?,
            ReverseBitReader::new(streams[2], STREAM)?,
            ReverseBitReader::new(streams[3], STREAM)?,
        ];
        // Decodes the four streams together for the length of the last, shortest quarter, so that their table lookups
        // overlap. A refill is enough for five codes of up to 11 bits.
        let streams = [&mut sa, &mut sb, &mut sc, &mut sd];
        let common = if self.bits <= 11 {
            self.decode_together::<5>(streams, [&mut *a, &mut *b, &mut *c, &mut *d])
        } else {
            self.decode_together::<4>(streams, [&mut *a, &mut *b, &mut *c, &mut *d])
        };
        for (mut stream, tail) in
            [(sa, &mut a[common..]), (sb, &mut b[common..]), (sc, &mut c[common..]), (sd, &mut d[common..])]
        {
            for byte in tail {
                stream.refill();
                *byte = self.next(&mut stream);
            }
            stream.refill();
            finish(stream)?;
        }
        Ok(())
    }

    /// Decodes as many groups of `N` symbols as there are in each of four streams; returns how many symbols of each.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    fn decode_together<const N: usize>(
        &self,
        [sa, sb, sc, sd]: [&mut ReverseBitReader<'_>; 4],
        [a, b, c, d]: [&mut [u8]; 4],
    ) -> usize {
        let groups = (a.as_chunks_mut::<N>().0.iter_mut().zip(b.as_chunks_mut::<N>().0))
            .zip(c.as_chunks_mut::<N>().0.iter_mut().zip(d.as_chunks_mut::<N>().0));
        let mut done = 0;
        for ((a, b), (c, d)) in groups {
            sa.refill();
            sb.refill();
            sc.refill();
            sd.refill();
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                *a = self.next(sa);
                *b = self.next(sb);
                *c = self.next(sc);
                *d = self.next(sd);
            }
            done += N;
        }
        done
    }

    #[inline]
    fn next(&self, bits: &mut ReverseBitReader<'_>) -> u8 {
        // The index is always below the table size; the mask lets the compiler omit the bounds check.
        let cell = self.cells[bits.peek(self.bits) as usize % SIZE];
        bits.skip(u32::from(cell >> 8));
        cell as u8
    }
}

/// Streams to decode.
struct HuffmanStreams<'a> {
    table: &'a HuffmanTable,
    streams: &'a [u8],
    is_four: bool,
    dst: &'a mut [u8],
}

impl SimdLoop for HuffmanStreams<'_> {
    type Output = Result<()>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, _: impl SimdOps) -> Self::Output {
        let Self { table, streams, is_four, dst } = self;
        if is_four { table.decode_four(streams, dst) } else { table.decode_one(streams, dst) }
    }
}

const STREAM: &str = "Huffman stream";

fn finish(mut bits: ReverseBitReader<'_>) -> Result<()> {
    bits.refill();
    if bits.is_done() { Ok(()) } else { Err(Error::corrupt("not consumed exactly", STREAM)) }
}

/// The weights of all symbols but the last, followed by zeros.
struct Weights {
    all: [u8; 256],
    count: usize,
}

impl Weights {
    /// Reads weights compressed with FSE: two states alternate until the stream is exhausted.
    fn read(&mut self, src: &[u8]) -> Result<()> {
        let (counts, accuracy, rest) = fse::read_distribution(src, 255, 12, WHAT)?;
        let table = fse::FseTable::new(&counts, accuracy, WHAT, fse::plain)?;
        let mut bits = ReverseBitReader::new(rest, WHAT)?;
        bits.refill();
        let [mut this, mut other] = [table.start(&mut bits), table.start(&mut bits)];
        if bits.is_overread() {
            return Err(Error::corrupt("the weights are truncated", WHAT));
        }
        loop {
            if self.count >= 255 {
                return Err(Error::corrupt("more than 255 weights", WHAT));
            }
            bits.refill();
            let cell = table.cell(this);
            self.push(cell.base as u8);
            (this, other) = (other, cell.next(&mut bits));
            if bits.is_overread() {
                self.push(table.cell(this).base as u8);
                return Ok(());
            }
        }
    }

    fn push(&mut self, weight: u8) {
        if let Some(slot) = self.all.get_mut(self.count) {
            *slot = weight;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[u8]) -> Result<HuffmanTable> {
        let (mut table, mut all) = (HuffmanTable::default(), [0; 256]);
        all[..weights.len()].copy_from_slice(weights);
        table.set(&Weights { all, count: weights.len() }).map(|()| table)
    }

    #[test]
    fn the_example_of_the_draft_gives_its_codes() {
        // Weights 4 3 2 0 1 and, deduced, 1: codes of 1, 2, 3, -, 4, 4 bits.
        let table = of(&[4, 3, 2, 0, 1]).unwrap();
        assert_eq!(table.bits, 4);
        let lens: Vec<(u8, u16)> = table.cells[..16].iter().map(|c| (*c as u8, c >> 8)).collect();
        let want: Vec<(u8, u16)> =
            [(4, 4), (5, 4)].into_iter().chain([(2, 3); 2]).chain([(1, 2); 4]).chain([(0, 1); 8]).collect();
        assert_eq!(lens, want);
    }

    #[test]
    fn weights_that_form_no_tree_are_rejected() {
        for weights in [&[][..], &[0, 0], &[13], &[2], &[3, 3, 1]] {
            assert!(of(weights).is_err(), "{weights:?}");
        }
        let mut table = HuffmanTable::default();
        for header in [242_u8, 243, 255] {
            assert!(table.read(&[header], Dialect::V07).is_ok() && table.is_given(), "{header}");
        }
        for src in [&[][..], &[200, 1], &[5, 1]] {
            assert!(table.read(src, Dialect::V07).is_err(), "{src:?}");
        }
    }

    #[test]
    fn a_stream_must_be_consumed_exactly() {
        // One-bit codes: symbols 0 and 1 (weight 1 each).
        let mut table = HuffmanTable::default();
        table.read(&[242], Dialect::V07).unwrap();
        let mut dst = [9; 5];
        table.decode(&[0b0010_1101], false, &mut dst).unwrap();
        assert_eq!(dst, [0, 1, 1, 0, 1]);
        assert!(table.decode(&[0b0110_1101], false, &mut dst).is_err());
        assert!(table.decode(&[0b0001_1101], false, &mut dst).is_err());
    }
}
