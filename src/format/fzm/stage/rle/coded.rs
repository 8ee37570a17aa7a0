//! The coded stream: where its runs are, and at which elements they start.
//!
//! A scan of the lengths, as far as needed, finds the element at which every 256th run starts.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::checkpoints::{Checkpoints, Frontier};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::elements;
use crate::format::fzm::stream::ByteStream;
use crate::once::Once;

/// Runs between two entries of the index.
pub(super) const STRIDE: u64 = 256;
/// Runs read at a time.
pub(super) const BATCH: u64 = 16 * STRIDE;

/// The head of the stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum RleForm {
    /// The number of runs.
    Whole,
    /// The number of chunks of `per` elements, of `count` elements in total, and the runs before each.
    Chunks { per: u64, count: u64 },
}

/// The coded stream.
pub(super) struct Coded {
    pub(super) input: Arc<dyn ByteStream>,
    pub(super) size: usize,
    form: RleForm,
    /// Whether runs of no elements are invalid.
    strict: bool,
    pub(super) cx: Context,
    layout: Once<Sections>,
    index: Once<Checkpoints>,
}

/// The sections of the stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sections {
    /// Number of runs.
    pub(super) runs: u64,
    /// Offset of the values.
    pub(super) values: u64,
    /// Offset of the lengths.
    pub(super) lengths: u64,
}

impl Coded {
    pub(super) fn new(input: Arc<dyn ByteStream>, size: usize, form: RleForm, strict: bool, cx: &Context) -> Self {
        Self { input, size, form, strict, cx: cx.clone(), layout: Once::new(), index: Once::new() }
    }

