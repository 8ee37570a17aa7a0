//! zTensor files of a few kilobytes that claim a thousand million numbers: what they cost is on the account.

use std::sync::Arc;

use fzmfs::account::Account;
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{Container, Options};
use fzmfs::view::View;

use crate::support::opened::{self as support, Plain};
use crate::ztensor_files::{
    array, cells, checkpoint, fields, many_parts, map, raw_frame, rows, run_length_frame, seekable, sharded, text,
    version_01, version_12,
};

fn open(bytes: Vec<u8>, account: &Account) -> Result<Arc<dyn Container>> {
    support::open(bytes, &Options { account: account.clone(), ..Options::default() })
}

#[test]
fn very_many_row_pointers_are_checked_in_a_window() {
    let bytes = rows(1 << 26, 0);
    assert!(bytes.len() < 5000);
    let account = Account::new(1 << 20, 0);
    let container = open(bytes, &account).unwrap();
    support::verify(&*container).unwrap();
    assert!(account.peaks().memory < 512 << 10, "{:?}", account.peaks());

    let e = support::verify(&*open(rows(1 << 20, 1), &account).unwrap()).unwrap_err();
    assert!(e.to_string().contains("row pointers do not go from 0"), "{e}");
}

#[test]
fn an_npz_of_very_many_row_pointers_is_computed_in_a_window_and_kept() {
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
        assert!(account.peaks().memory < 512 << 10, "{:?}", account.peaks());
    }
}

#[test]
fn cells_are_compared_in_memory_charged_to_the_account() {
    const COUNT: u64 = 1 << 20;
    let values = || seekable(&[(run_length_frame(COUNT, 0), COUNT)]);
    // Every number of 24 bits below COUNT, once, in no order.
    let scattered = |twice: bool| {
        let mut cells: Vec<u32> = (0..COUNT as u32).map(|i| i.wrapping_mul(0x9E_3779) & (COUNT as u32 - 1)).collect();
        if twice {
            cells[250_000] = cells[750_000];
        }
        let bytes: Vec<u8> = cells.iter().flat_map(|n| n.to_le_bytes()).collect();
        seekable(&[(raw_frame(&bytes), COUNT * 4)])
    };
    let check = |coords: Vec<u8>, account: &Account| -> Result<()> {
        support::verify(&*open(cells(1 << 40, values(), coords, ("u32", COUNT, 4)), account)?)
    };
    let need = 8 * COUNT;
    for (memory, spill) in [(2 * need + (1 << 20), 0), (1 << 20, 2 * need)] {
        let account = Account::new(memory, spill);
        check(scattered(false), &account).unwrap();
        let peaks = account.peaks();
        assert!(peaks.memory + peaks.disk >= need && peaks.memory <= memory && peaks.disk <= spill, "{peaks:?}");
        let e = check(scattered(true), &account).unwrap_err();
        assert!(e.to_string().contains("two values have the same coordinates"), "{e}");
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

#[test]
fn a_hundred_thousand_shards_are_found_by_binary_search() {
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
fn a_manifest_is_charged_to_the_account_and_spilled_to_disk() {
    let bytes = sharded(30_000, |i| (format!("s{i:07}"), 4056));
    let manifest = bytes.len() as u64 - 4096 - 40;
    for (memory, spill) in [(64 << 20, 0), (1 << 20, 64 << 20)] {
        let account = Account::new(memory, spill);
        let container = open(bytes.clone(), &account).unwrap();
        assert_eq!(account.memory().used() + account.disk().used(), manifest);
        // The text of all of it.
        let json = support::read_at(&*container, "manifest.json").unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(parsed["objects"]["n0029999"]["shape"][0], 4056);
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
fn a_tensor_has_a_bounded_number_of_components() {
    let account = Account::new(1 << 20, 0);
    open(many_parts(4096), &account).unwrap();
    let e: Error = open(many_parts(4097), &account).map(drop).unwrap_err();
    assert!(matches!(e.kind(), Kind::TooLarge { value: 4097, limit: 4096 }), "{e}");
}

#[test]
fn names_as_long_as_the_manifest_are_truncated_in_info() {
    let long = "x".repeat(1 << 20);
    let bytes = version_12(&[vec![0; 4]], |places| {
        let fields_of = |digest: &str| {
            let place = [("dtype", text("u8")), ("offset", places[0].0.into()), ("length", 4_u64.into())];
            let data = place.into_iter().chain([("digest", text(digest))]);
            let parts = fields([("data", map(data.map(|(key, value)| (key.to_owned(), value))))]);
            fields([("shape", array(&[4])), ("format", text(&long)), ("components", parts)])
        };
        fields([("a", fields_of(&format!("{long}:00"))), ("b", fields_of("blake3:00")), ("c", fields_of("crc32c:0"))])
    });
    let container = open(bytes, &Account::new(16 << 20, 0)).unwrap();
    let info = container.info().to_json();
    let text = info.to_string();
    assert!(text.len() < 8 << 10 && text.contains("... (1048576 bytes)"), "{}", text.len());
    assert_eq!(info["checksums"]["unknown_algorithms"]["blake3"], 1);
    let notes = container.unverifiable();
    assert!(notes.contains(&"1 digests of the unknown algorithm \"blake3\"".to_owned()), "{notes:?}");
    assert!(notes.len() == 2 && notes.iter().all(|note| note.len() < 200), "{notes:?}");
}

#[test]
fn a_digest_that_names_no_algorithm_is_an_error_when_the_bytes_are_read() {
    for digest in ["e3069283", "", ":e3069283"] {
        let bytes = version_01(&[1, 2, 3, 4], &[4], [("dtype", text("uint8")), ("checksum", text(digest))]);
        let container = open(bytes, &Account::new(1 << 20, 0)).unwrap();
        let e = support::read_at(&*container, "tensors/t.raw").unwrap_err();
        assert!(e.what().ends_with("digest") && e.offset().is_some(), "{e}");
        assert!(support::verify(&*container).is_err());
    }
}

#[test]
fn each_float_of_a_big_endian_complex_number_is_reversed() {
    for (dtype, width) in [("complex64", 4), ("complex128", 8), ("float64", 8), ("uint8", 1)] {
        let big: Vec<u8> = (0..32).collect();
        let want: Vec<u8> = big.chunks(width).flat_map(|number| number.iter().rev().copied()).collect();
        let size = if dtype.starts_with("complex") { 2 * width } else { width };
        let more = [("dtype", text(dtype)), ("data_endianness", text("big"))];
        let container = open(version_01(&big, &[32 / size as u64], more), &Account::new(1 << 20, 0)).unwrap();
        assert_eq!(support::read_at(&*container, "tensors/t.raw").unwrap(), want, "{dtype}");
    }
}

#[test]
fn the_size_of_all_tensors_as_one_file_opens_none_of_them_and_reading_it_keeps_a_bounded_number() {
    let account = Account::new(1 << 20, 16 << 20);
    let count = 5000;
    let container = open(checkpoint(count), &account).unwrap();
    let (memory, disk) = (account.memory().used(), account.disk().used());
    let model = support::file(&*container, "model.safetensors").unwrap();
    let len = fzmfs::view::len(&model.content, &Plain).unwrap();
    assert!(len > 16 * count, "{len}");
    assert_eq!((account.memory().used(), account.disk().used()), (memory, disk));
    assert_eq!(support::read(&model).unwrap().len() as u64, len);
    let kept = account.memory().used() - memory;
    assert!((1..=128 << 10).contains(&kept), "{kept}");
}
