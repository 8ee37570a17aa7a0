//! Zstandard files of every generation: the corpus against its hashes, broken files against their errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fzmfs::account::{Account, Pieces};
use fzmfs::checksum::{BackgroundChecks, Verify};
use fzmfs::error::Result;
use fzmfs::format::{self, Container, Content, Input, Options};
use fzmfs::view::View;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::opened::{self as support, Plain, numbered};

/// The corpus of this repository, or the one in `$FZMFS_CORPORA`.
pub(crate) fn corpus() -> PathBuf {
    std::env::var_os("FZMFS_CORPORA").map_or_else(|| support::data("zstd"), |dir| Path::new(&dir).join("zstd"))
}

pub(crate) fn manifest(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("MANIFEST.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["files"].as_array().unwrap().clone()
}

fn open(path: &Path, options: &Options) -> Result<Arc<dyn Container>> {
    format::open(&Input::open(path)?, None, options)
}

pub(crate) fn options(case: &Value) -> Options {
    let mut options = Options::default();
    if let Some(name) = case["dictionary"].as_str() {
        options.dicts.push(corpus().join(name));
    }
    options
}

fn sha(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[test]
fn every_file_of_the_corpus_decodes_to_its_hashes() {
    let cases = manifest(&corpus());
    for case in &cases {
        let name = case["file"].as_str().unwrap();
        let container = open(&corpus().join(name), &options(case)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let data = support::read_at(&*container, "data.raw").unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(data.len() as u64, case["content_length"].as_u64().unwrap(), "{name}");
        assert_eq!(sha(&data), case["content_sha256"], "{name}");
        let frames = case["frames"].as_array().unwrap();
        let (skips, frames): (Vec<_>, Vec<_>) = frames.iter().partition(|f| f["kind"] == "skippable");
        let (chunks, stored) = (numbered(&*container, "chunks"), numbered(&*container, "stored"));
        assert_eq!((chunks.len(), stored.len()), (frames.len(), frames.len()), "{name}");
        for (i, frame) in frames.iter().enumerate() {
            let chunk = support::read(chunks[i].as_ref().unwrap()).unwrap_or_else(|e| panic!("{name} frame {i}: {e}"));
            assert_eq!(sha(&chunk), frame["sha256"], "{name} frame {i}");
            let Content::FileExtent(stretch) = &stored[i].as_ref().unwrap().content else { panic!("{name} frame {i}") };
            assert_eq!(
                (Some(stretch.at.0), Some(stretch.len)),
                (frame["offset"].as_u64(), frame["csize"].as_u64()),
                "{name}"
            );
        }
        let skippables = numbered(&*container, "skippable");
        assert_eq!(skippables.len(), skips.len(), "{name}");
        for (file, skip) in skippables.iter().zip(skips) {
            assert_eq!(file.as_ref().unwrap().stored + 8, skip["csize"].as_u64().unwrap(), "{name}");
        }
        support::verify(&*container).unwrap_or_else(|e| panic!("verify {name}: {e}"));
    }
    println!("{} files", cases.len());
}

#[test]
fn every_broken_file_is_rejected_at_its_defect() {
    let dir = corpus().join("bad");
    let cases = manifest(&dir);
    for case in &cases {
        let (name, stage) = (case["file"].as_str().unwrap(), case["stage"].as_str().unwrap());
        let opened = open(&dir.join(name), &Options::default());
        let refused = match &opened {
            Err(e) => Err(e.clone()),
            Ok(container) => support::verify(&**container),
        };
        match stage {
            "open" => assert!(opened.is_err(), "{name} opens"),
            "read" => {
                assert!(opened.is_ok(), "{name} does not open");
                let read = support::read_at(&*opened.unwrap(), "data.raw");
                assert!(read.is_err(), "{name} reads");
            }
            // Rejected or complete, nothing in between.
            "either" => {
                let data = support::read_at(&*opened.unwrap(), "data.raw");
                assert!(data.as_ref().map_or(true, |d| matches!(&**d, b"abcdef" | b"")), "{name}: {data:?}");
                assert_eq!(data.is_err(), refused.is_err(), "{name}");
                continue;
            }
            _ => assert!(opened.is_ok(), "{name} does not open"),
        }
        let e = refused.map_or_else(|e| e, |()| panic!("{name} is found right"));
        assert!(e.offset().is_some(), "{name}: {e}");
        println!("{name}: {e}");
    }
    println!("{} files", cases.len());
}

#[test]
fn a_wrong_seek_table_does_not_change_the_content() {
    for case in manifest(&corpus().join("bad")).iter().filter(|c| c["stage"] == "table") {
        let path = corpus().join("bad").join(case["file"].as_str().unwrap());
        let want = zstd::stream::decode_all(&*std::fs::read(&path).unwrap()).unwrap();
        let container = open(&path, &Options::default()).unwrap();
        let read = support::read_at(&*container, "data.raw");
        if path.ends_with("bad-seek-checksum.zst") {
            // Other fields of the table are ignored, but a frame that contradicts its checksum is not served.
            let e = read.unwrap_err();
            assert!(e.what().ends_with("seek table: checksum") && e.errno() == libc::EIO, "{e}");
            continue;
        }
        assert_eq!(read.unwrap(), want, "{}", path.display());
    }
}

/// `len` bytes of compressible data generated from a seed.
fn sample(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = (x >> 59) as usize + 3;
        if (x >> 40).is_multiple_of(4) || out.len() < 64 {
            out.extend((0..n).map(|i| (x >> (8 * (i % 4))) as u8));
        } else {
            let back = (x >> 20) as usize % out.len().min(100_000) + 1;
            let from = out.len() - back;
            for i in 0..n {
                out.push(out[from + i]);
            }
        }
    }
    out.truncate(len);
    out
}

fn compress(data: &[u8], level: i32, checksum: bool, size: bool) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), level).unwrap();
    encoder.include_checksum(checksum).unwrap();
    encoder.include_contentsize(size).unwrap();
    encoder.set_pledged_src_size(size.then_some(data.len() as u64)).unwrap();
    std::io::Write::write_all(&mut encoder, data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_long_frame_is_read_at_any_position_by_several_threads() {
    let data = sample(23_456_789, 7);
    for (verify, scratch, checksum, size) in [
        (Verify::First, 0, true, true),
        (Verify::First, 64 << 20, true, false),
        (Verify::Off, 0, false, true),
        (Verify::Off, 64 << 20, true, true),
        (Verify::Background(BackgroundChecks::default()), 5 << 20, true, true),
    ] {
        let options = Options { verify, pieces: Pieces::new(Account::new(scratch / 4, scratch)), ..Options::default() };
        let container = support::open(compress(&data, 1, checksum, size), &options).unwrap();
        let file = support::file(&*container, "data.raw").unwrap();
        let view = View::new(&file.content, &Plain).unwrap();
        assert_eq!(view.len(), data.len() as u64);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (view, data) = (&view, &data);
                scope.spawn(move || {
                    let mut x = thread + 1;
                    for _ in 0..6 {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let at = (x >> 33) as usize % (data.len() - 5000);
                        let mut got = vec![0; 5000];
                        view.read(at as u64, &mut got, &Plain).unwrap();
                        assert!(got == data[at..at + 5000], "at {at}");
                    }
                });
            }
        });
        let mut all = vec![0; data.len()];
        view.read(0, &mut all, &Plain).unwrap();
        assert!(all == data);
    }
}

