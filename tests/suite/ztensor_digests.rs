//! zTensor: nothing that a digest covers is served before it was right, and all else is.

use std::path::Path;
use std::sync::Arc;

use fzmfs::account::Account;
use fzmfs::checksum::{BackgroundChecks, Verify};
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{self, Container, Input, Options};
use fzmfs::view::View;
use xxhash_rust::xxh3::xxh3_64;

use crate::support::opened as support;
use crate::ztensor_files::{array, checkpoint, fields, map, run_length_frame, seekable, text, version_2};

fn open(path: &Path, verify: Verify) -> Arc<dyn Container> {
    format::open(&Input::open(path).unwrap(), None, &Options { verify, ..Options::default() }).unwrap()
}

fn read(container: &dyn Container, path: &str) -> Result<Vec<u8>> {
    support::read_at(container, path)
}

fn is_digest(e: &Error, at: u64) -> bool {
    let place = e.offset().is_some_and(|offset| offset.0 == at);
    matches!(e.kind(), Kind::Checksum { .. }) && e.what().ends_with("digest") && place && e.errno() == libc::EIO
}

/// What a file says of itself: the attribute `name`.
fn attr(container: &dyn Container, path: &str, name: &str) -> String {
    let file = support::file(container, path).unwrap();
    file.attrs.iter().find(|a| a.0 == name).unwrap().1.clone()
}

#[test]
fn stored_components_are_verified_against_the_digest_that_covers_them() {
    let dir = tempfile::tempdir().unwrap();
    // Over decoded bytes in dialect 2 where there is an encoding: there nothing covers the stored ones.
    let cases = [
        ("v01-zstd-crc32c.zt", "z.f32", true),
        ("v10-zstd-crc32c.zt", "z.f32", true),
        ("asm-10-digests.zt", "s", true),
        ("asm-10-digests.zt", "z", true),
        ("v20-zstd-seekable.zt", "raw", true),
        ("v20-zstd-seekable.zt", "z.small", false),
    ];
    for (name, tensor, is_covered) in cases {
        let what = format!("{name} {tensor}");
        let (bin, raw) = (format!("stored/{tensor}/data.bin"), format!("tensors/{tensor}.raw"));
        let good = open(&support::data("ztensor").join(name), Verify::First);
        let want = read(&*good, &bin).unwrap();
        let at: usize = attr(&*good, &bin, "offset").parse().unwrap();
        let mut changed = std::fs::read(support::data("ztensor").join(name)).unwrap();
        changed[at + want.len() / 2] ^= 1;
        let path = dir.path().join(name);
        std::fs::write(&path, &changed).unwrap();
        let as_it_lies = &changed[at..at + want.len()];

        let first = open(&path, Verify::First);
        match read(&*first, &bin) {
            Err(e) if is_covered => assert!(is_digest(&e, at as u64), "{what}: {e}"),
            other => assert!(!is_covered && other.unwrap() == as_it_lies, "{what}"),
        }
        assert!(read(&*first, &raw).is_err(), "{what}");
        let mut others = 0;
        for (path, file) in support::files(&*good) {
            let own = format!("/{tensor}");
            if path.starts_with("model") || path.contains(&own) || attr_at(&file) == Some(at) {
                continue;
            }
            let got = read(&*first, &path).unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
            assert!(got == support::read(&file).unwrap(), "{what}: {path}");
            others += 1;
        }
        assert!(others > 3, "{what}: {others}");

        assert!(read(&*open(&path, Verify::Off), &bin).unwrap() == as_it_lies, "{what}");
        let beside = BackgroundChecks::default();
        let container = open(&path, Verify::Background(beside.clone()));
        support::files(&*container);
        beside.join().unwrap();
        drop(read(&*container, &bin));
        assert_eq!(beside.join().is_err(), is_covered, "{what}");
    }
}

fn attr_at(file: &fzmfs::format::File) -> Option<usize> {
    file.attrs.iter().find(|a| a.0 == "offset")?.1.parse().ok()
}

#[test]
fn verify_names_the_tensor_that_is_broken() {
    let dir = tempfile::tempdir().unwrap();
    for (name, tensor) in [("asm-10-digests.zt", "s"), ("v10-zstd-crc32c.zt", "z.f32"), ("v20-zstd-seekable.zt", "raw")]
    {
        let good = open(&support::data("ztensor").join(name), Verify::First);
        let at: usize = attr(&*good, &format!("stored/{tensor}/data.bin"), "offset").parse().unwrap();
        let mut changed = std::fs::read(support::data("ztensor").join(name)).unwrap();
        changed[at + 1] ^= 1;
        let path = dir.path().join(name);
        std::fs::write(&path, changed).unwrap();
        let e = support::verify(&*open(&path, Verify::First)).unwrap_err();
        assert!(e.what().contains(&format!("{tensor:?} data: ")), "{name}: {e}");
    }
}

