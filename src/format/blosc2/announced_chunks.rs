//! Announces chunks that will be read soon, so that a server sends their stored bytes together.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::source::{Need, Source};

use super::chunk::Chunk;
use super::chunk_index::ChunkIndex;
use super::stored_chunk::ChunkLocation;

/// How far the next chunk that is stored is looked for.
const NEAR: u64 = 64;

impl ChunkIndex {
    /// The given ranges of chunks, in order, will be read soon: fetches their stored bytes, if the file is on a server.
    /// For chunks that are not needed as a whole, headers and tables come first, to locate them.
    pub(super) fn announce(&self, parts: &[(u64, Range<u64>)], need: Need) {
        let (mut whole, mut heads, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for row in parts.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((i, _)) = row.first() else { continue };
            let is_open = self.is_open(*i);
            if !is_open && let Ok(Some(location)) = self.location(*i) {
                if let Some(extent) = self.extent(*i, &location, row) {
                    whole.push((location.source, extent));
                    continue;
                }
                let head = Chunk::head(&location);
                heads.push((location.source, head));
            }
            rest.extend_from_slice(row);
        }
        announce(&whole, need);
        announce(&heads, Need::Now);
        let chunks = rest.iter().filter_map(|(i, part)| Some((self.chunk(*i).ok()??, part)));
        let stored = chunks.filter_map(|(chunk, part)| Some((chunk.source().clone(), chunk.stored(part)?)));
        let stored = stored.flat_map(|(source, ranges)| ranges.into_iter().map(move |range| (source.clone(), range)));
        announce(&stored.collect::<Vec<_>>(), need);
    }

    /// The range of the file that chunk `i` takes, if `parts` are all of it and the next chunk marks its end.
    fn extent(&self, i: u64, location: &ChunkLocation, parts: &[(u64, Range<u64>)]) -> Option<Range<u64>> {
        let needed = parts.iter().fold(0_u64, |sum, (_, part)| sum.saturating_add(part.end.saturating_sub(part.start)));
        let decoded = self.range(i).ok()?;
        if needed < decoded.end.saturating_sub(decoded.start) {
            return None;
        }
        let most = location.at.plus(location.max_len);
        let near = i.saturating_add(1)..self.count().min(i.saturating_add(NEAR));
        let end = match near.clone().map(|next| self.location(next)).find_map(Result::transpose) {
            None if near.end == self.count() => most,
            Some(Ok(next)) if Arc::ptr_eq(&next.source, &location.source) && next.at > location.at => next.at.min(most),
            _ => return None,
        };
        Some(location.at.0..end.0)
    }
}

/// Announces ranges of sources, grouped by source.
fn announce(ranges: &[(Arc<Source>, Range<u64>)], need: Need) {
    for row in ranges.chunk_by(|(a, _), (b, _)| Arc::ptr_eq(a, b)) {
        let Some((source, _)) = row.first() else { continue };
        source.announce(&row.iter().map(|(_, range)| range.clone()).collect::<Vec<_>>(), need);
    }
}
