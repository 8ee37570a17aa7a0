//! Colour maps, and how a drawing uses one.
//!
//! Reference: Matplotlib, by N. Smith, S. van der Walt and E. Firing (viridis, magma, inferno, plasma), in the public
//! domain (CC0); K. Moreland, "Diverging Color Maps for Scientific Visualization" (coolwarm).
#![forbid(unsafe_code)]

use std::fmt;

use super::viridis::VIRIDIS;
use crate::error::{Error, Kind, Result};

/// 256 colours, red, green and blue, from the lowest value to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ColourMap {
    name: &'static str,
    /// Colours at even distances.
    points: &'static [u32],
    is_reversed: bool,
}

/// Names, and colours at even distances.
#[rustfmt::skip]
const MAPS: &[(&str, &[u32])] = &[
    ("viridis", &VIRIDIS),
    ("magma", &[
        0x0000_0004, 0x000a_0822, 0x001d_1147, 0x0036_106b, 0x0051_127c, 0x006a_1c81, 0x0083_2681, 0x009c_2e7f, 0x00b7_3779,
        0x00d0_416f, 0x00e7_5263, 0x00f5_6b5c, 0x00fc_8961, 0x00fe_a772, 0x00fe_c488, 0x00fd_e2a3, 0x00fc_fdbf,
    ]),
    ("inferno", &[
        0x0000_0004, 0x000b_0724, 0x0021_0c4a, 0x003d_0965, 0x0057_106e, 0x0071_196e, 0x008a_226a, 0x00a3_2c61, 0x00bc_3754,
        0x00d2_4644, 0x00e4_5a31, 0x00f1_731d, 0x00f9_8e09, 0x00fc_ac11, 0x00f9_cb35, 0x00f2_ea69, 0x00fc_ffa4,
    ]),
    ("plasma", &[
        0x000d_0887, 0x0031_0597, 0x004c_02a1, 0x0066_00a7, 0x007e_03a8, 0x0095_11a1, 0x00aa_2395, 0x00bc_3587, 0x00cc_4778,
        0x00da_5a6a, 0x00e6_6c5c, 0x00f0_804e, 0x00f8_9540, 0x00fd_ac33, 0x00fd_c527, 0x00f8_df25, 0x00f0_f921,
    ]),
    ("coolwarm", &[
        0x003b_4cc0, 0x004e_68d8, 0x0062_82ea, 0x0077_9af7, 0x008d_b0fe, 0x00a3_c2fe, 0x00b9_d0f9, 0x00cc_d9ed, 0x00dd_dcdc,
        0x00ec_d3c5, 0x00f5_c4ac, 0x00f7_b093, 0x00f4_987a, 0x00eb_7d62, 0x00dd_5f4b, 0x00ca_3b37, 0x00b4_0426,
    ]),
    ("gray", &[0x0000_0000, 0x00ff_ffff]),
];

impl Default for ColourMap {
    fn default() -> Self {
        Self { name: "viridis", points: &VIRIDIS, is_reversed: false }
    }
}

impl ColourMap {
    /// The map `name`, reversed if `_r` follows; empty for the default.
    ///
    /// # Errors
    /// [`Kind::Usage`] if there is none of that name.
    pub(super) fn named(name: &str) -> Result<Self> {
        if name.is_empty() {
            return Ok(Self::default());
        }
        let (own, is_reversed) = name.strip_suffix("_r").map_or((name, false), |own| (own, true));
        let found = MAPS.iter().find(|(name, _)| *name == own);
        let map = found.map(|&(name, points)| Self { name, points, is_reversed });
        map.ok_or_else(|| {
            let names: Vec<_> = MAPS.iter().map(|(name, _)| *name).collect();
            Error::new(Kind::Usage(format!("there are {}, each also with _r", names.join(", ")).into()), "colour map")
        })
    }

    /// All of them.
    pub(super) fn colours(self) -> Vec<u32> {
        let last = self.points.len() - 1;
        let mut colours: Vec<u32> = (0..256).map(|i| between(self.points, i * last, 255)).collect();
        if self.is_reversed {
            colours.reverse();
        }
        colours
    }
}

impl fmt::Display for ColourMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.is_reversed { "_r" } else { "" })
    }
}

/// The colour at `at / of` of the distance between two points, counted from the first point.
fn between(points: &[u32], at: usize, of: usize) -> u32 {
    let (left, part) = (at / of, (at % of) as u32);
    let of = of as u32;
    let point = |i: usize| points.get(i).copied().unwrap_or(0);
    let mix = |shift: u32| {
        let (a, b) = (point(left) >> shift & 0xff, point(left + 1) >> shift & 0xff);
        ((a * (of - part) + b * part + of / 2) / of) << shift
    };
    mix(16) | mix(8) | mix(0)
}

/// How values become colours.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Colouring {
    pub(super) map: ColourMap,
    /// The values of the first and the last colour, if they are chosen.
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

impl Colouring {
    /// Whether the range is that of the values.
    pub(super) fn is_automatic(&self) -> bool {
        self.low.is_none() && self.high.is_none()
    }

    /// Whether no value is in the chosen range.
    pub(super) fn is_empty(&self) -> bool {
        let is_end = |end: Option<f64>| end.is_none_or(f64::is_finite);
        !is_end(self.low) || !is_end(self.high) || self.low.zip(self.high).is_some_and(|(low, high)| low >= high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_its_points_at_even_distances_and_can_be_reversed() {
        assert_eq!(ColourMap::named("").unwrap().colours(), VIRIDIS);
        let gray = ColourMap::named("gray").unwrap().colours();
        assert_eq!((gray[0], gray[100], gray[255]), (0, 0x0064_6464, 0x00ff_ffff));
        for (name, points) in MAPS {
            let colours = ColourMap::named(name).unwrap().colours();
            assert_eq!((colours.len(), colours.first(), colours.last()), (256, points.first(), points.last()));
            let mut reversed = ColourMap::named(&format!("{name}_r")).unwrap().colours();
            reversed.reverse();
            assert_eq!(reversed, colours, "{name}");
            for shown in [name.to_string(), format!("{name}_r")] {
                assert_eq!(ColourMap::named(&shown).unwrap().to_string(), shown);
            }
        }
        assert!(matches!(ColourMap::named("jet").unwrap_err().kind(), Kind::Usage(_)));
    }

    #[test]
    fn between_two_points_each_channel_is_rounded_by_itself() {
        let points = [0x0010_2030, 0x0030_6050, 0];
        assert_eq!([0, 1, 4].map(|at| between(&points, at, 4)), [points[0], 0x0018_3038, points[1]]);
        // Three fifths of 1.
        assert_eq!(between(&[0x0001_0000, 0], 2, 5), 0x0001_0000);
    }
}
