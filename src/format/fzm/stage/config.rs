//! Stage configurations, read through their layouts.
//!
//! Parsing takes the fields by name, and `info.json` all of them.
//!
//! Invariants: a [`Config`] has a size that its layout lists, and no value without a known meaning in a field that
//! allows only some: everything else is refused as unknown, never guessed.
#![forbid(unsafe_code)]

use serde_json::{Map, Value};

use super::DataType;
pub use super::layout::{ConfigLayout, Field, FieldKind};
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};

/// A configuration of known layout.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the stage type.
    stage: &'static str,
    layout: &'static ConfigLayout,
    bytes: Vec<u8>,
    at: FileOffset,
    outputs: usize,
}

/// The names of the error-bound modes, by number.
const MODES: [&str; 4] = ["ABS", "REL", "NOA", "PREL"];

impl Config {
    /// Reads the configuration of a stage of type `stage` with `outputs` outputs in the file: the rest of `cursor`.
    ///
    /// # Errors
    /// Fails with [`Kind::Unknown`](crate::error::Kind::Unknown) for a size or a value without a known meaning.
    pub fn read(stage: &'static str, layout: &'static ConfigLayout, cursor: &Cursor, outputs: usize) -> Result<Self> {
        Self { stage, layout, bytes: cursor.rest().to_vec(), at: cursor.at(), outputs }.checked()
    }

    /// The same bytes with another layout, for stages with generations of the same size.
    ///
    /// # Errors
    /// As for [`Config::read`].
    pub(super) fn with_layout(&self, layout: &'static ConfigLayout) -> Result<Self> {
        Self { layout, ..self.clone() }.checked()
    }

    fn checked(self) -> Result<Self> {
        let (layout, len) = (self.layout, self.len());
        if !layout.sizes.is_empty() && !layout.sizes.contains(&len) {
            return Err(Error::unknown(format!("a configuration of {len} bytes"), "config_size").at(self.at));
        }
        layout.fields.iter().filter(|field| field.is_in(len)).try_for_each(|field| self.check(field))?;
        Ok(self)
    }

    /// Fails if the value of `field` has no known meaning.
    fn check(&self, field: &Field) -> Result<()> {
        let bytes = self.field_bytes(field);
        let value = bytes.first().copied().unwrap_or(0);
        let what = match field.kind {
            FieldKind::Zero(_) => match (field.at..).zip(bytes).find(|(_, byte)| **byte != 0) {
                Some((at, byte)) => format!("the value {byte} of byte {at}"),
                None => return Ok(()),
            },
            FieldKind::Boolean if value > 1 => format!("the value {value}"),
            FieldKind::ElementType if DataType::from_code(value).is_none() => format!("element type {value}"),
            FieldKind::Mode if MODES.get(usize::from(value)).is_none() => format!("error-bound mode {value}"),
            _ => return Ok(()),
        };
        Err(self.unknown(field.name, what))
    }

