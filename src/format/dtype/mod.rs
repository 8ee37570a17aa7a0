//! Parses NumPy element types: `<f4`, `float32`, `|S10`, `[('a', '<i4'), ('b', '<f8', (2,))]`.
//!
//! `numpy.load` accepts every type returned here in a `.npy` header. Structured types are written as the list of
//! fields, with padding as unnamed fields.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

mod literal;
mod number;

use literal::Literal;
pub use number::{Number, NumberKind};

/// An element type: its name in a `.npy` header, and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dtype {
    /// The value of `descr`, as Python writes it: `'<f4'`, with its quotes.
    pub descr: String,
    /// Bytes of an element.
    pub itemsize: u64,
}

impl Dtype {
    /// Opaque elements of `itemsize` bytes.
    pub fn opaque(itemsize: u64) -> Self {
        match itemsize {
            1 => Self { descr: "'|u1'".into(), itemsize },
            n => Self { descr: format!("'|V{n}'"), itemsize },
        }
    }

    /// Parses `text`. `None` if NumPy has no such type or if it contains Python objects.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        match text.as_bytes().first()? {
            b'[' | b'{' | b'(' | b'\'' | b'"' => nested(&Literal::parse(text)?, DEPTH),
            _ => scalar(text),
        }
    }
}

impl Dtype {
    /// The names of the fields of the structured type `descr` and the values of their own `descr`; `None` unless it is one,
    /// without titles and arrays in fields.
    pub fn fields(descr: &str) -> Option<Vec<(String, String)>> {
        let Literal::List(fields) = Literal::parse(descr.trim())? else { return None };
        let field = |field: &Literal| match field {
            Literal::Tuple(parts) => match parts.as_slice() {
                [Literal::Text(name), kind] => Some((name.clone(), nested(kind, DEPTH)?.descr)),
                _ => None,
            },
            _ => None,
        };
        fields.iter().map(field).collect()
    }
}

/// Maximum nesting depth of structured types.
const DEPTH: u32 = 16;
/// Maximum bytes of one element.
const WIDEST: u64 = 1 << 31;

fn nested(literal: &Literal, depth: u32) -> Option<Dtype> {
    let depth = depth.checked_sub(1)?;
    match literal {
        Literal::Text(text) => scalar(text),
        Literal::List(fields) => fields_of_list(fields, depth),
        Literal::Dict(pairs) => fields_of_dict(pairs, depth),
        // A subarray: ('<i4', (2, 3)).
        Literal::Tuple(items) => {
            let [base, shape] = items.as_slice() else { return None };
            let base = nested(base, depth)?;
            let (shape, count) = shape_of(shape)?;
            let itemsize = base.itemsize.checked_mul(count).filter(|&n| n <= WIDEST)?;
            Some(Dtype { descr: format!("({}, {shape})", base.descr), itemsize })
        }
        Literal::Int(_) | Literal::Word(_) => None,
    }
}

/// `[('a', '<i4'), ('b', '<f8', (2, 3)), (('title', 'c'), '|S3')]`
fn fields_of_list(fields: &[Literal], depth: u32) -> Option<Dtype> {
    let mut text = Vec::new();
    let mut itemsize = 0_u64;
    for field in fields {
        let Literal::Tuple(parts) = field else { return None };
        let (name, kind, shape) = match parts.as_slice() {
            [name, kind] => (name, kind, None),
            [name, kind, shape] => (name, kind, Some(shape)),
            _ => return None,
        };
        let kind = nested(kind, depth)?;
        let (shape, count) = match shape {
            Some(shape) => shape_of(shape).map(|(shape, count)| (format!(", {shape}"), count))?,
            None => (String::new(), 1),
        };
        itemsize = kind.itemsize.checked_mul(count)?.checked_add(itemsize).filter(|&n| n <= WIDEST)?;
        text.push(format!("({}, {}{shape})", name_of(name)?, kind.descr));
    }
    if text.is_empty() {
        return None;
    }
    Some(Dtype { descr: format!("[{}]", text.join(", ")), itemsize })
}

