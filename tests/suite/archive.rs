//! The library, through its public items alone: every format read to its manifest, at odd places, from many threads,
//! and what is broken said with its kind, field and offset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fzmfs::{Archive, CopyError, Device, Directory, Entry, EntryKind, Error, ErrorKind, Options, Verify};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::mounts::wait_until;
use crate::support::opened::data;

fn options() -> Options {
    Options::new().device(Device::Cpu).threads(2).cache(16 << 20)
}

fn open(name: &str) -> Archive {
    Archive::open(data(name), &options()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn manifest(format: &str, list: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data(format).join("MANIFEST.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[list].as_array().unwrap().clone()
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_default()
}

/// The file `path` of the container `name`: as long as `len`, with the digest `fetch_async`, and the same when it is
/// read at odd places.
fn check(name: &str, options: &Options, path: &str, len: u64, want: &str) {
    let fail = |e: &dyn std::fmt::Display| -> ! { panic!("{name} {path}: {e}") };
    let archive = Archive::open(data(name), options).unwrap_or_else(|e| fail(&e));
    let file = archive.file(path).unwrap_or_else(|e| fail(&e));
    assert_eq!(file.len(), len, "{name} {path}");
    let whole = file.read().unwrap_or_else(|e| fail(&e));
    assert_eq!(sha256(&whole), want, "{name} {path}");
    let mut buffer = [0xA5; 1021];
    for at in [0, 1, len / 3, len.saturating_sub(7), len, len + 1, u64::MAX] {
        let count = file.read_at(at, &mut buffer).unwrap_or_else(|e| fail(&e));
        let from = usize::try_from(at.min(len)).unwrap();
        assert_eq!(count, (whole.len() - from).min(buffer.len()), "{name} {path} at {at}");
        assert!(buffer[..count] == whole[from..from + count], "{name} {path} at {at}");
    }
    archive.check().unwrap_or_else(|e| fail(&e));
}

#[test]
fn every_fzm_file_decodes_to_its_manifest() {
    let cases = manifest("fzm", "cases");
    let exact = cases.iter().filter(|case| case["compare"] == "exact" && case["defined_bytes"].is_null());
    let count = exact
        .map(|case| {
            let name = format!("fzm/{}", text(case, "file"));
            check(&name, &options(), "data.raw", case["out_size"].as_u64().unwrap(), text(case, "out_sha256"));
        })
        .count();
    assert!(count > 40, "{count}");
}

#[test]
fn every_blosc2_file_decodes_to_its_manifest() {
    let cases = manifest("blosc2", "cases");
    let there = cases.iter().filter(|case| {
        let is_plain = case["optional"].is_null() && case["offset"].as_u64().unwrap_or(0) == 0;
        is_plain && !case["sha256"].is_null() && data("blosc2").join(text(case, "file")).exists()
    });
    let count = there
        .map(|case| {
            let name = format!("blosc2/{}", text(case, "file"));
            check(&name, &options(), "data.raw", case["length"].as_u64().unwrap(), text(case, "sha256"));
        })
        .count();
    assert!(count > 60, "{count}");
}

#[test]
fn every_zstd_file_decodes_to_its_manifest() {
    let cases = manifest("zstd", "files");
    for case in &cases {
        let mut options = options();
        if let Some(dict) = case["dictionary"].as_str() {
            options = options.dict(data("zstd").join(dict));
        }
        let name = format!("zstd/{}", text(case, "file"));
        check(&name, &options, "data.raw", case["content_length"].as_u64().unwrap(), text(case, "content_sha256"));
    }
    assert!(cases.len() > 30);
}

#[test]
fn every_zxc_file_decodes_to_its_digest() {
    let cases = std::fs::read_to_string(data("zxc/cases.tsv")).unwrap();
    let mut count = 0;
    for case in cases.lines() {
        let [name, dicts, verdict, size, digest] = case.split('\t').collect::<Vec<_>>()[..] else { panic!("{case}") };
        if verdict != "ok" {
            continue;
        }
        let dicts = dicts.split(' ').filter(|&dict| dict != "-");
        let options = dicts.fold(options(), |options, dict| options.dict(data("zxc").join(dict)));
        check(&format!("zxc/{name}"), &options, "data.raw", size.parse().unwrap(), digest);
        count += 1;
    }
    assert!(count > 30, "{count}");
}

#[test]
fn every_dense_tensor_is_an_array_of_its_manifest() {
    let mut count = 0;
    for case in manifest("ztensor", "files") {
        let name = format!("ztensor/{}", text(&case, "file"));
        let archive = open(&name);
        // By name where that is plain and there is one of it.
        let mut tensors: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for tensor in case["tensors"].as_array().unwrap() {
            tensors.entry(text(tensor, "name")).or_default().push(tensor);
        }
        for (title, all) in tensors {
            let [tensor] = all[..] else { continue };
            let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
            if !title.chars().all(plain) || title.contains("..") || tensor["dense_sha256"].is_null() {
                continue;
            }
            let Ok(file) = archive.file(&format!("tensors/{title}.npy")) else { continue };
            let array = file.array().unwrap_or_else(|| panic!("{name} {title} is not an array"));
            let shape: Vec<u64> = tensor["shape"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
            assert_eq!(array.shape(), shape, "{name} {title}");
            let bytes = array.read(0..array.len()).unwrap();
            assert_eq!(sha256(&bytes), text(tensor, "dense_sha256"), "{name} {title}");
            assert_eq!(bytes.len() as u64, array.len() * array.itemsize());
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn the_array_of_a_raw_and_of_a_npy_file_are_the_same_elements() {
    for (name, dtype, itemsize, shape) in [
        ("blosc2/n05_5d_f4.b2nd", "<f4", 4, &[5, 4, 6, 3, 7][..]),
        ("blosc2/n06_0d.b2nd", "<f8", 8, &[]),
        ("blosc2/n10_datetime.b2nd", "<M8[s]", 8, &[1461]),
        ("blosc2/n12_bytes_S10.b2nd", "|S10", 10, &[777]),
        ("fzm/lq1d_f32_abs.fzm", "<f4", 4, &[5000]),
    ] {
        let archive = open(name);
        let [raw, npy] = ["data.raw", "data.npy"].map(|path| archive.file(path).unwrap());
        let [a, b] = [&raw, &npy].map(|file| file.array().unwrap_or_else(|| panic!("{name} is not an array")));
        for array in [&a, &b] {
            assert_eq!((array.dtype(), array.itemsize(), array.shape()), (dtype, itemsize, shape), "{name}");
        }
        let all = a.read(0..a.len()).unwrap();
        assert_eq!(all, b.read(0..b.len()).unwrap(), "{name}");
        assert_eq!(all, raw.read().unwrap()[..all.len()], "{name}");
        let (from, to) = (a.len() / 3, a.len() / 2);
        let size = itemsize as usize;
        assert_eq!(b.read(from..to).unwrap(), all[from as usize * size..to as usize * size], "{name}");
        let mut last = vec![0; size];
        b.read_into(a.len() - 1, &mut last).unwrap();
        assert_eq!(last, all[all.len() - size..], "{name}");
        // A missing file is an error, and allocates nothing.
        for range in [0..a.len() + 1, a.len()..a.len() + 1, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
            let error = a.read(range).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{name}: {error}");
        }
        assert!(a.read_into(0, &mut vec![0; size + 1]).is_err() || size == 1);
        assert!(a.read(a.len()..a.len()).unwrap().is_empty());
    }
    let structured = open("blosc2/n09_struct.b2nd").file("data.npy").unwrap().array().unwrap();
    assert!(structured.dtype().starts_with("[('"), "{}", structured.dtype());
    assert!(open("zstd/z1-zeros.zst").file("data.raw").unwrap().array().is_none());
    assert!(open("fzm/lq1d_f32_abs.fzm").file("info.json").unwrap().array().is_none());
    let options = options().dtype("<u2").shape([4, 8]);
    let array = Archive::open(data("zstd/z1-len256.zst"), &options).unwrap().file("data.npy").unwrap().array().unwrap();
    assert_eq!((array.dtype(), array.shape(), array.len()), ("<u2", &[4, 8][..], 32));
}

#[test]
fn entries_are_listed_walked_and_opened() {
    let archive = open("blosc2/n05_5d_f4.b2nd");
    let names = |path: &str| -> Vec<String> {
        archive.list(path).unwrap().map(|entry| entry.unwrap().name().to_owned()).collect()
    };
    for name in ["info.json", "data.raw", "data.npy", "chunks", "stored"] {
        assert!(names("").iter().any(|n| n == name), "{:?}", names(""));
    }
    assert_eq!(names("chunks").len(), 32);
    assert_eq!(names("/chunks/../chunks/"), names("chunks"));
    let all: Vec<Entry> = archive.walk("").unwrap().map(Result::unwrap).collect();
    for entry in &all {
        let opened = entry.open();
        match entry.kind() {
            EntryKind::File => {
                assert_eq!(Some(opened.unwrap().len()), entry.size(), "{entry:?}");
                assert_eq!(archive.entry(entry.path()).unwrap().kind(), EntryKind::File);
            }
            _ => assert!(opened.is_err() && entry.size().is_none(), "{entry:?}"),
        }
    }
    let chunk = all.iter().find(|entry| entry.path() == "chunks/000031.raw").unwrap();
    assert_eq!((chunk.name(), chunk.size()), ("000031.raw", Some(4608)));
    let mut walk = archive.walk("").unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = walk.next().map(Result::unwrap) {
        if entry.kind() == EntryKind::Directory {
            walk.skip_directory();
        }
        seen.push(entry.path().to_owned());
    }
    assert!(seen.len() < 10 && seen.iter().all(|path| !path.contains('/')), "{seen:?}");
    assert_eq!(archive.walk("").unwrap().count(), all.len());

    let named = |error: Error| (matches!(error.kind(), ErrorKind::NotFound), error.to_string());
    let (is_missing, words) = named(archive.file("data.rwa").unwrap_err());
    assert!(is_missing && words.contains("which contains info.json"), "{words}");
    assert!(archive.list("data.raw").is_err() && archive.file("chunks").is_err() && archive.list("nope").is_err());

    let link = Archive::open(data("zxc/v5_one.zxc"), &options()).unwrap();
    let found = link.list("").unwrap().map(Result::unwrap).find(|entry| entry.kind() == EntryKind::Link);
    if let Some(found) = found {
        assert_eq!(found.open().unwrap().len(), 1);
        assert_eq!(found.target().as_deref(), Some("data.raw"));
    }
}

#[test]
fn info_is_what_info_json_says() {
    for name in ["fzm/dag_fanout.fzm", "zstd/v07-multi.zst", "ztensor/asm-20-digests.zt", "blosc2/n01_1d_i4.b2nd"] {
        let archive = open(name);
        let info = archive.info().unwrap();
        let json: Value = serde_json::from_slice(&archive.file("info.json").unwrap().read().unwrap()).unwrap();
        assert_eq!(info.to_json(), json, "{name}");
        assert_eq!(info.file_size, std::fs::metadata(data(name)).unwrap().len(), "{name}");
        assert_eq!(Some(info.format), name.split('/').next());
    }
}

#[test]
fn a_copy_is_every_byte_and_stops_when_the_writer_fails() {
    let archive = open("blosc2/n05_5d_f4.b2nd");
    let file = archive.file("data.raw").unwrap();
    let mut out = Vec::new();
    assert_eq!(file.copy_to(&mut out).unwrap(), file.len());
    assert_eq!(out, file.read().unwrap());
    let mut full = [0_u8; 10];
    let error = file.copy_to(&mut &mut full[..]).unwrap_err();
    assert!(matches!(error, CopyError::Write(_)), "{error}");
}

#[test]
fn verify_covers_every_byte_and_reports_progress() {
    for name in [
        "fzm/lq1d_f32_noa_rle.fzm",
        "fzm/dag_fanout.fzm",
        "blosc2/n05_5d_f4.b2nd",
        "zstd/v07-multi.zst",
        "zxc/v5_bigml_l4.zxc",
        "ztensor/asm-20-digests.zt",
    ] {
        for when in [Verify::First, Verify::Background, Verify::Off] {
            let archive = Archive::open(data(name), &options().verify(when)).unwrap();
            let mut steps = Vec::new();
            let report = archive.verify(|progress| steps.push(progress)).unwrap();
            assert!(report.checks > 0 && report.bytes > 0, "{name}");
            assert_eq!(Some(report.format), name.split('/').next());
            assert_eq!(steps[0].checked, 0, "{name}");
            assert!(steps.windows(2).all(|pair| pair[0].checked <= pair[1].checked), "{name}");
            let last = steps.last().unwrap();
            assert_eq!((last.checked, last.total), (report.bytes, Some(report.bytes)), "{name}");
        }
    }
}

#[test]
fn verify_ends_when_it_is_told_to() {
    let archive = Archive::open(data("blosc2/n05_5d_f4.b2nd"), &options()).unwrap();
    let (mut calls, mut last) = (0, 0);
    let stopped = archive.verify_while(|progress| {
        calls += 1;
        last = progress.checked;
        false
    });
    assert_eq!((stopped.unwrap(), calls, last), (None, 1, 0));
    assert_eq!(archive.verify_while(|_| true).unwrap(), Some(archive.verify(|_| ()).unwrap()));
}

#[test]
fn verify_does_not_depend_on_the_option_for_reads() {
    // The checksum over the payload is wrong, and the bytes decode.
    let mut bytes = std::fs::read(data("fzm/lq1d_f32_abs.fzm")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.fzm");
    std::fs::write(&path, bytes).unwrap();
    for when in [Verify::Auto, Verify::First, Verify::Background, Verify::Off] {
        let archive = Archive::open(&path, &options().verify(when)).unwrap();
        let error = archive.verify(|_| ()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Checksum { .. }), "{when:?}: {error}");
        let read = archive.file("data.raw").and_then(|file| file.read());
        match when {
            Verify::Auto | Verify::First => assert!(matches!(read.unwrap_err().kind(), ErrorKind::Checksum { .. })),
            Verify::Background => {
                // Not all of the bytes come before the verdict.
                assert!(matches!(read.unwrap_err().kind(), ErrorKind::Checksum { .. }));
                let error = archive.check().unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Checksum { .. }), "{error}");
                let copied = archive.file("data.raw").unwrap().copy_to(&mut Vec::new());
                assert!(matches!(copied, Err(CopyError::Archive(_))));
            }
            Verify::Off => drop(archive.check()),
        }
    }
}

/// Opens, lists and reads everything, and verifies: the first error, if any.
fn everything(path: &Path) -> Result<(), Error> {
    let archive = Archive::open(path, &options())?;
    archive.info()?;
    let mut buffer = vec![0; 100_000];
    for entry in archive.walk("")? {
        let entry = entry?;
        if entry.kind() == EntryKind::File {
            let file = entry.open()?;
            file.read_at(0, &mut buffer)?;
            file.read_at(file.len() / 2, &mut buffer[..777])?;
            if let Some(array) = file.array().filter(|array| !array.is_empty()) {
                array.read(array.len() - 1..array.len())?;
            }
        }
    }
    archive.verify(|_| ()).map(drop)
}

#[test]
fn broken_files_are_errors_that_name_a_field_and_a_byte() {
    let mut count = 0;
    let mut placed = 0;
    for (format, list, expect, refuse) in [("fzm", "cases", "expect", "reject"), ("blosc2", "cases", "expect", "error")]
    {
        let folder = format!("{format}/bad");
        for case in manifest(&folder, list).iter().filter(|case| case[expect] == refuse) {
            let path = data(&folder).join(text(case, "file"));
            if !path.exists() {
                continue;
            }
            let Err(error) = everything(&path) else { panic!("{}: no error", path.display()) };
            assert!(!error.what().is_empty() && !error.to_string().contains("bug of fzmfs"), "{error}");
            count += 1;
            placed += usize::from(error.offset().is_some());
        }
    }
    assert!(count > 80 && placed * 2 > count, "{count} files, {placed} with an offset");
    for folder in ["broken/fzm", "broken/zstd", "broken/blosc2", "ztensor/bad", "zstd/bad", "zxc/bad"] {
        for entry in std::fs::read_dir(data(folder)).unwrap() {
            // Right or broken: never a panic.
            if let Err(error) = everything(&entry.unwrap().path()) {
                assert!(!error.to_string().contains("bug of fzmfs"), "{folder}: {error}");
            }
        }
    }
    let error = Archive::open(data("fzm/bad/major_4.fzm"), &options()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.what().contains("version"), "{}", error.what());
    assert_eq!(error.offset().map(|at| at.0), Some(4), "{error}");
}

#[test]
fn errors_of_open_say_why() {
    let missing = Archive::open("/nonexistent/file", &options()).unwrap_err();
    assert!(matches!(missing.kind(), ErrorKind::Io(_)), "{missing}");
    let unknown = Archive::open(data("README.md"), &options()).unwrap_err();
    assert!(matches!(unknown.kind(), ErrorKind::Unsupported(_)), "{unknown}");
    let wrong = Archive::open(data("zstd/z1-zeros.zst"), &options().format("fzn")).unwrap_err();
    assert!(matches!(wrong.kind(), ErrorKind::Usage(_)), "{wrong}");
    let shape = options().dtype("<f8").shape([1 << 40]);
    let large = Archive::open(data("zstd/z1-zeros.zst"), &shape).and_then(|archive| archive.file("data.raw"));
    assert!(matches!(large.unwrap_err().kind(), ErrorKind::Usage(_)));
    let file = open("zstd/z1-len256.zst").file("data.raw").unwrap();
    let error = file.read_exact_at(200, &mut [0; 57]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Truncated { need: 57, have: 56 }), "{error}");
    assert!(file.read_exact_at(u64::MAX, &mut [0; 2]).is_err());
}

#[test]
fn eight_threads_read_one_archive_at_once() {
    fn shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    for name in ["blosc2/n05_5d_f4.b2nd", "zxc/v5_jlog_2M_l1_bigml.zxc", "fzm/preset_pfpl.fzm", "zstd/v07-multi.zst"] {
        let archive = open(name);
        let want = archive.file("data.raw").unwrap().read().unwrap();
        // Again, with nothing decoded yet, and a cache that does not hold it.
        let archive = Archive::open(data(name), &options().cache(1 << 20)).unwrap();
        let file = archive.file("data.raw").unwrap();
        shared(&archive);
        shared(&file);
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let (archive, file, want) = (archive.clone(), file.clone(), &want);
                scope.spawn(move || {
                    let own = archive.file("data.raw").unwrap();
                    for step in 0..50_usize {
                        let at = (thread * 7919 + step * 104_729) % want.len();
                        let mut buffer = vec![0; (1 + step * 1777).min(want.len() - at)];
                        let file = if step % 2 == 0 { &file } else { &own };
                        file.read_exact_at(at as u64, &mut buffer).unwrap();
                        assert!(buffer == want[at..at + buffer.len()], "{name} at {at}");
                    }
                });
            }
        });
        archive.check().unwrap();
    }
}

#[test]
fn two_archives_with_different_options_are_independent() {
    let path = data("zstd/z1-len256.zst");
    let [a, b] = [("<u2", [128]), ("<f4", [64])]
        .map(|(dtype, shape)| Archive::open(&path, &options().dtype(dtype).shape(shape).verify(Verify::Off)).unwrap());
    let plain = Archive::open(&path, &Options::default()).unwrap();
    let arrays = [&a, &b].map(|archive| archive.file("data.npy").unwrap().array().unwrap());
    assert_eq!(arrays.each_ref().map(fzmfs::Array::dtype), ["<u2", "<f4"]);
    assert_eq!(arrays[0].read(0..128).unwrap(), arrays[1].read(0..64).unwrap());
    assert!(plain.file("data.npy").is_err() && plain.file("data.raw").unwrap().array().is_none());
    drop((a, b));
    assert_eq!(arrays[1].read(0..1).unwrap().len(), 4);
}

/// The descriptors of this process that are open on `path`.
fn descriptors(path: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.ok()?.path().read_link().ok());
    links.filter(|link| link == path).count()
}

