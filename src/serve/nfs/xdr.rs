//! XDR (RFC 4506): numbers of four and eight bytes, and opaque bytes padded to four, as requests have them and replies get them.
#![forbid(unsafe_code)]

use crate::bytes::to_u64;

/// Reads a request. Each method returns `None` past its end; nothing is allocated by what it says.
#[derive(Debug, Clone, Copy)]
pub(super) struct XdrReader<'a>(pub(super) &'a [u8]);

impl<'a> XdrReader<'a> {
    pub(super) fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }

    /// Opaque bytes of any length.
    pub(super) fn opaque(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (bytes, _) = self.0.split_at_checked(len)?;
        let (_, rest) = self.0.split_at_checked(len.checked_next_multiple_of(4)?)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Writes a reply.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u32s(&mut self, values: &[u32]) -> &mut Self {
        for value in values {
            self.u32(*value);
        }
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn len(&self) -> u64 {
        to_u64(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_length_past_the_end_is_not() {
        let mut out = Writer::default();
        out.u32(7).opaque(b"abcde").u64(9).opaque(b"");
        assert_eq!(out.len(), 4 + 4 + 8 + 8 + 4);
        let mut reader = XdrReader(&out.0);
        assert_eq!((reader.u32(), reader.opaque(), reader.u64()), (Some(7), Some(&b"abcde"[..]), Some(9)));
        assert_eq!((reader.opaque(), reader.u32(), reader.u64(), reader.opaque()), (Some(&b""[..]), None, None, None));
        for bytes in [&[0, 0, 0, 1][..], &[0, 0, 0, 1, 0], &[0xff; 8], &[0, 0, 0, 5, 1, 2, 3, 4, 5]] {
            assert_eq!(XdrReader(bytes).opaque(), None, "{bytes:?}");
        }
    }
}
