//! A virtual file from its first byte to its last, decoded ahead on all cores, in bounded memory.
#![forbid(unsafe_code)]

use std::io;

use crate::cache::{Cache, Readahead};
use crate::error::Error;
use crate::view::View;

/// Bytes that are handed on at a time.
const STEP: u64 = 1 << 20;

/// Why a stream ended before its last byte.
#[derive(Debug)]
pub(super) enum Broken {
    /// The container is broken there.
    Container(Error),
    /// Whoever takes the bytes takes no more.
    Sink(io::Error),
}

/// Hands all bytes of `view` to `sink`, in order.
///
/// # Errors
/// What was handed on before an error is right, and nothing is handed on after it.
pub(super) fn stream(view: &View, cache: &Cache, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), Broken> {
    let mut ahead = Readahead::new(cache.workers(), cache.budget());
    let mut at = 0;
    while at < view.len() {
        let range = at..view.len().min(at + STEP);
        if let Some(next) = ahead.next(&range, view.piece_and_batch()) {
            let next = next.start.min(view.len())..next.end.min(view.len());
            let mut hints = cache.hints();
            view.pieces(next, &mut |blob, piece, size| hints.add(blob, piece, size)).map_err(Broken::Container)?;
            if !hints.send() {
                ahead.refused();
            }
        }
        let bytes = view.get(range.clone(), cache).map_err(Broken::Container)?;
        sink(&bytes).map_err(Broken::Sink)?;
        at = range.end;
    }
    Ok(())
}
