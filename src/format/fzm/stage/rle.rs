//! RLE (type 5): values and run lengths.
//!
//! Reference: sections 5.5 and 6 (shorter configurations). The stream is a run count, the values, zero padding to 4
//! bytes, the lengths. A scan of the lengths, as far as needed, finds the element at which every 256th run starts; a
//! window then reads only its own runs.
//!
//! If the configuration does not give the number of elements, all lengths are summed when the file is opened, within
//! the work limit of opening.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::marker::PhantomData;
use std::sync::Arc;

use super::block_windows::{BlockWindows, Blockwise};
use super::checkpoints::{Checkpoints, Frontier};
use super::config::{Config, Field, Layout};
use super::scratch::ScratchBuffer;
use super::types::{Element, elements};
use super::{Context, DataType, Stage, StageType, exactly};
use crate::bytes::{to_u64, to_usize};
use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};
use crate::once::Once;

/// The stage type.
pub(super) const TYPE: StageType =
    StageType { code: 5, name: "rle", layout: &LAYOUT, parse: |config| Ok(Box::new(Rle::parse(config)?)) };

const LAYOUT: Layout =
    Layout { sizes: &[0, 1, 5], fields: &[Field::element_type("data_type", 0), Field::u32("num_elements", 1)] };

/// A stage.
struct Rle {
    config: Config,
    ty: DataType,
    num_elements: Option<u32>,
}

impl Rle {
    fn parse(config: Config) -> Result<Self> {
        let defined = [DataType::U8, DataType::U16, DataType::U32, DataType::I32];
        let ty = config.element_type("data_type", &defined, DataType::U16)?;
        let num_elements = config.has("num_elements").then(|| config.u32("num_elements"));
        Ok(Self { config, ty, num_elements })
    }
}

impl Stage for Rle {
    fn name(&self) -> &'static str {
        "rle"
    }

    fn input_type(&self, _input: usize) -> DataType {
        self.ty
    }

    fn output_type(&self, _port: usize) -> DataType {
        DataType::U8
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        vec![format!("runs of {}", self.ty.name())]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let size = self.ty.size();
        let coded = Coded { input, size, cx: cx.clone(), index: Once::new() };
        let count = match self.num_elements {
            Some(count) => u64::from(count),
            None => coded.total()?,
        };
        // A sum of at most 2^32 lengths below 2^32 fits 64 bits; the product may not.
        let len = count.checked_mul(to_u64(size)).ok_or_else(|| Error::corrupt("more than 2^64 bytes", "lengths"))?;
        let expand = match size {
            1 => expand::<u8>,
            2 => expand::<u16>,
            _ => expand::<u32>,
        };
        Ok(vec![Arc::new(Expanded { coded, count, expand, windows: BlockWindows::new(len, to_u64(size), 1) })])
    }
}

/// Runs between two entries of the index.
const STRIDE: u64 = 256;
/// Runs read at a time.
const BATCH: u64 = 16 * STRIDE;

/// The coded stream.
struct Coded {
    input: Arc<dyn ByteStream>,
    size: usize,
    cx: Context,
    index: Once<Index>,
}

/// Positions of the runs, in the coded and in the decoded stream.
struct Index {
    runs: u64,
    /// Offset of the lengths in the coded stream.
    lengths: u64,
    /// The element at which run `i * STRIDE` starts; a last entry holds the end.
    starts: Checkpoints,
}

impl Coded {
    /// The number of runs, and the offset of their lengths; checks that the stream contains them all.
    fn layout(&self) -> Result<(u64, u64)> {
        let runs = if self.input.is_empty() {
            0
        } else {
            let mut head = [0; 4];
            self.need(4, "num_runs")?;
            self.input.read(0, &mut head)?;
            u64::from(u32::from_le_bytes(head))
        };
        // All terms are below 2^35.
        let lengths = 4 + (runs * to_u64(self.size)).next_multiple_of(4);
        if runs > 0 {
            self.need(lengths + 4 * runs, "num_runs")?;
        }
        Ok((runs, lengths))
    }

    /// The index; not scanned by this call.
    fn index(&self) -> Result<&Index> {
        self.index.build(&self.cx.account, self.cx.build_limit(0), || {
            let (runs, lengths) = self.layout()?;
            let starts = Checkpoints::new(runs.div_ceil(STRIDE) + 1, &self.cx, "index of runs");
            Ok(Index { runs, lengths, starts })
        })
    }

    /// Sums lengths until `enough` returns true, or to the end.
    fn scan(&self, index: &Index, enough: impl Fn(Frontier) -> bool) -> Result<()> {
        index.starts.reach(enough, |Frontier { scanned, last }, starts| {
            let first = scanned * STRIDE;
            let n = BATCH.min(index.runs - first);
            let mut batch = ScratchBuffer::new(to_usize(4 * n, "lengths")?)?;
            self.input.read(index.lengths + 4 * first, &mut batch)?;
            let mut at = last;
            for stride in batch.chunks(4 * STRIDE as usize) {
                // The sum of 2^32 lengths below 2^32 is below 2^64.
                at += elements::<u32>(stride).map(u64::from).sum::<u64>();
                starts.push(at);
            }
            Ok(())
        })
    }

