//! Where the chunks of a GPULZ stream are in its outputs.
//!
//! Reference: section 5 of the LC stages. In order: the decoded length, the number of chunks, the sizes of each, the
//! chunks; in split mode, the flags of the chunks.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::SplitPorts;
use crate::bytes::{to_u64, to_usize};
use crate::codec::bitmap_merge::ones;
use crate::error::{Error, Result};
use crate::format::fzm::stage::Context;
use crate::format::fzm::stage::array_store::ArrayStore;
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::elements;
use crate::format::fzm::stream::ByteStream;
use crate::once::Once;

/// Chunks between two entries of the index.
pub(super) const STRIDE: u64 = 16;
/// Bytes of an entry.
const ENTRY: u64 = 24;
/// Bytes before the size table, and of each of its entries.
const HEAD: u64 = 8;
/// The first size of an uncompressed chunk.
const RAW: u64 = 1 << 31;
/// The size table, in errors.
const TABLE: &str = "gpulz size table";

/// Offsets in the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutputPlace {
    /// Place of the chunk in the only output, or of its flags in `meta`.
    pub(super) meta: u64,
    pub(super) literals: u64,
    /// In `lengths` and in `offsets`.
    pub(super) matches: u64,
}

/// How a chunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpulzForm {
    /// All bytes are 0.
    Zero,
    /// As it is.
    Raw,
    /// Bytes of flags and of items, and in split mode the number of matches.
    Coded { flags: usize, data: usize, matches: usize },
}

/// A chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct GpulzPart {
    pub(super) index: u64,
    pub(super) place: OutputPlace,
    pub(super) form: GpulzForm,
}

/// The places of all chunks.
pub(super) struct Places {
    meta: Arc<dyn ByteStream>,
    /// The lengths of `literals`, and of the shorter of `lengths` and `offsets`, in split mode.
    split: Option<(u64, u64)>,
    chunk: u64,
    word: u64,
    padded: u64,
    cx: Context,
    /// The place of every chunk `i * STRIDE`.
    index: Once<ArrayStore>,
}

impl Places {
    pub(super) fn new(
        meta: Arc<dyn ByteStream>,
        split: Option<&SplitPorts>,
        chunk: u64,
        word: usize,
        padded: u64,
        cx: &Context,
    ) -> Self {
        let split = split.map(|ports| (ports.literals.len(), ports.lengths.len().min(ports.offsets.len())));
        Self { meta, split, chunk, word: to_u64(word), padded, cx: cx.clone(), index: Once::new() }
    }

    fn count(&self) -> u64 {
        self.padded / self.chunk
    }

    /// The chunks of stride `stride`; none after the last.
    pub(super) fn stride(&self, stride: u64) -> Result<Vec<GpulzPart>> {
        let bytes = ENTRY * self.count().div_ceil(STRIDE);
        let index = self.index.build(&self.cx.account, self.cx.build_limit(bytes), || self.scan(bytes))?;
        let at = stride * ENTRY / 8;
        let place =
            OutputPlace { meta: index.entry(at)?, literals: index.entry(at + 1)?, matches: index.entry(at + 2)? };
        self.parts(stride, place).map(|(parts, _)| parts)
    }

    /// Finds the places of all strides; checks that all chunks are within the outputs.
    fn scan(&self, bytes: u64) -> Result<ArrayStore> {
        let mut head = [0; HEAD as usize];
        self.meta.read(0, &mut head)?;
        let [total, count] = [0, 1].map(|i| elements::<u32>(&head).nth(i).map_or(0, u64::from));
        if total != self.padded {
            let why = format!("{total} in the stream, {} in the configuration", self.padded);
            return Err(Error::corrupt(why, "padded size"));
        }
        if count != self.count() {
            let why = format!("{count} chunks, but {total} bytes need {}", self.count());
            return Err(Error::corrupt(why, "chunk count"));
        }
        let mut index = ArrayStore::new(bytes, &self.cx.account, TABLE)?;
        let mut place = OutputPlace { meta: HEAD + HEAD * count, literals: 0, matches: 0 };
        for stride in 0..count.div_ceil(STRIDE) {
            for (i, offset) in (0..).zip([place.meta, place.literals, place.matches]) {
                index.write(ENTRY * stride + 8 * i, &offset.to_le_bytes())?;
            }
            (_, place) = self.parts(stride, place)?;
        }
        Ok(index)
    }

