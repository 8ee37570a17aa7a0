//! Reads of a file into memory of the GPU.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::{File, contained};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::{Batched, Content, OnDevice};
use crate::gpu::{DeviceBuffer, ForeignStream};

/// Maximum depth of content in content.
const DEPTH: u32 = 8;

impl File {
    /// Decodes bytes `range` of the file on the GPU and leaves them there. Only stored bytes are uploaded, and no
    /// decoded ones come back; both overlap with decoding. Pieces that the cache has are decoded again.
    ///
    /// The GPU is that of [`Options::device`](crate::Options::device): the first one by default. `stream` is a stream
    /// of the caller, which allocation and freeing are ordered on; see [`DeviceBuffer`]. Returns when all work is done,
    /// so that any stream may use the bytes. They count against [`Options::gpu_memory`](crate::Options::gpu_memory)
    /// until they are freed.
    ///
    /// # Errors
    /// [`Kind::Usage`] if no GPU can be used or its memory does not suffice, [`Kind::Unsupported`] if the bytes are
    /// none that a GPU decodes (of the formats only FZM has such), [`Kind::Truncated`] if the file ends before the
    /// range; otherwise as [`File::read_at`].
    pub fn decode_to_device(&self, range: Range<u64>, stream: Option<ForeignStream>) -> Result<DeviceBuffer> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::new(Kind::Truncated { need: range.end, have: self.len() }, "range of a file"));
        }
        contained("file", || {
            let none = || Error::unsupported("only arrays of FZM files decode on a GPU", "device");
            let OnDevice { stream: source, at } = locate(self.content(), range.clone(), DEPTH)?.ok_or_else(none)?;
            source.decode(at..at.saturating_add(range.end - range.start), stream)
        })
    }
}

/// Where bytes `range` of `content` are decoded on a device, if all of them lie in one stream, one after the other.
fn locate(content: &Content, range: Range<u64>, depth: u32) -> Result<Option<OnDevice>> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(None) };
    let within = |on: OnDevice| OnDevice { at: on.at.saturating_add(range.start), ..on };
    Ok(match content {
        Content::Blob(blob) => blob.batched().and_then(Batched::on_device).map(within),
        Content::Grid(grid) if grid.window.is_none() => grid.blob.batched().and_then(Batched::on_device).map(within),
        Content::Slice(inner, of) => {
            let shifted = of.start.saturating_add(range.start)..of.start.saturating_add(range.end);
            locate(inner, shifted, depth)?
        }
        Content::Deferred { make, .. } => locate(&make()?, range, depth)?,
        Content::Join(parts) => joined(parts, &range, depth)?,
        _ => None,
    })
}

/// Likewise of `parts`, one after the other. An empty range is in any part that it touches.
fn joined(parts: &[Content], range: &Range<u64>, depth: u32) -> Result<Option<OnDevice>> {
    let (mut found, mut start): (Option<OnDevice>, u64) = (None, 0);
    for part in parts {
        let Some(len) = len(part, depth)? else { return Ok(None) };
        let end = start.saturating_add(len);
        let (from, to) = (range.start.max(start), range.end.min(end));
        if range.is_empty() && from == to {
            let at = from - start;
            found = found.map_or_else(|| locate(part, at..at, depth), |found| Ok(Some(found)))?;
        }
        if from < to {
            let Some(on) = locate(part, from - start..to - start, depth)? else { return Ok(None) };
            let follows = |first: &OnDevice| {
                on.at == first.at.saturating_add(from - range.start) && Arc::ptr_eq(&first.stream, &on.stream)
            };
            if !found.as_ref().is_none_or(follows) {
                return Ok(None);
            }
            found = found.or(Some(on));
        }
        start = end;
    }
    Ok(found)
}

