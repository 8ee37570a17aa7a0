//! The Arrow types of lists, structures, and objects, as the schema of a table describes them.
//!
//! Limits: [`DEPTH`] levels.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use serde_json::Value;

use crate::format::about::Attributes;

use super::super::schema::DEPTH;

/// How Arrow has values called `name` that `spec` describes; or why it does not.
pub(super) fn field(name: &str, spec: &Attributes) -> Result<Field, String> {
    below(name, spec, DEPTH)
}

fn below(name: &str, spec: &Attributes, depth: u32) -> Result<Field, String> {
    let Some(depth) = depth.checked_sub(1) else { return Err(format!("nested more than {DEPTH} deep")) };
    let text = |key: &str| spec.get(key).and_then(Value::as_str);
    let kind = text("kind").unwrap_or_default();
    let data_type = match kind {
        "bool" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        // Inside of other values, the texts of a dictionary are stored themselves.
        "string" | "vlstring" | "dictionary" => DataType::Utf8,
        "utf8" => DataType::LargeUtf8,
        "bytes" | "vlbytes" => DataType::LargeBinary,
        "timestamp" => {
            let unit = text("unit").unwrap_or_default();
            let known = time_unit(unit).ok_or_else(|| format!("times of the unit {unit:?}"))?;
            DataType::Timestamp(known, text("timezone").map(Into::into))
        }
        "list" => {
            let item = spec.get("item").or_else(|| spec.get("item_spec")).and_then(Value::as_object);
            let item = item.ok_or("a list of no type")?;
            DataType::List(Arc::new(below("item", item, depth)?))
        }
        "struct" => {
            let fields = spec.get("fields").and_then(Value::as_array).ok_or("a structure without fields")?;
            let fields = fields.iter().map(|field| {
                let named = field.as_object().and_then(|field| Some((field.get("name")?.as_str()?, field)));
                let (name, field) = named.ok_or("a field without a name")?;
                below(name, field, depth)
            });
            DataType::Struct(fields.collect::<Result<_, String>>()?)
        }
        "object" => return Ok(json(name)),
        other => return Err(format!("values of the kind {other:?}")),
    };
    Ok(Field::new(name, data_type, true))
}

/// Objects of any type are text, with the type that Arrow has for JSON.
fn json(name: &str) -> Field {
    let extension = [("ARROW:extension:name", JSON), ("ARROW:extension:metadata", "")];
    let extension: HashMap<_, _> = extension.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    Field::new(name, DataType::Utf8, true).with_metadata(extension)
}

const JSON: &str = "arrow.json";

/// Whether the values of `field` are documents of JSON.
pub(super) fn is_json(field: &Field) -> bool {
    field.extension_type_name() == Some(JSON)
}

/// The unit of times that is called `name`.
pub(super) fn time_unit(name: &str) -> Option<TimeUnit> {
    Some(match name {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: &Value) -> Result<DataType, String> {
        field("a", spec.as_object().unwrap()).map(|field| field.data_type().clone())
    }

    #[test]
    fn the_type_of_lists_and_structures() {
        let point = json!({"kind": "struct", "fields": [{"name": "x", "kind": "float32"}, {"name": "at", "kind": "timestamp", "unit": "us"}]});
        let want = DataType::Struct(
            [
                Field::new("x", DataType::Float32, true),
                Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            ]
            .to_vec()
            .into(),
        );
        assert_eq!(of(&point).unwrap(), want);
        assert_eq!(of(&json!({"kind": "list", "item": point})).unwrap(), DataType::new_list(want, true));
        let object = field("a", json!({"kind": "object"}).as_object().unwrap()).unwrap();
        assert!(is_json(&object));
    }

    #[test]
    fn a_type_that_arrow_does_not_have_is_named() {
        let deep = (0..40).fold(json!({"kind": "int8"}), |item, _| json!({"kind": "list", "item": item}));
        let rows = [
            (json!({"kind": "list", "item": {"kind": "complex64"}}), "values of the kind \"complex64\""),
            (json!({"kind": "timestamp", "unit": "D"}), "times of the unit \"D\""),
            (json!({"kind": "list"}), "a list of no type"),
            (json!({"kind": "struct", "fields": [1]}), "a field without a name"),
            (json!({}), "values of the kind \"\""),
            (deep, "nested more than 32 deep"),
        ];
        for (spec, want) in rows {
            assert_eq!(of(&spec).unwrap_err(), want);
        }
    }
}