#[test]
fn everything_is_closed_when_the_last_handle_is_dropped() {
    // A copy of its own: other tests open the same files.
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().canonicalize().unwrap().join("copy.zxc");
    std::fs::copy(data("zxc/v5_jlog_2M_l1_bigml.zxc"), &path).unwrap();
    let archive = Archive::open(&path, &options()).unwrap();
    let file = archive.file("data.raw").unwrap();
    assert_eq!(descriptors(&path), 1);
    file.copy_to(&mut std::io::sink()).unwrap();
    let listed = archive.list("").unwrap();
    drop((archive, listed));
    assert_eq!(descriptors(&path), 1);
    assert_eq!(file.read_at(3, &mut [0; 5]).unwrap(), 5);
    drop(file);
    // A worker may still hold what it decodes ahead.
    wait_until("the file is closed", || descriptors(&path) == 0);
}

#[test]
fn a_file_that_changes_is_an_error_and_one_that_is_replaced_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zst");
    std::fs::copy(data("zstd/z1-len256.zst"), &path).unwrap();
    let archive = Archive::open(&path, &options()).unwrap();
    let want = archive.file("data.raw").unwrap().read().unwrap();
    std::fs::copy(data("zstd/z1-zeros.zst"), dir.path().join("b.zst")).unwrap();
    std::fs::rename(dir.path().join("b.zst"), &path).unwrap();
    assert_eq!(archive.file("data.raw").unwrap().read().unwrap(), want);
    archive.verify(|_| ()).unwrap();

    let archive = Archive::open(&path, &options()).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(20).unwrap();
    let changed = |error: Error| matches!(error.kind(), ErrorKind::Changed);
    let read = archive.file("data.raw").and_then(|file| file.read()).unwrap_err();
    assert!(changed(read));
    assert!(changed(archive.check().unwrap_err()));
    assert!(archive.verify(|_| ()).is_err());
}

#[test]
fn a_directory_that_does_not_exist_is_an_error_and_a_file_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let error = Directory::open(dir.path().join("missing"), &options()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io(_)) && error.errno() == libc::ENOENT, "{error}");
    assert!(Directory::open(data("zstd/z1-len256.zst"), &options()).unwrap().is_none());
    assert!(Directory::open(dir.path(), &options()).unwrap().is_some());
}
