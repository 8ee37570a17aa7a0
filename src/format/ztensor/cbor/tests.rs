//! Tests of the reader.
#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

use ciborium_ll::Decoder;
use serde_json::Value;

use super::head::short;
use super::json::INDENTED;
use super::*;
use crate::format::Spool;

#[test]
fn one_byte_heads_decode_as_in_ciborium() {
    for byte in 0..=255 {
        let Some(header) = short(byte) else { continue };
        assert_eq!(Decoder::from(&[byte][..]).pull().unwrap(), header, "{byte:#x}");
    }
    assert_eq!((0..=255).filter(|&b| short(b).is_some()).count(), 8 * 24);
}

fn check(bytes: &[u8], profile: Profile) -> Result<Value> {
    let account = Account::new(1 << 20, 0);
    let mut reader = CborReader::new(bytes, FileOffset(100), profile).comparing_keys(&account);
    reader.clone().skip("item")?;
    let value = reader.json(&account, "item")?;
    reader.end("item")?;
    Ok(value)
}

#[test]
fn items_of_every_type_become_json() {
    let cases: &[(&[u8], &str)] = &[
        (&[0x18, 0x2A], "42"),
        (&[0x38, 0x29], "-42"),
        (&[0x3B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "\"-18446744073709551616\""),
        (&[0xF9, 0x41, 0x00], "2.5"),
        (&[0xF9, 0x7C, 0x00], "\"Infinity\""),
        (&[0x43, 1, 2, 0xAB], "\"hex:0102ab\""),
        (&[0x5F, 0x41, 1, 0x41, 2, 0xFF], "\"hex:0102\""),
        (&[0x7F, 0x61, b'a', 0x61, b'b', 0xFF], "\"ab\""),
        (&[0x9F, 1, 0xF5, 0xF6, 0xFF], "[1,true,null]"),
        (&[0xBF, 0x61, b'k', 0xC1, 0x05, 0xFF], "{\"k\":5}"),
        (&[0xA2, 1, 2, 0x61, b'k', 3], "{\"k\":3}"),
    ];
    for (bytes, want) in cases {
        assert_eq!(check(bytes, Profile::Lenient).unwrap().to_string(), *want, "{bytes:02x?}");
    }
}

#[test]
fn malformed_items_are_refused_with_their_offset() {
    let cases: &[(&[u8], &str)] = &[
        (&[], "needs 1 bytes, 0 left"),
        (&[0x1C], "not CBOR"),
        (&[0xFF], "a break without an item of indefinite length"),
        (&[0x61, 0xFF], "not UTF-8"),
        (&[0x9A, 0xFF, 0xFF, 0xFF, 0xFF], "a count of 4294967295, but 0 bytes left"),
        (&[0xBB, 0x40, 0, 0, 0, 0, 0, 0, 0, 0], "pairs, but 1 bytes left"),
        (&[0x82, 1], "left"),
        (&[0xF0], "the simple value 16"),
        (&[1, 2], "1 bytes follow it"),
        (&[0xA2, 0x61, b'k', 1, 0x61, b'k', 2], "is repeated"),
        (&[0xA3, 0x61, b'k', 1, 0x61, b'a', 2, 0x61, b'k', 2], "is repeated"),
        (&[0x7F, 0x41, b'a', 0xFF], "a chunk of a text"),
    ];
    for (bytes, want) in cases {
        let e = check(bytes, Profile::Lenient).unwrap_err();
        assert!(e.to_string().contains(want) && e.offset().is_some(), "{bytes:02x?}: {e}");
    }
    for (profile, depth) in [(Profile::Lenient, 64), (Profile::Strict, 32)] {
        let nest = |n: usize| [vec![0x81; n], vec![0]].concat();
        assert!(check(&nest(depth), profile).is_ok(), "{depth}");
        assert!(check(&nest(depth + 1), profile).unwrap_err().to_string().contains("limit"), "{depth}");
    }
}

#[test]
fn a_repeated_key_of_a_large_map_is_found_and_the_keys_are_charged() {
    let map = |keys: &[u32]| {
        let mut bytes = vec![0xBF];
        for key in keys {
            bytes.extend(format!("\x68{key:08x}\x00").into_bytes());
        }
        bytes.push(0xFF);
        bytes
    };
    let scattered: Vec<u32> = (0..1_100_000).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
    let bytes = map(&scattered);
    for (memory, spill) in [(16 << 20, 0), (0, 16 << 20)] {
        let account = Account::new(memory, spill);
        CborReader::new(&bytes, FileOffset(0), Profile::Lenient).comparing_keys(&account).skip("item").unwrap();
        let peaks = account.peaks();
        assert_eq!(peaks.memory + peaks.disk, 1_100_000 * 8, "{peaks:?}");
    }
    for (from, to) in [(7, 1000), (1000, 7), (0, 31), (33, 32)] {
        let mut keys = scattered[..1001].to_vec();
        keys[to] = keys[from];
        let e = check(&map(&keys), Profile::Lenient).unwrap_err();
        assert!(e.to_string().contains(&format!("the key \"{:08x}\" is repeated", keys[from])), "{e}");
        let at = 101 + 10 * to_u64(from.max(to));
        assert_eq!(e.offset(), Some(FileOffset(at)), "{e}");
    }
}

#[test]
fn json_is_formatted_as_by_serde_and_deep_levels_are_not_indented_further() {
    let bytes = [0xA3, 0x61, b'a', 0x82, 1, 0x80, 0x61, b'b', 0xA0, 0x61, b'c', 0xA1, 0x61, b'"', 0x42, 0, 255];
    let account = Account::new(1 << 20, 0);
    let text = |bytes: &[u8]| {
        let mut out = Spool::new(&account, 1 << 20, "text");
        CborReader::new(bytes, FileOffset(0), Profile::Lenient).json_text(0, &mut out, "item").unwrap();
        String::from_utf8(out.bytes()).unwrap()
    };
    assert_eq!(text(&bytes), format!("{:#}", check(&bytes, Profile::Lenient).unwrap()));
    let deep = text(&[vec![0x81; 60], vec![0]].concat());
    assert!(deep.lines().all(|line| line.len() <= 2 * INDENTED + 1) && deep.lines().count() == 121, "{deep}");
}

#[test]
fn strict_manifests_have_exactly_one_encoding() {
    let refused: &[&[u8]] = &[
        &[0x18, 0x05],
        &[0x58, 0x01, 7],
        &[0x9F, 0xFF],
        &[0x7F, 0xFF],
        &[0xC1, 0x05],
        &[0xF7],
        &[0xFA, 0x40, 0x20, 0, 0],
        &[0xF9, 0x7E, 0x01],
        &[0xA2, 0x61, b'b', 1, 0x61, b'a', 2],
        &[0xA2, 0x61, b'a', 1, 0x61, b'a', 2],
        &[0xA2, 0x62, b'a', b'a', 1, 0x61, b'b', 2],
    ];
    for bytes in refused {
        assert!(check(bytes, Profile::Strict).is_err(), "{bytes:02x?}");
    }
    let taken: &[&[u8]] = &[
        &[0x18, 0x18],
        &[0xF9, 0x7E, 0x00],
        &[0xFA, 0x3F, 0x80, 0, 1],
        &[0xFB, 0x3F, 0xB9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9A],
        &[0xA2, 0x61, b'b', 1, 0x62, b'a', b'a', 2],
    ];
    for bytes in taken {
        assert!(check(bytes, Profile::Strict).is_ok(), "{bytes:02x?}");
    }
}

fn value(depth: u32) -> impl proptest::strategy::Strategy<Value = ciborium::Value> {
    use ciborium::Value as V;
    use proptest::prelude::*;
    let leaf = prop_oneof![
        any::<u64>().prop_map(|n| V::Integer(n.into())),
        any::<i64>().prop_map(|n| V::Integer(n.into())),
        any::<bool>().prop_map(V::Bool),
        Just(V::Null),
        (-1e9..1e9).prop_map(V::Float),
        ".{0,40}".prop_map(V::Text),
    ];
    leaf.prop_recursive(depth, 64, 6, |inner| {
        let pair = (".{0,12}".prop_map(V::Text), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(V::Array),
            prop::collection::vec(pair, 0..6).prop_map(|mut pairs| {
                pairs.sort_by(|a, b| a.0.as_text().cmp(&b.0.as_text()));
                pairs.dedup_by(|a, b| a.0 == b.0);
                V::Map(pairs)
            }),
        ]
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct("tests/suite/regressions/cbor.txt"))),
        ..proptest::prelude::ProptestConfig::default()
    })]

    /// Items written by ciborium read back as the value that serde gives.
    #[test]
    fn items_written_by_ciborium_are_read(value in value(5)) {
        let mut bytes = Vec::new();
        ciborium::into_writer(&value, &mut bytes).unwrap();
        let want = value.deserialized::<Value>().unwrap();
        proptest::prop_assert_eq!(check(&bytes, Profile::Lenient).unwrap(), want);
        for cut in 0..bytes.len() {
            proptest::prop_assert!(check(bytes.get(..cut).unwrap(), Profile::Lenient).is_err());
        }
    }
}
