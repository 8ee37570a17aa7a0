//! `.b2z` archives of frames: their tree, and their checksums.

use std::path::Path;

use fzmfs::checksum::{BackgroundChecks, Verify};
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{Input, Options};
use fzmfs::source::Source;
use serde_json::Value;

use crate::blosc2::Opened;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2").join(name)).unwrap()
}

fn open(bytes: impl Into<Vec<u8>>) -> Result<Opened> {
    open_with(bytes, Verify::First)
}

fn open_with(bytes: impl Into<Vec<u8>>, verify: Verify) -> Result<Opened> {
    let input = Input::of(Source::from_bytes(bytes.into()))?;
    Opened::of(&input, None, &Options { verify, ..Options::default() })
}

/// Where the first member starts.
fn first(archive: &[u8]) -> usize {
    archive.windows(10).position(|w| w == b"\x9e\xa8b2frame\0").unwrap()
}

/// An archive of `members`: names and bytes.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, bytes) in members {
        let local = out.len() as u32;
        let len = (bytes.len() as u32).to_le_bytes();
        let name_len = (name.len() as u16).to_le_bytes();
        // Apart from versions, an entry has the same fields in both places.
        let said = [&[0; 8][..], &crc32fast::hash(bytes).to_le_bytes(), &len, &len, &name_len, &[0; 2]].concat();
        out.extend([b"PK\x03\x04\x14\0", &said[..], name.as_bytes(), bytes].concat());
        directory
            .extend([b"PK\x01\x02\x14\0\x14\0", &said[..], &[0; 10], &local.to_le_bytes(), name.as_bytes()].concat());
    }
    let places = [directory.len() as u32, out.len() as u32].map(u32::to_le_bytes);
    out.extend(directory);
    out.extend([b"PK\x05\x06\0\0\0\0\0\0\0\0", places.as_flattened(), &[0; 2]].concat());
    out
}

fn is_crc(e: &Error, at: usize) -> bool {
    let place = e.offset().is_some_and(|offset| offset.0 == at as u64);
    matches!(e.kind(), Kind::Checksum { .. }) && e.what() == "crc-32" && place && e.errno() == libc::EIO
}

#[test]
fn an_archive_has_a_directory_for_each_frame() {
    let bytes = data("archive.b2z");
    let opened = open(&bytes[..]).unwrap();
    opened.verify().unwrap();
    assert_eq!(opened.names("").unwrap(), ["info.json", "data.zarr", "numbers", "group"]);
    let want: Vec<u8> = (0..2000_i32).flat_map(i32::to_le_bytes).collect();
    assert!(opened.read("numbers/data.raw").unwrap() == want);
    assert!(opened.read("group/ones/data.raw").unwrap() == 1_f64.to_le_bytes().repeat(900));
    let info: Value = serde_json::from_slice(&opened.read("numbers/info.json").unwrap()).unwrap();
    assert_eq!(info["array"]["shape"], serde_json::json!([40, 50]));

    // Every truncated file is refused: the directory is at the end.
    for len in (100..bytes.len()).step_by(97) {
        let e = open(&bytes[..len]).map(drop).unwrap_err();
        assert_eq!(e.what(), "end of central directory", "{len}: {e}");
    }
}

#[test]
fn the_description_of_an_archive_lists_its_first_thousand_members() {
    let names: Vec<_> = (0..1003).map(|i| format!("{i}.b2nd")).collect();
    let frame = data("n06_0d.b2nd");
    let bytes = archive(&names.iter().map(|name| (name.as_str(), &frame[..])).collect::<Vec<_>>());
    let info: Value = serde_json::from_slice(&open(bytes).unwrap().read("info.json").unwrap()).unwrap();
    assert_eq!((info["members"].as_array().unwrap().len(), &info["members_not_listed"]), (1000, &3.into()));
}

#[test]
fn compressed_members_and_other_files_do_not_affect_frames() {
    let bytes = data("archive.b2z");
    // The entries of the central directory, in order.
    let entries: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| w == b"PK\x01\x02").map(|(at, _)| at).collect();
    let mut changed = bytes.clone();
    changed[entries[1] + 10] = 8;
    let opened = open(changed).unwrap();
    assert!(opened.read("numbers/data.raw").is_ok());
    let e = opened.read("group/ones").unwrap_err();
    assert!(matches!(e.kind(), Kind::Unsupported(_)) && e.errno() == libc::EIO, "{e}");

    let local = u32::from_le_bytes(bytes[entries[1] + 42..][..4].try_into().unwrap()) as usize;
    let magic = local + bytes[local..].windows(8).position(|w| w == b"b2frame\0").unwrap();
    let mut changed = bytes.clone();
    changed[magic] = b'x';
    let opened = open_with(changed, Verify::Off).unwrap();
    assert!(opened.read("group/ones").unwrap().starts_with(b"\x9e\xa8x2frame\0"));
    assert!(opened.verify().is_err());

    // Wrong sizes and offsets.
    for (field, value) in [(20, u32::MAX), (20, 1 << 30), (24, 7), (42, u32::MAX - 1), (42, 3)] {
        let mut changed = bytes.clone();
        changed[entries[0] + field..][..4].copy_from_slice(&value.to_le_bytes());
        let result = open(changed).and_then(|opened| opened.verify());
        assert!(result.as_ref().is_err_and(|e| e.offset().is_some()), "{field} {value:#x}: {result:?}");
    }
}

