//! Checksums that cover much more than a read: in any order of reads, no reader gets all bytes of wrong data
//! without an error, and none gets any once the checksum has failed.

use std::collections::BTreeMap;
use std::path::Path;

use fzm_writer::{Dtype, Form, Pipeline, Source};
use fzmfs::{Archive, Device, Options, Verify};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh64::xxh64;

use crate::support::made::bytes;
use crate::ztensor_files::{array, fields, raw_frame, seekable, text, version_2};

/// Decoded bytes: several pieces, and a frame that is not decoded at once.
const LEN: usize = (5 << 20) + 12_345;

/// A container, the file of its tree whose bytes one checksum covers, and where the container stores them.
struct Case {
    name: &'static str,
    path: &'static str,
    file: Vec<u8>,
    plain: Vec<u8>,
    stored: std::ops::Range<usize>,
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// `file` stores `plain` as it is, but for headers of blocks.
fn case(name: &'static str, path: &'static str, file: Vec<u8>, plain: Vec<u8>) -> Case {
    let find = |part: &[u8]| file.windows(part.len()).position(|window| window == part).unwrap();
    let stored = find(&plain[..64])..find(&plain[plain.len() - 64..]) + 64;
    Case { name, path, file, plain, stored }
}

fn cases() -> Vec<Case> {
    let plain = bytes(11, 0, LEN as u64);
    let mut frame = zstd::Encoder::new(Vec::new(), 1).unwrap();
    frame.include_checksum(true).unwrap();
    frame.set_pledged_src_size(Some(LEN as u64)).unwrap();
    std::io::Write::write_all(&mut frame, &plain).unwrap();

    let mut table = raw_frame(&plain);
    let stored = table.len() as u32;
    table.extend([0x5E, 0x2A, 0x4D, 0x18, 21, 0, 0, 0]);
    for field in [stored, LEN as u32, xxh64(&plain, 0) as u32, 1] {
        table.extend(field.to_le_bytes());
    }
    table.extend([0x80, 0xB1, 0xEA, 0x92, 0x8F]);

    let tensor = |blob: Vec<u8>, encoding: Option<&str>| {
        version_2(&[blob], |places| {
            let mut part = vec![("blob", array(&[places[0].0, places[0].1])), ("dtype", text("u8"))];
            part.push(("digest", text(&sha256(&plain))));
            if let Some(encoding) = encoding {
                part.extend([("encoding", text(encoding)), ("decoded_length", (LEN as u64).into())]);
            }
            let part = crate::ztensor_files::map(part.into_iter().map(|(key, value)| (key.to_owned(), value)));
            let parts = fields([("data", part)]);
            let tensor = [("parts", parts), ("shape", array(&[LEN as u64])), ("layout", text("dense"))];
            fields([("objects", fields([("t", fields(tensor))]))])
        })
    };
    let frames = plain.chunks(1 << 20).map(|part| (raw_frame(part), part.len() as u64)).collect::<Vec<_>>();

    let whole = plain[..LEN / 4 * 4].to_vec();
    let source = Source { dtype: Dtype::F32, shape: vec![LEN as u32 / 4], bytes: whole.clone() };
    let pipeline = Pipeline::parse("pass_through", std::slice::from_ref(&source)).unwrap();
    let form = Form::default();
    let field = pipeline.run(vec![source], false).unwrap().file(&form).to_vec();

    vec![
        case("fzm", "data.raw", field, whole),
        case("zstd", "data.raw", frame.finish().unwrap(), plain.clone()),
        case("seekable", "data.raw", table, plain.clone()),
        case("ztensor", "tensors/t.raw", tensor(plain.clone(), None), plain.clone()),
        case("ztensor zstd", "tensors/t.raw", tensor(seekable(&frames), Some("zt.zstd-seekable/1")), plain.clone()),
    ]
}

fn open(path: &Path) -> Archive {
    // Larger than the file, so that decoded pieces stay after the checksum has failed.
    let options = Options::new().device(Device::Cpu).threads(2).cache(64 << 20).verify(Verify::Background);
    Archive::open(path, &options).unwrap()
}

/// Reads `range` in pages; what was read, up to the first error.
fn read(
    archive: &Archive,
    case: &Case,
    at: impl Iterator<Item = usize>,
) -> Result<BTreeMap<usize, Vec<u8>>, fzmfs::Error> {
    let file = archive.file(case.path)?;
    let mut got = BTreeMap::new();
    for at in at {
        let mut page = vec![0; PAGE];
        let n = file.read_at(at as u64, &mut page)?;
        page.truncate(n);
        got.insert(at, page);
    }
    Ok(got)
}

const PAGE: usize = 100_000;

/// The offsets of all pages: in order, backwards, and in a random order.
fn orders() -> [Vec<usize>; 3] {
    let pages: Vec<usize> = (0..LEN).step_by(PAGE).collect();
    let mut mixed = pages.clone();
    fzm_writer::Random::new(5).shuffle(&mut mixed);
    [pages.clone(), pages.into_iter().rev().collect(), mixed]
}

#[test]
fn no_reader_gets_all_of_wrong_data_without_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let path = dir.path().join(case.name);
        std::fs::write(&path, &case.file).unwrap();
        for order in orders() {
            let archive = open(&path);
            let got = read(&archive, &case, order.into_iter()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert!(got.into_values().flatten().eq(case.plain.iter().copied()), "{}", case.name);
            archive.check().unwrap();
        }
        let (start, end) = (case.stored.start, case.stored.end);
        for at in [start + 40, start + (end - start) / 2, end - 1] {
            let mut wrong = case.file.clone();
            wrong[at] ^= 4;
            std::fs::write(&path, &wrong).unwrap();
            for order in orders() {
                let archive = open(&path);
                // Two readers at once.
                std::thread::scope(|scope| {
                    for order in [order.clone(), orders()[0].clone()] {
                        let (archive, case) = (&archive, &case);
                        scope.spawn(move || assert!(read(archive, case, order.into_iter()).is_err(), "{}", case.name));
                    }
                });
                let what = format!("{} at {at}", case.name);
                assert!(archive.check().is_err(), "{what}");
                // Nothing of it is served any more, not even what is in the cache.
                for page in [0, LEN / 2, case.plain.len() - 1] {
                    assert!(read(&archive, &case, std::iter::once(page)).is_err(), "{what}: byte {page} is served");
                }
            }
        }
    }
}

