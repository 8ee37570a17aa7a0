//! `fzmfs info`: describes a container, as text or as the `info.json` of its tree.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value};

use super::args;
use super::report::{self, Failure, Outcome};
use super::size;
use crate::archive::Archive;
use crate::error::{Error, Kind};
use crate::format::{Found, NamedArray};
use crate::source::location::shown;
use crate::text::{self, escaped};

/// Arrays that are named, and entries that are looked at for them.
const ARRAYS: usize = 4;
const LOOKED_AT: u64 = 1000;

pub(super) fn run(args: &args::Info, out: &mut dyn Write) -> Outcome {
    args.reading.start()?;
    let (mut objects, mut failed, mut is_first) = (Vec::new(), false, true);
    for file in &args.files {
        let info = match describe(args, file) {
            Ok(info) => info,
            // Wrong usage applies to every file.
            Err(failure) if args.files.len() == 1 || failure.code() == 2 => return Err(failure),
            Err(failure) => {
                report::report(&failure);
                failed = true;
                continue;
            }
        };
        if args.json {
            objects.push(info);
            continue;
        }
        print(&info, file, args, is_first, out).map_err(|e| report::output(&e))?;
        is_first = false;
    }
    if args.json {
        let all = if args.files.len() == 1 { objects.pop().unwrap_or_default() } else { Value::Array(objects) };
        writeln!(out, "{}", text::json(&all)).map_err(|e| report::output(&e))?;
    }
    if failed { Err(Failure::reported()) } else { Ok(()) }
}

/// The `info.json` of `file`; with its name if it is one of several.
fn describe(args: &args::Info, file: &Path) -> Result<Value, Failure> {
    let refused = |e: Error| match e.kind() {
        Kind::Unsupported(_) if file.is_dir() => {
            let shown = file.display();
            Failure::at(file, format_args!("a directory, not a container; `fzmfs ls {shown}` lists what is in it"))
        }
        _ => Failure::of(file, &e),
    };
    let archive = args.reading.open_named(file).map_err(refused)?;
    let info = archive.info().map_err(refused)?;
    let Value::Object(mut map) = info.to_json() else { return Ok(Value::Null) };
    if let Some(arrays) = Some(&archive).filter(|_| !args.json).and_then(arrays) {
        // Arrays are asked for most: in all formats at the same place. Programs find them in the parts that they are from.
        map.shift_insert(2, "arrays".to_owned(), arrays.into());
    }
    let name = (args.json && args.files.len() > 1).then(|| ("file".to_owned(), shown(file).to_string_lossy().into()));
    Ok(Value::Object(name.into_iter().chain(map).collect()))
}

/// The arrays of `archive`, those that come first, with types and shapes.
fn arrays(archive: &Archive) -> Option<String> {
    let arrays = archive.container().arrays().ok()??;
    let found = (0..arrays.count().min(LOOKED_AT)).filter_map(|index| match arrays.find(index).ok()? {
        Found::Array(NamedArray { name, array, .. }) => {
            let (name, shape) = (String::from_utf8_lossy(&name).into_owned(), text::shape(&array.shape));
            Some(format!(
                "{name} {} {}",
                array.descr.trim_matches('\''),
                if shape.is_empty() { "scalar" } else { &shape }
            ))
        }
        Found::LeftOut(..) | Found::Nothing => None,
    });
    let mut named: Vec<String> = found.take(ARRAYS + 1).collect();
    if named.len() > ARRAYS {
        named.truncate(ARRAYS);
        named.push("...".to_owned());
    }
    Some(named.join(", ")).filter(|named| !named.is_empty())
}

