//! NDLZ: a plane of bytes, stored as cells that repeat earlier cells or rows of the stream.
//!
//! Reference: section 8.7. Cells of side 4 or 8 in C order, each with a token. A reference counts back from its token
//! and copies bytes of the stream, never of the output.
//! Checked: each reference is inside the stream; the plane has exactly the size of the block.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::codec::pace::{Pace, STRIDE};

use super::stream_error::StreamError;

/// The rows of a cell of at most 8 x 8 bytes.
type Cell = [[u8; 8]; 8];

/// Decodes `src`, filling `dst` completely; `side` is 4 or 8. Calls `pace` after every [`STRIDE`] bytes of output.
pub(super) fn decode(side: u8, src: &[u8], dst: &mut [u8], pace: Pace<'_>) -> Result<(), StreamError> {
    let side = match side {
        4 => 4,
        8 => 8,
        _ => return Err(StreamError::new("the side of an NDLZ cell must be 4 or 8", 0)),
    };
    let mut input = NdlzInput { src, at: 0 };
    if input.byte()? != 2 {
        return Err(StreamError::new("an NDLZ plane must have two dimensions", 0));
    }
    let (rows, columns) = (input.size()?, input.size()?);
    if rows.checked_mul(columns) != Some(dst.len()) {
        return Err(StreamError::new("the plane does not have the size of the block", 1));
    }
    let mut written = 0_usize;
    for top in (0..rows).step_by(side) {
        for left in (0..columns).step_by(side) {
            let shape = (side.min(rows.saturating_sub(top)), side.min(columns.saturating_sub(left)));
            let cell = input.cell(side, shape)?;
            let lines = dst.chunks_exact_mut(columns).skip(top).take(shape.0);
            for (line, row) in lines.zip(&cell) {
                for (byte, &value) in line.iter_mut().skip(left).take(shape.1).zip(row) {
                    *byte = value;
                }
            }
            written = written.saturating_add(shape.0.saturating_mul(shape.1));
            if written >= STRIDE {
                pace();
                written = 0;
            }
        }
    }
    if input.at == src.len() { Ok(()) } else { Err(StreamError::new("bytes after the last cell", input.at)) }
}

/// The stream and the position of the next byte.
struct NdlzInput<'a> {
    src: &'a [u8],
    at: usize,
}

impl<'a> NdlzInput<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], StreamError> {
        let truncated = StreamError::new("the NDLZ stream is truncated", self.at);
        let end = self.at.checked_add(len).ok_or(truncated)?;
        let bytes = self.src.get(self.at..end).ok_or(truncated)?;
        self.at = end;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, StreamError> {
        self.take(1)?.first().copied().ok_or(StreamError::new("the NDLZ stream is truncated", self.at))
    }

    fn size(&mut self) -> Result<usize, StreamError> {
        let at = self.at;
        let bytes = self.take(4)?.first_chunk().copied().unwrap_or_default();
        usize::try_from(i32::from_le_bytes(bytes)).map_err(|_| StreamError::new("a negative side of the plane", at))
    }

    /// Reads a 16-bit offset; returns the `len` bytes that start this far before the token at `token`.
    fn back(&mut self, token: usize, len: usize) -> Result<&'a [u8], StreamError> {
        let at = self.at;
        let offset = u16::from_le_bytes(self.take(2)?.first_chunk().copied().unwrap_or_default());
        let outside = StreamError::new("a reference outside the stream", at);
        let start = token.checked_sub(offset.into()).ok_or(outside)?;
        self.src.get(start..).and_then(|rest| rest.get(..len)).ok_or(outside)
    }

    /// Reads the next cell, which has `shape` rows and columns.
    fn cell(&mut self, side: usize, (height, width): (usize, usize)) -> Result<Cell, StreamError> {
        let token_at = self.at;
        let token = self.byte()?;
        let unknown = StreamError::new("an unknown NDLZ token", token_at);
        let mut cell = Cell::default();
        let all = height.saturating_mul(width);
        match token {
            0x00 => {
                let bytes = self.take(all)?;
                fill(&mut cell, 0..height, bytes, width);
                return Ok(cell);
            }
            0xC0 => {
                let bytes = self.back(token_at, all)?;
                fill(&mut cell, 0..height, bytes, width);
                return Ok(cell);
            }
            0x40 => {
                cell = [[self.byte()?; 8]; 8];
                return Ok(cell);
            }
            _ => {}
        }
        if (height, width) != (side, side) {
            return Err(StreamError::new("matching rows in a clipped cell", token_at));
        }
        let high = token >> 3;
        if side == 4 && matches!(token, 0x28..=0x3F) {
            let j = usize::from(high.saturating_sub(4));
            let others: Vec<usize> = (1..4).filter(|&row| row != j).collect();
            fill(&mut cell, [0, j], self.back(token_at, 8)?, 4);
            fill(&mut cell, others, self.back(token_at, 8)?, 4);
            return Ok(cell);
        }
        let matched = matched_rows(side, token).ok_or(unknown)?;
        fill(&mut cell, matched.iter().copied(), self.back(token_at, matched.len().saturating_mul(side))?, side);
        let others: Vec<usize> = (0..side).filter(|row| !matched.contains(row)).collect();
        let literals = self.take(others.len().saturating_mul(side))?;
        fill(&mut cell, others, literals, side);
        Ok(cell)
    }
}

