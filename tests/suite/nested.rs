//! Containers inside containers: the inner one is a directory with the tree that it has by itself.

use std::io::Read;
use std::path::{Path, PathBuf};

use fzmfs::{Archive, Device, EntryKind, Options};

use crate::support::opened::data;

fn open(file: &Path) -> Archive {
    Archive::open(file, &Options::new().device(Device::Cpu).threads(2).cache(16 << 20)).unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(true).unwrap();
    compressor.compress(bytes).unwrap()
}

fn zxc(bytes: &[u8]) -> Vec<u8> {
    zxc::compress(bytes, zxc::Level::Default, None).unwrap()
}

/// Every file below `at`, with its bytes.
fn files(archive: &Archive, at: &str) -> Vec<(String, Vec<u8>)> {
    let entries = archive.walk(at).unwrap().map(Result::unwrap);
    // The file that says which version of which file this is a view of.
    let is_same = |entry: &fzmfs::Entry| !entry.path().ends_with("data.zarr/zarr.json");
    let files = entries.filter(|entry| entry.kind() == EntryKind::File && is_same(entry));
    let path = |whole: &str| whole.strip_prefix(at).unwrap().trim_start_matches('/').to_owned();
    files.map(|entry| (path(entry.path()), entry.open().unwrap().read().unwrap())).collect()
}

/// Both have the same files with the same bytes.
#[track_caller]
fn same(found: &[(String, Vec<u8>)], want: &[(String, Vec<u8>)], what: &str) {
    let differs = found.iter().zip(want).find(|(found, want)| found != want).map(|(found, want)| (&found.0, &want.0));
    assert!(differs.is_none() && found.len() == want.len(), "{what}: {differs:?}");
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

#[test]
fn a_container_in_another_one_has_the_tree_that_it_has_by_itself() {
    let dir = Dir::new();
    for name in ["blosc2/n05_5d_f4.b2nd", "blosc2/n11_complex.b2nd", "ztensor/asm-10-digests.zt", "zstd/z1-level19.zst"]
    {
        let bytes = std::fs::read(data(name)).unwrap();
        let name = name.rsplit('/').next().unwrap();
        let want = files(&open(&dir.write(name, &bytes)), "");
        for (extension, outer) in [("zst", zstd(&bytes)), ("zxc", zxc(&bytes))] {
            let archive = open(&dir.write(&format!("{name}.{extension}"), &outer));
            let found = files(&archive, name);
            same(&found, &want, &format!("{name}.{extension}"));
            assert!(archive.file("data.raw").unwrap().read().unwrap() == bytes);
            archive.verify(|_| ()).unwrap();
        }
    }
}

#[test]
fn a_few_bytes_that_decode_to_millions_of_frames_are_given_up() {
    let dir = Dir::new();
    // Skippable frames without data; what a file of this size may cost is spent before its end.
    let frames = [0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0].repeat(1 << 20);
    let bytes = zstd(&zstd(&frames).repeat(8));
    assert!(bytes.len() < 1000);
    let archive = open(&dir.write("x.zst.zst.zst", &bytes));
    let error = archive.file("x.zst.zst/x.zst/error.txt").unwrap().read().unwrap();
    let error = String::from_utf8(error).unwrap();
    assert!(error.contains("to open a container in another one"), "{error}");
}

#[test]
fn a_stream_that_is_longer_than_opening_may_cost_is_verified() {
    let dir = Dir::new();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    let mut archive = tar::Builder::new(encoder);
    let mut header = tar::Header::new_gnu();
    header.set_size(1200 << 20);
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    archive.append_data(&mut header, "zeros", zeros.take(1200 << 20)).unwrap();
    let bytes = archive.into_inner().unwrap().finish().unwrap();
    assert!(bytes.len() < 1 << 20);
    open(&dir.write("x.tar.zst", &bytes)).verify(|_| ()).unwrap();
}

#[test]
fn containers_nest_to_a_depth_of_four() {
    let dir = Dir::new();
    let (mut name, mut bytes) = ("x.b2nd".to_owned(), std::fs::read(data("blosc2/n05_5d_f4.b2nd")).unwrap());
    let want = files(&open(&dir.write(&name, &bytes)), "");
    let mut path = name.clone();
    for depth in 1..=5 {
        bytes = if depth % 2 == 0 { zxc(&bytes) } else { zstd(&bytes) };
        let outer = format!("{name}.{}", if depth % 2 == 0 { "zxc" } else { "zst" });
        let archive = open(&dir.write(&outer, &bytes));
        if depth <= 4 {
            same(&files(&archive, &path), &want, &outer);
            archive.verify(|_| ()).unwrap();
        } else {
            assert_eq!(archive.entry(&path).unwrap().kind(), EntryKind::Link, "{outer}: the innermost is a file");
        }
        path = format!("{outer}/{path}");
        name = outer;
    }
}

#[test]
fn the_link_of_an_inner_file_is_named_after_it() {
    let dir = Dir::new();
    let archive = open(&dir.write("text.txt.zst.zxc", &zxc(&zstd(b"some text"))));
    assert_eq!(archive.entry("text.txt.zst/text.txt").unwrap().target().unwrap(), "data.raw");
    assert_eq!(archive.file("text.txt.zst/text.txt").unwrap().read().unwrap(), b"some text");
    let archive = open(&dir.write("text.txt.zxc", &zxc(b"some text")));
    assert_eq!(archive.entry("text.txt").unwrap().kind(), EntryKind::Link);
}

#[test]
fn an_inner_container_that_is_broken_says_why_and_fails_verification() {
    let dir = Dir::new();
    let archive = open(&dir.write("x.fzm.zst", &zstd(b"this is not a container")));
    let found = files(&archive, "x.fzm");
    assert!(String::from_utf8_lossy(&found[0].1).contains("unrecognized format"), "{found:?}");
    assert_eq!(found[1], ("x.fzm".to_owned(), b"this is not a container".to_vec()));
    assert!(archive.verify(|_| ()).is_err());
    assert_eq!(archive.file("data.raw").unwrap().read().unwrap(), b"this is not a container");
}

#[test]
fn nothing_of_an_inner_container_is_served_before_the_checksum_of_the_outer_one() {
    let dir = Dir::new();
    let mut bytes = zstd(&std::fs::read(data("blosc2/n05_5d_f4.b2nd")).unwrap());
    *bytes.last_mut().unwrap() ^= 1;
    let archive = open(&dir.write("x.b2nd.zst", &bytes));
    assert!(archive.file("x.b2nd/data.raw").and_then(|file| file.read()).is_err());
    assert!(archive.verify(|_| ()).is_err());
    let why = archive.file("x.b2nd/error.txt").unwrap().read().unwrap();
    assert!(String::from_utf8_lossy(&why).contains("checksum"), "{why:?}");
}