#[test]
fn a_long_frame_with_a_wrong_checksum_is_not_served_unless_verify_is_off() {
    let data = sample(6 << 20, 3);
    let mut file = compress(&data, 1, true, true);
    *file.last_mut().unwrap() ^= 1;
    let read = |verify| {
        let options = Options { verify, ..Options::default() };
        let container = support::open(file.clone(), &options).unwrap();
        let file = support::file(&*container, "data.raw").unwrap();
        let view = View::new(&file.content, &Plain).unwrap();
        let mut first = vec![0; 100];
        view.read(0, &mut first, &Plain).map(|()| first)
    };
    assert!(read(Verify::First).is_err());
    assert_eq!(read(Verify::Off).unwrap(), data[..100]);
}

#[test]
fn a_frame_that_needs_a_larger_window_is_refused_at_open_with_the_option_that_allows_it() {
    // As `zstd --long=31` writes it: 138 MiB in runs of 128 KiB.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, (31 - 10) << 3];
    for left in (0..1104_u32).rev() {
        frame.extend(&((128 << 10) << 3 | 1 << 1 | u32::from(left == 0)).to_le_bytes()[..3]);
        frame.push(b'7');
    }
    let open = |window| support::open(frame.clone(), &Options { window, ..Options::default() });
    let e = open(Options::default().window).err().unwrap();
    assert!(e.explain().contains("a window of 138 MiB, 128 MiB are allowed; give -o window=138M"), "{e}");
    let container = open(138 << 20).unwrap();
    let content = support::file(&*container, "data.raw").unwrap().content;
    let mut end = [0; 3];
    View::new(&content, &Plain).unwrap().read((138 << 20) - 3, &mut end, &Plain).unwrap();
    assert_eq!(end, *b"777");
}