fn print(info: &Value, file: &Path, args: &args::Info, is_first: bool, out: &mut dyn Write) -> io::Result<()> {
    if args.files.len() > 1 {
        let name = shown(file);
        writeln!(out, "{}{}:", if is_first { "" } else { "\n" }, escaped(&name.to_string_lossy()))?;
    }
    match info {
        Value::Object(map) => {
            let mut map = with_ratio(map);
            // Depends on this machine and these options, so it is not in info.json.
            if map.get("format").is_some_and(|format| format == "fzm") {
                map.remove("device");
                let without = map.remove("no_kernel").map(|names| cell("", &names)).filter(|names| names != "none");
                let decoder = match without {
                    Some(names) => format!("the CPU: no GPU kernel for {names}"),
                    None => args.reading.gpu().choice(),
                };
                map.insert("decoder".to_owned(), decoder.into());
            }
            lines(&map, 0, out)
        }
        _ => Ok(()),
    }
}

/// Adds the compression ratio after the two sizes, unless the format reports one.
fn with_ratio(map: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    let file = map.get("file_size").and_then(Value::as_u64).filter(|_| !map.contains_key("ratio")).unwrap_or(0);
    for (key, value) in map {
        out.insert(key.clone(), value.clone());
        if let (true, Some(decoded)) = (key == "decoded_size" && file > 0, value.as_u64()) {
            out.insert("ratio".to_owned(), format!("{:.2}", decoded as f64 / file as f64).into());
        }
    }
    out
}

/// Prints one key per line with aligned values; nested objects are indented, lists of objects become tables.
fn lines(map: &Map<String, Value>, indent: usize, out: &mut dyn Write) -> io::Result<()> {
    // Below the top level, an object without nested objects fits on one line.
    let plain = |value: &Value| value.as_object().is_some_and(|map| indent > 0 && map.values().all(is_flat));
    let (flat, deep): (Vec<_>, Vec<_>) = map.iter().partition(|(_, value)| is_flat(value) || plain(value));
    let width = flat.iter().map(|(key, _)| label(key).chars().count()).max().unwrap_or(0);
    for (key, value) in flat {
        wrapped(indent, &format!("{:width$}", label(key)), &word(key, value), out)?;
    }
    for (key, value) in deep {
        writeln!(out, "{:indent$}{}", "", label(key))?;
        match value {
            Value::Object(map) => lines(map, indent + 2, out)?,
            Value::Array(rows) => table(rows, indent + 2, out)?,
            _ => {}
        }
    }
    Ok(())
}

/// Prints the objects in `rows` as a table; values too long or too deep for a column follow below their row.
fn table(rows: &[Value], indent: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut columns: Vec<InfoColumn> = Vec::new();
    for (key, value) in rows.iter().filter_map(Value::as_object).flatten() {
        let at = columns.iter().position(|column| column.key == key).unwrap_or_else(|| {
            columns.push(InfoColumn { key, width: label(key).chars().count(), numbers: true, narrow: true });
            columns.len() - 1
        });
        if let Some(column) = columns.get_mut(at) {
            let width = cell(key, value).chars().count();
            column.width = column.width.max(width);
            column.numbers &= value.is_number();
            column.narrow &= is_flat(value) && width <= NARROW;
        }
    }
    // As many columns as fit; the others follow as text below the row.
    let mut room = WIDTH.saturating_sub(indent);
    let (table, rest): (Vec<_>, Vec<_>) = columns.iter().partition(|column| {
        let fits = column.narrow && room >= column.width;
        room = if fits { room.saturating_sub(column.width + 2) } else { room };
        fits
    });
    line(indent, &table, |column| label(column.key), out)?;
    for row in rows {
        line(
            indent,
            &table,
            |column| row.get(column.key).map_or_else(|| "-".to_owned(), |v| cell(column.key, v)),
            out,
        )?;
        let more = rest.iter().filter(|column| column.narrow);
        let more =
            more.filter_map(|column| Some(format!("{} {}", label(column.key), cell(column.key, row.get(column.key)?))));
        wrapped(indent + 4, "", &more.collect::<Vec<_>>().join(", "), out)?;
        for column in rest.iter().filter(|column| !column.narrow) {
            let text = row.get(column.key).map(|value| cell(column.key, value)).unwrap_or_default();
            // A single long word is raw data in hexadecimal, which only --json prints.
            if text.contains(' ') {
                wrapped(indent + 4, &label(column.key), &text, out)?;
            }
        }
    }
    Ok(())
}