/// The length of content, if it is of a kind that may adjoin a blob that a device decodes.
fn len(content: &Content, depth: u32) -> Result<Option<u64>> {
    Ok(match content {
        Content::Bytes(bytes) => Some(to_u64(bytes.len())),
        Content::Blob(blob) => Some(blob.layout()?.len()),
        Content::Grid(grid) => grid.shape.iter().try_fold(grid.itemsize, |n, &d| n.checked_mul(d)),
        Content::Slice(_, range) => Some(range.end.saturating_sub(range.start)),
        Content::Zeros(len) | Content::Deferred { len: Some(len), .. } => Some(*len),
        Content::Deferred { make, .. } => match depth.checked_sub(1) {
            Some(depth) => len(&make()?, depth)?,
            None => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::tests::lone;
    use super::*;
    use crate::format::testing::Memory;
    use crate::format::{Blob, BlobRef, DeviceStream, Grid, Layout, Window};

    /// A stream that says which of its bytes it would decode.
    struct Says;

    impl DeviceStream for Says {
        fn decode(&self, range: Range<u64>, _: Option<ForeignStream>) -> Result<DeviceBuffer> {
            Err(Error::corrupt(format!("bytes {range:?}"), "stream"))
        }
    }

    /// Bytes of a stream of a device.
    struct OnGpu {
        len: u64,
        on: OnDevice,
    }

    impl Blob for OnGpu {
        fn layout(&self) -> Result<Layout> {
            Ok(Layout::Uniform { len: self.len, piece: self.len })
        }

        fn decode(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }

        fn batched(&self) -> Option<&dyn Batched> {
            Some(self)
        }
    }

    impl Batched for OnGpu {
        fn on_device(&self) -> Option<OnDevice> {
            Some(self.on.clone())
        }

        fn batch(&self) -> u64 {
            1
        }

        fn decode_many(&self, _: u64, _: &mut [&mut [u8]]) -> Result<()> {
            Ok(())
        }
    }

    /// `len` bytes of `stream` from `at` on.
    fn blob(stream: &Arc<dyn DeviceStream>, at: u64, len: u64) -> BlobRef {
        BlobRef::new(OnGpu { len, on: OnDevice { stream: stream.clone(), at } })
    }

    fn join(parts: &[Content]) -> Content {
        Content::Join(parts.into())
    }

    fn deferred(len: Option<u64>, content: Content) -> Content {
        Content::Deferred { len, make: Arc::new(move || Ok(content.clone())) }
    }

    fn at(content: &Content, range: Range<u64>) -> Option<u64> {
        locate(content, range, DEPTH).unwrap().map(|on| on.at)
    }

    #[test]
    fn bytes_are_found_in_the_stream_whatever_describes_them() {
        let stream: Arc<dyn DeviceStream> = Arc::new(Says);
        let blob = blob(&stream, 100, 50);
        let grid = |window: Option<Window>| {
            let (shape, chunk) = (vec![50], vec![10]);
            let block = chunk.clone();
            Content::Grid(Arc::new(Grid { blob: blob.clone(), itemsize: 1, shape, chunk, block, window }))
        };
        let whole = Content::Blob(blob.clone());
        let part = Content::Slice(Arc::new(whole.clone()), 5..45);
        for content in [whole.clone(), grid(None), deferred(None, whole.clone())] {
            assert_eq!(at(&content, 10..20), Some(110), "{content:?}");
        }
        assert_eq!(at(&part, 10..20), Some(115));
        let window = Window { start: vec![10], shape: vec![20] };
        for content in [grid(Some(window)), Content::Zeros(50), Content::bytes([0; 50])] {
            assert_eq!(at(&content, 10..20), None, "{content:?}");
        }
        // After a header of any kind of which the length is known.
        let (memory, _) = Memory::new(vec![0; 8], 8).blob();
        let table = Grid {
            blob: memory.clone(),
            itemsize: 2,
            shape: vec![2, 2],
            chunk: vec![2, 2],
            block: vec![2, 2],
            window: None,
        };
        let bytes = Content::bytes([0; 8]);
        for header in [
            bytes.clone(),
            Content::Zeros(8),
            Content::Blob(memory),
            Content::Grid(Arc::new(table)),
            Content::Slice(Arc::new(Content::Zeros(20)), 4..12),
            deferred(Some(8), bytes.clone()),
            deferred(None, bytes.clone()),
        ] {
            let content = join(&[header.clone(), whole.clone()]);
            assert_eq!(at(&content, 10..20), Some(102), "{header:?}");
            assert_eq!((at(&content, 7..20), at(&content, 0..8)), (None, None), "{header:?}");
        }
        let nested = (0..DEPTH).fold(whole, |content, _| deferred(None, content));
        assert_eq!(at(&nested, 10..20), None);
    }

    #[test]
    fn parts_that_follow_each_other_in_a_stream_are_one_range_of_it() {
        let (stream, other): (Arc<dyn DeviceStream>, Arc<dyn DeviceStream>) = (Arc::new(Says), Arc::new(Says));
        let first = Content::Blob(blob(&stream, 100, 50));
        let then = |stream, at| join(&[first.clone(), Content::Blob(blob(stream, at, 50))]);
        let both = then(&stream, 150);
        for (range, want) in [(0..100, 100), (10..60, 110), (49..51, 149), (50..60, 150), (60..100, 160), (0..50, 100)]
        {
            assert_eq!(at(&both, range.clone()), Some(want), "{range:?}");
        }
        for gap in [then(&stream, 151), then(&other, 150)] {
            assert_eq!((at(&gap, 10..60), at(&gap, 10..50)), (None, Some(110)));
        }
        // A part of a file that ends before the other stream begins.
        let slice = Content::Slice(Arc::new(then(&other, 150)), 0..90);
        let after_header = join(&[Content::Zeros(8), slice]);
        assert_eq!((at(&after_header, 20..55), at(&after_header, 20..59)), (Some(112), None));
        let three = join(&[both, Content::Blob(blob(&stream, 200, 50))]);
        assert_eq!(at(&three, 40..120), None, "the length of parts in parts is not looked for");
    }

    #[test]
    fn an_empty_range_is_found_wherever_it_is() {
        let stream: Arc<dyn DeviceStream> = Arc::new(Says);
        let content = join(&[Content::Zeros(8), Content::Blob(blob(&stream, 100, 50))]);
        for (empty, want) in [(8, Some(100)), (20, Some(112)), (58, Some(150)), (0, None), (59, None)] {
            assert_eq!(at(&content, empty..empty), want, "{empty}");
        }
    }

    #[test]
    fn a_range_of_a_file_is_decoded_from_the_stream_if_the_file_has_it() {
        let stream: Arc<dyn DeviceStream> = Arc::new(Says);
        let file = lone(Content::Blob(blob(&stream, 100, 50)), &Options::new());
        let error = |start, end| file.decode_to_device(Range { start, end }, None).unwrap_err();
        for (start, end, want) in [(10, 20, "bytes 110..120"), (0, 50, "bytes 100..150"), (50, 50, "bytes 150..150")] {
            assert!(error(start, end).to_string().contains(want), "{}", error(start, end));
        }
        for (start, end) in [(0, 51), (20, 10), (51, 51)] {
            assert!(matches!(error(start, end).kind(), Kind::Truncated { have: 50, .. }), "{start}..{end}");
        }
        let memory = lone(Content::Zeros(5), &Options::new());
        assert!(matches!(memory.decode_to_device(0..5, None).unwrap_err().kind(), Kind::Unsupported(_)));
    }
}
