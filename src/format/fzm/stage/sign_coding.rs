//! Zigzag (type 15) and Negabinary (type 16): codings of signed integers, element by element.
//!
//! Reference: sections 4 (the codes) and 5.7. The decoded stream is as long as the coded one. A partial element at the
//! end is copied if a Zigzag has a configuration of 3 bytes; otherwise the reference library leaves it undefined, and it
//! is zero here.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::DataType::{I8, I16, I32, I64, U8, U16, U32, U64};
use super::block_windows::{BlockWindows, Blockwise, scaled};
use super::config::{Config, ConfigLayout, Field};
use super::types::Unsigned;
use super::{Context, DataType, Family, Stage, StageType, exactly};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::fzm::inverse::{self, Inverse, SignCode};
use crate::format::fzm::stream::{ByteStream, Derivation};

/// The stage type.
pub(super) const ZIGZAG: StageType = StageType {
    code: 15,
    name: "zigzag",
    family: Family::Shuffler,
    layout: &ZIGZAG_LAYOUT,
    parse: |config| Ok(Box::new(SignCoding::zigzag(config)?)),
};

/// The stage type.
pub(super) const NEGABINARY: StageType = StageType {
    code: 16,
    name: "negabinary",
    family: Family::Shuffler,
    layout: &LAYOUT,
    parse: |config| Ok(Box::new(SignCoding::parse(SignCode::Negabinary, config, negabinary_of)?)),
};

const LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[0, 1, 2],
    fields: &[Field::element_type("input_type", 0), Field::element_type("output_type", 1)],
};

const ZIGZAG_LAYOUT: ConfigLayout = ConfigLayout {
    sizes: &[0, 1, 2, 3],
    fields: &[
        Field::element_type("input_type", 0),
        Field::element_type("output_type", 1),
        Field::boolean("byte_transparent", 2),
    ],
};

/// A stage of either type.
struct SignCoding {
    config: Config,
    signed: DataType,
    unsigned: DataType,
    code: SignCode,
    decode: Decode,
}

/// Decodes every whole element of a slice in place.
pub(super) type Decode = fn(&mut [u8]);

impl SignCoding {
    fn zigzag(config: Config) -> Result<Self> {
        Self::parse(SignCode::Zigzag, config, zigzag_of)
    }

    fn parse(code: SignCode, config: Config, decode: fn(usize) -> Decode) -> Result<Self> {
        // Shorter configurations stand for 32 bits.
        let (signed, unsigned) = match config.len() {
            0 | 1 => (I32, U32),
            _ => (
                config.element_type("input_type", &[I8, I16, I32, I64], I32)?,
                config.element_type("output_type", &[U8, U16, U32, U64], U32)?,
            ),
        };
        if signed.size() != unsigned.size() {
            let pair = format!("sign coding from {} to {}", signed.name(), unsigned.name());
            return Err(config.unknown("input_type", pair));
        }
        Ok(Self { config, signed, unsigned, code, decode: decode(signed.size()) })
    }
}

fn zigzag<U: Unsigned>(bytes: &mut [u8]) {
    for own in bytes.chunks_exact_mut(U::SIZE) {
        U::get(own).unzigzag().put(own);
    }
}

fn negabinary<U: Unsigned>(bytes: &mut [u8]) {
    for own in bytes.chunks_exact_mut(U::SIZE) {
        U::get(own).unnegabinary().put(own);
    }
}

/// The zigzag decoder for elements of `size` bytes.
fn zigzag_of(size: usize) -> Decode {
    match size {
        1 => zigzag::<u8>,
        2 => zigzag::<u16>,
        4 => zigzag::<u32>,
        _ => zigzag::<u64>,
    }
}

/// The negabinary decoder for elements of `size` bytes.
pub(super) fn negabinary_of(size: usize) -> Decode {
    match size {
        1 => negabinary::<u8>,
        2 => negabinary::<u16>,
        4 => negabinary::<u32>,
        _ => negabinary::<u64>,
    }
}

impl Stage for SignCoding {
    fn input_type(&self, _input: usize) -> DataType {
        self.signed
    }

    fn output_type(&self, _port: usize) -> DataType {
        if self.config.flag("byte_transparent") { DataType::Opaque } else { self.unsigned }
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn summary(&self) -> Vec<String> {
        vec![self.signed.name().to_owned()]
    }

    fn invert(&self, outputs: Vec<Arc<dyn ByteStream>>, _cx: &Context) -> Result<Vec<Arc<dyn ByteStream>>> {
        let [input] = exactly(outputs)?;
        let tail = if self.config.has("byte_transparent") { PartialElement::Copied } else { PartialElement::Zero };
        Ok(vec![Arc::new(DecodedSigns::new(input, self.code, self.signed.size(), self.decode, tail))])
    }
}

/// Decodes the zigzag codes in `input` to numbers of `size` bytes, for stages that contain this coding.
pub(super) fn zigzag_numbers(input: Arc<dyn ByteStream>, size: usize) -> Arc<dyn ByteStream> {
    Arc::new(DecodedSigns::new(input, SignCode::Zigzag, size, zigzag_of(size), PartialElement::Zero))
}

/// The decoded bytes of a partial element at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartialElement {
    Zero,
    Copied,
}