#[test]
fn the_checksum_selects_the_dictionary_of_a_frame_without_an_id() {
    let dir = support::data("zstd/two-dicts");
    let read = |dicts: &[&str]| {
        let dicts = dicts.iter().map(|name| dir.join(name)).collect();
        let container = open(&dir.join("frame.zst"), &Options { dicts, ..Options::default() })?;
        support::read_at(&*container, "data.raw")
    };
    let alone = read(&["1.dict"]).unwrap();
    assert!(alone.starts_with(b"key=2015;val=0;common text here"));
    assert_eq!(read(&["0.dict", "1.dict"]).unwrap(), alone);
    assert_eq!(read(&["1.dict", "0.dict"]).unwrap(), alone);
    for dicts in [&[][..], &["0.dict"]] {
        let e = read(dicts).unwrap_err().to_string();
        assert!(e.contains("a dictionary may be missing"), "{e}");
    }
}

#[test]
fn without_a_checksum_several_dictionaries_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let text: Vec<u8> = (0..4000_u32).flat_map(|i| (i * 7919 % 10_007).to_string().into_bytes()).collect();
    // Both are long enough for every match: only the content shows which is right.
    let dicts: Vec<PathBuf> = [1_u8, 2]
        .iter()
        .map(|&n| {
            let path = dir.path().join(n.to_string());
            std::fs::write(&path, text.iter().map(|&byte| byte ^ (n - 1)).collect::<Vec<_>>()).unwrap();
            path
        })
        .collect();
    let compressed = |dictionary: &[u8]| {
        zstd::bulk::Compressor::with_dictionary(3, dictionary).unwrap().compress(&text[..9000]).unwrap()
    };
    let read = |bytes: Vec<u8>, dicts: &[PathBuf]| {
        let options = Options { dicts: dicts.to_vec(), ..Options::default() };
        support::read_at(&*support::open(bytes, &options)?, "data.raw")
    };
    let needs = compressed(&text);
    assert_eq!(read(needs.clone(), &dicts[..1]).unwrap(), text[..9000]);
    let e = read(needs, &dicts).unwrap_err().to_string();
    assert!(e.contains("several of the given dictionaries"), "{e}");
    // A frame that needs no dictionary decodes to the same bytes with all of them.
    assert_eq!(read(compressed(&[]), &dicts).unwrap(), text[..9000]);
}

#[test]
fn a_file_of_very_many_frames_needs_no_more_memory_than_the_cache() {
    const FRAMES: usize = 100_000;
    /// A block of one byte of content, which the frame does not state.
    const FRAME: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD, 0, 0x38, 0x1D, 0, 0, 9, b'A', 0];
    let mut file = FRAME.repeat(FRAMES);
    let row = [(FRAME.len() as u32).to_le_bytes(), 1_u32.to_le_bytes()].concat();
    file.extend([0x184D_2A5E, (row.len() * FRAMES) as u32 + 9].map(u32::to_le_bytes).concat());
    file.extend(
        [&row.repeat(FRAMES)[..], &(FRAMES as u32).to_le_bytes(), &[0], &0x8F92_EAB1_u32.to_le_bytes()].concat(),
    );
    let account = Account::new(1 << 20, 256 << 20);
    let container = support::open(file, &Options { account: account.clone(), ..Options::default() }).unwrap();
    assert_eq!(container.info().details["seek_table"]["frames"], FRAMES);
    let content = support::file(&*container, "data.raw").unwrap().content;
    let view = View::new(&content, &Plain).unwrap();
    assert_eq!(view.len(), FRAMES as u64);
    let mut bytes = vec![0; FRAMES];
    view.read(0, &mut bytes, &Plain).unwrap();
    assert!(bytes.iter().all(|&byte| byte == b'A'));
    let peaks = account.peaks();
    assert!(peaks.memory <= 1 << 20 && peaks.disk > 0, "{peaks:?}");
    drop((content, view, container));
    assert_eq!((account.memory().used(), account.disk().used()), (0, 0));
}
