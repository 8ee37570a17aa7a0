//! Blobs over streams: split into pieces, with the payload checksum verified first.
//!
//! Piece: the largest multiple of the stream's unit up to 1 MiB, or one unit up to 4 MiB. An array with non-contiguous
//! units is stored brick by brick; a grid presents it in C order. Fragment: the units in about 32 KiB, or one unit.
//! Bricks have none: a brick is decoded from long rows of codes, so that a part of it costs as much as all of it.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::to_u64;
use crate::checksum::{ChecksumGate, Threads, Verified};
use crate::error::Result;
use crate::format::{Batched, Blob, BlobRef, Content, Fragmented, Grid, Layout, OnDevice, Options};
use crate::limits::{Limits, zeroed};

use super::device::{Decoder, Order, Resident};
use super::stream::{Bricks, ByteStream};
use super::warmup::Warmup;

/// Target size of a piece in bytes.
const PIECE: u64 = 1 << 20;
/// Target size of a fragment in bytes: a smaller one takes as long besides its decoding.
const FRAGMENT: u64 = 32 << 10;
/// Fragments of a piece, unless their target size or the units are larger.
const FEWEST: u64 = 8;
/// Largest unit in bytes that may be a piece by itself.
const LARGEST: u64 = 4 << 20;

/// The content of the file for `stream`, and its blobs; each byte is in exactly one of them. The setup of the stream
/// runs on `setup_threads`.
pub(super) fn content(
    stream: &Arc<dyn ByteStream>,
    gate: Option<&ChecksumGate>,
    setup_threads: &Threads,
    options: &Options,
) -> (Content, Vec<BlobRef>) {
    let limits = &options.limits;
    let resident = Resident::new(stream, gate, &options.gpu);
    let linear = |range: Range<u64>| {
        let piece = piece(stream.unit(), limits);
        let device = Decoder::new(stream, Order::Bytes, &options.gpu);
        let own = Arc::clone(stream);
        let warmup = Warmup::new(stream.setup(), setup_threads, move |at| own.read(at, &mut [0]));
        let (stream, gate, resident) = (Arc::clone(stream), gate.cloned(), resident.clone());
        BlobRef::new(Linear { stream, range, piece, gate, warmup, device, resident })
    };
    let shape = stream.bricks().and_then(|bricks| BrickShape::of(bricks, stream.len(), limits));
    let Some(BrickShape { bricks, array, layout }) = shape else {
        let blob = linear(0..stream.len());
        return (Content::Blob(blob.clone()), vec![blob]);
    };
    let device = Decoder::new(stream, Order::Bricks { len: layout.len() }, &options.gpu);
    let layer = bricks.layer();
    let (own, piece) = (Arc::clone(stream), layout.range(0).end);
    let warmup = Warmup::new(stream.setup(), setup_threads, move |at| {
        own.read_brick(at / piece.max(1), &mut zeroed(piece, "brick")?)
    });
    let blob = BlobRef::new(Bricked {
        stream: Arc::clone(stream),
        layout,
        layer,
        gate: gate.cloned(),
        warmup,
        device,
        resident: resident.clone(),
    });
    let grid = Content::Grid(Arc::new(Grid {
        blob: blob.clone(),
        itemsize: bricks.itemsize,
        shape: bricks.shape,
        chunk: bricks.brick.clone(),
        block: bricks.brick,
        window: None,
    }));
    if array == stream.len() {
        return (grid, vec![blob]);
    }
    let tail = linear(array..stream.len());
    (Content::Join(Arc::from([grid, Content::Blob(tail.clone())])), vec![blob, tail])
}

/// Piece size in bytes for a stream with units of `unit` bytes.
fn piece(unit: u64, limits: &Limits) -> u64 {
    let unit = unit.max(1);
    let aim = PIECE.min(limits.piece).max(1);
    if unit > LARGEST.min(limits.piece) {
        // Streams decode parts of a unit this large at no extra cost.
        return aim;
    }
    unit.saturating_mul((aim / unit).max(1))
}

/// Largest layer of bricks, in bytes, that a device decodes in one batch.
const LAYER: u64 = 128 << 20;

/// The gate to wait at before the piece at `at` is decoded: the payload checksum, then the setup of the stream.
fn shut(gate: Option<&ChecksumGate>, is_end: bool, warmup: &Warmup, at: u64) -> Option<ChecksumGate> {
    ChecksumGate::shut(gate, is_end).or_else(|| warmup.gate(at))
}

/// A range of a stream, piece by piece.
struct Linear {
    stream: Arc<dyn ByteStream>,
    range: Range<u64>,
    piece: u64,
    gate: Option<ChecksumGate>,
    warmup: Warmup,
    device: Decoder,
    resident: Arc<Resident>,
}

impl Linear {
    /// Offset of a piece in the stream.
    fn at(&self, piece: u64) -> u64 {
        self.range.start.saturating_add(piece.saturating_mul(self.piece))
    }