/// `{'names': ['a', 'b'], 'formats': ['<i4', '<f8'], 'offsets': [0, 8], 'itemsize': 16}`
fn fields_of_dict(pairs: &[(Literal, Literal)], depth: u32) -> Option<Dtype> {
    let get = |key: &str| pairs.iter().find(|(k, _)| matches!(k, Literal::Text(t) if t == key)).map(|(_, v)| v);
    let list = |key: &str| match get(key)? {
        Literal::List(items) | Literal::Tuple(items) => Some(items.as_slice()),
        _ => None,
    };
    let (names, formats, offsets) = (list("names")?, list("formats")?, list("offsets"));
    if names.len() != formats.len() || offsets.is_some_and(|o| o.len() != names.len()) || names.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    let mut end = 0_u64;
    let gap = |text: &mut Vec<String>, from: u64, to: u64| -> Option<()> {
        match to.checked_sub(from)? {
            0 => {}
            n => text.push(format!("('', '|V{n}')")),
        }
        Some(())
    };
    for (i, (name, format)) in names.iter().zip(formats).enumerate() {
        let kind = nested(format, depth)?;
        let offset = match offsets.and_then(|o| o.get(i)) {
            Some(&Literal::Int(n)) => u64::try_from(n).ok()?,
            Some(_) => return None,
            None => end,
        };
        gap(&mut text, end, offset)?;
        text.push(format!("({}, {})", name_of(name)?, kind.descr));
        end = offset.checked_add(kind.itemsize).filter(|&n| n <= WIDEST)?;
    }
    let itemsize = match get("itemsize") {
        Some(&Literal::Int(n)) => u64::try_from(n).ok().filter(|&n| n <= WIDEST)?,
        Some(_) => return None,
        None => end,
    };
    gap(&mut text, end, itemsize)?;
    Some(Dtype { descr: format!("[{}]", text.join(", ")), itemsize })
}

/// A field's name, or its title and name, quoted.
fn name_of(name: &Literal) -> Option<String> {
    match name {
        Literal::Text(text) => quoted(text),
        Literal::Tuple(parts) => match parts.as_slice() {
            [Literal::Text(title), Literal::Text(name)] => Some(format!("({}, {})", quoted(title)?, quoted(name)?)),
            _ => None,
        },
        _ => None,
    }
}

