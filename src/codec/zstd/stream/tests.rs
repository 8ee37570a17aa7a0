//! Tests of streams of one frame that does not state its size.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::account::{Account, Pieces};
use crate::bytes::FileOffset;
use crate::checksum::{BackgroundChecks, Threads, Verify};
use crate::codec::zstd::dictionary::Dictionaries;
use crate::codec::zstd::frame_scan::scan_frames;
use crate::codec::zstd::random_access::Policy;
use crate::limits::Limits;
use crate::source::{Origin, Source};

fn stream(source: Arc<Source>) -> ContentStream {
    let account = Account::new(64 << 20, 0);
    let range = FileOffset(0)..FileOffset(source.len());
    let list = scan_frames(&source, range, &Limits::default(), &account).unwrap().frames;
    let policy = Policy {
        verify: Verify::Background(BackgroundChecks::default()),
        threads: Threads::new(1),
        window: 8 << 20,
        content: u64::MAX,
        account: account.clone(),
        records: None,
    };
    let frames = Frames::new(source, list, Dictionaries::default(), policy, Pieces::new(account));
    ContentStream::all(frames.unwrap())
}

#[test]
fn a_decoder_that_comes_to_the_end_of_a_frame_without_a_size_has_counted_it() {
    for len in [5 * PIECE, 5 * PIECE + 1, 6 * PIECE - 1] {
        let content: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8 & 15).collect();
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, &content).unwrap();
        let stream = stream(Source::from_bytes(encoder.finish().unwrap()));
        let longest = match stream.longest() {
            Some(Division::Uniform { len, piece: PIECE }) => len,
            other => panic!("{other:?}"),
        };
        assert!(longest >= len && stream.known_len().is_none());
        let (last, mut dst) = ((len - 1) / PIECE, vec![0; PIECE as usize]);
        for piece in 0..last {
            stream.decode(piece, &mut dst).unwrap();
            assert!(content.chunks(PIECE as usize).nth(piece as usize) == Some(&dst));
            assert!(stream.known_len().is_none());
        }
        // Longer than what is left, for all that ask: the checksum comes first. A frame of whole pieces ends there too.
        let have = len - last * PIECE;
        for (piece, have) in [(last, have), (last + 1, 0), (last, have), (last + 5, 0)] {
            if (piece, have) == (last, PIECE) && stream.known_len().is_some() {
                continue;
            }
            let error = stream.decode(piece, &mut dst).unwrap_err();
            assert!(*error.kind() == Kind::Truncated { need: PIECE, have }, "{error}");
            assert_eq!(stream.known_len(), Some(len));
        }
        assert!(stream.longest().is_none() && stream.size().unwrap() == len);
        dst.truncate(have as usize);
        stream.decode(last, &mut dst).unwrap();
        assert!(content.ends_with(&dst));
    }
}

/// A file; the first read of its last byte runs `then`.
struct Hooked {
    bytes: Vec<u8>,
    then: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
    ran: AtomicBool,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooked({})", self.bytes.len())
    }
}

impl Origin for Hooked {
    fn len(&self) -> u64 {
        to_u64(self.bytes.len())
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], _: &'static str) -> Result<()> {
        let at = at.0 as usize;
        dst.copy_from_slice(&self.bytes[at..at + dst.len()]);
        if let Some(then) =
            self.then.get().filter(|_| at + dst.len() == self.bytes.len() && !self.ran.swap(true, Ordering::Relaxed))
        {
            then();
        }
        Ok(())
    }
}

#[test]
fn a_frame_may_be_counted_while_its_last_piece_is_decoded() {
    // A read ahead is less than the last piece takes.
    let noise = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (i << 7)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 58;
    let content: Vec<u8> = (0..7_300_000).map(|i| noise(i) as u8).collect();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut encoder, &content).unwrap();
    let (bytes, then) = (encoder.finish().unwrap(), Arc::new(OnceLock::new()));
    let hooked = Hooked { bytes, then: Arc::clone(&then), ran: AtomicBool::new(false) };
    let stream = Arc::new(stream(Source::of("file", hooked)));
    let (same, len) = (Arc::clone(&stream), to_u64(content.len()));
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let (last, mut dst) = ((len - 1) / PIECE, vec![0; PIECE as usize]);
    (0..last).for_each(|piece| stream.decode(piece, &mut dst).unwrap());
    assert!(stream.known_len().is_none());
    assert!(then.set(Box::new(move || runs.store(same.size().unwrap() == len, Ordering::Relaxed))).is_ok());
    let error = stream.decode(last, &mut dst).unwrap_err();
    assert!(*error.kind() == Kind::Truncated { need: PIECE, have: len - last * PIECE }, "{error}");
    assert!(ran.load(Ordering::Relaxed));
    dst.truncate((len - last * PIECE) as usize);
    stream.decode(last, &mut dst).unwrap();
    assert!(content.ends_with(&dst));
}
