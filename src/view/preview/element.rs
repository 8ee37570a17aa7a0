//! The numbers that a picture is made of.
#![forbid(unsafe_code)]

use std::fmt::Debug;

/// An element type.
pub(super) trait Element: Copy + PartialEq + PartialOrd + Debug {
    /// Bytes of an element.
    const SIZE: usize;
    /// Whether values are names rather than amounts, if there are few.
    const IS_INTEGER: bool;

    /// The element in the first bytes of `bytes`.
    fn read<const BIG: bool>(bytes: &[u8]) -> Self;

    /// The value; 64-bit integers are rounded.
    fn value(self) -> f64;

    /// The value in words: enough digits to distinguish it from others.
    fn text(self) -> String {
        format!("{self:?}")
    }
}

fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

macro_rules! plain {
    ($($type:ty, $size:literal, $integer:literal;)*) => {$(
        impl Element for $type {
            const SIZE: usize = $size;
            const IS_INTEGER: bool = $integer;

            fn read<const BIG: bool>(bytes: &[u8]) -> Self {
                if BIG { Self::from_be_bytes(head(bytes)) } else { Self::from_le_bytes(head(bytes)) }
            }

            #[allow(clippy::cast_lossless, clippy::cast_precision_loss, reason = "for all types alike")]
            fn value(self) -> f64 {
                self as f64
            }
        }
    )*};
}

plain! {
    i8, 1, true;
    u8, 1, true;
    i16, 2, true;
    u16, 2, true;
    i32, 4, true;
    u32, 4, true;
    i64, 8, true;
    u64, 8, true;
    f32, 4, false;
    f64, 8, false;
}

/// The floats of two bytes: half precision, and that with the exponent of `f32`.
macro_rules! halves {
    ($($float:ty),*) => {$(
        impl Element for $float {
            const SIZE: usize = 2;
            const IS_INTEGER: bool = false;

            fn read<const BIG: bool>(bytes: &[u8]) -> Self {
                if BIG { Self::from_be_bytes(head(bytes)) } else { Self::from_le_bytes(head(bytes)) }
            }

            fn value(self) -> f64 {
                self.into()
            }

            fn text(self) -> String {
                format!("{:?}", self.to_f32())
            }
        }
    )*};
}

halves!(half::f16, half::bf16);

/// As [`f64::hypot`], which needs a C library of 2022.
fn hypotenuse(sides: [f64; 2]) -> f64 {
    let [a, b] = sides.map(f64::abs);
    let (long, short) = if a < b { (b, a) } else { (a, b) };
    if long == 0.0 || long.is_infinite() { long } else { long * (1.0 + (short / long).powi(2)).sqrt() }
}

/// The magnitude of a complex number with parts of type `F`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Magnitude<F>(f64, std::marker::PhantomData<F>);

impl<F: Element> Element for Magnitude<F> {
    const SIZE: usize = 2 * F::SIZE;
    const IS_INTEGER: bool = false;

    fn read<const BIG: bool>(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at_checked(F::SIZE).unwrap_or_default();
        let parts = [real, imaginary].map(|part| F::read::<BIG>(part).value());
        Self(hypotenuse(parts), std::marker::PhantomData)
    }

    fn value(self) -> f64 {
        self.0
    }

    fn text(self) -> String {
        format!("{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magnitude_of_a_complex_number_is_that_of_its_two_parts() {
        let huge = f64::MAX / 2.0;
        for (parts, want) in [
            ([3.0, 4.0], 5.0),
            ([4.0, -3.0], 5.0),
            ([0.0, 0.0], 0.0),
            ([0.0, -2.0], 2.0),
            ([huge, 0.0], huge),
            ([3.0 * 2_f64.powi(1000), 4.0 * 2_f64.powi(1000)], 5.0 * 2_f64.powi(1000)),
            ([f64::INFINITY, f64::NEG_INFINITY], f64::INFINITY),
        ] {
            assert_eq!(Some(hypotenuse(parts)), Some(want), "{parts:?}");
        }
        assert!(hypotenuse([f64::NAN, 1.0]).is_nan());
    }
}
