//! Columns that are the fields of a structure: Arrow has them in it, without marks of its own.
//!
//! Limits: those of the schema; each column is in one place.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::{HashMap, HashSet};

use arrow_schema::{DataType, Field};
use serde_json::Value;

use crate::format::about::Attributes;

use super::super::schema::{DEPTH, Parent, segment};
use super::field::ArrowColumn;

/// The columns that are not yet in their place.
struct Groups {
    columns: Vec<Option<ArrowColumn>>,
    /// Their numbers, by the paths of their leaves.
    numbers: HashMap<String, usize>,
    placed: Vec<ArrowColumn>,
}

/// The fields of the schema, and `columns`, which come with the paths of their leaves, in their order.
pub(super) fn arrange(columns: Vec<(String, ArrowColumn)>, parents: &[Parent]) -> (Vec<Field>, Vec<ArrowColumn>) {
    let specs: HashMap<&str, &Parent> = parents.iter().map(|parent| (&*parent.path, parent)).collect();
    let paths: Vec<String> = columns.iter().map(|(path, _)| path.clone()).collect();
    let numbers = paths.iter().enumerate().map(|(number, path)| (path.clone(), number)).collect();
    let columns = columns.into_iter().map(|(_, column)| Some(column)).collect();
    let mut groups = Groups { columns, numbers, placed: Vec::new() };
    let mut fields = Vec::new();
    let mut done = HashSet::new();
    for (number, path) in paths.iter().enumerate() {
        let mut ends = path.match_indices('/').map(|(end, _)| end);
        let topmost = ends.find_map(|end| specs.get(path.get(..end)?));
        if let Some(parent) = topmost.filter(|parent| done.insert(&*parent.path)) {
            let spec = groups.structure(&parent.name, &parent.path, &parent.spec, DEPTH);
            fields.extend(spec);
        }
        // Columns that its structure does not name are beside it.
        fields.extend(groups.place(number, None));
    }
    (fields, groups.placed)
}

impl Groups {
    /// Places column `number`, unless it has its place; in a structure as its field `name`, of the type `kind`.
    fn place(&mut self, number: usize, named: Option<(&str, &str)>) -> Option<Field> {
        let mut column = self.columns.get_mut(number)?.take()?;
        let mut field = column.field.clone();
        if let Some((name, kind)) = named {
            // A structure says of its text only that it is some.
            if kind == "string" {
                column.narrow();
            }
            field = column.field.clone().with_name(name);
        }
        self.placed.push(column);
        Some(field)
    }

    /// Places the columns below `path`, as `spec` says; `None` if there are none.
    fn structure(&mut self, name: &str, path: &str, spec: &Attributes, depth: u32) -> Option<Field> {
        let depth = depth.checked_sub(1)?;
        let first = self.placed.len();
        let mut fields = Vec::new();
        for field in spec.get("fields").and_then(Value::as_array)? {
            let Some(field) = field.as_object() else { continue };
            let text = |key: &str| field.get(key).and_then(Value::as_str);
            let (Some(name), Some(kind)) = (text("name"), text("kind")) else { continue };
            let path = format!("{path}/{}", segment(name));
            let found = match self.numbers.get(&path) {
                Some(&number) => self.place(number, Some((name, kind))),
                None => self.structure(name, &path, field, depth),
            };
            fields.extend(found);
        }
        // The node of a structure comes before that of its first field.
        let column = self.placed.get_mut(first)?;
        column.opens = column.opens.saturating_add(1);
        Some(Field::new(name, DataType::Struct(fields.into()), true))
    }
}
