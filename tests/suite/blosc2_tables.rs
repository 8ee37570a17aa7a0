//! Tables of python-blosc2: columns of live rows, and the whole as an Arrow file.
//!
//! tests/data/blosc2/stores/tables holds what python-blosc2 gives for tables.b2z: make.py.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use arrow_ipc::reader::FileReader;
use fzmfs::account::Account;
use fzmfs::checksum::Verify;
use fzmfs::error::{Kind, Result};
use fzmfs::format::{Input, Options};
use fzmfs::source::Source;
use serde_json::{Value, json};

use crate::blosc2::Opened;
use crate::support::hostile;

fn stores() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/stores")
}

fn open(name: &str) -> Opened {
    Opened::open(&stores().join(name)).unwrap()
}

fn document(opened: &Opened, path: &str) -> Value {
    serde_json::from_slice(&opened.read(path).unwrap()).unwrap()
}

/// The table of each group in tables.b2z.
const TABLES: [(&str, &str); 2] = [("masked", "runs/masked"), ("valued", "valued")];

#[test]
fn columns_have_the_live_rows_as_python_blosc2_gives_them() {
    let opened = open("tables.b2z");
    opened.verify().unwrap();
    assert_eq!(opened.names("valued").unwrap(), ["stored", "table.arrow", "columns"]);
    let mut count = 0;
    for (name, group) in TABLES {
        for file in fs::read_dir(stores().join("tables").join(name)).unwrap() {
            let file = file.unwrap();
            let path = format!("{group}/columns/{}", file.file_name().to_str().unwrap());
            assert!(opened.read(&path).unwrap() == fs::read(file.path()).unwrap(), "{path}");
            count += 1;
        }
    }
    assert_eq!(count, 33);
    // A column that cannot have missing values has no marks; the leaves are there too.
    let names = opened.names("runs/masked/columns").unwrap();
    assert!(!names.contains(&"id.notnull.npy".to_owned()) && !names.contains(&"blob.npy".to_owned()));
    assert!(opened.read("runs/masked/stored/_cols/id/data.raw").unwrap().len() > 35 * 8);
}