    /// The number of elements, from all lengths.
    fn total(&self) -> Result<u64> {
        let index = self.index()?;
        self.scan(index, |_| false)?;
        Ok(index.starts.frontier().last)
    }

    fn need(&self, need: u64, what: &'static str) -> Result<()> {
        let have = self.input.len();
        if need <= have { Ok(()) } else { Err(Error::new(Kind::Truncated { need, have }, what)) }
    }
}

/// Writes consecutive runs into `out`, without the first `skip` elements. Returns the number of elements written.
type Expand = fn(values: &[u8], lengths: &[u8], skip: u64, out: &mut [u8]) -> usize;

struct Expanded {
    coded: Coded,
    /// Number of elements, from the configuration or the scan.
    count: u64,
    expand: Expand,
    windows: BlockWindows,
}

impl Expanded {
    /// Fills `out` with whole elements from element `at`.
    fn fill(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let size = self.coded.size;
        let index = self.coded.index()?;
        let end = at.saturating_add(to_u64(out.len() / size));
        if end < self.count {
            self.coded.scan(index, |frontier| frontier.last >= end)?;
        } else {
            // The window includes the last element, so all lengths must add up to the count.
            let total = self.coded.total()?;
            if total != self.count {
                let why = format!("{total} elements in the runs, {} in the configuration", self.count);
                return Err(Error::corrupt(why, "lengths"));
            }
        }
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            // The last stride that starts at or before `at`; skips strides without elements.
            let stride = index.starts.partition_point(|start| start <= at)?.checked_sub(1).ok_or_else(gap)?;
            let past = index.starts.partition_point(|start| start < end)?;
            let start = index.starts.get(stride)?.ok_or_else(gap)?;
            let first = stride * STRIDE;
            let last = (past * STRIDE).min(first + BATCH).min(index.runs);
            let n = last.checked_sub(first).ok_or_else(gap)?;
            let mut lengths = ScratchBuffer::new(to_usize(4 * n, "lengths")?)?;
            self.coded.input.read(index.lengths + 4 * first, &mut lengths)?;
            let mut values = ScratchBuffer::new(to_usize(to_u64(size) * n, "values")?)?;
            self.coded.input.read(4 + to_u64(size) * first, &mut values)?;
            let done = (self.expand)(&values, &lengths, at - start, rest);
            if done == 0 {
                // The runs end before `count`, or the bytes changed between two reads.
                return Err(gap());
            }
            at += to_u64(done);
            rest = &mut rest[done * size..];
        }
        Ok(())
    }
}

fn gap() -> Error {
    Error::corrupt("the runs end before the last element", "lengths")
}

impl Blockwise for Expanded {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        self.fill(start / to_u64(self.coded.size), out)
    }

    fn setup(&self) -> Setup {
        Setup::Scan
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let (size, input, own) = (to_u64(self.coded.size), Arc::clone(&self.coded.input), Arc::clone(&self));
        let runs = Arc::new(move || own.coded.layout());
        let inverse = Inverse::Rle(inverse::Rle { size, count: self.count, runs });
        Some(Derivation { inverse, input })
    }
}

fn expand<T: Element>(values: &[u8], lengths: &[u8], skip: u64, out: &mut [u8]) -> usize {
    run_widest(ExpandRuns::<T> { values, lengths, skip, out, value: PhantomData })
}

/// [`expand`] as a loop.
struct ExpandRuns<'a, T> {
    values: &'a [u8],
    lengths: &'a [u8],
    skip: u64,
    out: &'a mut [u8],
    value: PhantomData<T>,
}

/// Runs of this length or less are written at this length; the next run overwrites the excess.
const SHORT: usize = 8;
/// Runs that are expanded together if all are shorter.
const TOGETHER: usize = 4;
/// Elements of these that are written at most, rounded up so that any masked place is inside.
const ROOM: usize = (SHORT * TOGETHER).next_power_of_two() - 1 + SHORT;

impl<T: Element> SimdLoop for ExpandRuns<'_, T> {
    type Output = usize;

    #[inline(always)]
    fn run(self, _: impl SimdOps) -> usize {
        let Self { values, lengths, mut skip, out, .. } = self;
        let (room, runs) = (out.len() / T::SIZE, (values.len() / T::SIZE).min(lengths.len() / 4));
        let (mut at, mut i) = (0, 0);
        while i < runs && at < room {
            while skip == 0
                && let Some(lengths) = lengths.get(4 * i..).and_then(<[u8]>::first_chunk::<{ 4 * TOGETHER }>)
                && let Some(values) = values.get(i * T::SIZE..).and_then(|values| values.get(..TOGETHER * T::SIZE))
                && let Some(out) = out.get_mut(at * T::SIZE..).and_then(|out| out.get_mut(..ROOM * T::SIZE))
                && elements::<u32>(lengths).fold(0, |all, length| all | length) < SHORT as u32
            {
                let mut done = 0;
                for (value, length) in elements::<T>(values).zip(elements::<u32>(lengths)) {
                    repeat(value, &mut out[(done & (ROOM - SHORT)) * T::SIZE..][..SHORT * T::SIZE]);
                    done += length as usize;
                }
                (at, i) = (at + done, i + TOGETHER);
            }
            let (Some(value), Some(length)) = (
                values.get(i * T::SIZE..).and_then(|v| v.get(..T::SIZE)),
                lengths.get(4 * i..).and_then(|l| l.get(..4)),
            ) else {
                break;
            };
            let length = u64::from(u32::get(length));
            i += 1;
            if skip >= length {
                skip -= length;
                continue;
            }
            let run = (length - skip).min(to_u64(room - at)) as usize;
            skip = 0;
            repeat(T::get(value), &mut out[at * T::SIZE..][..run * T::SIZE]);
            at += run;
        }
        at
    }
}

