//! Zstandard files that are cut off: what is before the cut can be read, and where it is is said.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use fzmfs::{Archive, Device, Options};

use crate::support::mounts::{Mounted, can_mount, sh};
use crate::support::opened::data;

fn frame(content: &[u8], has_size: bool) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.set_pledged_src_size(has_size.then_some(content.len() as u64)).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Compressible, so that no block is stored: of that, libzstd decodes a part.
fn content(len: u32) -> Vec<u8> {
    (0..len).flat_map(|i| (u64::from(i) * u64::from(i) / 77 % (1 << 16)).to_le_bytes()).collect()
}

/// The bytes of `file` that libzstd decodes before it misses something.
fn decoded(file: &[u8]) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), vec![0; 1 << 20]);
    let mut decoder = zstd::Decoder::new(file).unwrap();
    while let Ok(n) = decoder.read(&mut part)
        && n > 0
    {
        all.extend(&part[..n]);
    }
    all
}

fn open(file: &[u8], dir: &tempfile::TempDir) -> Result<Archive, fzmfs::Error> {
    let path = dir.path().join("x.zst");
    std::fs::write(&path, file).unwrap();
    Archive::open(&path, &Options::new().device(Device::Cpu).threads(2).cache(16 << 20))
}

#[test]
fn everything_before_the_cut_is_readable_and_the_rest_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let long = content(700_000);
    let old = std::fs::read(data("zstd/v07-multi.zst")).unwrap();
    for (name, file, size) in [
        ("one frame", frame(&long, true), Some(long.len())),
        ("one frame without a size", frame(&long, false), None),
        ("small frames", long.chunks(70_000).flat_map(|part| frame(part, true)).collect(), None),
        ("frames of 0.7", old, None),
    ] {
        for cut in [file.len() / 3, file.len() / 2, file.len() - 5, file.len() - 1] {
            let archive = open(&file[..cut], &dir).unwrap();
            let raw = archive.file("data.raw").unwrap();
            let mut got = Vec::new();
            let error = raw.copy_to(&mut got).err().map(|e| e.to_string());
            let want = decoded(&file[..cut]);
            assert!(got.starts_with(&want) && zstd::decode_all(&*file).unwrap().starts_with(&got), "{name}, {cut}");
            assert!(error.is_some_and(|error| error.contains(" left (")), "{name}, {cut}");
            let len = raw.len() as usize;
            assert!(len > got.len() && size.is_none_or(|size| len == size.max(got.len() + 1)), "{name}, {cut}: {len}");
            let chunks = archive.list("chunks").unwrap().count();
            let mut last = Vec::new();
            // The cut is in it, or after it.
            let _ = archive.file(&format!("chunks/{:06}.raw", chunks - 1)).unwrap().copy_to(&mut last);
            assert!(got.ends_with(&last), "{name}, {cut}");
            let info = archive.info().unwrap().to_json();
            let verified = archive.verify(|_| ()).unwrap_err().to_string();
            for said in [&verified, info["truncated"].as_str().unwrap()] {
                assert!([" left (", "frame ", ", at byte 0x"].iter().all(|part| said.contains(part)), "{name}: {said}");
            }
            assert!(info["decoded_size"].is_null());
        }
    }
}

#[test]
fn a_mount_gives_the_pages_before_the_cut_and_eio_from_there() {
    if !can_mount() {
        return;
    }
    let (dir, whole) = (tempfile::tempdir().unwrap(), content(700_000));
    let mut file = frame(&whole, true);
    file.truncate(file.len() / 2);
    let (path, want) = (dir.path().join("x.zst"), decoded(&file));
    std::fs::write(&path, file).unwrap();
    let mounted = Mounted::of(&path);
    let raw = std::fs::File::open(mounted.path("data.raw")).unwrap();
    assert_eq!(raw.metadata().unwrap().len(), whole.len() as u64);
    let got: usize = sh(mounted.dir.path(), "cat mnt/data.raw 2>/dev/null | wc -c").trim().parse().unwrap();
    // The kernel reads whole pages, which may be large.
    assert!(got <= want.len() && want.len() - got < 128 << 10, "{got} of {}", want.len());
    let mut bytes = vec![0; got];
    raw.read_exact_at(&mut bytes, 0).unwrap();
    assert!(want.starts_with(&bytes));
    for at in [want.len(), whole.len() - 1] {
        assert_eq!(raw.read_at(&mut [0], at as u64).unwrap_err().raw_os_error(), Some(libc::EIO), "at {at}");
    }
}

#[test]
fn a_file_of_which_nothing_is_complete_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(&frame(&content(10_000), true)[..1000], &dir).unwrap_err();
    assert!(error.explain().ends_with("truncated: is the file complete?"), "{}", error.explain());
}
