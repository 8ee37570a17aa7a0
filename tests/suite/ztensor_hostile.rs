//! zTensor files of a few kilobytes that claim a thousand million numbers: what they cost is on the account.

use std::sync::Arc;

use ciborium::Value;
use fzmfs::account::Account;
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{Container, Options};
use fzmfs::view::View;
use xxhash_rust::xxh3::xxh3_64;

use crate::support::opened::{self as support, Plain};

const MAGIC_2: &[u8; 8] = b"\x89ZT2\r\n\x1a\n";

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn map(pairs: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(key, value)| (Value::Text(key), value)).collect())
}

fn fields<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    map(pairs.map(|(key, value)| (key.to_owned(), value)))
}

fn array(numbers: &[u64]) -> Value {
    Value::Array(numbers.iter().map(|&n| n.into()).collect())
}

/// A Zstandard frame of `len` bytes `byte` in blocks of 128 KiB, four bytes each.
fn run_length_frame(len: u64, byte: u8) -> Vec<u8> {
    const BLOCK: u64 = 128 << 10;
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, (17 - 10) << 3];
    out.extend(len.to_le_bytes());
    let mut left = len;
    loop {
        let n = left.min(BLOCK);
        left -= n;
        let head = (n << 3) | 0b10 | u64::from(left == 0);
        out.extend(&head.to_le_bytes()[..3]);
        out.push(byte);
        if left == 0 {
            return out;
        }
    }
}

/// A frame of whatever bytes, uncompressed.
fn raw_frame(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, (17 - 10) << 3];
    out.extend((bytes.len() as u64).to_le_bytes());
    let blocks = bytes.chunks(128 << 10);
    let last = blocks.len() - 1;
    for (i, block) in blocks.enumerate() {
        let head = ((block.len() as u64) << 3) | u64::from(i == last);
        out.extend(&head.to_le_bytes()[..3]);
        out.extend(block);
    }
    out
}

/// A part of `zt.zstd-seekable/1`.
fn seekable(frames: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut table = Vec::new();
    for (frame, len) in frames {
        table.extend((frame.len() as u32).to_le_bytes());
        table.extend((*len as u32).to_le_bytes());
    }
    table.extend((frames.len() as u32).to_le_bytes());
    table.push(0);
    table.extend(0x8F92_EAB1_u32.to_le_bytes());
    let mut out: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.clone()).collect();
    out.extend(0x184D_2A5E_u32.to_le_bytes());
    out.extend((table.len() as u32).to_le_bytes());
    out.extend(table);
    out
}

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// A file of dialect 1.2 with `blobs`, whose places `objects` gets.
fn version_12(blobs: &[Vec<u8>], objects: impl FnOnce(&[(u64, u64)]) -> Value) -> Vec<u8> {
    let mut out = b"ZTEN1000".to_vec();
    let mut places = Vec::new();
    for blob in blobs {
        out.resize(out.len().next_multiple_of(64), 0);
        places.push((out.len() as u64, blob.len() as u64));
        out.extend(blob);
    }
    let manifest = cbor(&fields([("version", text("1.2.0")), ("objects", objects(&places))]));
    out.extend(&manifest);
    out.extend((manifest.len() as u64).to_le_bytes());
    out.extend(b"ZTEN1000");
    out
}

/// A file of dialect 2; keys have to be in their order.
fn version_2(blobs: &[Vec<u8>], root: impl FnOnce(&[(u64, u64)]) -> Value) -> Vec<u8> {
    let mut out = MAGIC_2.to_vec();
    let mut places = Vec::new();
    for blob in blobs {
        out.resize(out.len().next_multiple_of(4096), 0);
        places.push((out.len() as u64, blob.len() as u64));
        out.extend(blob);
    }
    out.resize(out.len().next_multiple_of(4096).max(4096), 0);
    let (at, manifest) = (out.len() as u64, cbor(&root(&places)));
    out.extend(&manifest);
    for field in [at, manifest.len() as u64, xxh3_64(&manifest)] {
        out.extend(field.to_le_bytes());
    }
    out.extend(2_u64.to_le_bytes());
    out.extend(MAGIC_2);
    out
}

/// Compressed rows without values, `count` row pointers that are all `byte`.
fn rows(count: u64, byte: u8) -> Vec<u8> {
    version_12(&[run_length_frame(count, byte), Vec::new(), Vec::new()], |places| {
        let part = |i: usize, dtype: &str| {
            vec![("dtype", text(dtype)), ("offset", places[i].0.into()), ("length", places[i].1.into())]
        };
        let mut pointers = part(0, "u8");
        pointers.extend([("encoding", text("zstd")), ("uncompressed_length", count.into())]);
        let parts = [("values", part(1, "f32")), ("indices", part(2, "u32")), ("indptr", pointers)];
        let own = |pairs: Vec<(&str, Value)>| map(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)));
        let parts = map(parts.map(|(role, part)| (role.to_owned(), own(part))));
        let tensor = [("shape", array(&[count - 1, 4])), ("format", text("sparse_csr")), ("components", parts)];
        fields([("t", fields(tensor))])
    })
}

