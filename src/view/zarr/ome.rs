//! Images as OME-Zarr has them: one level, and where it is in space.
//!
//! Reference: OME-Zarr 0.5, "multiscales".
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::{Map, Value, json};

use crate::format::Space;

/// The name of the attribute.
pub const OME: &str = "ome";
/// The numbers of dimensions that an image can have.
const RANKS: std::ops::RangeInclusive<usize> = 2..=5;
/// Abbreviations of units, and the names that the specification recommends.
const UNITS: &[(&str, &str)] = &[
    ("A", "angstrom"),
    ("nm", "nanometer"),
    ("um", "micrometer"),
    ("\u{b5}m", "micrometer"),
    ("\u{3bc}m", "micrometer"),
    ("micron", "micrometer"),
    ("mm", "millimeter"),
    ("cm", "centimeter"),
    ("m", "meter"),
    ("km", "kilometer"),
    ("ms", "millisecond"),
    ("s", "second"),
    ("min", "minute"),
    ("h", "hour"),
];

/// Units with names of their own that the specification recommends, besides those in [`UNITS`].
const NAMED: &[&str] = &["foot", "inch", "mile", "parsec", "yard", "day"];
/// Prefixes of the meter and the second.
const PREFIXES: &[&str] = &[
    "", "yocto", "zepto", "atto", "femto", "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo",
    "mega", "giga", "tera", "peta", "exa", "zetta", "yotta",
];

/// The name of `unit`, if it is one that the specification recommends: viewers refuse an image with another one.
fn name_of(unit: &str) -> Option<&str> {
    let long = UNITS.iter().find(|(short, _)| *short == unit).map_or(unit, |(_, long)| long);
    let is_prefixed = |base: &str| long.strip_suffix(base).is_some_and(|prefix| PREFIXES.contains(&prefix));
    let is_known = NAMED.contains(&long) || UNITS.iter().any(|(_, known)| *known == long);
    (is_known || is_prefixed("meter") || is_prefixed("second")).then_some(long)
}

/// Whether `unit`, which has a name, is one of time.
fn is_time(unit: &str) -> bool {
    unit.ends_with("second") || ["minute", "hour", "day"].contains(&unit)
}

/// The attribute `ome` of a group with the array at `path` and dimensions `names`; `None` if it is not an image.
pub fn multiscales(path: &str, names: &[String], space: &Space) -> Option<Value> {
    let rank = space.spacing.len();
    if names.len() != rank || !RANKS.contains(&rank) {
        return None;
    }
    let axis = |((d, name), unit): ((usize, &String), &String)| {
        let mut axis = Map::new();
        axis.insert("name".to_owned(), name.as_str().into());
        let unit = name_of(unit);
        // The axes of space come last; earlier ones may be anything.
        if d.saturating_add(3) >= rank {
            axis.insert("type".to_owned(), "space".into());
        } else if unit.is_some_and(is_time) {
            axis.insert("type".to_owned(), "time".into());
        }
        if let Some(unit) = unit {
            axis.insert("unit".to_owned(), unit.into());
        }
        Value::Object(axis)
    };
    let axes: Vec<_> = names.iter().enumerate().zip(&space.units).map(axis).collect();
    let mut transformations = vec![json!({ "type": "scale", "scale": space.spacing })];
    if let Some(origin) = &space.origin {
        transformations.push(json!({ "type": "translation", "translation": origin }));
    }
    let level = json!({ "path": path, "coordinateTransformations": transformations });
    Some(json!({ "version": "0.5", "multiscales": [{ "name": path, "axes": axes, "datasets": [level] }] }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_image_has_its_scale_and_what_it_is_measured_in() {
        let space =
            Space::new(vec![2.5, 0.5], Some(vec![0.0, 1.0]), ["um", "parsec"].map(str::to_owned).to_vec()).unwrap();
        let want = json!({
            "version": "0.5",
            "multiscales": [{
                "name": "data",
                "axes": [
                    { "name": "y", "type": "space", "unit": "micrometer" },
                    { "name": "x", "type": "space", "unit": "parsec" },
                ],
                "datasets": [{
                    "path": "data",
                    "coordinateTransformations": [
                        { "type": "scale", "scale": [2.5, 0.5] },
                        { "type": "translation", "translation": [0.0, 1.0] },
                    ],
                }],
            }],
        });
        assert_eq!(multiscales("data", &space.axes(), &space), Some(want));
        let films =
            Space::new(vec![1.0; 4], None, ["s", "deg", "cm", "picometer"].map(str::to_owned).to_vec()).unwrap();
        let film = multiscales("data", &films.axes(), &films).unwrap();
        let axis = |d: usize, what: &str| {
            film.pointer(&format!("/multiscales/0/axes/{d}/{what}")).and_then(Value::as_str).map(str::to_owned)
        };
        let got: Vec<_> = (0..4).map(|d| (axis(d, "type"), axis(d, "unit"))).collect();
        let some = |text: &str| Some(text.to_owned());
        let want =
            [("time", some("second")), ("space", None), ("space", some("centimeter")), ("space", some("picometer"))];
        assert_eq!(got, want.map(|(kind, unit)| (some(kind), unit)));
        let line = Space::new(vec![1.0], None, Vec::new()).unwrap();
        assert_eq!(multiscales("data", &line.axes(), &line), None);
    }

    #[test]
    fn an_image_has_two_to_five_dimensions_all_of_them_in_space() {
        for rank in 1..=6 {
            let space = Space::new(vec![1.0; rank], None, Vec::new()).unwrap();
            let image = multiscales("data", &space.axes(), &space);
            assert_eq!(image.is_some(), (2..=5).contains(&rank), "{rank}");
            assert_eq!(multiscales("data", &space.axes()[1..], &space), None);
        }
    }

    #[test]
    fn units_have_the_names_that_viewers_know() {
        for (unit, name) in [
            ("um", Some("micrometer")),
            ("meter", Some("meter")),
            ("angstrom", Some("angstrom")),
            ("attosecond", Some("attosecond")),
            ("parsec", Some("parsec")),
            ("h", Some("hour")),
            ("deg", None),
            ("parameter", None),
            ("", None),
        ] {
            assert_eq!(name_of(unit), name, "{unit}");
        }
        for (unit, is_of_time) in [("second", true), ("millisecond", true), ("day", true), ("meter", false)] {
            assert_eq!(is_time(unit), is_of_time, "{unit}");
        }
    }
}
