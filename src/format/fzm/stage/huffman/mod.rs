//! Huffman (type 6): PHF streams, partitions of 768 or 1024 symbols under one code book.
//!
//! Reference: section 5.10. Partitions are independent, and tables before them give their positions; a window reads the
//! rows and cells of its partitions. The header and the book are read once. Of partitions larger than [`SLICE`], which
//! no known writer produces, a window decodes only slices.
#![forbid(unsafe_code)]

mod book;
mod header;
mod single_symbol;
mod slices;

use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::config::{Config, ConfigLayout, Field};
use super::scratch::ScratchBuffer;
use super::types::elements;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::account::decode_budget;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, CheckPartitions, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation};
use crate::limits::{Charge, Limits};
use crate::once::Once;
use book::{Book, Lane};
use header::{HEADER, HuffmanHeader};
use slices::{SLICE, Slices};

/// The stage type.
pub(super) const TYPE: StageType = StageType {
    code: 6,
    name: "huffman",
    family: Family::Coder,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(Huffman::parse(config)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[11],
    fields: &[Field::element_type("data_type", 0), Field::u16("bklen", 1), Field::u64("num_elements", 3)],
};

/// A stage.
struct Huffman {
    config: Config,
    ty: DataType,
    bklen: u16,
    num_elements: u64,
}

impl Huffman {
    fn parse(config: Config) -> Result<Self> {
        let defined = [DataType::U8, DataType::U16, DataType::U32];
        let ty = config.element_type("data_type", &defined, DataType::Opaque)?;
        let (bklen, num_elements) = (config.u32("bklen") as u16, config.u64("num_elements"));
        Ok(Self { config, ty, bklen, num_elements })
    }
}

impl Stage for Huffman {
    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::Opaque
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("{} symbols of {}", self.bklen, self.ty.name())]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let (size, count) = (self.ty.size(), self.num_elements);
        if count == 0 {
            return Ok(vec![Arc::new(Empty)]);
        }
        let mut head = [0; HEADER];
        if input.len() < to_u64(HEADER) {
            return Err(Error::new(Kind::Truncated { need: to_u64(HEADER), have: input.len() }, "PHF header"));
        }
        input.read(0, &mut head)?;
        let header = HuffmanHeader::parse(&head, self, input.len())?;
        // Every partition has a row of 8 bytes, so the stream's length bounds their number.
        let len =
            count.checked_mul(to_u64(size)).ok_or_else(|| Error::corrupt("more than 2^64 bytes", "num_elements"))?;
        let block = header.sublen * to_u64(size);
        if !header.is_single() {
            Limits::check(block, cx.limits.piece.min(LARGEST), "sublen")?;
        }
        // Single-symbol streams, and slices of large partitions, can be decoded from any symbol.
        let windows = if header.is_single() || block > SLICE { to_u64(size) } else { block };
        let together = windows.saturating_mul(to_u64(INTERLEAVED));
        let (windows, slices) = (BlockWindows::new(len, windows, together), Slices::new());
        Ok(vec![Arc::new(Symbols { input, header, size, cx: cx.clone(), book: Once::new(), slices, windows })])
    }
}

/// A stream without symbols; ignores stored bytes.
struct Empty;

impl ByteStream for Empty {
    fn len(&self) -> u64 {
        0
    }

    fn unit(&self) -> u64 {
        1
    }

