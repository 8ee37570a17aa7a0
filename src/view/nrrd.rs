//! Headers of NRRD files (`.nhdr`), which describe an array in another file.
//!
//! Reference: "Definition of NRRD File Format", teem.sourceforge.net/nrrd/format.html.
//! Limits: real numbers of rank 1 to `RANK`, of the types that the format has; booleans are bytes of 0 and 1.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use crate::format::{Array, Number, NumberKind, Space};

/// Most dimensions that programs for volumes read: three in space, and time or components.
pub(super) const RANK: usize = 4;

/// Where the elements of an array are, in the same directory as its header.
#[derive(Debug, Clone, Copy)]
pub enum NrrdElements<'a> {
    /// They are all of this file.
    All(&'a str),
    /// They are at the end of this file. Of a file with more bytes after them, programs disagree on where they begin.
    AtEnd(&'a str),
}

/// The header of `array`. `None` if the format has no such array.
pub fn header(array: &Array, space: Option<&Space>, elements: NrrdElements<'_>) -> Option<String> {
    let number = Number::of(&array.descr)?;
    let kind = match (number.kind, number.width) {
        (NumberKind::Int, 1) => "int8",
        (NumberKind::Uint | NumberKind::Bool, 1) => "uint8",
        (NumberKind::Int, 2) => "int16",
        (NumberKind::Uint, 2) => "uint16",
        (NumberKind::Int, 4) => "int32",
        (NumberKind::Uint, 4) => "uint32",
        (NumberKind::Int, 8) => "int64",
        (NumberKind::Uint, 8) => "uint64",
        (NumberKind::Float, 4) => "float",
        (NumberKind::Float, 8) => "double",
        _ => return None,
    };
    let sizes = sizes(array)?;
    let mut text = format!("NRRD0004\ntype: {kind}\ndimension: {}\nsizes: {sizes}\n", array.shape.len());
    let vectors = space.and_then(|space| Some((space, space.vectors()?)));
    // Writing to a String cannot fail.
    let _ = match vectors {
        Some((space, vectors)) => write!(text, "{}", directed(space, &vectors)),
        None => write!(text, "{}", straight(array, space)),
    };
    let _ = writeln!(text, "endian: {}", if number.is_big_endian { "big" } else { "little" });
    let (skip, data) = match elements {
        NrrdElements::All(data) => ("", data),
        NrrdElements::AtEnd(data) => ("byte skip: -1\n", data),
    };
    let _ = write!(text, "encoding: raw\n{skip}data file: {data}\n");
    Some(text)
}

/// The fields of a space whose dimensions point along `vectors`.
fn directed(space: &Space, vectors: &[Vec<f64>]) -> String {
    let list = |parts: &[f64]| format!("({})", parts.iter().map(f64::to_string).collect::<Vec<_>>().join(","));
    let vector =
        |(vector, distance): (&Vec<f64>, &f64)| list(&vector.iter().map(|part| part * distance).collect::<Vec<_>>());
    let all: Vec<_> = vectors.iter().zip(space.spacing.iter().rev()).map(vector).collect();
    let mut text = format!("space dimension: {}\nspace directions: {}\n", vectors.len(), all.join(" "));
    if let Some(origin) = &space.origin {
        let origin: Vec<_> = origin.iter().rev().copied().collect();
        let _ = writeln!(text, "space origin: {}", list(&origin));
    }
    if let Some(units) = units(space) {
        let _ = writeln!(text, "space units: {units}");
    }
    text
}

/// The units of a space, fastest dimension first, if there are any.
fn units(space: &Space) -> Option<String> {
    let quoted = space.units.iter().map(|unit| format!("\"{}\"", unit.replace(['"', '\\', '\n', '\r'], "")));
    let is_known = space.units.iter().any(|unit| !unit.is_empty());
    is_known.then(|| fastest_first(&quoted.collect::<Vec<_>>()))
}

/// The fields of a space whose dimensions are its axes.
fn straight(array: &Array, space: Option<&Space>) -> String {
    let mut text = format!("spacings: {}\n", spacing(array, space));
    if let Some(origin) = space.and_then(|space| space.origin.as_ref()) {
        // Otherwise elements would be cells, and the first one would begin there.
        let _ = writeln!(
            text,
            "axis mins: {}\ncenterings: {}",
            fastest_first(origin),
            vec!["node"; origin.len()].join(" ")
        );
    }
    if let Some(units) = space.and_then(units) {
        let _ = writeln!(text, "units: {units}");
    }
    text
}

/// The sizes of the dimensions, fastest first; `None` unless there are 1 to [`RANK`], and elements.
pub(super) fn sizes(array: &Array) -> Option<String> {
    let rank = array.shape.len();
    let is_possible = (1..=RANK).contains(&rank) && !array.shape.contains(&0);
    is_possible.then(|| array.shape.iter().rev().map(u64::to_string).collect::<Vec<_>>().join(" "))
}

/// The distances of elements, fastest dimension first: 1 where they are not known.
pub(super) fn spacing(array: &Array, space: Option<&Space>) -> String {
    space.map_or_else(|| vec!["1"; array.shape.len()].join(" "), |space| fastest_first(&space.spacing))
}

/// A value for each dimension, fastest first.
pub(super) fn fastest_first<T: ToString>(values: &[T]) -> String {
    values.iter().rev().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(descr: &str, shape: &[u64]) -> Array {
        Array { descr: descr.into(), itemsize: 1, shape: shape.to_vec() }
    }

    #[test]
    fn a_header_has_the_fastest_dimension_first() {
        let want = "NRRD0004\ntype: int16\ndimension: 3\nsizes: 4 3 2\nspacings: 1 1 1\nendian: big\nencoding: raw\n\
                    data file: data.raw\n";
        let header = |elements| header(&array("'>i2'", &[2, 3, 4]), None, elements).unwrap();
        assert_eq!(header(NrrdElements::All("data.raw")), want);
        let want = want.replace("data file: data.raw", "byte skip: -1\ndata file: data.npy");
        assert_eq!(header(NrrdElements::AtEnd("data.npy")), want);
    }

    #[test]
    fn every_type_of_the_formats_has_its_name() {
        for (descr, nrrd, meta) in [
            ("'|b1'", "uint8", Some("UCHAR")),
            ("'|u1'", "uint8", Some("UCHAR")),
            ("'|i1'", "int8", Some("CHAR")),
            ("'<u2'", "uint16", Some("USHORT")),
            ("'<i2'", "int16", Some("SHORT")),
            ("'<u4'", "uint32", Some("UINT")),
            ("'<i4'", "int32", Some("INT")),
            ("'<u8'", "uint64", None),
            ("'<i8'", "int64", None),
            ("'<f4'", "float", Some("FLOAT")),
            ("'<f8'", "double", Some("DOUBLE")),
        ] {
            let array = array(descr, &[2]);
            let text = header(&array, None, NrrdElements::All("data.raw")).unwrap();
            assert!(
                text.contains(&format!("\ntype: {nrrd}\n")) && text.contains("endian: little\n"),
                "{descr}: {text}"
            );
            let text = crate::view::meta_image::header(&array, None, "data.raw");
            let kind = text.as_deref().and_then(|text| text.split("ElementType = MET_").nth(1)?.lines().next());
            assert_eq!(kind, meta, "{descr}");
        }
    }

    #[test]
    fn a_header_says_where_the_elements_are() {
        let units = ["mm", "um", "um"].map(str::to_owned).to_vec();
        let space = Space::new(vec![2.5, 1.0, 1e-7], Some(vec![-1.0, 0.0, 3.5]), units);
        let text = header(&array("'<f4'", &[2, 3, 4]), space.as_ref(), NrrdElements::All("data.raw")).unwrap();
        let want = "spacings: 0.0000001 1 2.5\naxis mins: 3.5 0 -1\ncenterings: node node node\nunits: \"um\" \"um\" \"mm\"\nendian";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn dimensions_that_are_not_along_the_axes_have_vectors() {
        let mut space = Space::new(vec![2.0, 0.5], Some(vec![5.0, 6.0]), vec!["mm".into(), "mm".into()]).unwrap();
        space.direction = Some(vec![vec![0.0, 1.0], vec![-1.0, 0.0]]);
        let text = header(&array("'<f4'", &[2, 3]), Some(&space), NrrdElements::All("data.raw")).unwrap();
        let want =
            "space dimension: 2\nspace directions: (0,0.5) (-2,0)\nspace origin: (6,5)\nspace units: \"mm\" \"mm\"\n";
        assert!(text.contains(want) && !text.contains("spacings") && !text.contains("axis mins"), "{text}");
        let text = crate::view::meta_image::header(&array("'<f4'", &[2, 3]), Some(&space), "data.raw").unwrap();
        let want = "ElementSpacing = 0.5 2\nOffset = 6 5\nTransformMatrix = 0 1 -1 0\n";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn what_the_format_cannot_say_has_no_header() {
        for (descr, shape) in [
            ("'<f2'", &[2][..]),
            ("'<c8'", &[2]),
            ("'|V4'", &[2]),
            ("'<M8[ns]'", &[2]),
            ("'<f4'", &[]),
            ("'<f4'", &[2, 0]),
            ("'<f4'", &[1, 1, 1, 1, 1]),
        ] {
            assert_eq!(header(&array(descr, shape), None, NrrdElements::All("data.raw")), None, "{descr} {shape:?}");
        }
    }
}
