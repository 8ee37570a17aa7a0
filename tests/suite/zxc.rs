//! ZXC: every file of the corpus decodes to its digest or fails where it is broken.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fzmfs::checksum::{BackgroundChecks, Verify};
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{self, Check, Container, Content, File, IndexedDir, Input, Node, Options};
use fzmfs::source::Source;
use fzmfs::view::{self, View};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::support::opened::Plain;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zxc").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).unwrap()
}

fn open(file: Vec<u8>, options: &Options) -> Result<Arc<dyn Container>> {
    format::open(&Input::of(Source::from_bytes(file))?, Some("zxc"), options)
}

fn read(content: &Content) -> Result<Vec<u8>> {
    let view = View::new(content, &Plain)?;
    let mut bytes = vec![0xAA; usize::try_from(view.len()).unwrap()];
    view.read(0, &mut bytes, &Plain)?;
    Ok(bytes)
}

fn node(container: &dyn Container, name: &str) -> Option<Node> {
    let entries = container.entries().unwrap();
    entries.into_iter().find(|e| [&e.stem, e.suffix.as_bytes()].concat() == name.as_bytes()).map(|e| e.node)
}

fn file(container: &dyn Container, name: &str) -> File {
    let Some(Node::File(file)) = node(container, name) else { panic!("no file {name}") };
    *file
}

fn numbered(container: &dyn Container, name: &str) -> Arc<dyn IndexedDir> {
    let Some(Node::IndexedDir(directory)) = node(container, name) else { panic!("no directory {name}") };
    directory
}

/// Runs every check; returns the decoded bytes.
fn verify(container: &dyn Container) -> Result<Vec<u8>> {
    let mut decoded = Vec::new();
    for check in container.checks() {
        match check {
            Check::Run { run, .. } => run()?,
            Check::Decode { blob, .. } => decoded = read(&Content::Blob(blob))?,
        }
    }
    Ok(decoded)
}

fn place(error: &Error) -> String {
    error.offset().map_or("-".into(), |at| format!("{:#x}", at.0))
}

