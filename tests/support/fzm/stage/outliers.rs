//! The outlier ports that `LorenzoQuant` and Quantizer share.

use super::Port;
use crate::Result;
use crate::elements::Real;

/// What stands in a port beyond its real entries: bytes that a decoder must not use.
const JUNK: u8 = 0xA5;

/// Values that have no code, and where they belong.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    /// Value and element position, in the order in which the port holds them.
    pub(crate) entries: Vec<(f64, u32)>,
}

impl Outliers {
    /// Errors or values, positions, count; at most `capacity` entries. `branched` says which ports come at full
    /// capacity; `count` is what the third port says.
    pub(crate) fn ports(&self, real: Real, capacity: usize, branched: &[bool], count: u32) -> [Port; 3] {
        let kept = &self.entries[..self.entries.len().min(capacity)];
        let size = real.size();
        let mut values = vec![JUNK; size * if branched[0] { capacity } else { kept.len() }];
        for (slot, entry) in values.chunks_exact_mut(size).zip(kept) {
            real.store(slot, entry.0);
        }
        let mut places = vec![JUNK; 4 * if branched[1] { capacity } else { kept.len() }];
        for (slot, entry) in places.chunks_exact_mut(4).zip(kept) {
            slot.copy_from_slice(&entry.1.to_le_bytes());
        }
        [
            Port { bytes: values, allocated: capacity * size },
            Port { bytes: places, allocated: capacity * 4 },
            Port { bytes: count.to_le_bytes().to_vec(), allocated: 4 },
        ]
    }

    /// The entries that a decoder uses: as many as count, whose bytes are given, and both ports hold.
    pub(crate) fn read(real: Real, values: &[u8], places: &[u8], count: &[u8]) -> Self {
        let count = count.first_chunk().map_or(0, |c| u32::from_le_bytes(*c)) as usize;
        let values = values.chunks_exact(real.size()).map(|v| real.load(v));
        let places = places.as_chunks::<4>().0.iter().map(|p| u32::from_le_bytes(*p));
        Self { entries: values.zip(places).take(count).collect() }
    }
}

/// Where a configuration says how many entries count, no entry may be lost, unless there is room for none.
///
/// # Errors
/// When there are more than `capacity`.
pub(crate) fn all_fit(outliers: &Outliers, capacity: usize) -> Result<()> {
    let count = outliers.entries.len();
    if count > capacity && capacity > 0 { Err(format!("{count} outliers, room for {capacity}")) } else { Ok(()) }
}

/// How many entries the outlier ports have room for: the share `cap` of `n` elements.
pub(crate) fn capacity(cap: f64, n: usize) -> usize {
    (cap as f32 * n as f32).ceil() as usize
}