#[test]
fn an_archive_with_64_bit_fields_is_read() {
    let bytes = data("archive.b2z");
    let end = bytes.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..][..4].try_into().unwrap());
    let start = u32_at(end + 16) as usize;
    let full = u32::MAX.to_le_bytes();
    let name_len = usize::from(u16::from_le_bytes(bytes[start + 28..][..2].try_into().unwrap()));
    // The first entry has its sizes and its offset in a ZIP64 field, after a field of another kind.
    let mut out = bytes[..start + 20].to_vec();
    out.extend([&full[..], &full, &bytes[start + 28..][..2], &34_u16.to_le_bytes()].concat());
    out.extend([&bytes[start + 32..start + 42], &full, &bytes[start + 46..][..name_len]].concat());
    out.extend([9, 0, 2, 0, 7, 7, 1, 0, 24, 0]);
    out.extend([24, 20, 42].map(|field| u64::from(u32_at(start + field)).to_le_bytes()).concat());
    out.extend(&bytes[start + 46 + name_len..end]);
    // The ZIP64 end record has the offset of the directory.
    let (len, end64) = ((out.len() - start) as u64, out.len() as u64);
    out.extend(b"PK\x06\x06");
    out.extend([&44_u64.to_le_bytes()[..], &[0; 12]].concat());
    out.extend([3, 3, len, start as u64].map(u64::to_le_bytes).concat());
    out.extend([&b"PK\x06\x07\0\0\0\0"[..], &end64.to_le_bytes(), &1_u32.to_le_bytes()].concat());
    out.extend([&bytes[end..end + 12], &full, &full, &bytes[end + 20..]].concat());

    let opened = open(out).unwrap();
    opened.verify().unwrap();
    assert_eq!(opened.names("").unwrap(), ["info.json", "data.zarr", "numbers", "group"]);
    assert_eq!(opened.len("numbers/data.raw").unwrap(), 8000);
}

#[test]
fn an_extra_field_may_end_with_padding() {
    let frame = data("n01_1d_i4.b2nd");
    let plain = open(archive(&[("a.b2nd", &frame)])).unwrap();
    for padding in 0..8 {
        // A field of two bytes, and zeros behind it, in both headers.
        let extra = [&[9, 0, 2, 0, 7, 7][..], &vec![0; padding]].concat();
        let mut bytes = archive(&[("a.b2nd", &frame)]);
        let end = bytes.len() - 22;
        let entry = end - 46 - "a.b2nd".len();
        for (name_len, name_end) in [(entry + 28, end), (26, 30 + "a.b2nd".len())] {
            bytes[name_len + 2] = extra.len() as u8;
            bytes.splice(name_end..name_end, extra.iter().copied());
        }
        let end = bytes.len() - 22;
        bytes[end + 12] += extra.len() as u8;
        let start = (entry + extra.len()) as u32;
        bytes[end + 16..][..4].copy_from_slice(&start.to_le_bytes());
        let opened = open(bytes).unwrap_or_else(|e| panic!("{padding} bytes: {e}"));
        opened.verify().unwrap();
        assert!(opened.read("a.b2nd/data.raw").unwrap() == plain.read("a.b2nd/data.raw").unwrap());
    }
}

