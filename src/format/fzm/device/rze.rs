//! RZE: one thread block per chunk.
//!
//! Reference: sections 5.9 and 10. The host knows where chunks start, because it sums up the size table once. So only
//! the stored bytes of a window are uploaded.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use super::job::{DeviceJob, Span};
use super::op::DeviceOp;
use crate::format::fzm::inverse::Rze;
use crate::gpu::{Arg, Kernel, Memory};

/// Bytes of a decoded chunk; the last may be shorter.
pub(super) const CHUNK: u64 = 16384;
/// Flag in a start: the chunk is stored uncompressed.
const RAW: u32 = 1 << 31;

impl Rze {
    /// The starts of the chunks of a window of the decoded stream.
    fn starts(&self, window: &Range<u64>) -> OpResult<Vec<(u64, bool)>> {
        Ok((self.chunks)(window.start / CHUNK..window.end.div_ceil(CHUNK))?)
    }

    /// Uploads the starts of the chunks of a window, relative to the start of `input`.
    pub(super) fn upload(&self, job: &mut DeviceJob, input: &Span, window: &Range<u64>) -> OpResult<Memory> {
        let mut words = Vec::new();
        for (at, raw) in self.starts(window)? {
            let at = at.checked_sub(input.range().start).and_then(|at| u32::try_from(at).ok());
            let at = at.filter(|at| at & RAW == 0).ok_or(Fallback::Invalid)?;
            words.extend((at | if raw { RAW } else { 0 }).to_le_bytes());
        }
        job.upload(&words)
    }

    /// Runs a kernel that turns stored chunks into decoded bytes.
    pub(super) fn bytes(
        &self,
        job: &mut DeviceJob,
        input: &Span,
        window: Range<u64>,
        kernel: Kernel,
    ) -> OpResult<Span> {
        let starts = self.upload(job, input, &window)?;
        let out = job.span(window)?;
        let (len, chunks) = (out.len(), out.len().div_ceil(CHUNK));
        let args = [input.arg(), Arg::U64(input.len()), Arg::Memory(&starts, 0), out.arg(), Arg::U64(len)];
        job.launch(kernel, chunks, THREADS, &args)?;
        Ok(out)
    }
}

/// Threads per block of every kernel that decodes chunks.
pub(super) const THREADS: u32 = 256;

impl DeviceOp for Rze {
    fn block(&self) -> u64 {
        CHUNK
    }

    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>> {
        let chunks = self.starts(window)?;
        let at = |entry: Option<&(u64, bool)>| entry.map(|(at, _)| *at).ok_or(Fallback::Invalid);
        Ok(at(chunks.first())?..at(chunks.last())?)
    }

    fn run(&self, job: &mut DeviceJob, input: &Span, _kept: &[Memory], window: Range<u64>) -> OpResult<Span> {
        self.bytes(job, input, window, Kernel { file: "rze", name: "rze" })
    }
}
