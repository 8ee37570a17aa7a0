//! Announcements of pieces of far blobs: their stored bytes are fetched with few requests before the first is decoded.
//!
//! A thread that decodes waits for a server piece by piece; one that announces waits for structure only, so that the
//! requests for many pieces are on their way at the same time, whatever the number of threads.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::format::{BlobRef, Need, Piece, PieceKey};
use crate::wanted::{Then, carried};

use super::Cache;

impl Cache {
    /// Calls [`Cache::fetch_async`] for each of `missing`; if some are far, on a worker that announces them first.
    pub fn fetch_all(&self, missing: Vec<(BlobRef, u64)>, then: impl Fn(PieceKey) -> Then<Piece> + Send + 'static) {
        let fetch = move |cache: &Self, missing: Vec<(BlobRef, u64)>| {
            for (blob, piece) in missing {
                cache.fetch_async(&blob, piece, then((blob.id(), piece)));
            }
        };
        if !missing.iter().any(|(blob, _)| blob.is_far()) {
            return fetch(self, missing);
        }
        let me = self.me.clone();
        self.submit(Box::new(carried(move || {
            if let Some(cache) = me.upgrade() {
                announce(&missing, Need::Now);
                fetch(&cache, missing);
            }
        })));
    }
}

/// Announces the far ones of `pieces`, blob by blob.
pub fn announce(pieces: &[(BlobRef, u64)], need: Need) {
    for row in pieces.chunk_by(|(a, _), (b, _)| a.id() == b.id()) {
        let Some((blob, far)) = row.first().and_then(|(blob, _)| Some((blob, blob.far()?))) else { continue };
        // A failure is that of the decode.
        let Ok(layout) = blob.layout() else { continue };
        let mut ranges: Vec<Range<u64>> = row.iter().map(|(_, piece)| layout.range(*piece)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup();
        far.announce(&ranges, need);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::error::Result;
    use crate::format::{Blob, Far, Layout};

    /// A far blob that records its calls.
    struct Calls(Arc<Mutex<Vec<String>>>);

    impl Blob for Calls {
        fn layout(&self) -> Result<Layout> {
            Ok(Layout::Uniform { len: 1000, piece: 100 })
        }

        fn decode(&self, piece: u64, _: &mut [u8]) -> Result<()> {
            self.0.lock().unwrap().push(format!("{piece}"));
            Ok(())
        }

        fn far(&self) -> Option<&dyn Far> {
            Some(self)
        }
    }

    impl Far for Calls {
        fn announce(&self, ranges: &[Range<u64>], need: Need) {
            self.0.lock().unwrap().push(format!("{need:?} {ranges:?}"));
        }
    }

    #[test]
    fn what_is_far_is_announced_before_it_is_decoded_and_nothing_twice() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let blob = BlobRef::new(Calls(seen.clone()));
        let cache = Cache::new(10_000, 1);
        let (tx, rx) = std::sync::mpsc::channel();
        cache.fetch_all(vec![(blob.clone(), 3), (blob.clone(), 1)], move |(_, piece)| {
            let tx = tx.clone();
            Box::new(move |_| tx.send(piece).unwrap())
        });
        assert_eq!([rx.recv(), rx.recv()], [Ok(3), Ok(1)]);
        assert_eq!(seen.lock().unwrap()[..], ["Now [100..200, 300..400]", "3", "1"]);
        let mut hints = cache.prefetch_batch();
        for piece in [5, 7, 8] {
            hints.add(&blob, piece, 100);
        }
        assert!(hints.send());
        while seen.lock().unwrap().len() < 7 {
            std::thread::yield_now();
        }
        assert_eq!(seen.lock().unwrap()[3..], ["Ahead [500..600, 700..800, 800..900]", "5", "7", "8"]);
    }
}
