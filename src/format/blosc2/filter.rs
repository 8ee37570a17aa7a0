//! The filter pipeline of a chunk, reversed block by block.
//!
//! Reference: section 7. Slots were applied from 0 to 5; they are undone from 5 to 0.
//! Filters that only discard precision need no inverse.
//! Invariants: decoding allocates nothing here; a step either changes the block in place, or moves it between the two
//! buffers of the caller.
#![forbid(unsafe_code)]

use crate::codec::pace::{self, Pace, STRIDE};
use crate::codec::{bitshuffle, bytedelta, shuffle};
use crate::error::{Error, Result};

use super::header::{ChunkHeader, Filter};
use super::item_spec::ItemSpec;
use super::ndcell::NdCells;
use super::registry;

/// The inverse steps of a pipeline, in the order of decoding.
#[derive(Debug, Default)]
pub(super) struct FilterPipeline {
    steps: Vec<FilterStep>,
}

#[derive(Debug)]
enum FilterStep {
    Unshuffle {
        width: usize,
    },
    Bitunshuffle {
        width: usize,
        /// Before Blosc2, a block was left unshuffled unless the number of its items was a multiple of 8.
        whole_eights: bool,
    },
    Undelta {
        width: usize,
    },
    RunningSum {
        runs: usize,
        /// Written by the first version of the filter: the sum restarts for the last bytes of a run.
        restart: bool,
    },
    NdCells(NdCells),
}

impl FilterPipeline {
    /// The pipeline described by `header`.
    pub(super) fn new(header: &ChunkHeader, item: &ItemSpec) -> Result<Self> {
        let mut steps = Vec::new();
        if header.instrumented {
            return Ok(Self { steps });
        }
        let typesize = usize::from(header.typesize);
        for &Filter { id, meta } in header.filters.iter().rev() {
            let meta_or = |other: usize| if meta == 0 { other } else { usize::from(meta) };
            steps.push(match id {
                // None, TRUNC_PREC, INT_TRUNC.
                0 | 4 | 36 => continue,
                1 => FilterStep::Unshuffle { width: meta_or(typesize) },
                2 => FilterStep::Bitunshuffle { width: typesize, whole_eights: header.version < 3 },
                3 => FilterStep::Undelta { width: delta_width(typesize) },
                34 | 35 => {
                    let runs = meta_or(item.typesize(header) as usize);
                    FilterStep::RunningSum { runs, restart: id == 34 }
                }
                32 | 33 => FilterStep::NdCells(NdCells::new(id, meta, item)?),
                160.. => {
                    let why = format!("the filter {id} ({})", registry::filter_name(id));
                    return Err(Error::unsupported(why, "filters"));
                }
                _ => return Err(Error::unknown(format!("filter {id}"), "filters")),
            });
        }
        Ok(Self { steps })
    }

    /// Whether blocks need the decoded first block of their chunk.
    pub(super) fn has_delta(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, FilterStep::Undelta { .. }))
    }

    /// Whether a second buffer is needed.
    pub(super) fn moves(&self) -> bool {
        self.steps.iter().any(FilterStep::moves)
    }

    /// Whether a block must start in the second buffer in order to end in its own.
    pub(super) fn starts_in_second(&self) -> bool {
        self.steps.iter().filter(|step| step.moves()).count() % 2 == 1
    }

    /// Reverses the pipeline; the block starts in `second` if [`Self::starts_in_second`], and ends in `block`.
    ///
    /// `reference` is the decoded first block of the chunk; `None` for that block itself. Calls `pace` along the way.
    pub(super) fn undo(
        &self,
        reference: Option<&[u8]>,
        block: &mut [u8],
        second: &mut [u8],
        pace: Pace<'_>,
    ) -> Result<()> {
        let mut is_in_second = self.starts_in_second();
        for step in &self.steps {
            let (here, there) = if is_in_second { (&mut *second, &mut *block) } else { (&mut *block, &mut *second) };
            match step {
                FilterStep::Unshuffle { width } => shuffle::undo_paced(*width, here, there, pace),
                FilterStep::Bitunshuffle { width, whole_eights: true } if here.len() / width % 8 != 0 => {
                    pace::copy(here, there, pace);
                }
                FilterStep::Bitunshuffle { width, .. } => bitshuffle::undo_paced(*width, here, there, pace),
                FilterStep::Undelta { width } => undelta(*width, reference, here, pace),
                FilterStep::RunningSum { runs, restart } => running_sums(*runs, *restart, here, pace),
                FilterStep::NdCells(cells) => cells.undo(here, there, pace)?,
            }
            is_in_second ^= step.moves();
        }
        Ok(())
    }
}