    fn read(&self, _at: u64, _dst: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// Maximum decoded bytes of a partition: finding its slices decodes all of it.
const LARGEST: u64 = 16 << 20;

/// Partitions decoded in one interleaved loop.
const INTERLEAVED: usize = 4;

/// The decoded stream.
struct Symbols {
    input: Arc<dyn ByteStream>,
    header: HuffmanHeader,
    size: usize,
    cx: Context,
    book: Once<(Book, Charge)>,
    slices: Slices,
    windows: BlockWindows,
}

impl Symbols {
    fn read_book(&self) -> Result<(Book, Charge)> {
        let HuffmanHeader { bklen, book, .. } = self.header;
        let charge = self.cx.account.charge_list(book::footprint(bklen), "code book")?;
        let mut tables = [0; book::TABLES];
        self.input.read(book, &mut tables)?;
        let mut bytes = vec![0; to_usize(bklen, "bklen")? * self.size];
        self.input.read(book + to_u64(book::TABLES), &mut bytes)?;
        let keys = match self.size {
            1 => elements::<u8>(&bytes).map(u32::from).collect(),
            2 => elements::<u16>(&bytes).map(u32::from).collect(),
            _ => elements::<u32>(&bytes).collect(),
        };
        Ok((Book::new(&tables, keys, self.size), charge))
    }

    /// Decodes the partitions from `first` into `out`.
    fn partitions(&self, book: &Book, first: u64, out: &mut [u8]) -> Result<()> {
        let block = to_usize(self.header.sublen, "sublen")? * self.size;
        let n = out.len().div_ceil(block);
        let rows = |at: u64| -> Result<ScratchBuffer> {
            let mut rows = ScratchBuffer::new(4 * n)?;
            self.input.read(at + 4 * first, &mut rows)?;
            Ok(rows)
        };
        let (nbit, entry) = (rows(self.header.par_nbit)?, rows(self.header.par_entry)?);
        let rows = || elements::<u32>(&nbit).map(u64::from).zip(elements::<u32>(&entry).map(u64::from));
        // The cells of contiguous partitions are read at once.
        let start = rows().map(|(_, entry)| entry).min().unwrap_or(0);
        let end = rows().map(|(nbit, entry)| entry + nbit.div_ceil(32)).max().unwrap_or(0);
        let own: u64 = rows().map(|(nbit, _)| nbit.div_ceil(32)).sum();
        (first..).zip(rows()).try_for_each(|(i, (nbit, entry))| self.check(i, nbit, entry))?;
        let together = end - start == own;
        if !together {
            for (i, ((nbit, entry), out)) in (first..).zip(rows().zip(out.chunks_mut(block))) {
                let cells = self.cells(entry, nbit.div_ceil(32))?;
                lanes(book, i, &mut [Lane { cells: &cells, used: 0, out }], &[nbit])?;
            }
            return Ok(());
        }
        let all = self.cells(start, own)?;
        let rows: Vec<(u64, u64)> = rows().collect();
        let groups = rows.chunks(INTERLEAVED).zip(out.chunks_mut(INTERLEAVED * block));
        for (i, (rows, out)) in (first..).step_by(INTERLEAVED).zip(groups) {
            let (mut own, mut nbits): ([Lane; INTERLEAVED], [u64; INTERLEAVED]) = Default::default();
            for (((own, nbits), &(nbit, entry)), out) in
                own.iter_mut().zip(&mut nbits).zip(rows).zip(out.chunks_mut(block))
            {
                let from = (4 * (entry - start)) as usize;
                let cells = all.get(from..from + 4 * nbit.div_ceil(32) as usize);
                let cells = cells.ok_or_else(|| Error::corrupt("a partition is missing", "bitstream"))?;
                (*own, *nbits) = (Lane { cells, used: 0, out }, nbit);
            }
            lanes(book, i, &mut own, &nbits)?;
        }
        Ok(())
    }

    /// Reads `count` cells from cell `from`; the caller has checked the range.
    fn cells(&self, from: u64, count: u64) -> Result<ScratchBuffer> {
        let mut bytes = ScratchBuffer::new(to_usize(4 * count, "cells")?)?;
        if count > 0 {
            self.input.read(self.header.cells.start + 4 * from, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// The bits and the first cell of partition `i`, checked against the cells.
    fn row(&self, i: u64) -> Result<(u64, u64)> {
        let (mut nbit, mut entry) = ([0; 4], [0; 4]);
        self.input.read(self.header.par_nbit + 4 * i, &mut nbit)?;
        self.input.read(self.header.par_entry + 4 * i, &mut entry)?;
        let [nbit, entry] = [nbit, entry].map(|bytes| u64::from(u32::from_le_bytes(bytes)));
        self.check(i, nbit, entry)?;
        Ok((nbit, entry))
    }

    /// Checks that partition `i` can have `nbit` bits from cell `entry`.
    fn check(&self, i: u64, nbit: u64, entry: u64) -> Result<()> {
        let cells = &self.header.cells;
        if entry + nbit.div_ceil(32) > (cells.end - cells.start) / 4 {
            return Err(Error::corrupt(format!("partition {i} ends after the last cell"), "par_entry"));
        }
        // No code is longer than a cell (32 bits).
        if nbit > 32 * self.header.sublen {
            return Err(Error::corrupt(format!("partition {i} has more bits than its symbols can have"), "par_nbit"));
        }
        Ok(())
    }
}

/// Decodes partitions from `first`, which have `nbits` bits each.
fn lanes(book: &Book, first: u64, lanes: &mut [Lane], nbits: &[u64]) -> Result<()> {
    book.decode(lanes).map_err(|(i, why)| broken(why, first + to_u64(i)))?;
    (first..).zip(lanes.iter().zip(nbits)).try_for_each(|(i, (lane, nbit))| ends(lane.used, *nbit, i))
}

/// Checks that decoding used exactly the bits of a partition.
fn ends(used: u64, nbit: u64, partition: u64) -> Result<()> {
    if used == nbit {
        return Ok(());
    }
    Err(broken("the symbols do not end where the partition ends", partition))
}

fn broken(why: &str, partition: u64) -> Error {
    Error::corrupt(format!("{why} (partition {partition})"), "bitstream")
}

impl Blockwise for Symbols {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let (book, _) = self.book.build(&self.cx.account, self.cx.build_limit(0), || self.read_book())?;
        let block = self.header.sublen * to_u64(self.size);
        if self.header.is_single() {
            self.only(book, start / to_u64(self.size), out)
        } else if block > SLICE {
            self.slices(book, start, out)
        } else {
            self.partitions(book, start / block, out)
        }
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let HuffmanHeader { bklen, sublen, book, par_nbit, par_entry, ref cells, .. } = self.header;
        let own = Arc::clone(&self);
        let partitions = (self.windows.len() / to_u64(self.size)).div_ceil(sublen);
        let check: Arc<CheckPartitions> = Arc::new(move || {
            decode_budget::build(&own.cx.account, own.cx.build_limit(0), || own.no_bits(0..partitions))
        });
        let inverse = inverse::Huffman {
            size: to_u64(self.size),
            bklen: u32::try_from(bklen).ok()?,
            sublen: u32::try_from(sublen).ok()?,
            single: self.header.is_single().then_some(check),
            book,
            par_nbit,
            par_entry,
            cells: cells.clone(),
        };
        Some(Derivation { inverse: Inverse::Huffman(inverse), input: Arc::clone(&self.input) })
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, Pipeline, Source};

    use crate::format::fzm::stage::testing::{Random, inverse, inverse_error, parse_error, round_trip};

    /// The stream and the configuration of 2000 16-bit symbols.
    fn sample() -> (Vec<u8>, Vec<u8>) {
        let mut random = Random(3);
        let bytes = (0..2000).flat_map(|_| (random.below(300) as u16 >> random.below(8)).to_le_bytes()).collect();
        let sources = vec![Source { dtype: Dtype::U16, shape: vec![2000], bytes }];
        let pipeline = Pipeline::parse("huffman:bklen=300", &sources).unwrap();
        let run = pipeline.run(sources, true).unwrap();
        (run.segments()[0].bytes.to_vec(), run.steps()[0].config.clone())
    }

    #[test]
    fn every_type_and_partition_round_trips() {
        let mut random = Random(1);
        // Geometric, so that some codes are longer than the table's 12 bits.
        let mut skewed = |n: usize, most: u32| -> Vec<u32> {
            (0..n).map(|_| random.next().trailing_zeros().min(most - 1) * 7 % most + random.below(2) as u32).collect()
        };
        for (text, dtype, n) in [
            ("huffman", Dtype::U16, 20_000),
            ("huffman:bklen=300", Dtype::U32, 9_000),
            ("huffman:sublen=1024", Dtype::U8, 12_345),
            ("huffman:sublen=7", Dtype::U8, 100),
            ("huffman", Dtype::U16, 1),
        ] {
            let bytes: Vec<u8> = skewed(n, 200).iter().flat_map(|s| s.to_le_bytes()[..dtype.size()].to_vec()).collect();
            round_trip(text, dtype, &[n as u32], &bytes);
        }
        // Codes so long that a lookup gives one.
        let even = |n: usize, most: u64, size| -> Vec<u8> {
            let mut random = Random(2);
            (0..n).flat_map(|_| random.below(most).to_le_bytes()[..size].to_vec()).collect()
        };
        for n in [1000, 1001, 1002, 1003, 1004] {
            round_trip("huffman", Dtype::U8, &[n], &even(n as usize, 256, 1));
            round_trip("huffman:bklen=1000", Dtype::U16, &[n], &even(n as usize, 1000, 2));
            round_trip("huffman:bklen=30000", Dtype::U16, &[n], &even(n as usize, 30_000, 2));
        }
        round_trip("huffman", Dtype::U16, &[5000], &[9, 0].repeat(5000));
        round_trip("huffman", Dtype::U16, &[0], &[]);
    }

    #[test]
    fn codes_longer_than_the_table_decode() {
        // Fibonacci counts give the deepest possible tree.
        let (mut bytes, mut a, mut b) = (Vec::new(), 1, 1);
        for symbol in 0..22_u8 {
            bytes.extend(std::iter::repeat_n(symbol, a));
            (a, b) = (b, a + b);
        }
        round_trip("huffman", Dtype::U8, &[bytes.len() as u32], &bytes);
    }

    #[test]
    fn inconsistent_streams_are_refused() {
        let (stored, config) = sample();
        assert_eq!(inverse(6, &config, &[&stored]).unwrap().len(), 4000);
        let with = |at: usize, value: u32| {
            let mut stored = stored.clone();
            stored[at..at + 4].copy_from_slice(&value.to_le_bytes());
            inverse_error(6, &config, &[&stored])
        };
        let entry = |i: usize| u32::from_le_bytes(stored[40 + 4 * i..][..4].try_into().unwrap()) as usize;
        assert_eq!(with(0, 301), "301 in the stream, 300 in the configuration (bklen)");
        assert_eq!(with(4, 0), "0 symbols per partition (sublen)");
        assert_eq!(with(4, u32::MAX), "-1 symbols per partition (sublen)");
        assert_eq!(with(8, 1 << 30), "1073741824 partitions, but 2000 symbols need 3 (pardeg)");
        assert_eq!(with(16, 2001), "2001 in the stream, 2000 in the configuration (original_len)");
        for (at, value) in [(36, 1), (44, 200), (48, 0), (52, 1 << 31), (56, u32::MAX), (60, 0), (60, u32::MAX)] {
            let e = with(at, value);
            assert_eq!(e, "sections overlap or are outside the stream (section offsets)", "{at}");
        }
        assert_eq!(with(entry(3) + 4, u32::MAX), "partition 1 ends after the last cell (par_entry)");
        assert_eq!(with(entry(2) + 8, 1 << 31), "partition 2 ends after the last cell (par_entry)");
        assert_eq!(
            with(entry(2), 768 * 2),
            "the symbols do not end where the partition ends (partition 0) (bitstream)"
        );
        let mut endless = stored.clone();
        endless[128..256].fill(0xFF);
        assert_eq!(inverse_error(6, &config, &[&endless]), "invalid code (partition 0) (bitstream)");
        let mut past = stored.clone();
        past[256..384].fill(0xFF);
        assert_eq!(inverse_error(6, &config, &[&past]), "invalid code (partition 0) (bitstream)");
        assert_eq!(inverse_error(6, &config, &[&stored[..63]]), "needs 64 bytes, 63 left (PHF header)");
    }

    #[test]
    fn huge_partitions_and_other_types_are_refused() {
        let (mut stored, mut config) = sample();
        assert_eq!(
            parse_error(6, &[&[3][..], &[0; 10]].concat()),
            "element type uint64 is unknown (data_type, at byte 0x100)"
        );
        stored[4..8].copy_from_slice(&(1_u32 << 30).to_le_bytes());
        stored[8..12].copy_from_slice(&1_u32.to_le_bytes());
        assert_eq!(inverse_error(6, &config, &[&stored]), "2147483648 is over the limit of 16777216 (sublen)");
        config.truncate(10);
        assert_eq!(parse_error(6, &config), "a configuration of 10 bytes is unknown (config_size, at byte 0x100)");
    }
}