    /// The name of the stage type.
    pub fn stage(&self) -> &'static str {
        self.stage
    }

    /// The number of outputs of the stage in the file: for stages with generations that differ in nothing else.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this generation has the field `name`.
    pub fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// The value of an integer field; 0 if this generation does not have it. A signed one is sign-extended.
    pub fn u64(&self, name: &str) -> u64 {
        let Some(field) = self.field(name) else { return 0 };
        let mut own = [0; 8];
        let bytes = self.field_bytes(field);
        own.iter_mut().zip(bytes).for_each(|(own, byte)| *own = *byte);
        let value = u64::from_le_bytes(own);
        if field.kind == FieldKind::I32 { i64::from(value as u32 as i32) as u64 } else { value }
    }

    /// The value of a field of at most 32 bits; 0 if this generation does not have it.
    pub fn u32(&self, name: &str) -> u32 {
        self.u64(name) as u32
    }

    /// The value of a field of 8 bits; 0 if this generation does not have it.
    pub fn u8(&self, name: &str) -> u8 {
        self.u64(name) as u8
    }

    /// The value of a signed field of 32 bits; 0 if this generation does not have it.
    pub fn i32(&self, name: &str) -> i32 {
        self.u64(name) as i32
    }

    /// The value of a float field of 32 bits; 0 if this generation does not have it.
    pub fn f32(&self, name: &str) -> f32 {
        f32::from_bits(self.u32(name))
    }

    /// The value of a float field of 64 bits; 0 if this generation does not have it.
    pub fn f64(&self, name: &str) -> f64 {
        f64::from_bits(self.u64(name))
    }

    /// Whether a flag or boolean is on; off if this generation does not have it.
    pub fn flag(&self, name: &str) -> bool {
        self.u64(name) != 0
    }

    /// The element type in the field `name`, or `default` if this generation does not have it.
    ///
    /// # Errors
    /// Fails with [`Kind::Unknown`](crate::error::Kind::Unknown) unless it is one of `defined`.
    pub fn element_type(&self, name: &'static str, defined: &[DataType], default: DataType) -> Result<DataType> {
        let own = self.field(name).map_or(Some(default), |_| DataType::from_code(self.u8(name)));
        let unknown = || self.unknown(name, format!("element type {}", own.map_or("opaque", DataType::name)));
        own.filter(|own| defined.contains(own)).ok_or_else(unknown)
    }

    /// The value of field `name` is invalid: `why`.
    pub fn corrupt(&self, name: &'static str, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::corrupt(why, name).at(self.offset(name))
    }

    /// The value of field `name` is `what`, which has no known meaning.
    pub fn unknown(&self, name: &'static str, what: impl std::fmt::Display) -> Error {
        Error::unknown(what.to_string(), name).at(self.offset(name))
    }

    /// The fields that have a meaning, by name, as JSON.
    pub fn fields(&self) -> Map<String, Value> {
        let own = self.layout.fields.iter().filter(|field| field.has_meaning() && field.is_in(self.len()));
        own.map(|field| (field.name.to_owned(), self.json(field))).collect()
    }

    /// The names of all its fields.
    pub(in crate::format::fzm) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.layout.fields.iter().map(|field| field.name)
    }

    fn json(&self, field: &Field) -> Value {
        match field.kind {
            FieldKind::F32 => float(self.f32(field.name)),
            FieldKind::F64 => double(self.f64(field.name)),
            FieldKind::I32 => self.i32(field.name).into(),
            FieldKind::Flag | FieldKind::Boolean => self.flag(field.name).into(),
            FieldKind::ElementType => DataType::from_code(self.u8(field.name)).map(DataType::name).into(),
            FieldKind::Mode => MODES.get(usize::from(self.u8(field.name))).copied().into(),
            _ => self.u64(field.name).into(),
        }
    }

    /// The configuration `bytes`, for tests of a stage.
    #[cfg(test)]
    pub(super) fn of(layout: &'static ConfigLayout, bytes: &[u8]) -> Result<Self> {
        Self::read("stage", layout, &Cursor::new(bytes, FileOffset(0)), 1)
    }

    fn field(&self, name: &str) -> Option<&'static Field> {
        self.layout.fields.iter().find(|field| field.name == name && field.is_in(self.len()))
    }

    fn field_bytes(&self, field: &Field) -> &[u8] {
        self.bytes.get(field.at..).and_then(|rest| rest.get(..field.size())).unwrap_or_default()
    }

    fn offset(&self, name: &str) -> FileOffset {
        let at = self.layout.fields.iter().find(|field| field.name == name).map_or(0, |field| field.at);
        self.at.plus(to_u64(at))
    }
}

/// The shortest decimal of the 32 bits of `value`; NaN and infinities as text.
fn float(value: f32) -> Value {
    let text = value.to_string();
    match text.parse::<f64>() {
        Ok(shortest) if shortest.is_finite() => shortest.into(),
        _ => text.into(),
    }
}

/// The number; NaN and infinities as text.
fn double(value: f64) -> Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: ConfigLayout = ConfigLayout {
        sizes: &[8, 12],
        fields: &[
            Field::element_type("type", 0),
            Field::boolean("order", 1),
            Field::zero(2, 1),
            Field::hole(3, 1),
            Field::f32("bound", 4),
            Field::i32("top", 8).since(12),
        ],
    };

    fn read(bytes: &[u8]) -> Result<Config> {
        Config::read("stage", &LAYOUT, &Cursor::new(bytes, FileOffset(0x100)), 1)
    }

    #[test]
    fn fields_are_read_by_name_and_generation() {
        let old = read(&[6, 1, 0, 9, 0, 0, 0, 63]).unwrap();
        assert_eq!((old.f32("bound"), old.flag("order"), old.has("top"), old.i32("top")), (0.5, true, false, 0));
        assert_eq!(serde_json::to_string(&old.fields()).unwrap(), r#"{"type":"int32","order":true,"bound":0.5}"#);
        let new = read(&[6, 0, 0, 9, 0, 0, 0, 63, 0xFE, 0xFF, 0xFF, 0xFF]).unwrap();
        assert_eq!((new.i32("top"), new.u64("top") as i64), (-2, -2));
        assert_eq!(new.element_type("type", &[DataType::I32], DataType::U8).unwrap(), DataType::I32);
    }

    #[test]
    fn values_without_a_known_meaning_are_not_guessed() {
        let unknown = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        let by = format!(
            "is unknown to fzmfs {}; a newer library wrote it",
            concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"))
        );
        assert_eq!(unknown(&[0; 9]), format!("a configuration of 9 bytes {by} (config_size, at byte 0x100)"));
        assert_eq!(unknown(&[77; 8]), format!("element type 77 {by} (type, at byte 0x100)"));
        assert_eq!(unknown(&[0, 2, 0, 0, 0, 0, 0, 0]), format!("the value 2 {by} (order, at byte 0x101)"));
        assert_eq!(unknown(&[0, 0, 3, 0, 0, 0, 0, 0]), format!("the value 3 of byte 2 {by} (reserved, at byte 0x102)"));
        let e = read(&[9; 8][..]).and(read(&[9, 0, 0, 0, 0, 0, 0, 0])).unwrap_err();
        assert!(e.to_string().contains("(order"), "{e}");
        let float = read(&[9, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        let e = float.element_type("type", &[DataType::I32], DataType::I32).unwrap_err();
        assert_eq!(e.to_string(), format!("element type float64 {by} (type, at byte 0x100)"));
    }
}
