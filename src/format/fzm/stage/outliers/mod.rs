//! Outliers: values that a quantizer could not code, stored separately with their positions.
//!
//! Reference: sections 5.1 and 5.2. They are stored in any order; the first read sorts them by position, once. A window
//! then finds its own by binary search.
//!
//! Sorting uses a bounded amount of working memory: runs of a few megabytes are sorted one at a time, and merged if
//! they overlap. The records are kept in memory, or in a temporary file if memory is short.
#![forbid(unsafe_code)]

mod sort;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use super::Context;
use super::array_store::ArrayStore;
use super::scratch::ScratchBuffer;
use super::types::{Element, elements};
use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::fzm::stream::{ByteStream, Setup};
use crate::limits::Limits;
use crate::once::Once;

/// How many entries of the ports are valid.
pub(super) enum Count {
    /// As many as this port says, and at most as many as the ports have.
    Port(Arc<dyn ByteStream>),
    /// As many as the configuration says, which the ports must have.
    Config(u64),
}

/// The names of the ports, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortNames {
    pub(super) values: &'static str,
    pub(super) indices: &'static str,
}

/// The ports, and the sorted records.
pub(super) struct Outliers<T> {
    values: Arc<dyn ByteStream>,
    indices: Arc<dyn ByteStream>,
    count: Count,
    names: PortNames,
    /// Elements of the array; an upper bound for positions.
    len: u64,
    cx: Context,
    sorted: Once<Sorted<T>>,
}

/// Unique positions, ascending, with their values.
pub(super) struct Sorted<T> {
    /// Records of a position and a value; `None` if there are no outliers.
    records: Option<ArrayStore>,
    count: u64,
    /// The positions of every `stride`-th record, for the first steps of a search.
    top: Vec<u32>,
    /// Records between two entries of `top`.
    stride: u64,
    _value: std::marker::PhantomData<T>,
}

/// Maximum number of entries in [`Sorted::top`].
const TOP: u64 = 1 << 14;

impl<T: Element> Sorted<T> {
    const NONE: Self = Self { records: None, count: 0, top: Vec::new(), stride: 1, _value: std::marker::PhantomData };

    /// The first `count` of `records`, which are sorted.
    fn new(records: ArrayStore, count: u64) -> Result<Self> {
        let stride = count.div_ceil(TOP).max(1);
        let top: Result<Vec<u32>> = (0..count.div_ceil(stride))
            .map(|i| sort::position(records.get(i * stride * sort::record::<T>(), 4)?))
            .collect();
        Ok(Self { records: Some(records), count, top: top?, stride, _value: std::marker::PhantomData })
    }

    /// The first `count` of `records` of a position and a value, which are in any order.
    ///
    /// # Errors
    /// Fails if there is no space for a second copy, which many records need.
    pub(super) fn sort(records: ArrayStore, count: u64, account: &Account, what: &'static str) -> Result<Self> {
        let (records, count) = sort::by_position::<T>(records, count, account, what)?;
        Self::new(records, count)
    }

    /// Calls `take` for the outliers at positions `from..to`, in order.
    pub(super) fn between(&self, from: u64, to: u64, mut take: impl FnMut(u64, T)) -> Result<()> {
        let Some(records) = &self.records else { return Ok(()) };
        let mut at = self.place(records, from)?;
        while at < self.count {
            // At most one record per position, usually far fewer.
            let n = to.saturating_sub(from).clamp(64, BATCH).min(self.count - at);
            let size = sort::record::<T>();
            let bytes = records.get(at * size, to_usize(n * size, "outliers")?)?;
            for record in bytes.chunks_exact(size as usize) {
                let (place, value) = (u64::from(sort::position(record)?), &record[4..]);
                if place >= to {
                    return Ok(());
                }
                take(place, T::get(value));
            }
            at += n;
        }
        Ok(())
    }