/// The decoded elements.
struct DecodedSigns {
    input: Arc<dyn ByteStream>,
    code: SignCode,
    /// Bytes of an element.
    size: usize,
    decode: Decode,
    /// Bytes of whole elements.
    whole: u64,
    tail: PartialElement,
    windows: BlockWindows,
}

impl DecodedSigns {
    fn new(input: Arc<dyn ByteStream>, code: SignCode, size: usize, decode: Decode, tail: PartialElement) -> Self {
        let len = input.len();
        let windows = BlockWindows::new(len, to_u64(size), scaled(input.unit(), size, size));
        Self { input, code, size, decode, whole: len - len % to_u64(size), tail, windows }
    }
}

impl Blockwise for DecodedSigns {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        // Only the last block of the stream can contain a partial element.
        let n = out.len().min(usize::try_from(self.whole.saturating_sub(start)).unwrap_or(usize::MAX));
        match self.tail {
            PartialElement::Copied => self.input.read(start, out)?,
            PartialElement::Zero => {
                let (elements, tail) = out.split_at_mut(n);
                self.input.read(start, elements)?;
                tail.fill(0);
            }
        }
        (self.decode)(&mut out[..n]);
        Ok(())
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        // A derived stream ends with zeros.
        if self.tail == PartialElement::Copied && self.whole < self.windows.len() {
            return None;
        }
        let inverse = inverse::SignCoding { code: self.code, size: to_u64(self.size), whole: self.whole };
        Some(Derivation { inverse: Inverse::SignCoding(inverse), input: Arc::clone(&self.input) })
    }
}

#[cfg(test)]
mod tests {
    use fzm_writer::{Dtype, field};

    use super::super::testing::{inverse, round_trip, unknown_error, windows_agree};

    #[test]
    fn signed_codes_decode_element_by_element() {
        assert_eq!(inverse(15, &[4, 0], &[&[0, 1, 2, 3]]).unwrap(), [0, 0xFF, 1, 0xFE]);
        assert_eq!(inverse(15, &[], &[&[3, 0, 0, 0]]).unwrap(), (-2_i32).to_le_bytes());
        assert_eq!(inverse(16, &[5, 1], &[&[2, 0, 6, 0]]).unwrap(), [0xFE, 0xFF, 2, 0]);
        assert_eq!(inverse(16, &[7, 3], &[&[3, 0, 0, 0, 0, 0, 0, 0]]).unwrap(), [0xFF; 8]);
    }

    #[test]
    fn a_partial_element_at_the_end_is_zero() {
        assert_eq!(inverse(15, &[6, 2], &[&[2, 0, 0, 0, 9, 9, 9]]).unwrap(), [1, 0, 0, 0, 0, 0, 0]);
        windows_agree(15, &[5, 1], &[&(0..=200).collect::<Vec<u8>>()]);
    }

    #[test]
    fn zigzag_of_3_bytes_copies_a_partial_element() {
        for transparent in [0, 1] {
            let config = [6, 2, transparent];
            assert_eq!(inverse(15, &config, &[&[2, 0, 0, 0, 9, 8, 7]]).unwrap(), [1, 0, 0, 0, 9, 8, 7]);
            assert_eq!(inverse(15, &config, &[&[9, 8]]).unwrap(), [9, 8]);
            windows_agree(15, &config, &[&(0..=200).collect::<Vec<u8>>()]);
        }
        for (text, dtype) in [("zigzag:config=3", Dtype::I32), ("rze,zigzag:t=i64,bytes=1", Dtype::U8)] {
            round_trip(text, dtype, &[5003], &field::smooth(dtype, &[5003], 3.0, 6));
        }
    }

    #[test]
    fn only_a_signed_type_and_its_unsigned_partner_are_accepted() {
        assert_eq!(unknown_error(15, &[6, 1]), "sign coding from int32 to uint16 (input_type, at byte 0x100)");
        assert_eq!(unknown_error(16, &[2, 2]), "element type uint32 (input_type, at byte 0x100)");
        assert_eq!(unknown_error(16, &[77, 2]), "element type 77 (input_type, at byte 0x100)");
    }
}
