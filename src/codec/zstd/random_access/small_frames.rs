//! Frames that are decoded at once.
#![forbid(unsafe_code)]

use xxhash_rust::xxh64::xxh64;

use crate::bytes::to_u64;
use crate::checksum::Verify;
use crate::error::Result;

use super::super::decode::length_error;
use super::super::dictionary::Dictionary;
use super::super::frame::Frame;
use super::super::header::Generation;
use super::super::small::Small;
use super::super::v07;
use super::{Frames, inside, lock};

impl Frames {
    /// Decodes frame `index`, which must not be long, into `dst`.
    ///
    /// # Errors
    /// Fails if the frame is malformed, or `dst` does not have the length of its content.
    pub fn small(&self, index: usize, dst: &mut [u8]) -> Result<()> {
        let frame = self.frame(index)?;
        let listed = frame.served_checksum().filter(|_| !matches!(self.policy.verify, Verify::Off));
        let done = self.decode_small(&frame, dst).and_then(|()| listed.map_or(Ok(()), |sum| sum.check(xxh64(dst, 0))));
        done.map_err(|e| inside(index, &frame, e))
    }

    fn decode_small(&self, frame: &Frame, dst: &mut [u8]) -> Result<()> {
        let dictionary = self.choose(frame, |dictionary| {
            self.decode_small_with(frame, dictionary, dst)?;
            Ok(xxh64(dst, 0))
        })?;
        self.decode_small_with(frame, dictionary, dst)
    }

    /// Decodes `frame` with `dictionary`.
    fn decode_small_with(&self, frame: &Frame, dictionary: Option<&Dictionary>, dst: &mut [u8]) -> Result<()> {
        if frame.header.generation == Generation::Modern {
            return self.with_small(|small| small.fill(&self.source, frame, dictionary, dst));
        }
        let mut reader = self.reader(frame, dictionary)?;
        let got = reader.fill(&self.source, frame, dst)? + reader.excess(&self.source, frame)?;
        self.recycle(reader);
        if got != dst.len() {
            return Err(length_error(to_u64(got), to_u64(dst.len())));
        }
        v07::check(frame, || xxh64(dst, 0))
    }

    /// Runs `decode` with a decoder for small frames, which is kept for reuse if the account has room.
    fn with_small<T>(&self, decode: impl FnOnce(&mut Small) -> Result<T>) -> Result<T> {
        let idle = lock(&self.smalls).pop();
        let mut small = idle.map_or_else(Small::new, Ok)?;
        let done = decode(&mut small);
        if small.charge_memory(&self.policy.account) {
            lock(&self.smalls).push(small);
        }
        done
    }

    /// Decodes all of `frame`, a modern one, and checks its length; returns its length and, if `wanted`, the XXH64 of
    /// its content.
    pub(super) fn run_small(&self, frame: &Frame, wanted: bool) -> Result<(u64, u64)> {
        let most = frame.content.unwrap_or(frame.bound).min(frame.bound) as usize;
        let run = |dictionary: Option<&Dictionary>, wanted: bool| {
            self.with_small(|small| {
                let content = small.content(&self.source, frame, dictionary, most)?;
                match frame.content.filter(|&want| want != to_u64(content.len())) {
                    Some(want) => Err(length_error(to_u64(content.len()), want)),
                    None => Ok((to_u64(content.len()), if wanted { xxh64(content, 0) } else { 0 })),
                }
            })
        };
        let dictionary = self.choose(frame, |dictionary| run(dictionary, true).map(|(_, hash)| hash))?;
        run(dictionary, wanted)
    }
}
