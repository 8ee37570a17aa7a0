//! RZE: a block a chunk.
//!
//! Reference: sections 5.9 and 10. Where chunks start the host knows from the size table, which it has summed up
//! once: so only the stored bytes of a window are uploaded.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{Inverse, Job, Run, Span, Stop};
use crate::error::Result;
use crate::gpu::{Arg, Kernel, Memory};

/// Bytes of a decoded chunk, but for the last one.
pub(super) const CHUNK: u64 = 16384;
/// Set in a start where the chunk is stored as it is.
const RAW: u32 = 1 << 31;

/// Where the chunks of a range start in the stream, each with whether it is stored as it is; and where the last one
/// ends.
type Starts = dyn Fn(Range<u64>) -> Result<Vec<(u64, bool)>> + Send + Sync;

/// The inverse of RZE.
#[derive(Clone)]
pub struct Rze {
    starts: Arc<Starts>,
}

impl Rze {
    /// `starts` gives, for a range of chunks, where each one starts in the stream, and whether it is stored as it is;
    /// and one more entry, where the last one ends.
    pub fn new(starts: impl Fn(Range<u64>) -> Result<Vec<(u64, bool)>> + Send + Sync + 'static) -> Self {
        Self { starts: Arc::new(starts) }
    }

    /// The starts of the chunks in a window of the decoded stream.
    fn chunks(&self, window: &Range<u64>) -> Run<Vec<(u64, bool)>> {
        Ok((self.starts)(window.start / CHUNK..window.end.div_ceil(CHUNK))?)
    }

    /// The starts of the chunks in a window, from the first byte of the first one, on the device.
    pub(super) fn upload(&self, job: &mut Job, input: &Span, window: &Range<u64>) -> Run<Memory> {
        let mut words = Vec::new();
        for (at, raw) in self.chunks(window)? {
            let at = at.checked_sub(input.range().start).and_then(|at| u32::try_from(at).ok());
            let at = at.filter(|at| at & RAW == 0).ok_or(Stop::Broken)?;
            words.extend((at | if raw { RAW } else { 0 }).to_le_bytes());
        }
        job.upload(&words)
    }

    /// Runs a kernel that takes stored chunks and gives bytes.
    pub(super) fn bytes(&self, job: &mut Job, input: &Span, window: Range<u64>, kernel: Kernel) -> Run<Span> {
        let starts = self.upload(job, input, &window)?;
        let out = job.span(window)?;
        let (len, chunks) = (out.len(), out.len().div_ceil(CHUNK));
        let args = [input.arg(), Arg::U64(input.len()), Arg::Memory(&starts, 0), out.arg(), Arg::U64(len)];
        job.launch(kernel, chunks, THREADS, &args)?;
        Ok(out)
    }
}

/// Threads of every kernel that rebuilds chunks.
pub(super) const THREADS: u32 = 256;

impl Inverse for Rze {
    fn block(&self) -> u64 {
        CHUNK
    }

    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>> {
        let chunks = self.chunks(window)?;
        let at = |entry: Option<&(u64, bool)>| entry.map(|(at, _)| *at).ok_or(Stop::Broken);
        Ok(at(chunks.first())?..at(chunks.last())?)
    }

    fn run(&self, job: &mut Job, input: &Span, _kept: &[Memory], window: Range<u64>) -> Run<Span> {
        self.bytes(job, input, window, Kernel { file: "rze", name: "rze" })
    }
}

impl fmt::Debug for Rze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rze")
    }
}
