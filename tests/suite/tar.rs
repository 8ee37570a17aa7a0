//! Archives of the program tar in streams: every member is what tar itself extracts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fzm_writer::Random;
use fzmfs::{Archive, Device, EntryKind, Options};

use crate::support::mounts::skip;

/// The formats that GNU tar writes, and how it is told to.
const FORMATS: [(&str, &[&str]); 8] = [
    ("v7", &["--format=v7"]),
    ("ustar", &["--format=ustar"]),
    ("oldgnu", &["--format=oldgnu", "-S"]),
    ("gnu", &["--format=gnu", "-S"]),
    ("pax", &["--format=pax"]),
    ("pax-0.0", &["--format=pax", "-S", "--sparse-version=0.0"]),
    ("pax-0.1", &["--format=pax", "-S", "--sparse-version=0.1"]),
    ("pax-1.0", &["--format=pax", "-S", "--sparse-version=1.0"]),
];

fn open(file: &Path) -> Archive {
    Archive::open(file, &Options::new().device(Device::Cpu).threads(2).cache(16 << 20)).unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).unwrap()
}

/// Many frames, each with its size.
fn frames(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(40_000).flat_map(zstd).collect()
}

/// One frame without its size.
fn unsized_frame(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn zxc(bytes: &[u8]) -> Vec<u8> {
    zxc::compress(bytes, zxc::Level::Default, None).unwrap()
}

/// Runs tar; `None` where there is no GNU tar.
fn tar(words: &[&str], paths: &[&Path]) -> Option<()> {
    let version = Command::new("tar").arg("--version").output().ok();
    let Some(version) = version.filter(|found| String::from_utf8_lossy(&found.stdout).contains("GNU tar")) else {
        skip("archives cannot be made", "no GNU tar");
        return None;
    };
    drop(version);
    let mut command = Command::new("tar");
    command.args(["--owner=0", "--group=0", "--no-same-owner", "--no-same-permissions"]).args(words);
    let output = command.args(paths).output().unwrap();
    assert!(output.status.success(), "tar {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// A component, at most `most` bytes long.
fn component(random: &mut Random, most: usize) -> String {
    let parts = ["a", "B", "-", ".", " ", "%", "\u{fc}", "0123456789", "\u{4e00}", "~2"];
    let mut name = format!("n{}", random.below(1000));
    for _ in 0..random.below(24) {
        let part = parts[random.below(parts.len())];
        if name.len() + part.len() <= most {
            name += part;
        }
    }
    name
}

/// Makes a tree of files, directories and links; names of at most `most` bytes.
fn make(top: &Path, seed: u64, most: usize) {
    let mut random = Random::new(seed);
    let mut dirs = vec![PathBuf::new()];
    let mut files = Vec::new();
    for _ in 0..3 + random.below(25) {
        let dir = dirs[random.below(dirs.len())].clone();
        let path = dir.join(component(&mut random, most));
        let real = top.join(&path);
        if real.exists() || real.is_symlink() || path.as_os_str().len() > most {
            continue;
        }
        match random.below(8) {
            0 | 1 => {
                fs::create_dir(&real).unwrap();
                dirs.push(path);
            }
            2 => symlink(component(&mut random, most), &real).unwrap(),
            3 => {
                let up = "../".repeat(path.components().count() - 1);
                symlink(format!("{up}{}", dirs[random.below(dirs.len())].join("x").display()), &real).unwrap();
            }
            4 if !files.is_empty() => {
                let first: &PathBuf = &files[random.below(files.len())];
                fs::hard_link(top.join(first), &real).unwrap();
            }
            kind => {
                let file = fs::File::create(&real).unwrap();
                let len = [0, 1, 511, 512, 513, 70_000][random.below(6)];
                let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8 & 0x1F).collect();
                // Some with holes.
                for part in 0..if kind == 5 { 1 + random.below(9) as u64 } else { 1 } {
                    file.write_all_at(&bytes, part * 300_000).unwrap();
                }
                if kind == 5 {
                    file.set_len(3_000_000).unwrap();
                }
                files.push(path);
            }
        }
    }
}

/// The entries below `dir`, by name in a tree: kind and content.
fn on_disk(dir: &Path, above: &str, all: &mut BTreeMap<String, (EntryKind, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{above}{}", entry.file_name().to_str().unwrap().replace('%', "%25"));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            on_disk(&entry.path(), &format!("{name}/"), all);
            all.insert(name, (EntryKind::Directory, Vec::new()));
        } else if kind.is_symlink() {
            let to = fs::read_link(entry.path()).unwrap();
            all.insert(name, (EntryKind::Link, to.to_str().unwrap().replace('%', "%25").into_bytes()));
        } else {
            all.insert(name, (EntryKind::File, fs::read(entry.path()).unwrap()));
        }
    }
}

/// The same of an archive, read in the order of `random`.
fn in_archive(archive: &Archive, at: &str, random: &mut Random) -> BTreeMap<String, (EntryKind, Vec<u8>)> {
    let mut entries: Vec<_> = archive.walk(at).unwrap().map(Result::unwrap).collect();
    for i in (1..entries.len()).rev() {
        entries.swap(i, random.below(i + 1));
    }
    let content = |entry: &fzmfs::Entry| match entry.kind() {
        EntryKind::Directory => Vec::new(),
        EntryKind::Link => entry.target().unwrap().into_bytes(),
        EntryKind::File => {
            let file = entry.open().unwrap();
            assert!(entry.size().is_none_or(|size| size == file.len()), "{}", entry.path());
            file.read().unwrap()
        }
    };
    let named = |entry: &fzmfs::Entry| entry.path().strip_prefix(at).unwrap().trim_start_matches('/').to_owned();
    entries.iter().map(|entry| (named(entry), (entry.kind(), content(entry)))).collect()
}

#[test]
fn every_member_of_a_compressed_archive_is_what_tar_extracts() {
    let top = tempfile::tempdir().unwrap();
    for (seed, (format, words)) in (0..3).flat_map(|round| FORMATS.iter().zip(100 * round + 1..).map(|(f, s)| (s, f))) {
        let [source, extracted] =
            ["source", "extracted"].map(|name| top.path().join(format!("{name}-{format}-{seed}")));
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(&extracted).unwrap();
        make(&source, seed, if matches!(*format, "v7" | "ustar") { 90 } else { 200 });
        let plain = top.path().join("x.tar");
        let words: Vec<_> = words.iter().copied().chain(["-c", "-C", source.to_str().unwrap(), "-f"]).collect();
        if tar(&words, &[&plain, Path::new(".")]).is_none() {
            return;
        }
        tar(&["-x", "-C", extracted.to_str().unwrap(), "-f"], &[&plain]).unwrap();
        let mut want = BTreeMap::new();
        on_disk(&extracted, "", &mut want);
        let bytes = fs::read(&plain).unwrap();
        let mut random = Random::new(seed);
        let streams = [
            ("x.tar.zst", frames(&bytes)),
            ("x.tar.zst", unsized_frame(&bytes)),
            ("x.tzst", zstd(&bytes)),
            ("x.tar.zxc", zxc(&bytes)),
        ];
        for (name, stream) in streams {
            let file = top.path().join(name);
            fs::write(&file, stream).unwrap();
            let archive = open(&file);
            let found = in_archive(&archive, "x.tar", &mut random);
            let differs = want.iter().find(|(path, what)| found.get(*path) != Some(*what)).map(|(path, _)| path);
            assert!(found == want, "{format}, {seed}, {name}: {differs:?}");
            archive.verify(|_| ()).unwrap();
        }
        assert!(in_archive(&open(&plain), "", &mut random) == want, "{format}, {seed}, not compressed");
    }
}

#[test]
fn a_container_in_an_archive_has_the_tree_that_it_has_by_itself() {
    let top = tempfile::tempdir().unwrap();
    let source = top.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    let containers = ["blosc2/n05_5d_f4.b2nd", "ztensor/asm-10-digests.zt", "zstd/z1-level19.zst"];
    for file in containers {
        let file = crate::support::opened::data(file);
        fs::copy(&file, source.join("sub").join(file.file_name().unwrap())).unwrap();
    }
    let inner = top.path().join("in.tar");
    let (dir, plain) = (source.to_str().unwrap(), top.path().join("x.tar"));
    if tar(&["-c", "-C", dir, "-f"], &[&inner, Path::new("sub")]).is_none() {
        return;
    }
    // An archive in the archive.
    fs::write(source.join("in.tar.zst"), zstd(&fs::read(&inner).unwrap())).unwrap();
    tar(&["-c", "-C", dir, "-f"], &[&plain, Path::new(".")]).unwrap();
    let file = top.path().join("x.tar.zst");
    fs::write(&file, zstd(&fs::read(&plain).unwrap())).unwrap();
    let archive = open(&file);
    let mut random = Random::new(1);
    let by_itself = |archive: &Archive, at: &str, random: &mut Random| {
        let mut all = in_archive(archive, at, random);
        // It says which version of which file it is a view of.
        all.retain(|path, _| !path.ends_with("data.zarr/zarr.json"));
        all
    };
    for name in containers.map(|name| name.rsplit('/').next().unwrap()) {
        let want = by_itself(&open(&source.join("sub").join(name)), "", &mut random);
        for at in [format!("x.tar/sub/{name}"), format!("x.tar/in.tar.zst/in.tar/sub/{name}")] {
            let found = by_itself(&archive, &at, &mut random);
            let differs = want.iter().find(|(path, what)| found.get(*path) != Some(*what)).map(|(path, _)| path);
            assert!(found == want, "{at}: {differs:?}");
        }
    }
    archive.verify(|_| ()).unwrap();
    // A member that is broken is found by verification, and says why.
    fs::write(source.join("sub/broken.b2nd"), b"no frame").unwrap();
    tar(&["-c", "-C", dir, "-f"], &[&plain, Path::new(".")]).unwrap();
    fs::write(&file, zstd(&fs::read(&plain).unwrap())).unwrap();
    let archive = open(&file);
    let why = archive.file("x.tar/sub/broken.b2nd/error.txt").unwrap().read().unwrap();
    assert!(String::from_utf8_lossy(&why).contains("unrecognized format"));
    let error = archive.verify(|_| ()).unwrap_err().to_string();
    assert!(error.contains("broken.b2nd"), "{error}");
}

#[test]
fn a_stream_that_is_broken_shows_the_members_before_the_fault() {
    let top = tempfile::tempdir().unwrap();
    let source = top.path().join("source");
    fs::create_dir_all(&source).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(source.join(name), name.repeat(3_000_000)).unwrap();
    }
    let plain = top.path().join("x.tar");
    let names = ["a", "b", "c"].map(Path::new);
    if tar(&["-c", "-C", source.to_str().unwrap(), "-f"], &[&[&*plain], &names[..]].concat()).is_none() {
        return;
    }
    let bytes = fs::read(&plain).unwrap();
    let open_with = |frames: &[Vec<u8>]| {
        let file = top.path().join("x.tar.zst");
        fs::write(&file, frames.concat()).unwrap();
        open(&file)
    };
    let frames: Vec<Vec<u8>> = bytes
        .chunks(1 << 20)
        .map(|part| {
            let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
            compressor.include_checksum(true).unwrap();
            compressor.compress(part).unwrap()
        })
        .collect();
    let names = |archive: &Archive| {
        let entries = archive.list("x.tar").unwrap().map(|entry| entry.unwrap().name().to_owned());
        entries.collect::<Vec<_>>()
    };
    // In the middle of a member: the others are whole.
    let broken = |number: usize| {
        let mut frames = frames.clone();
        *frames[number].last_mut().unwrap() ^= 1;
        open_with(&frames)
    };
    let archive = broken(4);
    assert_eq!(names(&archive), ["a", "b", "c"]);
    let read = |name: &str| archive.file(&format!("x.tar/{name}")).and_then(|file| file.read());
    assert!(read("a").is_ok() && read("b").is_err() && read("c").is_ok());
    assert!(archive.verify(|_| ()).is_err());
    // Where the header of a member is: what is behind it cannot be found.
    let archive = broken(2);
    assert_eq!(names(&archive), ["a", "error.txt"]);
    assert!(archive.verify(|_| ()).is_err());
}

#[test]
fn nothing_is_decoded_before_an_archive_is_entered() {
    let top = tempfile::tempdir().unwrap();
    // The checksum of the stream is wrong, which any decoding would find.
    let mut bytes = frames(&vec![7; 100_000]);
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(true).unwrap();
    bytes.extend(compressor.compress(&[7; 1000]).unwrap());
    *bytes.last_mut().unwrap() ^= 1;
    let file = top.path().join("x.tar.zst");
    fs::write(&file, bytes).unwrap();
    let archive = open(&file);
    let kinds: Vec<_> =
        archive.list("").unwrap().map(|entry| entry.unwrap()).map(|e| (e.name().to_owned(), e.kind())).collect();
    assert!(kinds.contains(&("x.tar".to_owned(), EntryKind::Directory)), "{kinds:?}");
    assert_eq!(archive.entry("x.tar").unwrap().kind(), EntryKind::Directory);
    assert!(!archive.file("x.tar/error.txt").unwrap().is_empty());
}