#[test]
fn no_byte_of_a_member_is_served_before_its_checksum_is_verified() {
    let (frame, array) = (data("m01_meta_vlmeta.b2frame"), data("n01_1d_i4.b2nd"));
    let bytes = archive(&[("a.b2frame", &frame), ("notes.txt", b"a text"), ("b.b2nd", &array)]);
    let good = open(&bytes[..]).unwrap();
    good.verify().unwrap();
    let below = |opened: &Opened| {
        let dirs = ["chunks", "stored", "metalayers", "vlmetalayers"].map(|name| format!("a.b2frame/{name}"));
        let mut paths = vec!["a.b2frame/data.raw".to_owned(), "a.b2frame/data.npy".to_owned()];
        for dir in dirs {
            paths.extend(opened.names(&dir).unwrap().into_iter().map(|name| format!("{dir}/{name}")));
        }
        paths
    };
    let paths = below(&good);
    for suffix in ["chunks/000000.raw", "stored/000000.bin", "metalayers/", "vlmetalayers/", ".msgpack", ".json"] {
        assert!(paths.iter().any(|path| path.contains(suffix)), "{suffix} is not in {paths:?}");
    }

    // The last byte of the fingerprint, which is not checked.
    let at = first(&bytes);
    let mut changed = bytes.clone();
    changed[at + frame.len() - 1] ^= 1;
    let opened = open(&changed[..]).unwrap();
    assert_eq!(below(&opened), paths);
    assert!(opened.read("a.b2frame/info.json").is_ok());
    for path in &paths {
        assert_eq!(opened.len(path).unwrap(), good.len(path).unwrap(), "{path}");
        let e = opened.read(path).unwrap_err();
        assert!(is_crc(&e, at), "{path}: {e}");
    }
    for path in ["notes.txt", "b.b2nd/data.raw", "b.b2nd/stored/000000.bin"] {
        assert!(opened.read(path).unwrap() == good.read(path).unwrap(), "{path}");
    }
    assert!(is_crc(&opened.verify().unwrap_err(), at));

    // Without verification it is served as it is; `verify` still checks.
    let opened = open_with(&changed[..], Verify::Off).unwrap();
    for path in &paths {
        assert!(opened.read(path).unwrap() == good.read(path).unwrap(), "{path}");
    }
    assert!(is_crc(&opened.verify().unwrap_err(), at));

    // In the background: the first byte starts the check, a listing does not.
    let beside = BackgroundChecks::default();
    let opened = open_with(&changed[..], Verify::Background(beside.clone())).unwrap();
    assert!(below(&opened).iter().all(|path| opened.len(path).is_ok()));
    beside.join().unwrap();
    drop(opened.read(&paths[0]));
    assert!(is_crc(&beside.join().unwrap_err(), at));

    // A member that is not a frame.
    let at = bytes.windows(6).position(|w| w == b"a text").unwrap();
    let mut changed = bytes.clone();
    changed[at] = b'A';
    let opened = open(&changed[..]).unwrap();
    assert_eq!(opened.len("notes.txt").unwrap(), 6);
    assert!(is_crc(&opened.read("notes.txt").unwrap_err(), at));
    assert!(opened.read("a.b2frame/data.raw").unwrap() == good.read("a.b2frame/data.raw").unwrap());
    assert_eq!(open_with(changed, Verify::Off).unwrap().read("notes.txt").unwrap(), b"A text");
}

#[test]
fn that_a_member_is_broken_is_known_when_it_is_opened_again() {
    let names: Vec<_> = (0..1030).map(|i| format!("{i}.b2nd")).collect();
    let frame = data("n01_1d_i4.b2nd");
    let mut bytes = archive(&names.iter().map(|name| (name.as_str(), &frame[..])).collect::<Vec<_>>());
    let at = first(&bytes);
    bytes[at + frame.len() - 1] ^= 1;
    let beside = BackgroundChecks::default();
    let opened = open_with(bytes, Verify::Background(beside.clone())).unwrap();
    drop(opened.read("0.b2nd/data.raw"));
    assert!(is_crc(&beside.join().unwrap_err(), at));
    // More than stay open.
    for name in &names[1..] {
        opened.len(&format!("{name}/data.raw")).unwrap();
    }
    assert!(is_crc(&opened.read("0.b2nd/data.raw").unwrap_err(), at));
}

#[test]
fn a_changed_member_is_never_served() {
    let bytes = data("archive.b2z");
    let (start, want) = (first(&bytes), open(&bytes[..]).unwrap().read("numbers/data.raw").unwrap());
    let end = start + bytes[start..].windows(4).position(|w| w == b"PK\x03\x04").unwrap();
    let mut wrong = 0;
    for at in start..end {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        // Without the magic it is another file in the archive, or not an archive.
        let read = |verify| open_with(&changed[..], verify).and_then(|opened| opened.read("numbers/data.raw"));
        assert!(read(Verify::First).is_err(), "byte {at}");
        let off = read(Verify::Off);
        wrong += usize::from(off.is_ok_and(|bytes| bytes != want));
    }
    assert!(wrong > 10, "{wrong} changes that only the checksum detects");
}

#[test]
fn an_archive_with_a_changed_member_is_refused() {
    let bytes = data("../broken/blosc2/archive_member_changed.b2z");
    let e = open(&bytes[..]).unwrap().read("numbers/data.raw").unwrap_err();
    assert!(is_crc(&e, first(&bytes)), "{e}");
    let off = open_with(bytes, Verify::Off).unwrap().read("numbers/data.raw").unwrap();
    assert!(off != open(data("archive.b2z")).unwrap().read("numbers/data.raw").unwrap());
}