impl FilterStep {
    /// Whether the step copies from one buffer to the other.
    fn moves(&self) -> bool {
        match self {
            Self::Unshuffle { .. } | Self::Bitunshuffle { .. } | Self::NdCells(_) => true,
            Self::Undelta { .. } | Self::RunningSum { .. } => false,
        }
    }
}

/// Element width that DELTA uses for items of `typesize` bytes.
fn delta_width(typesize: usize) -> usize {
    match typesize {
        1 | 2 | 4 | 8 => typesize,
        n if n % 8 == 0 => 8,
        _ => 1,
    }
}

/// Reverses DELTA: adds the first block, or within the first block the previous element.
fn undelta(width: usize, reference: Option<&[u8]>, block: &mut [u8], pace: Pace<'_>) {
    let whole = block.len() / width * width;
    let block = &mut block[..whole];
    match reference {
        Some(reference) => {
            for (part, others) in block.chunks_mut(STRIDE).zip(reference.chunks(STRIDE)) {
                for (byte, &other) in part.iter_mut().zip(others) {
                    *byte ^= other;
                }
                pace();
            }
        }
        None => match width {
            1 => chain::<1>(block, pace),
            2 => chain::<2>(block, pace),
            4 => chain::<4>(block, pace),
            _ => chain::<8>(block, pace),
        },
    }
}

fn chain<const W: usize>(block: &mut [u8], pace: Pace<'_>) {
    let mut last = [0; W];
    for part in block.chunks_mut(STRIDE) {
        for element in part.as_chunks_mut::<W>().0 {
            for (byte, last) in element.iter_mut().zip(&mut last) {
                *byte ^= *last;
                *last = *byte;
            }
        }
        pace();
    }
}

/// Reverses BYTEDELTA: sums up `runs` runs of differences; bytes after the last run stay unchanged.
fn running_sums(runs: usize, restart: bool, block: &mut [u8], pace: Pace<'_>) {
    let len = block.len() / runs.max(1);
    if len == 0 {
        return;
    }
    for run in block.chunks_exact_mut(len).take(runs) {
        let (vectors, rest) = run.split_at_mut(if restart { len - len % 16 } else { len });
        let mut sum = 0_u8;
        for part in vectors.chunks_mut(STRIDE) {
            if let Some(first) = part.first_mut() {
                *first = first.wrapping_add(sum);
            }
            bytedelta::undo(part);
            sum = part.last().copied().unwrap_or(0);
            if part.len() == STRIDE {
                pace();
            }
        }
        bytedelta::undo(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_chains_in_the_first_block_and_refers_to_it_in_others() {
        let mut block = [1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0x55];
        let stored = block;
        undelta(4, None, &mut block, &mut || ());
        assert_eq!(block, [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0x55]);
        let mut other = stored;
        undelta(4, Some(&block), &mut other, &mut || ());
        assert_eq!(other, [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x55]);
        assert_eq!([1, 2, 3, 4, 6, 8, 12, 16, 24].map(delta_width), [1, 2, 1, 4, 1, 8, 1, 8, 8]);
    }

    #[test]
    fn byte_sums_restart_at_each_run_and_in_the_first_version_at_its_tail() {
        let mut block = [1; 41];
        running_sums(2, false, &mut block, &mut || ());
        assert_eq!((block[0], block[19], block[20], block[39], block[40]), (1, 20, 1, 20, 1));
        let mut block = [1; 40];
        running_sums(2, true, &mut block, &mut || ());
        assert_eq!((block[15], block[16], block[19], block[35], block[36]), (16, 1, 4, 16, 1));
    }

    #[test]
    fn long_blocks_are_decoded_in_strides() {
        let len = 2 * STRIDE + 1003;
        let bytes: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
        let (mut sums, mut chained, mut calls) = (bytes.clone(), bytes.clone(), 0);
        running_sums(1, false, &mut sums, &mut || calls += 1);
        let mut sum = 0_u8;
        assert!(sums.iter().zip(&bytes).all(|(&got, &byte)| {
            sum = sum.wrapping_add(byte);
            got == sum
        }));
        undelta(8, None, &mut chained, &mut || calls += 1);
        let last = |i: usize| if i < 8 { 0 } else { chained[i - 8] };
        assert!((0..len / 8 * 8).all(|i| chained[i] == bytes[i] ^ last(i)));
        assert!(calls >= 4);
    }
}
