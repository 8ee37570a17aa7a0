//! Element types of Zarr for the types of NumPy.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::{Map, Value, json};

use crate::format::Dtype;

/// An element type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DataType {
    /// Its name in Zarr, with a configuration if it has one.
    pub(super) name: Value,
    /// The configuration of the codec `bytes`: the byte order; `None` for single bytes.
    pub(super) endian: Option<&'static str>,
    /// Its zero, as a fill value.
    pub(super) zero: Value,
    /// Whether zarr-python has had it since 3.1, which opens no group with an unknown type in its consolidated
    /// metadata.
    pub(super) is_common: bool,
}

/// The types of numbers that all readers have, without byte order.
const NUMBERS: &[(&str, &str)] = &[
    ("b1", "bool"),
    ("i1", "int8"),
    ("i2", "int16"),
    ("i4", "int32"),
    ("i8", "int64"),
    ("u1", "uint8"),
    ("u2", "uint16"),
    ("u4", "uint32"),
    ("u8", "uint64"),
    ("f2", "float16"),
    ("f4", "float32"),
    ("f8", "float64"),
    ("c8", "complex64"),
    ("c16", "complex128"),
];

/// Types that NumPy lacks, by their names in containers: opaque bytes to it.
const ADDED: &[(&str, &str)] = &[
    ("bf16", "bfloat16"),
    ("bfloat16", "bfloat16"),
    ("f8_e4m3", "float8_e4m3fn"),
    ("f8_e4m3fn", "float8_e4m3fn"),
    ("f8_e4m3fnuz", "float8_e4m3fnuz"),
    ("f8_e5m2", "float8_e5m2"),
    ("f8_e5m2fnuz", "float8_e5m2fnuz"),
    ("f8_e8m0", "float8_e8m0fnu"),
];

/// Maximum bytes of an opaque element, since its zero is written out.
const LONGEST: u64 = 64 << 10;
/// The name of fields that are only space between others.
const PADDING: &str = "padding";

impl DataType {
    /// The type with the NumPy name `descr`, as in a `.npy` header, which the container calls `name`, if it has a name
    /// for it; `None` if Zarr lacks it.
    pub(super) fn of(descr: &str, name: Option<&str>) -> Option<Self> {
        if let Some(fields) = Dtype::fields(descr) {
            return Self::of_fields(&fields);
        }
        let (order, code) = descr.trim_matches('\'').split_at_checked(1)?;
        let endian = match order {
            "<" => Some("little"),
            ">" => Some("big"),
            "|" => None,
            _ => return None,
        };
        let is_opaque = code.starts_with('V');
        if let Some((_, added)) = ADDED.iter().find(|(known, _)| is_opaque && Some(*known) == name) {
            let zero = if added.ends_with("e8m0fnu") { "0x00".into() } else { 0.0.into() };
            return Some(Self { name: (*added).into(), endian, zero, is_common: false });
        }
        let (name, zero) = match NUMBERS.iter().find(|(known, _)| *known == code) {
            Some(&(_, name)) => (name.into(), zero_of(code)),
            None => with_length(code)?,
        };
        Some(Self { name, endian, zero, is_common: true })
    }

    /// The type of records of `fields`. Readers disagree about records that are not in little-endian order.
    fn of_fields(fields: &[(String, String)]) -> Option<Self> {
        let (mut all, mut zero) = (Vec::new(), Map::new());
        for (name, descr) in fields {
            let field = Self::of(descr, None).filter(|field| field.endian != Some("big"))?;
            let spaces = || (0..).map(|n| format!("{PADDING}{n}"));
            let is_free = |name: &String| !zero.contains_key(name) && fields.iter().all(|(other, _)| other != name);
            let name = if name.is_empty() { spaces().find(is_free)? } else { name.clone() };
            all.push(json!({ "name": name, "data_type": field.name }));
            if zero.insert(name, field.zero).is_some() {
                return None;
            }
        }
        let name = json!({ "name": "struct", "configuration": { "fields": all } });
        Some(Self { name, endian: Some("little"), zero: zero.into(), is_common: false })
    }

    /// The attribute `_FillValue` as xarray writes it in Zarr, from the number or the text that a container has; `None`
    /// if it is not an element of this type.
    pub(super) fn fill(&self, value: &Value) -> Option<Value> {
        let kind = self.name.as_str()?.trim_end_matches(|c: char| c.is_ascii_digit());
        match kind {
            "float" => {
                let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
                Some(base64(&number.to_le_bytes()).into())
            }
            "int" | "uint" => {
                let whole = value.as_f64().filter(|number| number.fract() == 0.0)?;
                Some(if value.is_f64() { whole.to_string().parse::<i64>().ok()?.into() } else { value.clone() })
            }
            "bool" => value.as_bool().map(Value::from),
            _ => None,
        }
    }
}

fn zero_of(code: &str) -> Value {
    match code.as_bytes().first() {
        Some(b'b') => false.into(),
        Some(b'f') => 0.0.into(),
        Some(b'c') => json!([0.0, 0.0]),
        _ => 0.into(),
    }
}

