//! The schema of a table: its columns, as the metalayers of its leaf `_meta` say.
//!
//! Limits: [`SCHEMA`] bytes and [`COLUMNS`] columns.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::Value;

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::Options;
use crate::format::about::Attributes;
use crate::limits::Limits;

use super::super::attributes::from_python;
use super::super::frame::Frame;
use super::super::json;
use super::super::metalayer::Metalayer;
use super::super::metalayers::LayerValue;
use super::batches::ChunkForm;

/// Maximum bytes of a schema as text, and how much memory a byte may take while it is read.
const SCHEMA: u64 = 1 << 20;
const PER_BYTE: u64 = 80;
/// Maximum nesting of lists and structures: that of python-blosc2, and less than readers of Arrow take.
pub(super) const DEPTH: u32 = 32;
/// Maximum number of columns.
const COLUMNS: u64 = 10_000;
/// The field of errors about it.
const WHAT: &str = "schema";

/// The schema of a table.
#[derive(Debug, PartialEq)]
pub(super) struct Schema {
    pub(super) columns: Vec<ColumnSpec>,
    /// The number of live rows, if it is known.
    pub(super) rows: Option<u64>,
    /// The names of columns without values of their own.
    pub(super) computed: Vec<String>,
    /// Structures of which the fields are columns.
    pub(super) parents: Vec<Parent>,
}

/// A structure of which the fields are columns.
#[derive(Debug, PartialEq)]
pub(super) struct Parent {
    pub(super) name: String,
    /// As [`ColumnSpec::path`].
    pub(super) path: String,
    /// Its type.
    pub(super) spec: Attributes,
}

/// A column according to the schema.
#[derive(Debug, PartialEq)]
pub(super) struct ColumnSpec {
    pub(super) name: String,
    /// Its name as a path: groups of columns, separated by `/`.
    pub(super) path: String,
    pub(super) kind: ColumnKind,
    pub(super) nulls: Nulls,
    /// Its entry in the schema.
    pub(super) about: Attributes,
}

/// The type of the values of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ColumnKind {
    /// Elements of one size: the array says which.
    Fixed,
    Bool,
    /// Integers that count a unit of time from 1970 on.
    Timestamp {
        unit: String,
        timezone: Option<String>,
    },
    /// UTF-8, and where each value ends.
    Utf8,
    /// Batches of text, or of bytes.
    Text,
    Bytes,
    /// Numbers of texts.
    Dictionary {
        is_ordered: bool,
        null: i64,
    },
    /// Arrays of this shape.
    Arrays(Vec<u64>),
    /// Lists, structures, or objects of any type.
    Nested(ChunkForm),
    /// The same in a form that is not known.
    Other(String),
}

/// How a value says that it is missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Nulls {
    None,
    /// There may be a leaf with marks.
    Mask,
    /// It is this value.
    Value(Value),
    /// By itself.
    Native,
}

/// The metalayer `name` of a leaf.
fn layer<'a>(frame: &'a Frame, name: &str) -> Option<&'a Metalayer> {
    frame.vlmetalayers.as_ref().ok()?.iter().find(|layer| layer.name == name.as_bytes())
}

/// Whether `frame` has the metalayers of a schema. Reads nothing.
pub(super) fn is_schema(frame: &Frame) -> bool {
    layer(frame, "kind").is_some() && layer(frame, WHAT).is_some()
}

/// The text in the metalayer `name`.
fn text(frame: &Frame, name: &'static str) -> Result<String> {
    let layer = layer(frame, name).ok_or_else(|| Error::corrupt("missing", name))?;
    let value = LayerValue::of_chunk(&frame.source, layer, &frame.chunks.item().memory)?;
    Limits::check(value.len(), SCHEMA, name).map_err(|e| e.at(layer.at))?;
    match json::to_json(&value.bytes()?) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Error::corrupt("must be text", name).at(layer.at)),
    }
}

impl Schema {
    /// Reads the schema in the leaf `_meta`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unknown`] for a version of another generation.
    pub(super) fn read(frame: &Frame, options: &Options) -> Result<Self> {
        let kind = text(frame, "kind")?;
        if kind != "ctable" {
            return Err(Error::unknown(format!("a table of the kind {kind:?}"), "kind"));
        }
        let text = text(frame, WHAT)?;
        let _reading = options.account.charge(to_u64(text.len()).saturating_mul(PER_BYTE), WHAT)?;
        Self::parse(&from_python(&text).ok_or_else(|| Error::corrupt("must be JSON", WHAT))?)
    }

    fn parse(schema: &Value) -> Result<Self> {
        let version = schema.get("version").cloned().unwrap_or_else(|| 1.into());
        if !matches!(version.as_u64(), Some(1..=3)) {
            return Err(Error::unknown(format!("schema version {version}"), "version"));
        }
        let columns = schema.get("columns").and_then(Value::as_array);
        let columns = columns.ok_or_else(|| Error::corrupt("must have a list of columns", WHAT))?;
        Limits::check(to_u64(columns.len()), COLUMNS, "number of columns")?;
        let computed = schema.get("computed_columns").and_then(Value::as_array).into_iter().flatten();
        let name = |column: &Value| column.get("name").and_then(Value::as_str).map(str::to_owned);
        let parents = schema.pointer("/metadata/struct_parents").and_then(Value::as_object).into_iter().flatten();
        let parent = |(name, spec): (&String, &Value)| {
            let title = if let [only] = &*parts(name) { only.clone() } else { name.clone() };
            Some(Parent { name: title, path: path(name), spec: spec.as_object()?.clone() })
        };
        Ok(Self {
            parents: parents.filter_map(parent).collect(),
            columns: columns.iter().map(ColumnSpec::parse).collect::<Result<_>>()?,
            rows: schema.get("n_rows").and_then(Value::as_u64),
            computed: computed.filter_map(name).collect(),
        })
    }
}