#[test]
fn every_case_decodes_to_its_digest_or_fails_where_it_is_broken() {
    let cases = std::fs::read_to_string(data("cases.tsv")).unwrap();
    let mut wrong = Vec::new();
    for case in cases.lines() {
        let [name, dicts, verdict, size, digest] = case.split('\t').collect::<Vec<_>>()[..] else { panic!("{case}") };
        let dicts = dicts.split(' ').filter(|&d| d != "-").map(data).collect();
        let opened = open(bytes(name), &Options { dicts, ..Options::default() });
        let got = match opened.and_then(|c| verify(&*c)) {
            Ok(bytes) => format!("ok\t{}\t{:x}", bytes.len(), Sha256::digest(&bytes)),
            Err(e) => format!("bad\t{}\t{}", e.what(), place(&e)),
        };
        if got != format!("{verdict}\t{size}\t{digest}") {
            wrong.push(format!("{name}: {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_worked_example_of_the_format_decodes() {
    let file = [
        0xF5, 0x2E, 0xB0, 0x9C, 0x05, 0x12, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9E, 0x53, 0x00, 0x00,
        0x00, 0x0A, 0x00, 0x00, 0x00, 0x69, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x20, 0x5A, 0x58, 0x43, 0x0A, 0x90, 0xBB,
        0xA1, 0x75, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x0A, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x90, 0xBB, 0xA1, 0x75,
    ];
    assert_eq!(verify(&*open(file.to_vec(), &Options::default()).unwrap()).unwrap(), b"Hello ZXC\n");
}

#[test]
fn chunks_tile_the_data_and_stored_files_are_the_payloads() {
    for name in ["v5x_short_middle_blocks.zxc", "v5_mixed_4K.zxc", "v9_concat_3frames.zxc", "v5_empty_chk.zxc"] {
        let Ok(whole) = std::fs::read(data(name)) else { continue };
        let container = open(whole.clone(), &Options::default()).unwrap();
        let decoded = read(&file(&*container, "data.raw").content).unwrap();
        let (chunks, stored) = (numbered(&*container, "chunks"), numbered(&*container, "stored"));
        let joined: Vec<u8> =
            (0..chunks.count()).flat_map(|i| read(&chunks.file(i).unwrap().content).unwrap()).collect();
        assert!(joined == decoded, "{name}");
        assert_eq!(chunks.count(), stored.count());
        for i in 0..stored.count() {
            let file = stored.file(i).unwrap();
            let Some((_, offset)) = file.attrs.iter().find(|a| a.0 == "offset") else { panic!("{name}: no offset") };
            let (offset, payload) = (offset.parse::<usize>().unwrap(), read(&file.content).unwrap());
            assert_eq!(payload, &whole[offset..][..payload.len()], "{name}");
            let comp_size: [u8; 4] = whole[offset - 5..][..4].try_into().unwrap();
            assert_eq!(payload.len(), u32::from_le_bytes(comp_size) as usize, "{name}");
        }
    }
}

#[test]
fn a_link_is_named_after_the_file_without_its_suffix() {
    let dir = tempfile::tempdir().unwrap();
    for (name, link) in [("x.txt.zxc", Some("x.txt")), ("x", None), ("data.raw.zxc", None), ("a.xc", Some("a"))] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes("v5_one.zxc")).unwrap();
        let names = crate::blosc2::Opened::open(&path).unwrap().names("").unwrap();
        let others = ["info.json", "data.raw", "chunks", "stored"];
        let links: Vec<_> = names.iter().map(String::as_str).filter(|name| !others.contains(name)).collect();
        assert_eq!(links, Vec::from_iter(link), "{name}");
    }
}

#[test]
fn a_broken_block_leaves_the_others_readable() {
    for name in ["v5_off8_l3.zxc", "v6_dict_l3_4K.zxc", "blocks of a piece each"] {
        let mut whole = match name {
            "blocks of a piece each" => zxc::compress(&text(3, 2_000_000), zxc::Level::Default, Some(true)).unwrap(),
            _ => bytes(name),
        };
        let options = Options { dicts: vec![data("d6.zxd")], ..Options::default() };
        let sound = open(whole.clone(), &options).unwrap();
        let chunk = numbered(&*sound, "chunks").file(1).unwrap();
        let offset: usize = chunk.attrs.iter().find(|a| a.0 == "offset").unwrap().1.parse().unwrap();
        whole[offset + 20] ^= 1;
        let broken = open(whole, &options).unwrap();
        assert!(verify(&*broken).unwrap_err().what().starts_with("block 1: "), "{name}");
        let (before, after) = (numbered(&*sound, "chunks"), numbered(&*broken, "chunks"));
        for i in (0..before.count()).filter(|&i| i != 1) {
            let [before, after] = [&before, &after].map(|d| read(&d.file(i).unwrap().content).unwrap());
            assert!(before == after, "{name}: chunk {i}");
        }
        assert!(read(&after.file(1).unwrap().content).is_err(), "{name}");
    }
}

#[test]
fn the_hash_over_all_blocks_is_verified_as_configured() {
    for name in ["bad/bad_global_hash.zxc", "bad/v9_digest.zxc"] {
        let decode = |verify| {
            let container = open(bytes(name), &Options { verify, ..Options::default() }).unwrap();
            let first = read(&file(&*container, "data.raw").content);
            let stored = numbered(&*container, "stored").file(0).unwrap();
            assert!(read(&stored.content).is_ok(), "{name}: stored bytes stay readable");
            (first, container)
        };
        let e = decode(Verify::First).0.unwrap_err();
        assert!(matches!(e.kind(), Kind::Checksum { .. }), "{name}: {e}");
        let (bytes, container) = decode(Verify::Off);
        assert!(!bytes.unwrap().is_empty());
        assert!(verify(&*container).is_err(), "{name}: verify checks in every mode");
        let checks = BackgroundChecks::default();
        let container = decode(Verify::Background(checks.clone())).1;
        assert!(checks.join().is_err(), "{name}");
        assert!(read(&file(&*container, "data.raw").content).is_err(), "{name}: reads fail after the check has");
    }
}

#[test]
fn a_payload_is_verified_against_its_checksum() {
    // From version 9 on, the checksum covers the decoded bytes.
    for (name, is_covered) in [("v5_off8_l3.zxc", true), ("v6_dict_l3_4K.zxc", true), ("v9_concat_3frames.zxc", false)]
    {
        let mut whole = bytes(name);
        let sound = numbered(&*open(whole.clone(), &Options::default()).unwrap(), "stored");
        let payload = sound.file(1).unwrap();
        let offset: usize = payload.attrs.iter().find(|a| a.0 == "offset").unwrap().1.parse().unwrap();
        let len = view::len(&payload.content, &Plain).unwrap();
        whole[offset + 3] ^= 1;
        let stored = |verify| {
            let container = open(whole.clone(), &Options { verify, ..Options::default() }).unwrap();
            numbered(&*container, "stored")
        };
        let served = |result: Result<Vec<u8>>| assert!(result.unwrap() == whole[offset..][..len as usize], "{name}");

        let first = stored(Verify::First);
        let file = first.file(1).unwrap();
        assert_eq!(view::len(&file.content, &Plain).unwrap(), len, "{name}");
        match read(&file.content) {
            Err(e) if is_covered => {
                assert!(matches!(e.kind(), Kind::Checksum { .. }) && e.errno() == libc::EIO, "{name}: {e}");
                assert_eq!(e.what(), "block 1: block checksum", "{name}");
                assert_eq!(e.offset().unwrap().0, offset as u64 + len, "{name}");
            }
            other => {
                assert!(!is_covered, "{name}");
                served(other);
            }
        }
        for i in (0..sound.count()).filter(|&i| i != 1) {
            let [before, after] = [&sound, &first].map(|d| read(&d.file(i).unwrap().content).unwrap());
            assert!(before == after, "{name}: payload {i}");
        }

        served(read(&stored(Verify::Off).file(1).unwrap().content));
        let beside = BackgroundChecks::default();
        let content = stored(Verify::Background(beside.clone())).file(1).unwrap().content;
        beside.join().unwrap();
        drop(read(&content));
        assert_eq!(beside.join().is_err(), is_covered, "{name}");
    }
}

#[test]
fn a_dictionary_is_selected_by_id_and_required_only_where_used() {
    let open_with = |dicts: &[&str]| {
        let dicts = dicts.iter().map(|&d| data(d)).collect();
        open(bytes("v6_dict_raw_l3.zxc"), &Options { dicts, ..Options::default() }).unwrap()
    };
    let sound = verify(&*open_with(&["d6.zxd", "v6_dict_raw_l3.rawdict", "d7.zxd"])).unwrap();
    for dicts in [&[][..], &["d6.zxd"]] {
        let container = open_with(dicts);
        let e = verify(&*container).unwrap_err();
        assert!(matches!(e.kind(), Kind::Unsupported(_)), "{e}");
        assert!(e.to_string().contains("0x1811cc62"), "{e}");
        // The one RAW block refers to nothing; it is still only served with its neighbours in the piece.
        assert_eq!(container.info().decoded_size, Some(sound.len() as u64));
    }
    let missing = Options { dicts: vec![data("nowhere.zxd")], ..Options::default() };
    assert!(matches!(open(bytes("v6_dict_raw_l3.zxc"), &missing).map(|_| ()).unwrap_err().kind(), Kind::Io(_)));
}

#[test]
fn a_wrong_seek_table_is_reported_and_not_used() {
    for name in ["bad/bad_sek_size.zxc", "bad/v9_sek_anchor.zxc"] {
        let container = open(bytes(name), &Options::default()).unwrap();
        assert!(!read(&file(&*container, "data.raw").content).unwrap().is_empty());
        assert!(verify(&*container).is_err());
        assert!(container.info().to_json()["seek_table"].as_str().unwrap().starts_with("not used"));
    }
}

/// Bytes with matches of many lengths and distances, runs, and incompressible parts.
fn mixture() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..600),
        (any::<u8>(), 1..5000_usize).prop_map(|(byte, n)| vec![byte; n]),
        (prop::collection::vec(any::<u8>(), 1..70), 1..200_usize).prop_map(|(unit, n)| unit.repeat(n)),
        (any::<u32>(), 1..20_000_usize).prop_map(|(seed, n)| text(seed, n)),
        (any::<u32>(), any::<u8>(), 1..3000_u32).prop_map(|(seed, step, n)| (0..n)
            .flat_map(|i| (seed ^ i.wrapping_mul(step.into())).to_le_bytes())
            .collect()),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

/// Words of a small skewed vocabulary.
fn text(seed: u32, n: usize) -> Vec<u8> {
    let mut state = u64::from(seed) | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut out = Vec::new();
    while out.len() < n {
        let word = next() % (1 + next() % 400);
        for k in 0..2 + word % 7 {
            out.push(b"etaoinshrdlucmfwypvbgkjqxz"[(word * (k + 3) + k) % (3 + word % 24)]);
        }
        out.push(b' ');
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::support::cases(150), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_of_the_official_encoder_decode(
        data in mixture(), again in mixture(), level in 0..7_usize, checksum: bool, seekable: bool, dict: bool,
    ) {
        let level = zxc::Level::all()[level];
        let content = text(7, 4000);
        let compress = |data: &[u8]| {
            let mut options = zxc::CompressOptions::with_level(level);
            (options.checksum, options.seekable) = (checksum, seekable);
            if dict {
                options.dict = Some(content.clone());
            }
            zxc::compress_with_options(data, &options).unwrap()
        };
        // Two frames, one after the other.
        let file = [compress(&data), compress(&again)].concat();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dict");
        std::fs::write(&path, &content).unwrap();
        let container = open(file, &Options { dicts: vec![path], ..Options::default() }).unwrap();
        prop_assert!(verify(&*container).unwrap() == [data, again].concat());
    }
}
