//! Numbers of `MessagePack` and of Arrow streams as elements of one size.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::error::{Error, Result};

use super::super::super::msgpack::Head;
use super::super::streams::Number;
use super::values::expected;

impl Number {
    /// The bytes of a number of `width` bytes, lowest first, and others.
    ///
    /// # Errors
    /// Fails if `head` is not a number, or one that does not fit.
    pub(super) fn to_bytes(self, head: Head<'_>, width: usize) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        let integer = match head {
            Head::Uint(n) => Some(i128::from(n)),
            Head::Int(n) => Some(i128::from(n)),
            _ => None,
        };
        if let Self::Float = self {
            #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "to the nearest, as in Python")]
            let number = match (head, integer) {
                (Head::Float(n), _) => n,
                (_, Some(n)) => n as f64,
                _ => return Err(expected("a number")),
            };
            #[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "to the nearest, as in Python")]
            let single = number as f32;
            let (head, _) = bytes.split_at_mut(width.min(8));
            if width == 4 {
                head.copy_from_slice(&single.to_le_bytes());
            } else {
                head.copy_from_slice(&number.to_le_bytes());
            }
            return Ok(bytes);
        }
        let number = integer.ok_or_else(|| expected("an integer"))?;
        let bits = u32::try_from(width).unwrap_or(8).saturating_mul(8);
        let end = 1_i128.checked_shl(bits).unwrap_or(i128::MAX);
        let range = match self {
            Self::Signed => (end / 2).saturating_neg()..end / 2,
            _ => 0..end,
        };
        if !range.contains(&number) {
            return Err(Error::corrupt(format!("{number} in {bits} bits"), "batch"));
        }
        Ok(number.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use crate::account::Account;
    use crate::bytes::{Cursor, FileOffset};

    use super::super::super::room::Room;
    use super::super::values::Values;

    #[test]
    fn numbers_are_refused_where_they_do_not_fit() {
        let rows: [(DataType, &[u8], bool); 10] = [
            (DataType::Int8, b"\x80", false),
            (DataType::Int8, b"\xd0\x80", true),
            (DataType::Int8, b"\xcc\x80", false),
            (DataType::UInt8, b"\xcc\xff", true),
            (DataType::UInt8, b"\xff", false),
            (DataType::UInt64, b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", true),
            (DataType::Int64, b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", false),
            (DataType::Float32, b"\x05", true),
            (DataType::Int32, b"\xca\x3f\x80\0\0", false),
            (DataType::Boolean, b"\x02", false),
        ];
        for (of, document, want) in rows {
            let mut values = Values::new(&Field::new("a", of.clone(), true));
            let mut room = Room::within(100, &Account::new(64 << 20, 0));
            let pushed = values.push(&mut Cursor::new(document, FileOffset(0)), &mut room);
            assert_eq!(pushed.is_ok(), want, "{of} {document:x?}");
        }
    }
}
