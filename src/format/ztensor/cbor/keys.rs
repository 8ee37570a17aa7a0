//! The keys of a map, to detect one that is repeated.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use crate::account::Account;
use crate::bytes::to_usize;
use crate::error::{Error, Result};
use crate::format::ztensor::quoted::quoted;
use crate::format::ztensor::sort::Sorter;

use super::CborReader;

/// Maximum keys compared directly.
const FEW: usize = 32;

/// The keys of a map so far, to detect duplicates. The keys of a large map are compared when it ends: sorted by a keyed
/// hash, then by their bytes if the hashes are equal.
pub(super) struct Keys<'a> {
    account: &'a Account,
    few: Vec<(Cow<'a, str>, usize)>,
    /// Records with the hash in the upper half and the position in the lower half.
    many: Option<(RandomState, Sorter<1>)>,
    last: Cow<'a, str>,
    /// Whether every key so far is greater than the one before it; there are no duplicates then.
    ascending: bool,
}

impl<'a> Keys<'a> {
    pub(super) fn new(account: &'a Account) -> Self {
        Self { account, few: Vec::new(), many: None, last: Cow::Borrowed(""), ascending: true }
    }

    /// Adds the key at `at`.
    pub(super) fn add(
        &mut self,
        key: Cow<'a, str>,
        at: usize,
        reader: &CborReader<'a>,
        what: &'static str,
    ) -> Result<()> {
        let fits = |pos: usize| u64::from(u32::try_from(pos).unwrap_or(u32::MAX));
        let record = |hash: &RandomState, key: &str, pos| [(hash.hash_one(key) & !u64::from(u32::MAX)) | fits(pos)];
        self.ascending &= (self.few.is_empty() && self.many.is_none()) || self.last < key;
        if let Some((hash, many)) = &mut self.many {
            many.push(record(hash, &key, at))?;
        } else {
            if !self.ascending && self.few.iter().any(|(other, _)| *other == key) {
                return Err(twice(reader, &key, at, what));
            }
            self.few.push((key.clone(), at));
            if self.few.len() > FEW {
                let (hash, mut many) = (RandomState::new(), Sorter::new(self.account, "keys of a map"));
                for (key, pos) in self.few.drain(..) {
                    many.push(record(&hash, &key, pos))?;
                }
                self.many = Some((hash, many));
            }
        }
        self.last = key;
        Ok(())
    }

    /// Checks for duplicate keys.
    pub(super) fn finish(self, reader: &CborReader<'a>, what: &'static str) -> Result<()> {
        let Some((_, many)) = self.many.filter(|_| !self.ascending) else { return Ok(()) };
        let mut hash = 0;
        let mut same: Vec<usize> = Vec::new();
        many.finish(&mut |[record]| {
            if record >> 32 != hash {
                (hash, same) = (record >> 32, Vec::new());
            }
            let pos = to_usize(record & u64::from(u32::MAX), "key")?;
            let text = |pos| reader.clone().at(pos, reader.depth).text(what);
            for &other in &same {
                let key = text(pos)?;
                if key == text(other)? {
                    return Err(twice(reader, &key, pos, what));
                }
            }
            same.push(pos);
            Ok(())
        })
    }
}

fn twice(reader: &CborReader<'_>, key: &str, at: usize, what: &'static str) -> Error {
    reader.wrong(at, format!("the key {} is repeated", quoted(key)), what)
}