impl ColumnSpec {
    fn parse(column: &Value) -> Result<Self> {
        let field = |name: &str| column.get(name).and_then(Value::as_str);
        let no = |what: &'static str| move || Error::corrupt("a column without one", what);
        let name = field("name").ok_or_else(no("name"))?.to_owned();
        let is_set = |name: &str| column.get(name).and_then(Value::as_bool) == Some(true);
        let kind = match field("kind").ok_or_else(no("kind"))? {
            "list" if field("serializer") == Some("arrow") => ColumnKind::Nested(ChunkForm::Streams),
            other if field("serializer").is_some_and(|name| name != "msgpack") => ColumnKind::Other(other.to_owned()),
            "bool" => ColumnKind::Bool,
            "timestamp" => ColumnKind::Timestamp {
                unit: field("unit").unwrap_or_default().to_owned(),
                timezone: field("timezone").map(str::to_owned),
            },
            "utf8" => ColumnKind::Utf8,
            "vlstring" => ColumnKind::Text,
            "vlbytes" => ColumnKind::Bytes,
            "dictionary" => ColumnKind::Dictionary {
                is_ordered: is_set("ordered"),
                null: column.get("null_code").and_then(Value::as_i64).unwrap_or(-1),
            },
            "ndarray" => {
                let sides = column.get("item_shape").and_then(Value::as_array).into_iter().flatten();
                let sides: Option<Vec<u64>> = sides.map(Value::as_u64).collect();
                ColumnKind::Arrays(sides.ok_or_else(|| Error::corrupt("must be a list of numbers", "item_shape"))?)
            }
            "list" if field("storage") == Some("vl") => ColumnKind::Nested(ChunkForm::Single),
            "list" | "struct" | "object" => ColumnKind::Nested(ChunkForm::Lists),
            _ => ColumnKind::Fixed,
        };
        let nulls = match (&kind, column.get("null_value")) {
            _ if field("null_storage") == Some("mask") => Nulls::Mask,
            (ColumnKind::Dictionary { .. } | ColumnKind::Text | ColumnKind::Bytes | ColumnKind::Nested(_), _) => {
                Nulls::Native
            }
            (ColumnKind::Other(_), _) | (_, None | Some(Value::Null)) => Nulls::None,
            (_, Some(value)) => Nulls::Value(value.clone()),
        };
        let stored = ["name", "cparams", "dparams", "chunks", "blocks"];
        let about = column.as_object().into_iter().flatten().filter(|(key, _)| !stored.contains(&key.as_str()));
        let about = about.map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Self { path: path(&name), name, kind, nulls, about })
    }
}

/// The path of the leaf of column `name`.
fn path(name: &str) -> String {
    parts(name).iter().map(|part| segment(part)).collect::<Vec<_>>().join("/")
}

/// The parts of the name of a column: a dot begins one, unless a backslash is before it.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        match (c, parts.last_mut()) {
            ('.', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.push(chars.next().unwrap_or('\\')),
            (c, part) => part.into_iter().for_each(|part| part.push(c)),
        }
    }
    parts
}

/// The name of a field as a part of a path.
pub(super) fn segment(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace('.', "%2E").replace('\\', "%5C")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_of_a_column_is_that_of_its_leaf() {
        let rows = [("id", "id"), ("a.b.c", "a/b/c"), (r"a\.b", "a%2Eb"), ("a/b", "a%2Fb"), (r"100%\\", "100%25%5C")];
        for (name, want) in rows {
            assert_eq!(path(name), want, "{name}");
        }
    }

    #[test]
    fn what_a_schema_says_of_its_columns() {
        let schema = json!({"version": 3, "n_rows": 7, "computed_columns": [{"name": "c"}], "columns": [
            {"name": "a", "kind": "int64", "null_value": -1, "chunks": [8]},
            {"name": "b", "kind": "utf8", "nullable": true, "null_storage": "mask"},
            {"name": "c", "kind": "dictionary", "ordered": true, "null_code": -1},
            {"name": "d", "kind": "ndarray", "item_shape": [2, 3]},
            {"name": "e", "kind": "list"},
        ], "metadata": {"struct_parents": {"f.g": {"kind": "struct", "fields": []}, "h": 1}}});
        let Schema { columns, rows, computed, parents } = Schema::parse(&schema).unwrap();
        assert_eq!((rows, &*computed), (Some(7), &["c".to_owned()][..]));
        assert_eq!(parents.iter().map(|parent| (&*parent.name, &*parent.path)).collect::<Vec<_>>(), [("f.g", "f/g")]);
        let want = [
            (ColumnKind::Fixed, Nulls::Value(json!(-1))),
            (ColumnKind::Utf8, Nulls::Mask),
            (ColumnKind::Dictionary { is_ordered: true, null: -1 }, Nulls::Native),
            (ColumnKind::Arrays(vec![2, 3]), Nulls::None),
            (ColumnKind::Nested(ChunkForm::Lists), Nulls::Native),
        ];
        for (column, want) in columns.into_iter().zip(want) {
            assert_eq!((column.kind, column.nulls), want, "{}", column.name);
            assert!(!column.about.contains_key("chunks"));
        }
        for wrong in [
            json!({}),
            json!({"columns": 1}),
            json!({"columns": [{}]}),
            json!({"columns": [{"name": "a"}]}),
            json!({"columns": [{"name": "a", "kind": "ndarray", "item_shape": [-1]}]}),
        ] {
            assert!(Schema::parse(&wrong).unwrap_err().is_lasting(), "{wrong}");
        }
        assert!(Schema::parse(&json!({"version": 4, "columns": []})).unwrap_err().is_unknown());
    }
}