    /// The index of the first record at position `from` or later.
    fn place(&self, records: &ArrayStore, from: u64) -> Result<u64> {
        let above = to_u64(self.top.partition_point(|&at| u64::from(at) < from));
        let Some(below) = above.checked_sub(1) else { return Ok(0) };
        let (mut low, mut high) = (below * self.stride, (above * self.stride).min(self.count));
        while low < high {
            let middle = low + (high - low) / 2;
            if u64::from(sort::position(records.get(middle * sort::record::<T>(), 4)?)?) < from {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The outliers in a range of positions: their positions, and the bytes of their values.
    ///
    /// # Errors
    /// Fails with [`Kind::TooLarge`] if there are more than [`LISTED`].
    pub(super) fn bytes(&self, positions: Range<u64>) -> Result<(Vec<u32>, Vec<u8>)> {
        let (mut at, mut bytes) = (Vec::new(), Vec::new());
        if let Some(records) = &self.records {
            let count = self.place(records, positions.end)?.saturating_sub(self.place(records, positions.start)?);
            Limits::check(count, LISTED, "outliers of a batch")?;
            let count = to_usize(count, "outliers")?;
            at.reserve_exact(count);
            bytes.reserve_exact(count * T::SIZE);
        }
        self.between(positions.start, positions.end, |place, value| {
            at.push(place as u32);
            let end = bytes.len();
            bytes.resize(end + T::SIZE, 0);
            value.put(&mut bytes[end..]);
        })?;
        Ok((at, bytes))
    }
}

/// Outliers that are looked up for several ranges at a time: for ranges in ascending order.
pub(super) struct Ahead<T> {
    /// Positions that are looked up at least.
    least: u64,
    /// The range that was looked up and is not used yet.
    range: Range<u64>,
    found: Vec<(u64, T)>,
    /// The index of the first one after the last range.
    next: usize,
}

impl<T: Element> Ahead<T> {
    /// Looks up the outliers of at least `least` positions.
    pub(super) fn new(least: u64) -> Self {
        Self { least, range: 0..0, found: Vec::new(), next: 0 }
    }

    /// The outliers of `sorted` at `positions`, in order.
    pub(super) fn at(&mut self, sorted: &Sorted<T>, positions: Range<u64>) -> Result<&[(u64, T)]> {
        if positions.start < self.range.start || positions.end > self.range.end {
            self.found.clear();
            self.next = 0;
            self.range = positions.start..positions.end.max(positions.start.saturating_add(self.least));
            sorted.between(self.range.start, self.range.end, |at, value| self.found.push((at, value)))?;
        }
        self.range.start = positions.end;
        let left = self.found.get(self.next..).unwrap_or_default();
        let before = left.iter().take_while(|(at, _)| *at < positions.start).count();
        let (_, left) = left.split_at(before);
        let own = left.iter().take_while(|(at, _)| *at < positions.end).count();
        self.next += before + own;
        Ok(&left[..own])
    }
}

/// Elements read at a time.
const BATCH: u64 = 1 << 14;

/// Outliers that another decoder may take at a time: one of eight elements of a batch of 32 MiB. Their memory is not
/// charged; windows with more of them are decoded by the stage.
const LISTED: u64 = 1 << 20;

impl<T: Element> Outliers<T> {
    /// The outliers of an array of `len` elements: their values and positions.
    ///
    /// # Errors
    /// Fails if the ports have fewer entries than the configuration says.
    pub(super) fn new(
        [values, indices]: [Arc<dyn ByteStream>; 2],
        count: Count,
        names: PortNames,
        len: u64,
        cx: &Context,
    ) -> Result<Self> {
        let own = Self { values, indices, count, names, len, cx: cx.clone(), sorted: Once::new() };
        match own.count {
            Count::Config(count) if count > own.stored() => {
                let why = format!("{count} outliers, but the ports have {}", own.stored());
                Err(Error::corrupt(why, "outlier_count"))
            }
            _ => Ok(own),
        }
    }

    /// Entries of the shortest port.
    fn stored(&self) -> u64 {
        (self.values.len() / to_u64(T::SIZE)).min(self.indices.len() / 4)
    }

    /// The outliers sorted by position; the first call reads and sorts them.
    ///
    /// # Errors
    /// Fails if a port is invalid, a position is outside the array, or there is no space for the records.
    pub(super) fn sorted(&self) -> Result<&Sorted<T>> {
        let most = match self.count {
            Count::Port(_) => self.stored(),
            Count::Config(count) => count,
        };
        self.sorted
            .build(&self.cx.account, self.cx.build_limit(most.saturating_mul(sort::record::<T>())), || self.sort())
    }

    /// The setup of a stream that reads them.
    pub(super) fn setup(&self) -> Setup {
        match self.count {
            Count::Config(0) => Setup::None,
            _ if self.values.is_empty() => Setup::None,
            _ => Setup::Once,
        }
    }

    /// The number of valid entries: a port that went through other stages has the length of its capacity.
    fn valid(&self) -> Result<u64> {
        let port = match &self.count {
            Count::Config(count) => return Ok(*count),
            Count::Port(port) => port,
        };
        if self.values.len() < to_u64(T::SIZE) {
            return Ok(0);
        }
        if port.len() < 4 {
            return Err(Error::new(Kind::Truncated { need: 4, have: port.len() }, "outlier_count"));
        }
        let mut count = [0; 4];
        port.read(0, &mut count)?;
        Ok(u64::from(u32::from_le_bytes(count)).min(self.stored()))
    }

    fn sort(&self) -> Result<Sorted<T>> {
        let n = self.valid()?;
        if n == 0 {
            return Ok(Sorted::NONE);
        }
        let size = sort::record::<T>();
        let mut records = ArrayStore::new(n * size, &self.cx.account, self.names.values)?;
        let (mut first, mut last, mut in_order) = (0, None, true);
        while first < n {
            let batch = BATCH.min(n - first);
            let count = to_usize(batch, "outliers")?;
            let (mut at, mut values) = (ScratchBuffer::new(count * 4)?, ScratchBuffer::new(count * T::SIZE)?);
            self.indices.read(first * 4, &mut at)?;
            self.values.read(first * to_u64(T::SIZE), &mut values)?;
            for at in elements::<u32>(&at) {
                if u64::from(at) >= self.len {
                    return Err(Error::corrupt(
                        format!("position {at} is outside the array of {} elements", self.len),
                        self.names.indices,
                    ));
                }
                in_order &= last.is_none_or(|last| last < at);
                last = Some(at);
            }
            let own = records.get_mut(first * size, count * to_usize(size, "outliers")?)?;
            let both = at.chunks_exact(4).zip(values.chunks_exact(T::SIZE));
            for (record, (at, value)) in own.chunks_exact_mut(4 + T::SIZE).zip(both) {
                record[..4].copy_from_slice(at);
                record[4..].copy_from_slice(value);
            }
            first += batch;
        }
        if in_order {
            return Sorted::new(records, n);
        }
        let (records, n) = sort::by_position::<T>(records, n, &self.cx.account, self.names.values)?;
        Sorted::new(records, n)
    }
}
