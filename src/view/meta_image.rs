//! Headers of `MetaImage` files (`.mhd`), which describe an array in another file.
//!
//! Reference: "MetaIO/Documentation", ITK wiki.
//! Limits: as [`nrrd`], without integers of 64 bits: `MET_LONG` has 32 of them, and VTK 9.7 allocates too little for
//! `MET_LONG_LONG`. VTK reads at most three dimensions, ITK and Slicer four.
#![forbid(unsafe_code)]

use crate::format::{Array, Number, NumberKind, Space};

use super::nrrd;

/// The header of `array`, with its elements at the start of the file `data` in the same directory. `None` if the format
/// has no such array.
pub fn header(array: &Array, space: Option<&Space>, data: &str) -> Option<String> {
    let number = Number::of(&array.descr)?;
    let kind = match (number.kind, number.width) {
        (NumberKind::Int, 1) => "CHAR",
        (NumberKind::Uint | NumberKind::Bool, 1) => "UCHAR",
        (NumberKind::Int, 2) => "SHORT",
        (NumberKind::Uint, 2) => "USHORT",
        (NumberKind::Int, 4) => "INT",
        (NumberKind::Uint, 4) => "UINT",
        (NumberKind::Float, 4) => "FLOAT",
        (NumberKind::Float, 8) => "DOUBLE",
        _ => return None,
    };
    let (sizes, rank) = (nrrd::sizes(array)?, array.shape.len());
    let order = if number.is_big_endian { "True" } else { "False" };
    let origin = space.and_then(|space| space.origin.as_ref());
    let offset = origin.map_or_else(String::new, |origin| format!("Offset = {}\n", nrrd::fastest_first(origin)));
    let vectors = space.and_then(Space::vectors).map(|vectors| vectors.concat());
    let matrix = vectors.map_or_else(String::new, |parts| {
        let parts: Vec<_> = parts.iter().map(f64::to_string).collect();
        format!("TransformMatrix = {}\n", parts.join(" "))
    });
    // The file of the elements must come last.
    Some(format!(
        "ObjectType = Image\nNDims = {rank}\nBinaryData = True\nBinaryDataByteOrderMSB = {order}\n\
         CompressedData = False\nElementSpacing = {}\n{offset}{matrix}DimSize = {sizes}\nElementType = MET_{kind}\n\
         ElementDataFile = {data}\n",
        nrrd::spacing(array, space),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_fastest_dimension_first() {
        let array = |descr: &str| Array { descr: descr.into(), itemsize: 4, shape: vec![2, 3, 4, 5] };
        let want = "ObjectType = Image\nNDims = 4\nBinaryData = True\nBinaryDataByteOrderMSB = False\n\
                    CompressedData = False\nElementSpacing = 1 1 1 1\nDimSize = 5 4 3 2\n\
                    ElementType = MET_UINT\nElementDataFile = data.raw\n";
        assert_eq!(header(&array("'<u4'"), None, "data.raw").unwrap(), want);
        let space = Space::new(vec![1.0, 2.5, 1.0, 0.5], Some(vec![0.0, 1.0, 2.0, 3.0]), Vec::new());
        let placed = want.replace("Spacing = 1 1 1 1", "Spacing = 0.5 1 2.5 1\nOffset = 3 2 1 0");
        assert_eq!(header(&array("'<u4'"), space.as_ref(), "data.raw").unwrap(), placed);
        assert!(["'<f2'", "'<i8'", "'<u8'"].iter().all(|descr| header(&array(descr), None, "data.raw").is_none()));
    }
}