    /// Whether `piece` is the last one.
    fn is_end(&self, piece: u64) -> bool {
        self.at(piece.saturating_add(1)) >= self.range.end
    }

    /// Fills `dst`, a part of piece `piece`, with the bytes at `at` of the stream.
    fn decode_part(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        ChecksumGate::wait_before(self.gate.as_ref(), self.is_end(piece))?;
        self.device.one(dst, |dst| self.stream.read(at, dst))?;
        self.warmup.advance(at.saturating_add(to_u64(dst.len())));
        Ok(())
    }
}

impl Blob for Linear {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.range.end.saturating_sub(self.range.start), piece: self.piece })
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        shut(self.gate.as_ref(), self.is_end(piece), &self.warmup, self.at(piece))
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        self.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.decode_part(piece, self.at(piece), dst)
    }

    fn fragmented(&self) -> Option<&dyn Fragmented> {
        Some(self)
    }

    fn batched(&self) -> Option<&dyn Batched> {
        Some(self)
    }
}

impl Fragmented for Linear {
    fn fragments(&self) -> Option<Layout> {
        let unit = self.stream.unit().max(1);
        let aim = FRAGMENT.min(self.piece / FEWEST);
        if !self.piece.is_multiple_of(unit) {
            return None;
        }
        self.layout().ok()?.divided(unit.saturating_mul((aim / unit).max(1)))
    }

    fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        self.decode_part(piece, self.at(piece).saturating_add(at), dst)
    }
}

impl Batched for Linear {
    fn on_device(&self) -> Option<OnDevice> {
        Some(OnDevice { stream: self.resident.clone(), at: self.range.start })
    }

    fn batch(&self) -> u64 {
        self.device.batch(self.piece, 1)
    }

    fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()> {
        let last = first.saturating_add(to_u64(pieces.len())).saturating_sub(1);
        ChecksumGate::wait_before(self.gate.as_ref(), self.is_end(last))?;
        if self.device.many(self.at(first), pieces) {
            self.warmup.advance(self.at(first.saturating_add(to_u64(pieces.len()))));
            return Ok(());
        }
        (first..).zip(pieces).try_for_each(|(piece, dst)| self.decode(piece, dst))
    }
}

/// The bricks of a stream, one per piece.
struct Bricked {
    stream: Arc<dyn ByteStream>,
    layout: Layout,
    /// Bricks per layer: the fewest that cover whole rows of the array.
    layer: u64,
    gate: Option<ChecksumGate>,
    warmup: Warmup,
    device: Decoder,
    resident: Arc<Resident>,
}

impl Bricked {
    /// Whether `piece` is the last one.
    fn is_end(&self, piece: u64) -> bool {
        piece.saturating_add(1) >= self.layout.count()
    }
}

impl Blob for Bricked {
    fn layout(&self) -> Result<Layout> {
        Ok(self.layout.clone())
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        shut(self.gate.as_ref(), self.is_end(piece), &self.warmup, self.layout.range(piece).start)
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        self.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        ChecksumGate::wait_before(self.gate.as_ref(), self.is_end(piece))?;
        self.device.one(dst, |dst| self.stream.read_brick(piece, dst))?;
        self.warmup.advance(self.layout.range(piece).end);
        Ok(())
    }

    fn batched(&self) -> Option<&dyn Batched> {
        Some(self)
    }
}

impl Batched for Bricked {
    fn on_device(&self) -> Option<OnDevice> {
        Some(OnDevice { stream: self.resident.clone(), at: 0 })
    }

    fn batch(&self) -> u64 {
        let piece = self.layout.range(0).end;
        if piece.saturating_mul(self.layer) <= LAYER { self.device.batch(piece, self.layer) } else { 1 }
    }

    fn decode_many(&self, first: u64, pieces: &mut [&mut [u8]]) -> Result<()> {
        let last = first.saturating_add(to_u64(pieces.len())).saturating_sub(1);
        ChecksumGate::wait_before(self.gate.as_ref(), self.is_end(last))?;
        if self.device.many(self.layout.range(first).start, pieces) {
            self.warmup.advance(self.layout.range(first.saturating_add(to_u64(pieces.len())).saturating_sub(1)).end);
            return Ok(());
        }
        (first..).zip(pieces).try_for_each(|(piece, dst)| self.decode(piece, dst))
    }
}

/// Validated bricks: sizes do not overflow, and the array is within the stream.
struct BrickShape {
    bricks: Bricks,
    /// Bytes of the array.
    array: u64,
    layout: Layout,
}