#[test]
fn a_malformed_digest_is_an_error_when_its_component_is_read() {
    let path = support::data("ztensor/bad/bad-10-digest-form.zt");
    let first = open(&path, Verify::First);
    for name in ["stored/bad/data.bin", "tensors/bad.raw"] {
        let e = read(&*first, name).unwrap_err();
        assert!(e.what().ends_with("digest") && e.offset().is_some(), "{name}: {e}");
        assert!(read(&*open(&path, Verify::Off), name).is_ok(), "{name}");
    }
    assert!(read(&*first, "stored/ok/data.bin").is_ok());
}

/// A root file with one tensor of 32 bytes in a shard, `bad`, which has no digest of its own, and one in the
/// root, `ok`; the digest of the shard is right.
fn sharded(dir: &Path) -> std::path::PathBuf {
    let bad = support::data("ztensor/bad");
    let shard = std::fs::read(bad.join("bad-20-shard-digest-s1.zt")).unwrap();
    let mut root = std::fs::read(bad.join("bad-20-shard-digest.zt")).unwrap();
    let text = root.windows(21).position(|w| w == b"xxh3:0000000000000000").unwrap() + 5;
    root[text..text + 16].copy_from_slice(format!("{:016x}", xxh3_64(&shard)).as_bytes());
    let footer = root.len() - 40;
    let [at, len] = [0, 8].map(|i| u64::from_le_bytes(*root[footer + i..].first_chunk().unwrap()) as usize);
    let hash = xxh3_64(&root[at..at + len]);
    root[footer + 16..footer + 24].copy_from_slice(&hash.to_le_bytes());
    std::fs::write(dir.join("model.zt"), root).unwrap();
    std::fs::write(dir.join("model-s1.zt"), shard).unwrap();
    dir.join("model.zt")
}

#[test]
fn components_without_a_digest_are_verified_by_that_of_their_shard() {
    let dir = tempfile::tempdir().unwrap();
    let path = sharded(dir.path());
    let paths = ["tensors/bad.raw", "stored/bad/data.bin"];
    let good = open(&path, Verify::First);
    support::verify(&*good).unwrap();
    assert!(good.info().checksums["shards"].is_string());
    let want = paths.map(|path| read(&*good, path).unwrap());
    drop(good);

    // A byte of the shard that no part holds, and one of the part.
    let part: usize = attr(&*open(&path, Verify::First), paths[0], "offset").parse().unwrap();
    for at in [100, part + 7] {
        let shard = dir.path().join("model-s1.zt");
        let sound = std::fs::read(&shard).unwrap();
        let mut changed = sound.clone();
        changed[at] ^= 1;
        std::fs::write(&shard, &changed).unwrap();

        // Not for a listing, not for a size.
        let beside = BackgroundChecks::default();
        let container = open(&path, Verify::Background(beside.clone()));
        for (path, file) in support::files(&*container) {
            assert!(fzmfs::view::len(&file.content, &support::Plain).is_ok(), "{path}");
        }
        beside.join().unwrap();
        drop(read(&*container, paths[0]));
        assert!(is_digest(&beside.join().unwrap_err(), 0));

        let first = open(&path, Verify::First);
        for path in paths {
            let e = read(&*first, path).unwrap_err();
            assert!(is_digest(&e, 0) && e.what().contains("model-s1.zt"), "{path}: {e}");
        }
        assert_eq!(read(&*first, "tensors/ok.raw").unwrap().len(), 12);
        assert!(read(&*first, "stored/ok/data.bin").is_ok());
        assert!(is_digest(&support::verify(&*first).unwrap_err(), 0));

        let off = open(&path, Verify::Off);
        let served = paths.map(|path| read(&*off, path).unwrap());
        assert_eq!(served == want, at < part);
        assert!(is_digest(&support::verify(&*off).unwrap_err(), 0), "verify asks whatever the mode");
        std::fs::write(&shard, sound).unwrap();
    }
}

