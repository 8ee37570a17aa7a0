//! Large reads of one stream, of which most pieces are decoded straight into the buffer.

use fzmfs::{Archive, Device, File, Options};
use proptest::prelude::*;
use xxhash_rust::xxh64::xxh64;

use crate::support::made::bytes;
use crate::ztensor_files::raw_frame;

const FRAME: usize = 1 << 20;
const LEN: usize = 24 * FRAME + 999;

/// `data.raw` of a container of frames; the checksum of frame `broken` is wrong.
fn open(dir: &tempfile::TempDir, plain: &[u8], broken: Option<usize>) -> File {
    let path = dir.path().join(format!("{broken:?}.zst"));
    let frame = |(number, part): (usize, &[u8])| {
        let mut frame = raw_frame(part);
        frame[4] |= 4;
        let sum = xxh64(part, 0) as u32 ^ u32::from(Some(number) == broken);
        frame.extend(sum.to_le_bytes());
        frame
    };
    let frames: Vec<u8> = plain.chunks(FRAME).enumerate().flat_map(frame).collect();
    std::fs::write(&path, frames).unwrap();
    let options = Options::new().device(Device::Cpu).threads(3);
    Archive::open(&path, &options).unwrap().file("data.raw").unwrap()
}

fn read(file: &File, at: usize, len: usize) -> fzmfs::Result<Vec<u8>> {
    let mut buffer = vec![0xA5; len];
    file.read_exact_at(at as u64, &mut buffer).map(|()| buffer)
}

#[test]
fn ranges_of_any_length_give_their_bytes() {
    let plain = bytes(3, 0, LEN as u64);
    let dir = tempfile::tempdir().unwrap();
    let file = open(&dir, &plain, None);
    assert_eq!(file.len(), LEN as u64);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: crate::support::cases(40),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ranges = (0..=LEN, 0..=LEN).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let check = |(start, end): (usize, usize)| {
        prop_assert!(read(&file, start, end - start).unwrap() == plain[start..end]);
        Ok(())
    };
    runner.run(&ranges, check).unwrap();
    for range in [(0, LEN), (0, LEN - 1), (1, LEN), (0, 16 * FRAME), (FRAME, 17 * FRAME), (999, 17 * FRAME + 1)] {
        check(range).unwrap();
    }
}

#[test]
fn a_broken_piece_is_an_error_where_it_is_and_only_there() {
    let plain = bytes(4, 0, LEN as u64);
    let dir = tempfile::tempdir().unwrap();
    let file = open(&dir, &plain, Some(20));
    let error = read(&file, 0, LEN).unwrap_err();
    assert_eq!(read(&file, FRAME, LEN - FRAME).unwrap_err().to_string(), error.to_string());
    assert_eq!(read(&file, 20 * FRAME + 5, 10).unwrap_err().to_string(), error.to_string());
    assert!(error.offset().is_some_and(|at| at.0 as usize > 20 * FRAME), "{error}");
    assert!(read(&file, 0, 20 * FRAME).unwrap() == plain[..20 * FRAME]);
    assert!(read(&file, 21 * FRAME, LEN - 21 * FRAME).unwrap() == plain[21 * FRAME..]);
}