    /// Whether the stream has no table of chunks, and values directly behind the number of runs.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.form, RleForm::Whole) && self.size <= 4
    }

    /// The sections; checks that the stream contains them.
    pub(super) fn sections(&self) -> Result<Sections> {
        self.layout.build(&self.cx.account, self.cx.build_limit(0), || self.find_sections()).copied()
    }

    fn find_sections(&self) -> Result<Sections> {
        let (size, alignment) = (to_u64(self.size), to_u64(self.size.max(4)));
        let (runs, head) = match self.form {
            RleForm::Whole if self.input.is_empty() => (0, 4),
            RleForm::Whole => (self.number(0, "num_runs")?, 4),
            RleForm::Chunks { per, count } => self.table(per, count)?,
        };
        // All terms are below 2^37.
        let values = if runs > 0 { head.next_multiple_of(alignment) } else { head };
        let lengths = (values + runs * size).next_multiple_of(4);
        if runs > 0 {
            self.need(lengths + 4 * runs, "num_runs")?;
        }
        Ok(Sections { runs, values, lengths })
    }

    /// The number of runs of all chunks, and the end of their table.
    fn table(&self, per: u64, count: u64) -> Result<(u64, u64)> {
        let chunks = count.div_ceil(per.max(1));
        if chunks == 0 {
            return Ok((0, 0));
        }
        let end = 4 * (chunks + 2);
        self.need(end, "num_chunks")?;
        let said = self.number(0, "num_chunks")?;
        if said != chunks {
            return Err(Error::corrupt(format!("{said} chunks, but {count} elements are {chunks}"), "num_chunks"));
        }
        let (first, runs) = (self.number(4, "run_offsets")?, self.number(end - 4, "run_offsets")?);
        if first != 0 || runs > count {
            return Err(Error::corrupt(format!("{runs} runs from {first} of {count} elements"), "run_offsets"));
        }
        Ok((runs, end))
    }

    /// The number of 32 bits at `at`.
    fn number(&self, at: u64, what: &'static str) -> Result<u64> {
        let mut bytes = [0; 4];
        self.need(at + 4, what)?;
        self.input.read(at, &mut bytes)?;
        Ok(u64::from(u32::from_le_bytes(bytes)))
    }

    fn need(&self, need: u64, what: &'static str) -> Result<()> {
        let have = self.input.len();
        if need <= have { Ok(()) } else { Err(Error::new(Kind::Truncated { need, have }, what)) }
    }

    /// The `n` numbers of 32 bits from entry `first` of the table at `at`.
    pub(super) fn numbers(&self, at: u64, first: u64, n: u64) -> Result<ScratchBuffer> {
        let mut bytes = ScratchBuffer::new(to_usize(4 * n, "lengths")?)?;
        self.input.read(at + 4 * first, &mut bytes)?;
        Ok(bytes)
    }

    /// The values of `n` runs from run `first`.
    pub(super) fn values(&self, sections: Sections, first: u64, n: u64) -> Result<ScratchBuffer> {
        let mut bytes = ScratchBuffer::new(to_usize(to_u64(self.size) * n, "values")?)?;
        self.input.read(sections.values + to_u64(self.size) * first, &mut bytes)?;
        Ok(bytes)
    }

    /// The element at which run `i * STRIDE` starts; a last entry holds the end. Not scanned by this call.
    pub(super) fn starts(&self) -> Result<&Checkpoints> {
        self.index.build(&self.cx.account, self.cx.build_limit(0), || {
            Ok(Checkpoints::new(self.sections()?.runs.div_ceil(STRIDE) + 1, &self.cx, "index of runs"))
        })
    }

    /// Sums lengths until `enough` returns true, or to the end.
    pub(super) fn scan(&self, enough: impl Fn(Frontier) -> bool) -> Result<()> {
        let sections = self.sections()?;
        self.starts()?.reach(enough, |Frontier { scanned, last }, starts| {
            let first = scanned * STRIDE;
            let n = BATCH.min(sections.runs - first);
            let batch = self.numbers(sections.lengths, first, n)?;
            let mut at = last;
            for stride in batch.chunks(4 * STRIDE as usize) {
                if self.strict && elements::<u32>(stride).any(|length| length == 0) {
                    return Err(no_elements());
                }
                // The sum of 2^32 lengths below 2^32 is below 2^64.
                at += elements::<u32>(stride).map(u64::from).sum::<u64>();
                starts.push(at);
            }
            match self.form {
                RleForm::Whole => Ok(()),
                RleForm::Chunks { per, count } => self.check_chunks(per, count, first, last, &batch),
            }
        })
    }

    /// Checks that the chunks that end within the runs of `lengths` have their number of elements, and that no run
    /// passes the end of a chunk. The first run is `first`, at element `at`; the runs before it were checked.
    fn check_chunks(&self, per: u64, count: u64, first: u64, at: u64, lengths: &[u8]) -> Result<()> {
        let (chunks, done, n) = (count.div_ceil(per), at / per, to_u64(lengths.len() / 4));
        // Entry 0 of the table is the start of the first chunk; every chunk has a run.
        let ends = self.numbers(4, done + 1, n.min(chunks.saturating_sub(done)))?;
        let (mut runs, mut place, mut at) = (elements::<u32>(lengths), first, at);
        for (chunk, end) in (done + 1..).zip(elements::<u32>(&ends).map(u64::from)) {
            let (target, take) = (chunk.saturating_mul(per).min(count), end.checked_sub(place));
            let Some(take) = take.filter(|&take| take > 0) else { return Err(descending(end)) };
            let inside = take.min(first + n - place);
            at += runs.by_ref().take(inside as usize).map(u64::from).sum::<u64>();
            place += inside;
            if inside < take {
                return if at < target { Ok(()) } else { Err(surplus(target)) };
            }
            if at != target {
                return Err(surplus(target));
            }
        }
        Ok(())
    }

    /// The number of elements, from all lengths.
    pub(super) fn total(&self) -> Result<u64> {
        self.scan(|_| false)?;
        Ok(self.starts()?.frontier().last)
    }
}

/// An error: a run has no elements.
pub(super) fn no_elements() -> Error {
    Error::corrupt("a run of no elements", "lengths")
}

/// An error: the table of runs descends to `end`.
pub(super) fn descending(end: u64) -> Error {
    Error::corrupt(format!("a chunk without runs ends at run {end}"), "run_offsets")
}

/// An error: no run ends at element `target`, where a chunk ends.
pub(super) fn surplus(target: u64) -> Error {
    Error::corrupt(format!("the runs of a chunk do not end at element {target}"), "lengths")
}
