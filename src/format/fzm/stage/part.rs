//! A range of another stream, as a stream.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// `len` bytes at `at` of a stream, within it.
pub(in crate::format::fzm) struct Part {
    pub(in crate::format::fzm) stream: Arc<dyn ByteStream>,
    pub(in crate::format::fzm) at: u64,
    pub(in crate::format::fzm) len: u64,
}

impl ByteStream for Part {
    fn len(&self) -> u64 {
        self.len
    }

    fn unit(&self) -> u64 {
        self.stream.unit()
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        let end = at.saturating_add(to_u64(dst.len()));
        if end > self.len {
            return Err(Error::new(Kind::TooLarge { value: end, limit: self.len }, "part of a stream"));
        }
        self.stream.read(self.at.saturating_add(at), dst)
    }

    fn setup(&self) -> Setup {
        self.stream.setup()
    }

    fn is_whole(&self) -> bool {
        self.stream.is_whole()
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        let input = Arc::clone(&self.stream);
        // If the stage has no kernel, neither has a part of its inverse; kernels give the beginning.
        Arc::clone(&input).derivation().filter(|_| self.at == 0)?;
        Some(Derivation { inverse: Inverse::Prefix(inverse::StreamPrefix), input })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Memory, whole};
    use super::*;

    #[test]
    fn a_part_ends_where_it_says() {
        let stream: Arc<dyn ByteStream> = Arc::new(Memory((0..10).collect()));
        let part = Part { stream, at: 3, len: 4 };
        assert_eq!(whole(&part).unwrap(), [3, 4, 5, 6]);
        let mut two = [0; 2];
        part.read(2, &mut two).unwrap();
        assert_eq!(two, [5, 6]);
        assert!(part.read(3, &mut two).is_err() && part.read(u64::MAX, &mut two).is_err());
    }
}