/// A coordinate list of rank 1 and dialect 2: `coords` for as many values.
fn cells(extent: u64, values: Vec<u8>, coords: Vec<u8>, (dtype, count, width): (&str, u64, u64)) -> Vec<u8> {
    version_2(&[values, coords], |places| {
        let part = |i: usize, dtype: &str, len: u64| {
            let blob = array(&[places[i].0, places[i].1]);
            let encoding = text("zt.zstd-seekable/1");
            fields([("blob", blob), ("dtype", text(dtype)), ("encoding", encoding), ("decoded_length", len.into())])
        };
        let parts = fields([("coords", part(1, dtype, count * width)), ("values", part(0, "u8", count))]);
        let tensor = [("parts", parts), ("shape", array(&[extent])), ("layout", text("zt.sparse_coo/1"))];
        fields([("objects", fields([("t", fields(tensor))]))])
    })
}

fn open(bytes: Vec<u8>, account: &Account) -> Result<Arc<dyn Container>> {
    support::open(bytes, &Options { account: account.clone(), ..Options::default() })
}

#[test]
fn row_pointers_without_end_are_checked_through_a_window() {
    let bytes = rows(1 << 26, 0);
    assert!(bytes.len() < 5000);
    let account = Account::new(1 << 20, 0);
    let container = open(bytes, &account).unwrap();
    support::verify(&*container).unwrap();
    assert!(account.peaks().memory < 64 << 10, "{:?}", account.peaks());

    let e = support::verify(&*open(rows(1 << 20, 1), &account).unwrap()).unwrap_err();
    assert!(e.to_string().contains("row pointers do not go from 0"), "{e}");
}

#[test]
fn an_archive_of_row_pointers_without_end_is_made_through_a_window_and_remembered() {
    for (byte, is_right) in [(0, true), (1, false)] {
        let account = Account::new(1 << 20, 0);
        let container = open(rows(8 << 20, byte), &account).unwrap();
        let file = support::file(&*container, "tensors/t.npz").unwrap();
        let read_end = || -> Result<Vec<u8>> {
            let view = View::new(&file.content, &Plain)?;
            let mut end = vec![0; 100];
            view.read(view.len() - 100, &mut end, &Plain)?;
            Ok(end)
        };
        let first = read_end().map_err(|e| e.to_string());
        assert_eq!(first.is_ok(), is_right, "{first:?}");
        // Two thousand times over eight million numbers would be noticed.
        for _ in 0..2000 {
            assert_eq!(read_end().map_err(|e| e.to_string()), first);
        }
        assert!(account.peaks().memory < 64 << 10, "{:?}", account.peaks());
    }
}

#[test]
fn cells_are_compared_on_the_account() {
    const COUNT: u64 = 4 << 20;
    let values = || seekable(&[(run_length_frame(COUNT, 0), COUNT)]);
    // Every number of 24 bits below COUNT, once, in no order.
    let scattered = |twice: bool| {
        let mut cells: Vec<u32> = (0..COUNT as u32).map(|i| i.wrapping_mul(0x9E_3779) & (COUNT as u32 - 1)).collect();
        if twice {
            cells[1_000_000] = cells[3_000_000];
        }
        let bytes: Vec<u8> = cells.iter().flat_map(|n| n.to_le_bytes()).collect();
        seekable(&[(raw_frame(&bytes), COUNT * 4)])
    };
    let check = |coords: Vec<u8>, account: &Account| -> Result<()> {
        support::verify(&*open(cells(1 << 40, values(), coords, ("u32", COUNT, 4)), account)?)
    };
    let need = 8 * COUNT;
    for (memory, spill) in [(need + (1 << 20), 0), (1 << 20, need)] {
        let account = Account::new(memory, spill);
        check(scattered(false), &account).unwrap();
        let peaks = account.peaks();
        assert!(peaks.memory + peaks.disk >= need && peaks.memory <= memory && peaks.disk <= spill, "{peaks:?}");
        let e = check(scattered(true), &account).unwrap_err();
        assert!(e.to_string().contains("two values name the same cell"), "{e}");
        assert_eq!(account.disk().used(), 0);
    }
    let e = check(scattered(false), &Account::new(1 << 20, 1 << 20)).unwrap_err();
    assert!(matches!(e.kind(), Kind::NoRoom { .. }), "{e}");
}

