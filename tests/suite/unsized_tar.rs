//! Archives in one frame that does not state its size: they are read in order without it, and every size is right.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use fzmfs::{Archive, Device, Options, Verify};

use crate::tar_blocks::{member, padded};

const MIB: usize = 1 << 20;

fn try_open(file: &Path, verify: Verify) -> fzmfs::Result<Archive> {
    Archive::open(file, &Options::new().device(Device::Cpu).threads(2).cache(16 << 20).verify(verify))
}

fn open(file: &Path, verify: Verify) -> Archive {
    try_open(file, verify).unwrap()
}

fn frame(bytes: &[u8], checksum: bool) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(checksum).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Content that compresses a little, other at every offset.
fn content(len: usize, seed: u32) -> Vec<u8> {
    let word = |i: u32| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 20) & 0x0F0F;
    (0..len.div_ceil(2) as u32).flat_map(|i| (word(i) as u16).to_le_bytes()).take(len).collect()
}

/// An archive of `len` bytes, the last `end` of them zeros behind its members; and these.
fn archive(len: usize, end: usize) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let lens = [0, 1, 512, 700_000, 3 * MIB / 2];
    let mut members: Vec<_> = lens.iter().zip(0..).map(|(&len, i)| (format!("m{i}"), content(len, i))).collect();
    let before: usize = members.iter().map(|(_, content)| 512 + padded(content).len()).sum();
    members.push(("last".into(), content(len - end - before - 512, 99)));
    let mut bytes: Vec<u8> = members.iter().flat_map(|(name, content)| member(name, b'0', content)).collect();
    bytes.resize(len, 0);
    (bytes, members)
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn write(&self, bytes: &[u8]) -> PathBuf {
        let file = self.0.path().join("x.tar.zst");
        fs::write(&file, bytes).unwrap();
        file
    }
}

fn names(archive: &Archive) -> Vec<String> {
    archive.list("x.tar").unwrap().map(|entry| entry.unwrap().name().to_owned()).collect()
}