fn quoted(text: &str) -> Option<String> {
    if text.chars().any(char::is_control) {
        return None;
    }
    Some(format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")))
}

/// A shape in Python syntax, and its number of elements.
fn shape_of(shape: &Literal) -> Option<(String, u64)> {
    let size = |item: &Literal| match item {
        Literal::Int(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    let sizes: Vec<u64> = match shape {
        Literal::Int(_) => vec![size(shape)?],
        Literal::Tuple(items) | Literal::List(items) => items.iter().map(size).collect::<Option<_>>()?,
        _ => return None,
    };
    let count = sizes.iter().try_fold(1_u64, |n, &d| n.checked_mul(d))?;
    let text = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    Some((if sizes.len() == 1 { format!("({text},)") } else { format!("({text})") }, count))
}

/// Type names of NumPy and C without a byte order, and their type codes.
const NAMES: &[(&str, &str)] = &[
    ("bool", "b1"),
    ("bool_", "b1"),
    ("?", "b1"),
    ("int8", "i1"),
    ("int16", "i2"),
    ("int32", "i4"),
    ("int64", "i8"),
    ("int", "i8"),
    ("uint8", "u1"),
    ("uint16", "u2"),
    ("uint32", "u4"),
    ("uint64", "u8"),
    ("uint", "u8"),
    ("float16", "f2"),
    ("float32", "f4"),
    ("float64", "f8"),
    ("float", "f8"),
    ("complex64", "c8"),
    ("complex128", "c16"),
    ("complex", "c16"),
    ("b", "i1"),
    ("B", "u1"),
    ("h", "i2"),
    ("H", "u2"),
    ("i", "i4"),
    ("I", "u4"),
    ("l", "i8"),
    ("L", "u8"),
    ("q", "i8"),
    ("Q", "u8"),
    ("e", "f2"),
    ("f", "f4"),
    ("d", "f8"),
    ("F", "c8"),
    ("D", "c16"),
];

fn scalar(text: &str) -> Option<Dtype> {
    let (order, name) = match text.as_bytes().first()? {
        b'<' | b'>' | b'=' | b'|' => text.split_at(1),
        _ => ("=", text),
    };
    let name = NAMES.iter().find(|(n, _)| *n == name).map_or(name, |(_, short)| short);
    let (kind, rest) = name.split_at_checked(1)?;
    let (number, unit) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
    let number: u64 = number.parse().ok().filter(|&n| n <= WIDEST)?;
    let fits = match kind {
        "b" => number == 1,
        "i" | "u" => matches!(number, 1 | 2 | 4 | 8),
        "f" => matches!(number, 2 | 4 | 8 | 16),
        "c" => matches!(number, 8 | 16 | 32),
        "M" | "m" => number == 8,
        "S" | "U" | "V" => number > 0,
        _ => false,
    };
    let dated = matches!(kind, "M" | "m") && unit_of_time(unit);
    if !fits || !(unit.is_empty() || dated) {
        return None;
    }
    let itemsize = if kind == "U" { number.checked_mul(4)? } else { number };
    let order = match order {
        _ if itemsize == 1 || matches!(kind, "S" | "V" | "b") => "|",
        ">" => ">",
        _ => "<",
    };
    Some(Dtype { descr: format!("'{order}{kind}{number}{unit}'"), itemsize })
}

/// `[ns]`, `[25s]`, `[D]`
fn unit_of_time(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) else { return false };
    let unit = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    matches!(unit, "Y" | "M" | "W" | "D" | "h" | "m" | "s" | "ms" | "us" | "ns" | "ps" | "fs" | "as" | "generic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_are_normalized_to_those_of_npy_headers() {
        let rows: &[(&str, &str, u64)] = &[
            ("<f4", "'<f4'", 4),
            ("f4", "'<f4'", 4),
            (">i2", "'>i2'", 2),
            ("=u8", "'<u8'", 8),
            ("<u1", "'|u1'", 1),
            ("bool", "'|b1'", 1),
            ("float64", "'<f8'", 8),
            ("uint8", "'|u1'", 1),
            ("|S10", "'|S10'", 10),
            ("<U7", "'<U7'", 28),
            ("V300", "'|V300'", 300),
            ("<M8[ns]", "'<M8[ns]'", 8),
            ("<m8[25s]", "'<m8[25s]'", 8),
            ("c16", "'<c16'", 16),
            ("[('a', '<i4'), ('b', '<f8')]", "[('a', '<i4'), ('b', '<f8')]", 12),
            ("[(\"a\", \"<i4\", (2, 3)), ('b', 'S3', 2)]", "[('a', '<i4', (2, 3)), ('b', '|S3', (2,))]", 30),
            (
                "[('p', [('x', '<f4'), ('y', '<f4')]), ('n', '<u1')]",
                "[('p', [('x', '<f4'), ('y', '<f4')]), ('n', '|u1')]",
                9,
            ),
            ("[(('the title', 'a'), '<i4'), ('f1', 'V12')]", "[(('the title', 'a'), '<i4'), ('f1', '|V12')]", 16),
            (
                "{'names': ['a', 'b'], 'formats': ['u1', '<f8'], 'offsets': [0, 8], 'itemsize': 20, 'aligned': True}",
                "[('a', '|u1'), ('', '|V7'), ('b', '<f8'), ('', '|V4')]",
                20,
            ),
            ("('<i4', (2,))", "('<i4', (2,))", 8),
        ];
        for (text, descr, itemsize) in rows {
            let want = Dtype { descr: (*descr).into(), itemsize: *itemsize };
            assert_eq!(Dtype::parse(text), Some(want), "{text}");
        }
    }

    #[test]
    fn types_that_numpy_cannot_load_are_refused() {
        let deep = "[('a', ".repeat(40) + "'<i4'" + &")]".repeat(40);
        for text in [
            "",
            "O",
            "|O",
            "<f3",
            "<i4x",
            "xyz",
            "[]",
            "[('a', 'O')]",
            "[('a', '<i4')",
            "[('a',)]",
            "<M8[lightyears]",
            "{'names': ['a'], 'formats': []}",
            "{'names': ['a', 'b'], 'formats': ['<i4', '<i4'], 'offsets': [0, 2]}",
            "[('a', '<i4', (9223372036854775807, 9223372036854775807))]",
            "S99999999999999999999",
            &deep,
        ] {
            let got = Dtype::parse(text);
            assert!(got.is_none(), "{text}: {got:?}");
        }
    }
}