impl BrickShape {
    /// `None` if the dimensions are empty or inconsistent, or a brick exceeds the piece limit; the stream is then read
    /// linearly.
    fn of(bricks: Bricks, len: u64, limits: &Limits) -> Option<Self> {
        if bricks.shape.is_empty() || bricks.shape.len() != bricks.brick.len() || bricks.brick.contains(&0) {
            return None;
        }
        let bytes = |dims: &[u64]| dims.iter().try_fold(bricks.itemsize, |n, &d| n.checked_mul(d));
        let array = bytes(&bricks.shape).filter(|&array| 0 < array && array <= len)?;
        let piece = bytes(&bricks.brick).filter(|&piece| piece <= limits.piece)?;
        let count =
            bricks.shape.iter().zip(&bricks.brick).try_fold(1_u64, |n, (d, b)| n.checked_mul(d.div_ceil(*b)))?;
        let layout = Layout::Uniform { len: count.checked_mul(piece)?, piece };
        Some(Self { bricks, array, layout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Verify;
    use crate::error::{Error, Kind};

    /// Bytes that count up. As bricks: a 3 x 5 array in bricks of 2 x 2, then a tail of one byte.
    struct Counting {
        unit: u64,
        len: u64,
        bricks: bool,
    }

    impl ByteStream for Counting {
        fn len(&self) -> u64 {
            self.len
        }

        fn unit(&self) -> u64 {
            self.unit
        }

        fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
            dst.iter_mut().zip(at..).for_each(|(d, n)| *d = n as u8);
            Ok(())
        }

        fn bricks(&self) -> Option<Bricks> {
            self.bricks.then(|| Bricks { itemsize: 1, shape: vec![3, 5], brick: vec![2, 2] })
        }

        fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
            dst.fill(index as u8);
            Ok(())
        }
    }

    fn options(piece: u64) -> Options {
        Options { limits: Limits { piece, ..Limits::default() }, ..Options::default() }
    }

    fn blobs(unit: u64, len: u64, bricks: bool) -> (Content, Vec<BlobRef>) {
        let stream: Arc<dyn ByteStream> = Arc::new(Counting { unit, len, bricks });
        content(&stream, None, &Threads::new(1), &options(1 << 22))
    }

    #[test]
    fn pieces_are_whole_units_near_a_mebibyte() {
        for (unit, want) in [(0, PIECE), (1, PIECE), (3 << 18, 3 << 18), (300_000, 900_000), (4 << 20, 4 << 20)] {
            assert_eq!(blobs(unit, 10 << 20, false).1[0].layout().unwrap().range(0), 0..want, "{unit}");
        }
        assert_eq!(blobs(1 << 23, 1 << 24, false).1[0].layout().unwrap().range(0), 0..PIECE);
        assert_eq!(
            [piece(7, &Limits { piece: 20, ..Limits::default() }), piece(7, &Limits { piece: 5, ..Limits::default() })],
            [14, 5]
        );
    }

    #[test]
    fn fragments_are_whole_units_near_32_kib_of_pieces_of_whole_units() {
        let fragment = |unit| {
            let fragments = blobs(unit, 10 << 20, false).1[0].fragments()?;
            Some(fragments.layout().unwrap().range(0).end)
        };
        let kib = 1 << 10;
        for (unit, want) in [(0, 32), (1, 32), (24, 24), (48, 48), (512, 512)].map(|(a, b)| (a * kib, b * kib)) {
            assert_eq!(fragment(unit), Some(want), "{unit}");
        }
        // More than half of a piece; parts of a large unit.
        assert_eq!([fragment(513 * kib), fragment(8 << 20)], [None, None]);
        assert!(blobs(1, 16, true).1[0].fragments().is_none());
    }

    #[test]
    fn a_bricked_array_is_a_grid_and_its_tail_a_window() {
        let (content, blobs) = blobs(1, 16, true);
        let Content::Join(parts) = content else { panic!("{content:?}") };
        assert!(matches!(&parts[..], [Content::Grid(_), Content::Blob(_)]));
        assert_eq!(blobs[0].layout().unwrap().len(), 6 * 4);
        let mut tail = [0];
        blobs[1].decode(0, &mut tail).unwrap();
        assert_eq!((blobs[1].layout().unwrap().len(), tail), (1, [15]));
    }

    #[test]
    fn an_array_larger_than_its_stream_is_read_by_windows() {
        assert!(matches!(blobs(1, 14, true).0, Content::Blob(_)));
    }

    #[test]
    fn no_byte_is_decoded_behind_a_failed_gate() {
        let gate =
            ChecksumGate::new(&Verify::First, 0, &Threads::default(), || Err(Error::corrupt("no", "data_checksum")));
        for bricks in [false, true] {
            let stream: Arc<dyn ByteStream> = Arc::new(Counting { unit: 1, len: 16, bricks });
            for blob in content(&stream, Some(&gate), &Threads::new(1), &Options::default()).1 {
                let part = blob.fragmented().map(|blob| blob.decode_fragment(0, 0, &mut [0; 4]));
                for e in [Some(blob.decode(0, &mut [0; 4])), part].into_iter().flatten() {
                    assert!(matches!(e.unwrap_err().kind(), Kind::Corrupt(_)));
                }
            }
        }
    }
}
