//! Which of the dictionaries given a frame needs.
#![forbid(unsafe_code)]

use crate::error::{Error, Kind, Result};
use crate::limits::Limits;

use super::super::dictionary::Dictionary;
use super::super::frame::{Frame, PIECE};
use super::Frames;

/// Maximum window that zstd itself writes or reads; the memory allowed for windows is a separate limit.
const MAX_WINDOW: u64 = 1 << 31;

impl Frames {
    /// Selects the dictionary of `frame`. With several candidates, `attempt` decodes with each and returns the hash of
    /// the content: the frame's checksum decides; without one, the content must not depend on the choice.
    ///
    /// # Errors
    /// Fails if no candidate fits, or candidates give different contents.
    pub(super) fn choose(
        &self,
        frame: &Frame,
        mut attempt: impl FnMut(Option<&Dictionary>) -> Result<u64>,
    ) -> Result<Option<&Dictionary>> {
        let all = self.candidates(frame)?;
        if let [only] = *all {
            return Ok(only);
        }
        let (mut found, mut wrong): (Option<(Option<&Dictionary>, u64)>, _) = (None, None);
        for dictionary in all {
            match (attempt(dictionary), found) {
                (Ok(_), _) if frame.checksum.is_some() => return Ok(dictionary),
                (Ok(hash), None) => found = Some((dictionary, hash)),
                (Ok(hash), Some((_, other))) if hash != other => {
                    let why = "a frame that several of the given dictionaries decode; give only the right one";
                    return Err(Error::unsupported(why, "dictionary"));
                }
                (Ok(_), Some(_)) => {}
                (Err(e), _) if !e.is_lasting() => return Err(e),
                (Err(e), _) => wrong = wrong.or(Some(e)),
            }
        }
        let none = || Error::corrupt("none of the given dictionaries decodes the frame", "dictionary");
        found.map(|(dictionary, _)| dictionary).ok_or_else(|| wrong.unwrap_or_else(none))
    }

    /// The dictionary of long frame `index`.
    pub(super) fn dictionary(&self, index: usize, frame: &Frame) -> Result<Option<&Dictionary>> {
        let choose = || {
            let chosen = self.choose(frame, |dictionary| {
                let reader = self.reader(frame, dictionary)?;
                let buffer = || self.pieces.buffer(PIECE as usize);
                let (_, hash, reader) = self.decode_all(index, frame, true, reader, buffer, |_, bytes| Some(bytes))?;
                self.recycle(reader);
                Ok(hash)
            })?;
            let all = self.candidates(frame)?;
            let same = |other: Option<&Dictionary>| other.map(std::ptr::from_ref) == chosen.map(std::ptr::from_ref);
            all.into_iter().position(same).ok_or_else(|| Error::new(Kind::NotFound, "dictionary"))
        };
        let all = self.candidates(frame)?;
        if let [only] = *all {
            return Ok(only);
        }
        let place = self.state(index).map_or_else(choose, |state| state.dictionary.get(choose).copied())?;
        all.get(place).copied().ok_or_else(|| Error::new(Kind::NotFound, "dictionary"))
    }

    /// Checks the preconditions for decoding `frame`: a window that zstd supports, and the dictionary that it names.
    /// Returns the candidate dictionaries.
    fn candidates(&self, frame: &Frame) -> Result<Vec<Option<&Dictionary>>> {
        // The content of a single segment is its own window and may be larger.
        if Some(frame.header.window) != frame.header.content_size {
            Limits::check(frame.header.window, MAX_WINDOW, "window size").map_err(|e| e.at(frame.at.plus(5)))?;
        }
        self.dictionaries.of(&frame.header)
    }
}