#[test]
fn a_stream_that_is_read_at_once_is_verified_whenever_checksums_are() {
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let path = dir.path().join(case.name);
        let whole = |verify| {
            let archive = Archive::open(&path, &Options::new().device(Device::Cpu).threads(2).verify(verify)).unwrap();
            let file = archive.file(case.path)?;
            let mut got = vec![0xA5; case.plain.len()];
            file.read_exact_at(0, &mut got)?;
            // Another reader of what was verified.
            let mut page = [0; 100];
            file.read_exact_at(70_000, &mut page)?;
            assert_eq!(page, got[70_000..70_100]);
            Ok::<_, fzmfs::Error>(got)
        };
        let modes = [Verify::Auto, Verify::First, Verify::Background];
        std::fs::write(&path, &case.file).unwrap();
        for mode in modes.into_iter().chain([Verify::Off]) {
            assert!(whole(mode).unwrap() == case.plain, "{}, {mode:?}", case.name);
        }
        for at in [case.stored.start + 40, case.stored.start.midpoint(case.stored.end), case.stored.end - 1] {
            let mut wrong = case.file.clone();
            wrong[at] ^= 4;
            std::fs::write(&path, &wrong).unwrap();
            for mode in modes {
                assert!(whole(mode).is_err(), "{} at {at}, {mode:?}", case.name);
            }
        }
    }
}

#[test]
fn the_first_byte_comes_before_the_rest_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    for case in cases() {
        let mut wrong = case.file.clone();
        wrong[case.stored.end - 1] ^= 4;
        let path = dir.path().join(case.name);
        std::fs::write(&path, &wrong).unwrap();
        let archive = open(&path);
        let got = read(&archive, &case, std::iter::once(0));
        // The check may have failed by then where it runs beside the read; where reads feed it, it has not.
        if case.name.contains('z') && case.name != "fzm" && case.name != "ztensor" {
            assert!(got.unwrap()[&0] == case.plain[..PAGE], "{}", case.name);
        }
        let first = Options::new().device(Device::Cpu).verify(Verify::First);
        let archive = Archive::open(&path, &first).unwrap();
        assert!(read(&archive, &case, std::iter::once(0)).is_err(), "{}", case.name);
    }
}
