//! Runs to elements.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use std::marker::PhantomData;

use crate::bytes::to_u64;
use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
use crate::format::fzm::stage::types::{Element, elements};

/// Writes consecutive runs into `out`, without the first `skip` elements. Returns the number of elements written.
pub(super) type Expand = fn(values: &[u8], lengths: &[u8], skip: u64, out: &mut [u8]) -> usize;

/// An [`Expand`] for elements of `T`.
pub(super) fn expand<T: Element>(values: &[u8], lengths: &[u8], skip: u64, out: &mut [u8]) -> usize {
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