/// Fills `out` with `value`.
#[inline(always)]
fn repeat<T: Element>(value: T, out: &mut [u8]) {
    for own in out.chunks_exact_mut(T::SIZE) {
        value.put(own);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, assert_windows, inverse, inverse_error, parse_error, stream, whole};
    use super::*;

    fn coded<T: Element>(runs: &[(T, u32)]) -> Vec<u8> {
        let mut out = (runs.len() as u32).to_le_bytes().to_vec();
        for (value, _) in runs {
            let mut own = vec![0; T::SIZE];
            value.put(&mut own);
            out.extend(own);
        }
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(runs.iter().flat_map(|(_, length)| length.to_le_bytes()));
        out
    }

    #[test]
    fn values_repeat_by_their_lengths() {
        let runs = coded::<u16>(&[(7, 2), (9, 0), (0x102, 1)]);
        for config in [&[1, 3, 0, 0, 0][..], &[1], &[]] {
            assert_eq!(inverse(5, config, &[&runs]).unwrap(), [7, 0, 7, 0, 2, 1], "{config:?}");
        }
        assert_eq!(inverse(5, &[0, 3, 0, 0, 0], &[&coded::<u8>(&[(5, 3)])]).unwrap(), [5, 5, 5]);
        assert_eq!(inverse(5, &[6], &[&coded::<u32>(&[(1 << 24, 1)])]).unwrap(), [0, 0, 0, 1]);
        assert!(inverse(5, &[1, 0, 0, 0, 0], &[&[0; 4]]).unwrap().is_empty());
        assert!(inverse(5, &[1], &[&[]]).unwrap().is_empty());
    }

    #[test]
    fn windows_equal_ranges_of_the_whole() {
        let mut random = Random(3);
        for (longest, runs) in [(1, 5000), (3, 3000), (40, 2000), (3000, 900)] {
            let runs: Vec<(u32, u32)> =
                (0..runs).map(|_| (random.next() as u32, random.below(longest + 1) as u32)).collect();
            let want: Vec<u8> = runs.iter().flat_map(|&(v, n)| v.to_le_bytes().repeat(n as usize)).collect();
            let stream = stream(5, &[2], &[&coded(&runs)]).unwrap();
            assert!(whole(&*stream).unwrap() == want);
            assert_windows(&*stream, &want);
        }
    }

    #[test]
    fn a_window_inside_billions_of_elements_or_behind_empty_runs_costs_only_itself() {
        let mut runs = vec![(1_u16, u32::MAX), (2, u32::MAX)];
        runs.extend(std::iter::repeat_n((3, 0), 100_000));
        runs.push((4, 1));
        let stream = stream(5, &[1], &[&coded(&runs)]).unwrap();
        assert_eq!(stream.len(), 2 * (2 * u64::from(u32::MAX) + 1));
        for (at, want) in [(0, 1), (u64::from(u32::MAX) - 1, 1), (u64::from(u32::MAX), 2), (2 * u64::from(u32::MAX), 4)]
        {
            let mut dst = [0; 2];
            stream.read(2 * at, &mut dst).unwrap();
            assert_eq!(u16::from_le_bytes(dst), want, "{at}");
        }
    }

    #[test]
    fn inconsistent_runs_are_refused() {
        let runs = coded::<u16>(&[(7, 2), (9, 1)]);
        let config = [1, 3, 0, 0, 0];
        assert_eq!(parse_error(5, &[3]), "element type uint64 is unknown (data_type, at byte 0x100)");
        assert_eq!(
            inverse_error(5, &[1, 4, 0, 0, 0], &[&runs]),
            "3 elements in the runs, 4 in the configuration (lengths)"
        );
        assert_eq!(inverse_error(5, &config, &[&runs[..15]]), "needs 16 bytes, 15 left (num_runs)");
        assert_eq!(inverse_error(5, &config, &[&[1, 0]]), "needs 4 bytes, 2 left (num_runs)");
        assert_eq!(inverse_error(5, &config, &[&[0xFF; 20]]), "needs 25769803776 bytes, 20 left (num_runs)");
        assert_eq!(inverse_error(5, &config, &[&[]]), "0 elements in the runs, 3 in the configuration (lengths)");
    }
}
