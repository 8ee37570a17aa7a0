//! What a program outside of fzmfs sees of it: the items at the root of the crate, and no more.
#![cfg(test)]
#![deny(warnings)]

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use fzmfs::{Archive, Array, Device, EntryKind, Error, ErrorKind, File, Info, Options, Report, Verify};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data").join(name)
}

/// A type of another crate on top of a file, as a user would write it.
struct Reader {
    file: File,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(self.at, buffer).map_err(std::io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.file.len().saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

#[test]
fn a_file_is_read_with_what_the_standard_library_offers() -> Result<(), Box<dyn std::error::Error>> {
    let archive = Archive::open(data("zstd/z1-len256.zst"), &Options::new().threads(1).device(Device::Cpu))?;
    let file = archive.file("data.raw")?;
    let mut reader = Reader { file: file.clone(), at: 0 };
    let mut all = Vec::new();
    reader.read_to_end(&mut all)?;
    assert_eq!(all, file.read()?);
    reader.seek(SeekFrom::End(-6))?;
    let mut last = String::new();
    reader.read_to_string(&mut last).ok();
    assert_eq!(reader.at, 256);
    Ok(())
}

#[test]
fn arrays_entries_info_and_verify_are_enough_to_write_a_program() -> Result<(), Error> {
    let archive = Archive::open(data("blosc2/n05_5d_f4.b2nd"), &Options::default().verify(Verify::Background))?;
    let info: Info = archive.info()?;
    assert_eq!((info.format, info.decoded_size.is_some()), ("blosc2", true));
    let mut arrays: Vec<Array> = Vec::new();
    for entry in archive.walk("")?.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.kind() == EntryKind::File)) {
        arrays.extend(entry?.open()?.array());
    }
    assert!(arrays.iter().any(|array| array.shape() == [5, 4, 6, 3, 7] && array.itemsize() == 4));
    let report: Report = archive.verify(|_| ())?;
    assert!(report.bytes > 0);
    archive.check()
}

#[test]
#[expect(
    unused_variables,
    reason = "the lines of README.md as they stand there, which tests/python/test_lines.py checks"
)]
fn the_lines_of_the_readme_read_a_window() -> Result<(), Error> {
    let place = std::env::temp_dir().join(format!("fzmfs-outside-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    std::fs::copy(data("fzm/lq2d_f32_outliers.fzm"), place.join("field.fzm")).unwrap();
    std::env::set_current_dir(&place).unwrap();
    let archive = fzmfs::Archive::open("field.fzm", &fzmfs::Options::default())?;
    if let Some(array) = archive.file("data.raw")?.array() {
        println!("{} {:?}", array.dtype(), array.shape());
        let window = array.read(1000..1010)?; // ten elements; only their pieces are decoded
    }
    std::env::set_current_dir("/").unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    Ok(())
}

#[test]
fn an_error_has_parts_for_programs() {
    let error = Archive::open(data("fzm/bad/major_4.fzm"), &Options::default()).unwrap_err();
    let offset: Option<u64> = error.offset().map(|at| at.0);
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)) && offset.is_some() && !error.what().is_empty());
}

#[cfg(feature = "alone")]
#[test]
fn without_its_feature_a_gpu_that_is_asked_for_is_an_error() {
    let error = Archive::open(data("fzm/dag_fanout.fzm"), &Options::new().device(Device::Cuda(0))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Usage(_)) && error.to_string().contains("no GPU support"), "{error}");
}