/// The name and the zero of a type with a length or a unit: texts, bytes, times.
fn with_length(code: &str) -> Option<(Value, Value)> {
    let (kind, rest) = code.split_at_checked(1)?;
    let sized = |name: &str, each: u64, zero: &dyn Fn(u64) -> Value| {
        let len = rest.parse::<u64>().ok()?.checked_mul(each).filter(|&len| len > 0)?;
        Some((json!({ "name": name, "configuration": { "length_bytes": len } }), zero(len)))
    };
    let time = |name: &str| {
        let unit = rest.strip_prefix('8')?;
        let inner = unit.strip_prefix('[').and_then(|unit| unit.strip_suffix(']')).unwrap_or("generic");
        let digits = inner.find(|c: char| !c.is_ascii_digit())?;
        let (factor, unit) = inner.split_at_checked(digits)?;
        let factor = if factor.is_empty() { 1 } else { factor.parse::<u32>().ok()? };
        Some((json!({ "name": name, "configuration": { "unit": unit, "scale_factor": factor } }), 0.into()))
    };
    match kind {
        "S" => sized("null_terminated_bytes", 1, &|_| "".into()),
        "U" => sized("fixed_length_utf32", 4, &|_| "".into()),
        "V" if rest.parse::<u64>().ok()? > LONGEST => None,
        "V" => sized("raw_bytes", 1, &|len| base64(&vec![0; usize::try_from(len).unwrap_or(0)]).into()),
        "M" => time("numpy.datetime64"),
        "m" => time("numpy.timedelta64"),
        _ => None,
    }
}

/// `bytes` in the alphabet of base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, i| bits << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
        for (i, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit =
                DIGITS.iter().zip(0..).find(|&(_, n)| n == bits >> shift & 63).map_or(b'=', |(digit, _)| *digit);
            text.push(if i <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_fill_value_is_written_as_xarray_reads_it() {
        let rows = [
            ("'<f4'", json!(-999.0), Some(json!("AAAAAAA4j8A="))),
            ("'<f8'", json!("NaN"), Some(json!("AAAAAAAA+H8="))),
            ("'<f8'", json!([1]), None),
            ("'<i2'", json!(-999), Some(json!(-999))),
            ("'<i2'", json!(-999.0), Some(json!(-999))),
            ("'<u2'", json!(0.5), None),
            ("'|b1'", json!(true), Some(json!(true))),
            ("'<c8'", json!(1), None),
            ("'<u8'", json!(u64::MAX), Some(json!(u64::MAX))),
            ("'<i4'", json!("1"), None),
            ("'|b1'", json!(1), None),
        ];
        for (descr, value, want) in rows {
            assert_eq!(DataType::of(descr, None).unwrap().fill(&value), want, "{descr} {value}");
        }
    }

    #[test]
    fn types_are_named_as_the_readers_know_them() {
        let sized = |name: &str, len: u64| json!({ "name": name, "configuration": { "length_bytes": len } });
        let time = |name: &str, unit: &str, factor: u64| json!({ "name": name, "configuration": { "unit": unit, "scale_factor": factor } });
        let little = Some("little");
        let rows = [
            ("'|b1'", json!("bool"), None, json!(false)),
            ("'|u1'", json!("uint8"), None, json!(0)),
            ("'<i2'", json!("int16"), little, json!(0)),
            ("'>f8'", json!("float64"), Some("big"), json!(0.0)),
            ("'<c8'", json!("complex64"), little, json!([0.0, 0.0])),
            ("'|V3'", sized("raw_bytes", 3), None, json!("AAAA")),
            ("'|S4'", sized("null_terminated_bytes", 4), None, json!("")),
            ("'>U4'", sized("fixed_length_utf32", 16), Some("big"), json!("")),
            ("'<M8[ns]'", time("numpy.datetime64", "ns", 1), little, json!(0)),
            ("'<m8[25s]'", time("numpy.timedelta64", "s", 25), little, json!(0)),
            ("'<M8'", time("numpy.datetime64", "generic", 1), little, json!(0)),
        ];
        for (descr, name, endian, zero) in rows {
            assert_eq!(DataType::of(descr, None), Some(DataType { name, endian, zero, is_common: true }), "{descr}");
        }
        for descr in [
            "'|S0'",
            "'<f16'",
            "[('a', '<f4', (2,))]",
            "[('a', '>f4')]",
            "'|V65537'",
            "",
            "[('a', '<f4'), ('a', '<f4')]",
        ] {
            assert_eq!(DataType::of(descr, None), None, "{descr}");
        }
    }

    #[test]
    fn types_that_numpy_lacks_and_records_have_the_names_of_the_extensions() {
        let bfloat = DataType::of("'<V2'", Some("bf16")).unwrap();
        assert_eq!((bfloat.name, bfloat.endian, bfloat.is_common), (json!("bfloat16"), Some("little"), false));
        assert_eq!(DataType::of("'|V1'", Some("f8_e4m3")).unwrap().name, json!("float8_e4m3fn"));
        assert_eq!(DataType::of("'<f4'", Some("bf16")).unwrap().name, json!("float32"));
        let fields = DataType::of("[('a', '|u1'), ('', '|V7'), ('', '|V3')]", None).unwrap().zero;
        assert_eq!(fields, json!({ "a": 0, "padding0": "AAAAAAAAAA==", "padding1": "AAAA" }));
        let record =
            DataType::of("[('a', '|u1'), ('', '|V7'), ('p', [('x', '<f8'), ('padding0', '<i2')])]", None).unwrap();
        let fields = record.name["configuration"]["fields"].as_array().unwrap();
        let names: Vec<_> = fields.iter().map(|field| &field["name"]).collect();
        assert_eq!(
            (record.name["name"].as_str(), names.as_slice()),
            (Some("struct"), &[&json!("a"), &json!("padding0"), &json!("p")][..])
        );
        assert_eq!(record.zero, json!({ "a": 0, "padding0": "AAAAAAAAAA==", "p": { "x": 0.0, "padding0": 0 } }));
    }

    #[test]
    fn the_zero_of_the_longest_element_is_written_out() {
        let longest = DataType::of("'|V65536'", None).unwrap();
        assert_eq!(longest.zero.as_str().map(str::len), Some(65536_usize.div_ceil(3) * 4));
    }

    #[test]
    fn bytes_in_base64() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFB, 0xEF, 0xFF]), "++//");
    }
}
