//! zTensor: encodings, element types, layouts, byte orders and versions after the current ones.

use ciborium::Value;
use fzmfs::error::Kind;
use fzmfs::format::Options;

use super::{check_unknown, check_unreadable, len, open, verified};
use crate::support::opened::{self, file, read_at};
use crate::ztensor_files::{array, fields, map, text, version_01, version_12};

const SHAPE: u64 = 6;

/// A file with five tensors of 24 bytes, each of which has `digest`.
fn tensors(digest: &str) -> Vec<u8> {
    let blobs: Vec<Vec<u8>> = (0..5).map(|i| (0..24).map(|n| n * 3 + i).collect()).collect();
    version_12(&blobs, |places| {
        let tensor = |i: usize, layout: &str, dtype: &str, more: &[(&str, Value)]| {
            let own = [("dtype", text(dtype)), ("offset", places[i].0.into()), ("length", places[i].1.into())];
            let part = own.into_iter().chain(more.iter().cloned()).chain([("digest", text(digest))]);
            let part = map(part.map(|(key, value)| (key.to_owned(), value)));
            let parts = fields([("data", part)]);
            fields([("shape", array(&[SHAPE])), ("format", text(layout)), ("components", parts)])
        };
        let encoded = [("encoding", text("zt.next/3"))];
        let stated = [("encoding", text("zt.next/3")), ("uncompressed_length", 77_u64.into())];
        fields([
            ("a", tensor(0, "dense", "f32", &[])),
            ("b", tensor(1, "dense", "f32", &encoded)),
            ("c", tensor(2, "dense", "f128", &[])),
            ("d", tensor(3, "blocked", "f32", &[])),
            ("e", tensor(4, "blocked", "f32", &stated)),
        ])
    })
}

#[test]
fn an_unknown_encoding_affects_only_its_component() {
    let bytes = tensors("blake9:00");
    let container = open(&bytes);
    let of = |i: u8| (0..24).map(|n| n * 3 + i).collect::<Vec<u8>>();
    for (path, i) in [("tensors/a.raw", 0), ("tensors/c.raw", 2), ("tensors/d/data.raw", 3)] {
        assert_eq!(read_at(&*container, path).unwrap(), of(i), "{path}");
    }
    for (i, name) in (0..).zip(["a", "b", "c", "d", "e"]) {
        assert_eq!(read_at(&*container, &format!("stored/{name}/data.bin")).unwrap(), of(i), "{name}");
    }
    for (path, size) in [("tensors/b.raw", 4 * SHAPE), ("tensors/e/data.raw", 77)] {
        assert_eq!(len(&file(&*container, path).unwrap()), Some(size), "{path}");
        check_unreadable(&*container, path, "the encoding \"zt.next/3\"", "data: encoding");
    }
    let model = read_at(&*container, "model.safetensors").unwrap();
    assert!(model.ends_with(&of(0)) && !model.ends_with(&of(1)));
    check_unknown(&verified(&bytes).unwrap_err(), "the encoding \"zt.next/3\"", "\"b\" data: encoding");
}

#[test]
fn damage_after_an_unknown_component_is_found() {
    let error = verified(&tensors("crc32c:0x00000001")).unwrap_err();
    assert!(matches!(error.kind(), Kind::Checksum { .. }), "{error}");
}

#[test]
fn the_byte_order_of_unknown_elements_is_not_guessed() {
    for (dtype, order, part) in
        [("float32", "middle", "the byte order \"middle\""), ("float128", "big", "the element type \"float128\"")]
    {
        let more = [("dtype", text(dtype)), ("data_endianness", text(order))];
        let bytes = version_01(&[7; 16], &[4], more);
        let container = open(&bytes);
        assert!(len(&file(&*container, "tensors/t.raw").unwrap()) == Some(16));
        check_unreadable(&*container, "tensors/t.raw", part, "t");
        assert_eq!(read_at(&*container, "stored/t/data.bin").unwrap(), [7; 16]);
        check_unknown(&verified(&bytes).unwrap_err(), part, "");
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_by_name() {
    let bytes = tensors("blake9:00");
    let at = bytes.windows(5).position(|window| window == b"1.2.0").unwrap();
    let mut changed = bytes.clone();
    changed[at] = b'3';
    let error = opened::open(changed, &Options::default()).err().unwrap();
    check_unknown(&error, "zTensor version \"3.2.0\"", "version");
}