/// Maximum width of a value in a column.
const NARROW: usize = 24;
/// Lines are wrapped at this width if possible.
const WIDTH: usize = 110;

/// A column of a table.
struct InfoColumn<'a> {
    key: &'a String,
    width: usize,
    /// Whether it is right-aligned.
    numbers: bool,
    /// Whether all values are short and flat enough for a column.
    narrow: bool,
}

fn line(
    indent: usize,
    columns: &[&InfoColumn],
    cell: impl Fn(&InfoColumn) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = " ".repeat(indent);
    for column in columns {
        let (cell, width) = (cell(column), column.width);
        let cell = if column.numbers { format!("{cell:>width$}  ") } else { format!("{cell:width$}  ") };
        text.push_str(&cell);
    }
    writeln!(out, "{}", text.trim_end())
}

/// Prints `key  text`, wrapped between words with a hanging indent; prints nothing if both are empty.
fn wrapped(indent: usize, key: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let head = if key.is_empty() { String::new() } else { format!("{key}  ") };
    let hang = indent + head.chars().count();
    let mut line = format!("{:indent$}{head}", "");
    let mut column = hang;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > hang && column + 1 + width > WIDTH {
            writeln!(out, "{line}")?;
            line = " ".repeat(hang);
            column = hang;
        }
        if column > hang {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += width;
    }
    if line.trim().is_empty() { Ok(()) } else { writeln!(out, "{line}") }
}

fn is_flat(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => !items.iter().any(Value::is_object),
        _ => true,
    }
}

/// A key, as in `info.json` and in the container.
fn label(key: &str) -> String {
    escaped(key).into_owned()
}

/// Formats a value for a line of its own.
fn word(key: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(bytes) if is_size(key) => size::long(bytes),
        _ => cell(key, value),
    }
}

/// Formats a value for a table.
fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => if is_size(key) { "unknown" } else { "-" }.to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => escaped(text).into_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let is_shape = items.len() > 1 && items.iter().all(Value::is_u64) && names_shape(key);
            let between = if is_shape { "x" } else { ", " };
            let items = items.iter().map(|item| cell(key, item)).collect::<Vec<_>>();
            if items.is_empty() { "none".to_owned() } else { items.join(between) }
        }
        Value::Object(map) => {
            map.iter().map(|(k, v)| format!("{}={}", escaped(k), cell(k, v))).collect::<Vec<_>>().join(" ")
        }
    }
}

fn is_size(key: &str) -> bool {
    matches!(key, "size" | "bytes") || key.ends_with("_size") || key.ends_with("_bytes")
}

fn names_shape(key: &str) -> bool {
    key.ends_with("shape") || key.ends_with("dims")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_line_up_sizes_are_words_and_lists_of_objects_are_tables() {
        let info = json!({
            "format": "fzm",
            "file_size": 512,
            "decoded_size": 4096,
            "checksums": { "header": "crc32", "payload": null },
            "shape": [2, 3],
            "stages": [
                { "index": 0, "name": "rle", "config": { "type": "u16", "n": 3 }, "raw": "00112233445566778899aabb" },
                { "index": 10, "name": "x", "windowed": true, "raw": "00112233445566778899aabbcc" },
            ],
            "odd\u{1b}\n": "a\nb\u{202e}",
        });
        let mut out = Vec::new();
        lines(&with_ratio(info.as_object().unwrap()), 0, &mut out).unwrap();
        let want = "\
format        fzm
file_size     512 bytes
decoded_size  4.0 KiB (4096 bytes)
ratio         8.00
shape         2x3
odd\\u{1b}\\n   a\\nb\\u{202e}
checksums
  header   crc32
  payload  -
stages
  index  name  windowed
      0  rle   -
      config  type=u16 n=3
     10  x     yes
";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