#[test]
fn every_size_is_right_wherever_the_archive_ends() {
    let dir = Dir(tempfile::tempdir().unwrap());
    for (len, end) in [
        (6 * MIB, 1024),
        (6 * MIB + 512, 1024),
        (6 * MIB - 512, 1024),
        (6 * MIB + 1024, 1024),
        (6 * MIB, 0),
        (6 * MIB + 512, 512),
        (11 * MIB, 5 * MIB),
        (11 * MIB + 5, 2 * MIB + 5),
    ] {
        let (bytes, members) = archive(len, end);
        let file = dir.write(&frame(&bytes, true));
        for verify in [Verify::Background, Verify::First, Verify::Off] {
            let open = || open(&file, verify);
            // Listed first; the size of the stream first; a member first; the last byte first.
            let listed = open();
            assert_eq!(names(&listed), members.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
            let (sized, read, tail) = (open(), open(), open());
            assert_eq!(sized.file("data.raw").unwrap().len(), len as u64);
            let (name, content) = &members[4];
            assert!(read.file(&format!("x.tar/{name}")).unwrap().read().unwrap() == *content);
            let mut last = [1; 7];
            let at = (members[5].1.len() - last.len()) as u64;
            tail.file("x.tar/last").unwrap().read_at(at, &mut last).unwrap();
            assert!(members[5].1.ends_with(&last));
            for archive in [listed, sized, read, tail] {
                for (name, content) in &members {
                    let found = archive.file(&format!("x.tar/{name}")).unwrap();
                    assert_eq!(found.len(), content.len() as u64);
                    assert!(found.read().unwrap() == *content, "{len}, {end}, {verify:?}: {name}");
                }
                let all = archive.file("data.raw").unwrap();
                assert_eq!(all.len(), len as u64);
                assert!(all.read().unwrap() == bytes);
                archive.verify(|_| ()).unwrap();
            }
        }
    }
}

#[test]
fn an_archive_that_is_cut_off_says_so() {
    let dir = Dir(tempfile::tempdir().unwrap());
    let (bytes, members) = archive(7 * MIB, 0);
    for cut in [1, 512, MIB, 2 * MIB] {
        let archive = open(&dir.write(&frame(&bytes[..bytes.len() - cut], true)), Verify::Background);
        let names = names(&archive);
        assert_eq!(names.last().unwrap(), "error.txt", "{cut}");
        let last = archive.file("x.tar/last").unwrap();
        assert_eq!(last.len(), members[5].1.len() as u64);
        let mut there = vec![0; members[5].1.len() - cut];
        last.read_at(0, &mut there).unwrap();
        assert!(members[5].1.starts_with(&there));
        assert!(last.read_at(there.len() as u64, &mut [0]).is_err());
        assert!(archive.verify(|_| ()).is_err());
    }
}

#[test]
fn what_a_wrong_checksum_covers_is_not_served_to_its_end() {
    let dir = Dir(tempfile::tempdir().unwrap());
    // The last piece is full, or not.
    for len in [6 * MIB, 6 * MIB + 9 * 512] {
        let (bytes, members) = archive(len, 1024);
        let mut stored = frame(&bytes, true);
        *stored.last_mut().unwrap() ^= 1;
        for (verify, are_listed) in [(Verify::Background, true), (Verify::First, false)] {
            let archive = open(&dir.write(&stored), verify);
            let names = names(&archive);
            assert_eq!(names.contains(&"last".to_owned()), are_listed, "{len}, {verify:?}: {names:?}");
            assert!(names.contains(&"error.txt".to_owned()));
            let read = |name: &str| archive.file(&format!("x.tar/{name}")).and_then(|file| file.read());
            assert!(read("last").is_err());
            assert!(read("m3").is_err() || are_listed && read("m3").unwrap() == members[3].1);
            assert!(archive.file("data.raw").and_then(|file| file.read()).is_err());
            assert!(archive.verify(|_| ()).is_err());
        }
    }
}

#[test]
fn a_broken_block_harms_no_member_before_it() {
    let dir = Dir(tempfile::tempdir().unwrap());
    let (bytes, members) = archive(7 * MIB, 1024);
    let stored = frame(&bytes, true);
    let mut served = 0;
    // Its members are where those before end.
    let end = |name: &str| {
        let before = members.iter().take_while(|(member, _)| member != name);
        before.map(|(_, content)| 512 + padded(content).len()).sum::<usize>()
    };
    for at in (1..20).map(|i| stored.len() * i / 20) {
        let mut stored = stored.clone();
        stored[at..at + 8].fill(0xFF);
        // What zstd decodes rightly before it finds the fault.
        let mut decoded = Vec::new();
        std::io::Read::read_to_end(&mut zstd::Decoder::new(&*stored).unwrap(), &mut decoded).unwrap_err();
        let sound = decoded.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
        // The headers of blocks are read first.
        let Ok(archive) = try_open(&dir.write(&stored), Verify::Background) else { continue };
        for name in names(&archive).iter().filter(|name| *name != "error.txt") {
            let (_, content) = members.iter().find(|(member, _)| member == name).unwrap();
            let end = end(name) + 512 + content.len();
            match archive.file(&format!("x.tar/{name}")).and_then(|file| file.read()) {
                Ok(found) => {
                    assert!(found == *content || end > sound, "{at}: {name}");
                    served += 1;
                }
                // A wrong checksum refuses all that it covers.
                Err(e) => {
                    let is_behind = end.div_ceil(MIB) > sound / MIB;
                    assert!(is_behind || e.to_string().contains("checksum"), "{at}: {name}, {end}, {sound}: {e}");
                }
            }
        }
        assert!(archive.verify(|_| ()).is_err());
    }
    assert!(served > 5, "{served}");
}

#[test]
fn small_members_at_the_end_are_all_listed() {
    let dir = Dir(tempfile::tempdir().unwrap());
    for (large, zeros) in [(5 * MIB, 1024), (5 * MIB + 300_000, 10_240), (9 * MIB, 0)] {
        let small = (0..60).map(|i| (format!("s{i:02}"), content(100 + i as usize, i)));
        let members: Vec<_> = std::iter::once(("large".to_owned(), content(large, 7))).chain(small).collect();
        let mut bytes: Vec<u8> = members.iter().flat_map(|(name, content)| member(name, b'0', content)).collect();
        bytes.resize(bytes.len() + zeros, 0);
        for verify in [Verify::Background, Verify::First, Verify::Off, Verify::default()] {
            let archive = open(&dir.write(&frame(&bytes, true)), verify);
            assert!(names(&archive).iter().eq(members.iter().map(|(name, _)| name)), "{large}, {zeros}, {verify:?}");
            for (name, content) in &members {
                assert!(archive.file(&format!("x.tar/{name}")).unwrap().read().unwrap() == *content, "{name}");
            }
        }
    }
}