#[test]
fn a_component_with_its_own_digest_does_not_need_that_of_its_shard() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["model.zt", "model-00001-of-00002.zt", "model-00002-of-00002.zt"] {
        let mut bytes = std::fs::read(support::data("ztensor/v20-sharded").join(name)).unwrap();
        // Behind the magic number there is only padding.
        bytes[100] ^= u8::from(name.contains("00001"));
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let container = open(&dir.path().join("model.zt"), Verify::First);
    let files = support::files(&*container);
    for (path, file) in &files {
        assert!(support::read(file).is_ok(), "{path}");
    }
    assert!(files.iter().any(|(_, file)| file.attrs.iter().any(|a| *a == ("shard", "00001-of-00002".to_owned()))));
    let e = support::verify(&*container).unwrap_err();
    assert!(is_digest(&e, 0) && e.what().contains("00001-of-00002"), "{e}");
}

/// A file of dialect 2 with `count` tensors that share frames of `frame` bytes, 3 MiB together; the digest of the first
/// differs.
fn compressed(count: u64, frame: u64) -> Vec<u8> {
    let len = 3_u64 << 20;
    let frames = seekable(&vec![(run_length_frame(frame, 7), frame); (len / frame) as usize]);
    let right = xxh3_64(&[7].repeat(len as usize));
    version_2(&[frames], |places| {
        let tensor = |i: u64| {
            let digest = format!("xxh3:{:016x}", right ^ u64::from(i == 0));
            let data = [
                ("blob", array(&[places[0].0, places[0].1])),
                ("dtype", text("u8")),
                ("digest", text(&digest)),
                ("encoding", text("zt.zstd-seekable/1")),
                ("decoded_length", len.into()),
            ];
            let parts = fields([("data", fields(data))]);
            let tensor = [("parts", parts), ("shape", array(&[len])), ("layout", text("dense"))];
            (format!("n{i:03}"), fields(tensor))
        };
        fields([("objects", map((0..count).map(tensor)))])
    })
}

#[test]
fn a_digest_that_has_failed_is_known_when_its_component_is_no_longer_kept() {
    // More components than are kept.
    let count = 300;
    let mut stored = checkpoint(count);
    stored[64] ^= 1;
    for bytes in [stored, compressed(count, 1 << 20)] {
        let verify = Verify::Background(BackgroundChecks::default());
        let options = Options { verify, account: Account::new(1 << 20, 0), ..Options::default() };
        let container = support::open(bytes, &options).unwrap();
        let all = support::files(&*container).into_iter();
        let is_raw = |path: &str| path.strip_prefix("tensors/").and_then(|name| name.strip_suffix(".raw")).is_some();
        let files: Vec<_> = all.filter(|(path, _)| is_raw(path)).map(|(_, file)| file).collect();
        assert_eq!(files.len() as u64, count);
        let first_byte = |i: usize| View::new(&files[i].content, &support::Plain)?.read(0, &mut [0], &support::Plain);
        let is_failed = |got: Result<()>| matches!(got.unwrap_err().kind(), Kind::Checksum { .. });
        assert!(is_failed(support::read(&files[0]).map(drop)) && is_failed(first_byte(0)));
        (1..files.len()).for_each(|i| first_byte(i).unwrap());
        assert!(is_failed(first_byte(0)));
    }
}

#[test]
fn frames_that_share_a_piece_are_read_alone_and_never_behind_a_failed_digest() {
    const FRAME: u64 = 64 << 10;
    for (verify, is_first) in [(Verify::First, true), (Verify::Background(BackgroundChecks::default()), false)] {
        let options = Options { verify, ..Options::default() };
        let container = support::open(compressed(2, FRAME), &options).unwrap();
        let read = |name: &str, at: u64| {
            let file = support::file(&*container, name).unwrap();
            let view = View::new(&file.content, &support::Plain).unwrap();
            let fragments = view.by_fragments(&(at..at + 100), &|_, _| false).expect("a frame is less than a piece");
            let mut bytes = [0; 100];
            fragments.read(at, &mut bytes, &support::Plain).map(|()| assert_eq!(bytes, [7; 100]))
        };
        for at in [0, FRAME - 50, 20 * FRAME + 1, 48 * FRAME - 100] {
            read("tensors/n001.raw", at).unwrap();
        }
        let is_failed = |got: Result<()>| matches!(got.unwrap_err().kind(), Kind::Checksum { .. });
        assert_eq!(read("tensors/n000.raw", 0).is_err(), is_first);
        assert!(is_failed(read("tensors/n000.raw", 48 * FRAME - 100)));
        assert!(is_failed(read("tensors/n000.raw", 0)), "after the verdict");
    }
}
