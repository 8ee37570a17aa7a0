//! Huffman: one thread per partition.
//!
//! Reference: sections 5.10 and 10. A window needs parts of every section of the stream, so the whole stream is kept on
//! the device, with the code lookup table.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::Huffman;
use crate::gpu::{Arg, Kernel, Memory};

/// Bytes of the lookup table: 12-bit prefixes.
const TABLE: u64 = 4 << 12;
/// Bytes of the book before its keys.
const KEYS: u64 = 256;

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

impl DeviceOp for Huffman {
    fn block(&self) -> u64 {
        self.size * u64::from(self.sublen)
    }

    fn needs(&self, _window: &Range<u64>) -> OpResult<Range<u64>> {
        Err(Fallback::Invalid)
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn index(&self, job: &mut DeviceJob, input: &Span) -> OpResult<Vec<Memory>> {
        if let Some(check) = &self.single {
            check()?;
            return Ok(Vec::new());
        }
        let table = job.alloc(TABLE)?;
        let kernel = self.kernel("huffman_table_1", "huffman_table_2", "huffman_table_4");
        let args = [input.arg(), Arg::U64(self.book), Arg::U32(self.bklen), Arg::Memory(&table, 0)];
        job.launch(kernel, 1, 256, &args)?;
        Ok(vec![table])
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        let (partition, n) = (window.start / self.block(), (window.end - window.start) / self.size);
        let out = job.span(window)?;
        if self.single.is_some() {
            if self.bklen == 0 {
                return Err(Fallback::Invalid);
            }
            let kernel = self.kernel("huffman_only_1", "huffman_only_2", "huffman_only_4");
            let args = [input.arg(), Arg::U64(self.book + KEYS), out.arg(), Arg::U64(n)];
            job.launch(kernel, n.div_ceil(256), 256, &args)?;
            return Ok(out);
        }
        let [table] = kept else { return Err(Fallback::Invalid) };
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
