//! The layouts of a `GInterp` configuration, which have the same size: the content distinguishes them.
#![forbid(unsafe_code)]

use super::TILE;
use crate::error::Result;
use crate::format::fzm::stage::config::{Config, ConfigLayout, Field};

/// Either layout.
pub(super) const ANY: ConfigLayout = ConfigLayout { sizes: &[104], fields: &[Field::hole(0, 104)] };

/// Per level whether splines run along several axes, and which of two they are, and the order of the axes.
pub(super) const USE_MD: [&str; 6] = ["use_md_0", "use_md_1", "use_md_2", "use_md_3", "use_md_4", "use_md_5"];
/// See [`USE_MD`].
pub(super) const USE_NATURAL: [&str; 6] =
    ["use_natural_0", "use_natural_1", "use_natural_2", "use_natural_3", "use_natural_4", "use_natural_5"];
/// See [`USE_MD`].
pub(super) const REVERSE: [&str; 6] = ["reverse_0", "reverse_1", "reverse_2", "reverse_3", "reverse_4", "reverse_5"];

/// The fields of a layout: its bound, the offset of the radius, and the bytes before `alpha`.
macro_rules! fields {
    ($bound:expr, $radius:literal $(, $gap:expr)?) => {
        &[
            $bound,
            Field::u32("radius", $radius),
            Field::u32("num_codes", $radius + 4),
            Field::u32("outlier_count", $radius + 8),
            Field::element_type("input_type", $radius + 12),
            Field::element_type("code_type", $radius + 13),
            Field::u8("ndim", $radius + 14),
            Field::mode("eb_mode", $radius + 15),
            Field::u32("dim_x", $radius + 16),
            Field::u32("dim_y", $radius + 20),
            Field::u32("dim_z", $radius + 24),
            Field::u32("anchor_x", $radius + 28),
            Field::u32("anchor_y", $radius + 32),
            Field::u32("anchor_z", $radius + 36),
            Field::f32("user_eb", $radius + 40),
            Field::f32("value_base", $radius + 44),
            $($gap,)?
            Field::f64("alpha", 56),
            Field::f64("beta", 64),
            Field::flag(USE_MD[0], 72),
            Field::flag(USE_MD[1], 73),
            Field::flag(USE_MD[2], 74),
            Field::flag(USE_MD[3], 75),
            Field::flag(USE_MD[4], 76),
            Field::flag(USE_MD[5], 77),
            Field::flag(USE_NATURAL[0], 78),
            Field::flag(USE_NATURAL[1], 79),
            Field::flag(USE_NATURAL[2], 80),
            Field::flag(USE_NATURAL[3], 81),
            Field::flag(USE_NATURAL[4], 82),
            Field::flag(USE_NATURAL[5], 83),
            Field::flag(REVERSE[0], 84),
            Field::flag(REVERSE[1], 85),
            Field::flag(REVERSE[2], 86),
            Field::flag(REVERSE[3], 87),
            Field::flag(REVERSE[4], 88),
            Field::flag(REVERSE[5], 89),
            Field::u8("auto_tuning_mode", 90),
            Field::zero(91, 8),
            // Older writers did not clear the end.
            Field::hole(99, 5),
        ]
    };
}

/// The layout with a bound of 64 bits.
pub(super) const WIDE: ConfigLayout = ConfigLayout { sizes: &[104], fields: fields!(Field::f64("error_bound", 0), 8) };

/// The layout with a bound of 32 bits, for data of 32 bits: all up to `value_base` 4 bytes earlier.
pub(super) const NARROW: ConfigLayout =
    ConfigLayout { sizes: &[104], fields: fields!(Field::f32("error_bound", 0), 4, Field::hole(52, 4)) };

/// Whether the fields from the radius on are at `radius`: types, dimensions and anchors fit each other.
fn fits(bytes: &[u8], radius: usize) -> bool {
    let types = bytes.get(radius + 12..radius + 15);
    let number = |k: usize| {
        let own = bytes.get(radius + 16 + 4 * k..).and_then(<[u8]>::first_chunk);
        own.map_or(0, |own| u64::from(u32::from_le_bytes(*own)))
    };
    let is_typed = matches!(types, Some([8 | 9, 0..=2, 2 | 3]));
    is_typed && number(1) > 1 && (0..3).all(|axis| number(axis) > 0 && number(axis + 3) == number(axis).div_ceil(TILE))
}

/// The configuration with the layout of its content, and the bound. If neither layout fits, the newer one is taken.
pub(super) fn of(config: &Config) -> Result<(Config, f64)> {
    if !fits(config.bytes(), 8) && fits(config.bytes(), 4) {
        let config = config.with_layout(&NARROW)?;
        let bound = f64::from(config.f32("error_bound"));
        return Ok((config, bound));
    }
    let config = config.with_layout(&WIDE)?;
    let bound = config.f64("error_bound");
    Ok((config, bound))
}
