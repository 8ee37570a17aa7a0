//! Huffman: one thread per partition.
//!
//! Reference: sections 5.10 and 10. A window needs parts of every section of the stream, so the whole stream is kept on
//! the device, with the code lookup table.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{Inverse, Job, Run, Span, Stop};
use crate::error::Result;
use crate::gpu::{Arg, Kernel, Memory};

/// Bytes of the lookup table: 12-bit prefixes.
const TABLE: u64 = 4 << 12;
/// Bytes of the book before its keys.
const KEYS: u64 = 256;

/// The inverse of Huffman. All sections are within the stream.
#[derive(Debug, Clone)]
pub struct Huffman {
    /// Bytes of a symbol: 1, 2 or 4.
    pub size: u64,
    /// Number of keys in the book.
    pub bklen: u32,
    /// Symbols per partition, at least 1.
    pub sublen: u32,
    /// Present if the alphabet has one symbol, whose code has no bits.
    pub only: Option<Only>,
    /// Offset of the book.
    pub book: u64,
    /// Offset of the bit count per partition.
    pub par_nbit: u64,
    /// Offset of the first cell index per partition.
    pub par_entry: u64,
    /// Range of the cells.
    pub cells: Range<u64>,
}

/// Checks that no partition has bits: the one-symbol kernel does not read them.
#[derive(Clone)]
pub struct Only(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Only {
    /// `check` must fail if a partition has bits.
    pub fn new(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Only")
    }
}

impl Huffman {
    fn kernel(&self, of_1: &'static str, of_2: &'static str, of_4: &'static str) -> Kernel {
        let name = match self.size {
            1 => of_1,
            2 => of_2,
            _ => of_4,
        };
        Kernel { file: "huffman", name }
    }
}

impl Inverse for Huffman {
    fn block(&self) -> u64 {
        self.size * u64::from(self.sublen)
    }

    fn needs(&self, _window: &Range<u64>) -> Run<Range<u64>> {
        Err(Stop::Broken)
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn index(&self, job: &mut Job, input: &Span) -> Run<Vec<Memory>> {
        if let Some(Only(check)) = &self.only {
            check()?;
            return Ok(Vec::new());
        }
        let table = job.alloc(TABLE)?;
        let kernel = self.kernel("huffman_table_1", "huffman_table_2", "huffman_table_4");
        let args = [input.arg(), Arg::U64(self.book), Arg::U32(self.bklen), Arg::Memory(&table, 0)];
        job.launch(kernel, 1, 256, &args)?;
        Ok(vec![table])
    }

    fn run(&self, job: &mut Job, input: &Span, kept: &[Memory], window: Range<u64>) -> Run<Span> {
        let (partition, n) = (window.start / self.block(), (window.end - window.start) / self.size);
        let out = job.span(window)?;
        if self.only.is_some() {
            if self.bklen == 0 {
                return Err(Stop::Broken);
            }
            let kernel = self.kernel("huffman_only_1", "huffman_only_2", "huffman_only_4");
            let args = [input.arg(), Arg::U64(self.book + KEYS), out.arg(), Arg::U64(n)];
            job.launch(kernel, n.div_ceil(256), 256, &args)?;
            return Ok(out);
        }
        let [table] = kept else { return Err(Stop::Broken) };
        let offsets = [self.book, self.par_nbit, self.par_entry, self.cells.start];
        let mut args = vec![input.arg()];
        args.extend(offsets.map(Arg::U64));
        args.extend([Arg::U64((self.cells.end - self.cells.start) / 4), Arg::U32(self.bklen), Arg::U32(self.sublen)]);
        args.extend([Arg::Memory(table, 0), Arg::U64(partition), out.arg(), Arg::U64(n)]);
        let partitions = n.div_ceil(self.sublen.into());
        job.launch(self.kernel("huffman_1", "huffman_2", "huffman_4"), partitions.div_ceil(128), 128, &args)?;
        Ok(out)
    }
}
