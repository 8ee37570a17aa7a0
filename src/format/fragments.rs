//! The fragments of a blob as the pieces of another blob: a random read decodes one instead of a piece of about 1 MiB.
//!
//! Piece: a fragment. Both blobs can be read at the same time; each byte is then decoded once for each at most.
//! Checked: all that is checked for the piece and does not need its other fragments. Each fragment has the gate of its
//! piece.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::{Blob, Far, Layout};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Result};

/// The fragments of a blob.
pub(super) struct Fragments {
    whole: Arc<dyn Blob>,
    pieces: Layout,
    divided: Layout,
}

impl Fragments {
    /// `None` if the blob has no fragments. A blob of unknown length has none yet.
    pub(super) fn of(whole: &Arc<dyn Blob>) -> Option<Self> {
        whole.known_len()?;
        let (Ok(pieces), Some(fragments)) = (whole.layout(), whole.fragmented()?.fragments()) else { return None };
        Some(Self { whole: Arc::clone(whole), pieces, divided: fragments })
    }

    /// The piece that contains fragment `index`, and its offset there.
    fn place(&self, index: u64) -> (u64, u64) {
        let start = self.divided.range(index).start;
        let piece = self.pieces.locate(start);
        (piece, start.saturating_sub(self.pieces.range(piece).start))
    }
}

impl Blob for Fragments {
    fn layout(&self) -> Result<Layout> {
        Ok(self.divided.clone())
    }

    fn gate(&self, index: u64) -> Option<ChecksumGate> {
        self.whole.gate(self.place(index).0)
    }

    fn decode(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        let (piece, at) = self.place(index);
        let whole = self.whole.fragmented().ok_or_else(|| Error::corrupt("has no fragments", "piece"))?;
        whole.decode_fragment(piece, at, dst)
    }

    // The ranges are of decoded bytes, which are the same.
    fn far(&self) -> Option<&dyn Far> {
        self.whole.far()
    }

    fn verified(&self, range: Range<u64>) -> Verified {
        self.whole.verified(range)
    }
}

#[cfg(test)]
mod tests {
    use crate::format::testing::{Memory, Plain, noise};
    use crate::format::{BlobRef, Fetch};

    fn blob(len: usize, piece: u64, fragment: Option<u64>) -> BlobRef {
        Memory { fragment, ..Memory::new(noise(len), piece) }.blob().0
    }

    #[test]
    fn fragments_in_order_are_the_bytes_of_the_blob() {
        let blob = blob(10_300, 1000, Some(300));
        let fragments = blob.fragments().unwrap();
        let count = fragments.layout().unwrap().count();
        let pieces = (0..count).map(|i| Plain.piece(&fragments, i).unwrap());
        assert_eq!(pieces.flat_map(|piece| piece.to_vec()).collect::<Vec<_>>(), noise(10_300));
        assert_eq!(count, 4 * 10 + 1);
        assert_eq!(fragments.id(), blob.fragments().unwrap().id());
        assert_ne!(fragments.id(), blob.id());
    }

    #[test]
    fn a_blob_without_small_fragments_has_none() {
        assert!(blob(10_000, 1000, None).fragments().is_none());
        assert!(blob(10_000, 1000, Some(501)).fragments().is_none());
        assert!(blob(500, 1000, Some(300)).fragments().is_none());
        assert!(blob(10_000, 1000, Some(300)).fragments().unwrap().fragments().is_none());
    }
}