    /// The chunks of stride `stride`, which starts at `place`, and the place after them.
    fn parts(&self, stride: u64, place: OutputPlace) -> Result<(Vec<GpulzPart>, OutputPlace)> {
        let first = stride * STRIDE;
        let n = STRIDE.min(self.count().saturating_sub(first));
        let mut table = ScratchBuffer::new(to_usize(HEAD * n, TABLE)?)?;
        self.meta.read(HEAD + HEAD * first, &mut table)?;
        let (entries, _) = table.as_chunks::<8>();
        let sizes = entries.iter().map(|[a, b, c, d, e, f, g, h]| {
            (u64::from(u32::from_le_bytes([*a, *b, *c, *d])), u64::from(u32::from_le_bytes([*e, *f, *g, *h])))
        });
        let mut parts = Vec::with_capacity(entries.len());
        for (index, (flags, data)) in (first..).zip(sizes) {
            let form = self.form(flags, data).map_err(|e| e.within(format!("chunk {index}")))?;
            parts.push(GpulzPart { index, place, form });
        }
        let end = self.follow(&mut parts, place)?;
        Ok((parts, end))
    }

    /// The form of a chunk with these sizes in the table.
    fn form(&self, flags: u64, data: u64) -> Result<GpulzForm> {
        let items = self.chunk / self.word;
        match (flags, data) {
            (0, 0) => Ok(GpulzForm::Zero),
            (RAW, _) if data == self.chunk => Ok(GpulzForm::Raw),
            (1.., _) if flags <= items.div_ceil(8) && data <= items * self.word.max(2) => {
                Ok(GpulzForm::Coded { flags: to_usize(flags, TABLE)?, data: to_usize(data, TABLE)?, matches: 0 })
            }
            _ => Err(Error::corrupt(format!("{flags} bytes of flags and {data} of items"), TABLE)),
        }
    }

    /// Sets the places of `parts`, which start at `place`, and their numbers of matches. Returns the place after them.
    fn follow(&self, parts: &mut [GpulzPart], mut place: OutputPlace) -> Result<OutputPlace> {
        let flags = |form: GpulzForm| if let GpulzForm::Coded { flags, .. } = form { flags } else { 0 };
        let all = if self.split.is_some() { parts.iter().map(|part| flags(part.form)).sum() } else { 0 };
        let mut bits = ScratchBuffer::new(all)?;
        Self::within(place.meta.saturating_add(to_u64(all)), self.meta.len(), parts)?;
        self.meta.read(place.meta, &mut bits)?;
        let mut bits = &bits[..];
        for part in &mut *parts {
            part.place = place;
            match (&mut part.form, self.split) {
                (GpulzForm::Zero, _) => {}
                (GpulzForm::Raw, None) => place.meta += self.chunk,
                (GpulzForm::Raw, Some(_)) => place.literals += self.chunk,
                (GpulzForm::Coded { flags, data, .. }, None) => place.meta += to_u64(*flags + *data),
                (GpulzForm::Coded { flags, data, matches }, Some(_)) => {
                    let (own, rest) = bits.split_at_checked(*flags).unwrap_or_default();
                    *matches = ones(own, 8 * own.len());
                    let literals = data.checked_sub(2 * *matches).ok_or_else(|| {
                        let why = format!("{matches} matches in {data} bytes of items");
                        Error::corrupt(why, TABLE).within(format!("chunk {}", part.index))
                    })?;
                    bits = rest;
                    place.meta += to_u64(*flags);
                    place.literals += to_u64(literals);
                    place.matches += to_u64(*matches);
                }
            }
        }
        Self::within(place.meta, self.meta.len(), parts)?;
        if let Some((literals, matches)) = self.split {
            Self::within(place.literals, literals, parts)?;
            Self::within(place.matches, matches, parts)?;
        }
        Ok(place)
    }

    /// Fails if an output of `len` bytes does not contain the chunks of `parts`, which end at `end`.
    fn within(end: u64, len: u64, parts: &[GpulzPart]) -> Result<()> {
        if end <= len {
            return Ok(());
        }
        let (first, last) = (parts.first().map_or(0, |part| part.index), parts.last().map_or(0, |part| part.index));
        let why = format!("chunks {first} to {last} end at byte {end} of an output of {len} bytes");
        Err(Error::corrupt(why, TABLE))
    }
}