#[test]
fn more_values_than_cells_are_refused_before_anything_is_decoded() {
    let part = || seekable(&[(run_length_frame(16 << 20, 0), 16 << 20)]);
    let account = Account::new(1 << 20, 0);
    let container = open(cells(1000, part(), part(), ("u64", 2 << 20, 8)), &account);
    // The parts decode to 16 MiB, so that values and coordinates do not fit each other.
    let e = container.and_then(|c| support::verify(&*c)).unwrap_err();
    assert!(e.to_string().contains("decoded") || e.to_string().contains("bytes"), "{e}");
    let coords = seekable(&[(run_length_frame(16 << 20, 0), 16 << 20)]);
    let values = seekable(&[(run_length_frame(2 << 20, 0), 2 << 20)]);
    let e = support::verify(&*open(cells(1000, values, coords, ("u64", 2 << 20, 8)), &account).unwrap()).unwrap_err();
    assert!(e.to_string().contains("2097152 values in 1000 cells"), "{e}");
}

/// A file with `count` shards, each with a tensor; `shard` says which one a tensor is in, and its blob.
fn sharded(count: u64, shard: impl Fn(u64) -> (String, u64)) -> Vec<u8> {
    version_2(&[], |_| {
        let entry = |i: u64| {
            let entry = fields([("size", 8192_u64.into()), ("digest", text("xxh3:0000000000000000"))]);
            (format!("s{i:07}"), entry)
        };
        let tensor = |i: u64| {
            let (name, len) = shard(i);
            let part = fields([("blob", array(&[4096, len])), ("dtype", text("u8")), ("shard", text(&name))]);
            let parts = fields([("data", part)]);
            (format!("n{i:07}"), fields([("parts", parts), ("shape", array(&[len])), ("layout", text("dense"))]))
        };
        let tensors = map((0..count).map(tensor));
        fields([("shards", map((0..count).map(entry))), ("objects", tensors)])
    })
}

#[test]
fn a_hundred_thousand_shards_are_looked_up_not_searched() {
    // Looked for one by one, these are ten thousand million comparisons.
    let account = Account::new(64 << 20, 0);
    let container = open(sharded(100_000, |i| (format!("s{i:07}"), 4056)), &account).unwrap();
    let info = container.info().to_json();
    assert_eq!(info["shards"].as_array().unwrap().len(), 10_000);
    assert_eq!(info["shards_not_listed"], 90_000);
    let missing = open(sharded(3, |i| (format!("s{:07}", i * 2), 1)), &account).map(drop).unwrap_err();
    assert!(missing.to_string().contains("\"s0000004\" is not in the table of shards"), "{missing}");
    let behind = open(sharded(3, |i| (format!("s{i:07}"), 4055 + i)), &account).map(drop).unwrap_err();
    assert!(behind.to_string().contains("do not end before byte 0x1fd8"), "{behind}");
    let overlap = open(sharded(3, |i| ("s0000001".into(), 10 + i)), &account).map(drop).unwrap_err();
    assert!(overlap.to_string().contains("overlap"), "{overlap}");
}

#[test]
fn a_manifest_takes_room_on_the_account_and_goes_to_a_file_beyond() {
    let bytes = sharded(100_000, |i| (format!("s{i:07}"), 4056));
    let manifest = bytes.len() as u64 - 4096 - 40;
    for (memory, spill) in [(64 << 20, 0), (1 << 20, 64 << 20)] {
        let account = Account::new(memory, spill);
        let container = open(bytes.clone(), &account).unwrap();
        assert_eq!(account.memory().used() + account.disk().used(), manifest);
        // The text of all of it.
        let json = support::read_at(&*container, "manifest.json").unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(parsed["objects"]["n0099999"]["shape"][0], 4056);
        assert_eq!(account.memory().used() + account.disk().used(), manifest);
        let peaks = account.peaks();
        assert!(peaks.memory + peaks.disk >= manifest + (json.len() as u64 & !0xF_FFFF), "{peaks:?}");
        let described = support::read_at(&*container, "tensors/n0000007.json").unwrap();
        let described: serde_json::Value = serde_json::from_slice(&described).unwrap();
        assert_eq!(described["components"]["data"]["shard"], "s0000007");
    }
    let e = open(bytes, &Account::new(1 << 20, 0)).map(drop).unwrap_err();
    assert!(matches!(e.kind(), Kind::NoRoom { .. }) && e.what().contains("manifest"), "{e}");
}

#[test]
fn a_tensor_has_a_bounded_number_of_parts() {
    let file = |count: u64| {
        version_12(&[], |_| {
            let part = || fields([("dtype", text("u8")), ("offset", 8_u64.into()), ("length", 0_u64.into())]);
            let parts = map((0..count).map(|i| (format!("{i:08}"), part())));
            let tensor = [("shape", array(&[0])), ("format", text("x")), ("components", parts)];
            fields([("t", fields(tensor))])
        })
    };
    let account = Account::new(1 << 20, 0);
    open(file(4096), &account).unwrap();
    let e: Error = open(file(4097), &account).map(drop).unwrap_err();
    assert!(matches!(e.kind(), Kind::TooLarge { value: 4097, limit: 4096 }), "{e}");
}