#[test]
fn a_table_is_an_arrow_file_equal_to_that_of_python_blosc2() {
    let opened = open("tables.b2z");
    for (name, group) in TABLES {
        let batches = |bytes: Vec<u8>| {
            FileReader::try_new(Cursor::new(bytes), None).unwrap().collect::<std::result::Result<Vec<_>, _>>().unwrap()
        };
        let ours = batches(opened.read(&format!("{group}/table.arrow")).unwrap());
        let theirs = batches(fs::read(stores().join("tables").join(format!("{name}.arrow"))).unwrap());
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn lists_and_structures_are_in_the_arrow_file_as_python_blosc2_exports_them() {
    let opened = open("nested_tables.b2z");
    opened.verify().unwrap();
    // One table was imported from Arrow twice: its lists are MessagePack, or Arrow themselves.
    for (name, group) in [("nested", "nested"), ("imported", "imported/msgpack"), ("imported", "imported/arrow")] {
        let read = |bytes: Vec<u8>| {
            let reader = FileReader::try_new(Cursor::new(bytes), None).unwrap();
            (reader.schema(), reader.collect::<std::result::Result<Vec<_>, _>>().unwrap())
        };
        let ours = read(opened.read(&format!("{group}/table.arrow")).unwrap());
        let theirs = read(fs::read(stores().join("tables").join(format!("{name}.arrow"))).unwrap());
        assert_eq!(ours, theirs, "{group}");
    }
    let names = opened.names("imported/msgpack/columns").unwrap();
    assert!(names.contains(&"trip".to_owned()) && !names.contains(&"parts.npy".to_owned()));
}

#[test]
fn arrays_of_a_table_name_their_marks_and_what_is_left_out() {
    let opened = open("tables.b2z");
    let group = document(&opened, "data.zarr/zarr.json");
    let members = group["consolidated_metadata"]["metadata"].as_object().unwrap();
    assert!(members.keys().all(|name| !name.contains("_cols") && !name.contains("_meta")));
    let score = &members["runs/masked/score"];
    assert_eq!((&score["shape"], &score["data_type"]), (&json!([35]), &json!("float64")));
    assert_eq!(score["attributes"]["notnull"], "score.notnull");
    assert_eq!(members["runs/masked/score.notnull"]["data_type"], "bool");
    assert_eq!(members["runs/masked"]["attributes"], json!({"note": "hello"}));
    assert_eq!(members["runs/masked/vec"]["shape"], json!([35, 2, 3]));
    assert!(!members.contains_key("runs/masked/text"));
    assert!(group["attributes"].to_string().contains("text of any length: see columns/ and table.arrow"));
    let info = document(&opened, "info.json");
    assert_eq!(info["tables"]["/runs/masked"]["rows"], 35);
    assert_eq!(info["tables"]["/valued"]["columns"][5]["null_value"], "NA");
}

#[test]
fn objects_are_json_as_python_would_write_them() {
    // A dictionary, a tuple, an array of NumPy, and a set: texts of a column follow each other.
    let (table, want) = (open("objects.b2z").read("table.arrow").unwrap(), br#"{"x":[1,2]}["tuple",2][0,1,2][1,2]"#);
    assert!(table.windows(want.len()).any(|texts| texts == want));
}

#[test]
fn a_table_that_lies_is_an_error_where_it_lies() {
    let opened = open("lying_tables.b2z");
    let rows = [
        ("short-column/columns/a.raw", "row 4 is needed, the array has 3 (a: shape)"),
        ("short-marks/columns/a.notnull.raw", "row 3 is needed, the array has 2 (a: shape)"),
        ("missing-column/columns/b.raw", "missing (b: _cols/b)"),
        ("missing-column/table.arrow", "missing (b: _cols/b)"),
        ("descending/columns/t.npy", "a text ends before it begins (utf8)"),
        ("descending/table.arrow", "a text ends before it begins (t: utf8)"),
        ("outside/columns/t.npy", "byte 9 of 4 (utf8)"),
        ("negative/table.arrow", "byte -1 of 4 (t: utf8)"),
        ("not-utf8/columns/t.npy", "not UTF-8 (text)"),
        ("not-utf8/table.arrow", "not UTF-8 (t: text)"),
        ("code/columns/d.notnull.npy", "text 2 of 2 (d: dictionary)"),
        ("code/table.arrow", "text 2 of 2 (d: dictionary)"),
        ("not-text/columns/v.npy", "must be text, bytes, or nothing (batch)"),
        ("few-values/columns/v.npy", "value 2 is needed, there are 2 (batch)"),
        ("no-character/table.arrow", "no character has the number 0xd800 (w: text)"),
        ("no-json/table.arrow", "must be JSON (schema)"),
        ("not-list/table.arrow", "must be a list (l: batch)"),
        ("not-struct/table.arrow", "must be the name of a field (l: batch)"),
        ("wide-number/table.arrow", "128 in 8 bits (l: batch)"),
        ("not-utf8-list/table.arrow", "not UTF-8 (l: text)"),
        ("endless-list/table.arrow", "needs 1 bytes, 0 left (l: batch, at byte 0x7)"),
        ("endless-text/table.arrow", "needs 4294967295 bytes, 1 left (l: batch, at byte 0x7)"),
        ("deep-object/table.arrow", "nested too deeply (l: batch)"),
    ];
    for (path, want) in rows {
        assert_eq!(opened.read(path).unwrap_err().to_string(), want, "{path}");
    }
    for path in ["kind/table.arrow", "version/table.arrow", "wide/columns/a.raw"] {
        assert!(opened.read(path).unwrap_err().is_unknown(), "{path}");
    }
    // The marks say which rows there are: a writer that was not closed leaves another number.
    for (table, rows) in [("more-marked", 3), ("fewer-marked", 1), ("more-rows", 2)] {
        assert_eq!(opened.read(&format!("{table}/columns/a.raw")).unwrap().len(), 8 * rows, "{table}");
    }
    // What does not lie is there, also beside it.
    let one = 1_i64.to_le_bytes();
    let both = [one, 2_i64.to_le_bytes()].concat();
    assert_eq!(opened.read("sound/columns/a.raw").unwrap(), [one, 3_i64.to_le_bytes()].concat());
    assert_eq!(opened.read("missing-column/columns/a.raw").unwrap(), both);
    assert_eq!(opened.read("more-rows/stored/_cols/a/data.raw").unwrap(), both);
    assert!(opened.read("sound/table.arrow").is_ok() && opened.verify().is_err());
}

#[test]
fn tables_that_claim_far_more_than_they_are_cost_nothing_before_they_are_read() {
    let account = Account::new(64 << 20, 0);
    let options = Options { account: account.clone(), ..Options::default() };
    let input = Input::open(&stores().join("huge_tables.b2z")).unwrap();
    let opened = Opened::of(&input, None, &options).unwrap();
    assert_eq!(opened.names("").unwrap().len(), 6);
    // Its rows would be counted for its columns.
    assert_eq!(opened.names("uncounted").unwrap(), ["stored", "table.arrow", "columns"]);
    assert_eq!(document(&opened, "info.json")["tables"]["/uncounted"]["rows"], Value::Null);
    // All rows are live: their number is known.
    assert_eq!(opened.len("counted/columns/a.raw").unwrap(), 8 << 36);
    assert_eq!(opened.names("giant-text/columns").unwrap(), ["t.npy"]);
    for path in ["giant-text/columns/t.npy", "giant-text/table.arrow"] {
        let error = opened.len(path).unwrap_err();
        assert!(matches!(error.kind(), Kind::TooLarge { .. } | Kind::NoRoom { .. }), "{path}: {error}");
    }
    assert!(account.memory().peak() < 32 << 20, "{}", account.memory().peak());
}

#[test]
fn a_table_whose_rows_would_be_counted_for_ever_is_verified_up_to_a_limit() {
    let account = Account::new(64 << 20, 0);
    let options = Options { account: account.clone(), ..Options::default() };
    let opened = Opened::of(&Input::open(&stores().join("huge_tables.b2z")).unwrap(), None, &options).unwrap();
    let error = opened.verify().unwrap_err();
    assert!(matches!(error.kind(), Kind::TooLarge { .. }), "{error}");
    assert!(account.memory().peak() < 64 << 20, "{}", account.memory().peak());
}

#[test]
fn lists_and_structures_that_claim_far_more_than_they_are_are_left_out_or_refused() {
    let opened = open("lying_tables.b2z");
    let reader = FileReader::try_new(Cursor::new(opened.read("deep-list/table.arrow").unwrap()), None).unwrap();
    assert_eq!(reader.schema().fields().len(), 1);
    assert_eq!(reader.schema().metadata()["fzmfs.left_out"], "l: nested more than 32 deep");
    // 2,000 missing structures of 2,000 fields, in as many bytes.
    let account = Account::new(64 << 20, 0);
    let options = Options { account: account.clone(), ..Options::default() };
    let opened = Opened::of(&Input::open(&stores().join("lying_tables.b2z")).unwrap(), None, &options).unwrap();
    let error = opened.read("wide-struct/table.arrow").unwrap_err();
    assert!(matches!(error.kind(), Kind::NoRoom { .. }), "{error}");
    assert!(account.memory().peak() <= 64 << 20, "{}", account.memory().peak());
}

#[test]
fn a_table_with_a_changed_byte_is_read_or_refused() {
    let options = Options { verify: Verify::Off, ..Options::default() };
    let read = |changed: Vec<u8>, paths: &[&str]| -> Result<()> {
        let opened = Opened::of(&Input::of(Source::from_bytes(changed))?, None, &options)?;
        for path in paths {
            drop(opened.read(path));
        }
        Ok(())
    };
    let sound: &[&str] =
        &["sound/table.arrow", "sound/columns/a.npy", "sound/columns/t.npy", "sound/columns/a.notnull.npy"];
    let nested: &[&str] = &["nested/table.arrow", "imported/msgpack/table.arrow", "imported/arrow/table.arrow"];
    for (name, usual, paths) in [("lying_tables.b2z", 1000, sound), ("nested_tables.b2z", 200, nested)] {
        let bytes = fs::read(stores().join(name)).unwrap();
        // The leaves of these tables come anywhere in the file: some bytes of all.
        for at in (0..bytes.len()).step_by((bytes.len() / hostile(usual)).max(1)) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            drop(read(changed, paths));
        }
    }
}