/// The rows of a cell with sides of `side` that `token` says are found together, earlier in the stream.
fn matched_rows(side: usize, token: u8) -> Option<&'static [usize]> {
    const ROWS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    let high = token >> 3;
    if side != 4 {
        let first = usize::from(token & 7);
        let count = match high {
            21 => 3,
            17 => 2,
            _ => return None,
        };
        return ROWS.get(first..first.saturating_add(count));
    }
    Some(match (token, high & 7) {
        (0x80, _) => &[2, 3],
        (0x88..=0xBF, 1) => &[0, 1],
        (0x88..=0xBF, 2) => &[0, 2],
        (0x88..=0xBF, 3) => &[0, 3],
        (0x88..=0xBF, 6) => &[1, 2],
        (0x88..=0xBF, 7) => &[1, 3],
        (0xE0..=0xFF, 4) => &[1, 2, 3],
        (0xE0..=0xFF, 5) => &[0, 1, 2],
        (0xE0..=0xFF, 6) => &[0, 1, 3],
        (0xE0..=0xFF, _) => &[0, 2, 3],
        _ => return None,
    })
}

/// Copies consecutive runs of `width` bytes into the given rows of a cell.
fn fill(cell: &mut Cell, rows: impl IntoIterator<Item = usize>, bytes: &[u8], width: usize) {
    for (row, run) in rows.into_iter().zip(bytes.chunks(width.max(1))) {
        if let Some(row) = cell.get_mut(row) {
            for (byte, &value) in row.iter_mut().zip(run) {
                *byte = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    fn plane(side: u8, rows: i32, columns: i32, cells: &[&[u8]]) -> Result<Vec<u8>, StreamError> {
        let mut src = vec![2];
        src.extend(rows.to_le_bytes());
        src.extend(columns.to_le_bytes());
        for cell in cells {
            src.extend(*cell);
        }
        let mut dst = vec![0xAA; (rows * columns) as usize];
        decode(side, &src, &mut dst, &mut || ()).map(|()| dst)
    }

    const LITERAL: [u8; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

    #[test]
    fn every_kind_of_cell_of_side_4_decodes() {
        let rows =
            |order: [u8; 4]| -> Vec<u8> { order.iter().flat_map(|r| (0..4).map(move |c| r * 4 + c + 1)).collect() };
        let second: &[(&[u8], Vec<u8>)] = &[
            (&[0x40, 9], vec![9; 16]),
            (&[0xC0, 16, 0], rows([0, 1, 2, 3])),
            // Rows 2 and 3 are copied from 16 bytes back, rows 0 and 1 follow.
            (&[0x80, 16, 0, 9, 10, 11, 12, 13, 14, 15, 16], rows([2, 3, 0, 1])),
            (&[0x98, 16, 0, 9, 10, 11, 12, 13, 14, 15, 16], rows([0, 2, 3, 1])),
            (&[0x30, 16, 0, 8, 0], rows([0, 2, 1, 3])),
            (&[28 << 3, 16, 0, 13, 14, 15, 16], rows([3, 0, 1, 2])),
            (&[31 << 3, 16, 0, 13, 14, 15, 16], rows([0, 3, 1, 2])),
        ];
        for (cell, want) in second {
            let got = plane(4, 8, 4, &[&LITERAL, cell]).unwrap();
            assert_eq!(got[..16], LITERAL[1..], "{cell:?}");
            assert_eq!(got[16..], want[..], "{cell:?}");
        }
    }

    #[test]
    fn cells_of_side_8_and_clipped_cells_decode() {
        let literal: Vec<u8> = std::iter::once(0).chain(0..64).collect();
        let mut three = vec![21 << 3 | 5, 64, 0];
        three.extend([7; 40]);
        let got = plane(8, 16, 8, &[&literal, &three]).unwrap();
        assert_eq!(got[64..104], [7; 40]);
        assert_eq!(got[104..], literal[1..25]);
        assert_eq!(plane(4, 1, 5, &[&[0, 1, 2, 3, 4], &[0x40, 5]]).unwrap(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn invalid_streams_are_refused() {
        assert!(plane(5, 4, 4, &[&LITERAL]).is_err());
        assert!(plane(4, 4, 4, &[&LITERAL[..16]]).is_err());
        assert!(plane(4, 4, 4, &[&LITERAL, &[0]]).is_err());
        assert!(plane(4, 8, 4, &[&LITERAL, &[0xC0, 255, 0]]).is_err());
        assert!(plane(4, 8, 4, &[&LITERAL, &[0xA0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8]]).is_err());
        assert!(plane(8, 8, 8, &[&[21 << 3 | 6, 0, 0]]).is_err());
        let mut dst = [0; 16];
        assert!(decode(4, &[2, 0, 0, 0, 0x80, 4, 0, 0, 0, 0], &mut dst, &mut || ()).is_err());
    }
}
