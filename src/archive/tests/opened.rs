//! Archives as a whole: how they are opened, described, checked, verified and closed.

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::checksum::{self, ChecksumGate};
use crate::format::{Attrs, Directory as DescribedDirectory, Node as DescribedNode};

/// A Zstandard file with a checksum, and its path.
fn compressed(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("x.zst");
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text).unwrap();
    std::fs::write(&path, encoder.finish().unwrap()).unwrap();
    (tmp, path)
}

fn cpu() -> Options {
    Options::new().device(Device::Cpu).threads(2)
}

#[test]
fn an_archive_says_which_file_it_is_and_what_is_in_it() {
    let (_tmp, path) = compressed(b"some text");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_nanos(5_000_000_400)).unwrap();
    let archive = Archive::open(&path, &cpu()).unwrap();
    assert_eq!(archive.path(), path);
    let len = path.metadata().unwrap().len();
    assert_eq!(archive.identity(), format!("{len} bytes of 5.000000400"));
    assert_eq!((archive.info().unwrap().format, archive.info().unwrap().file_size), ("zstd", len));
    assert_eq!(archive.container().info().file_size, len);
    assert_eq!(archive.file("data.raw").unwrap().read().unwrap(), b"some text");
    assert!(archive.cache().stats().decodes > 0);
    archive.check().unwrap();
    let (far, _) = crate::source::testing::far(100, 0..0);
    let made = Made { sources: vec![far], ..Made::new(Vec::new()) };
    assert_eq!(made.archive(&cpu(), Access::Random).identity(), "100 bytes of 0.000000000, ETag tag");
}

#[test]
fn what_cannot_be_opened_is_said() {
    let error = |path: &Path, options: &Options| Archive::open(path, options).unwrap_err();
    let (_tmp, path) = compressed(b"text");
    assert_eq!(error(Path::new("/nonexistent/file"), &cpu()).errno(), libc::ENOENT);
    assert!(matches!(error(&data("README.md"), &cpu()).kind(), Kind::Unsupported(_)));
    assert!(matches!(error(&path, &cpu().format("none")).kind(), Kind::Usage(_)));
}

#[test]
fn checksums_of_far_objects_are_left_to_their_readers() {
    let of = |source: &str, options: Options| {
        let context = context(Path::new(source), &options, Access::Random, Gpu::none());
        format!("{:?}", context.verify).split('(').next().unwrap().to_owned()
    };
    assert_eq!((of("/a/b.zst", cpu()), of("https://h/b.zst", cpu())), ("Auto".into(), "Passive".into()));
    assert_eq!(of("s3://b/c", cpu().verify(Verify::First)), "First");
}

#[test]
fn verify_parses_again_unless_nothing_is_kept_and_all_was_verified_first() {
    let (_tmp, path) = compressed(b"text");
    for (options, access, is_same) in [
        (cpu().verify(Verify::First), Access::Sequential, true),
        (cpu().verify(Verify::First).spill(0), Access::Sequential, true),
        (cpu().verify(Verify::First).spill(1), Access::Sequential, false),
        (cpu().verify(Verify::First), Access::Random, false),
        (cpu().verify(Verify::Off), Access::Sequential, false),
    ] {
        let archive = Archive::open_with(&path, &options, access, Gpu::none()).unwrap();
        assert_eq!(Arc::ptr_eq(&archive.fresh().unwrap(), archive.container()), is_same, "{options:?}");
    }
}

#[test]
fn what_is_verified_is_neither_trusted_nor_kept() {
    let options = cpu().verify(Verify::Off).index("/index");
    let context = thorough(&options, Gpu::none());
    assert!(matches!(context.verify, checksum::Verify::First) && !context.pieces.is_on());
    assert!(context.index.of(&Source::from_bytes(vec![0; 1 << 20])).is_none());
    assert_eq!(context.threads.most(), 2);
}

#[test]
fn verify_finds_a_wrong_checksum_whatever_reads_do() {
    // The last byte is one that decodes to anything.
    let (tmp, mut bytes) = (tempfile::tempdir().unwrap(), std::fs::read(data("fzm/lq1d_f32_abs.fzm")).unwrap());
    *bytes.last_mut().unwrap() ^= 0x10;
    let path = tmp.path().join("wrong.fzm");
    std::fs::write(&path, bytes).unwrap();
    for when in [Verify::Auto, Verify::First, Verify::Background, Verify::Off] {
        let archive = Archive::open(&path, &cpu().verify(when)).unwrap();
        let error = archive.verify(|_| ()).unwrap_err();
        assert!(matches!(error.kind(), Kind::Checksum { .. }), "{when:?}: {error}");
        let (report, same) = archive.verify_all(&mut |_| ()).unwrap();
        assert_eq!((report.format, same.map(|e| e.to_string())), ("fzm", Some(error.to_string())));
        let is_read = archive.file("data.raw").unwrap().read().is_ok();
        assert_eq!(is_read, when == Verify::Off, "{when:?}");
    }
}

/// An archive whose checks are a blob of 2500 bytes and one that covers 77, which fails if it is `broken`.
fn checked(decoded: Option<u64>, broken: bool, threads: usize) -> Archive {
    let blob = Memory::new(noise(2500), 1000).blob().0;
    let checks = Box::new(move || {
        let run = move || if broken { Err(Error::corrupt("wrong", "sum")) } else { Ok(()) };
        let run = Check::Run { name: "sums".into(), bytes: 77, run: Box::new(run) };
        vec![Check::Decode { name: "data".into(), blob: blob.clone() }, run]
    });
    let made = Made { checks, decoded, ..Made::new(Vec::new()) };
    made.archive(&cpu().verify(Verify::First).threads(threads), Access::Sequential)
}

#[test]
fn verify_reports_what_was_checked_and_how_far_it_is() {
    for (decoded, total) in [(None, None), (Some(2500), Some(2577))] {
        let archive = checked(decoded, false, 1);
        let mut steps = Vec::new();
        let report = archive.verify(|progress| steps.push((progress.checked, progress.total))).unwrap();
        assert_eq!(report, Report { format: "made", checks: 2, bytes: 2577, checksums: Some(3) });
        assert_eq!(steps, [(0, total), (2500, total), (2577, total)]);
    }
    let error = checked(None, true, 3).verify(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "wrong (sums: sum)");
}

#[test]
fn verify_ends_when_it_is_told_to() {
    for threads in [1, 3] {
        let archive = checked(None, true, threads);
        let mut calls = 0;
        let stopped = archive.verify_while(|_| {
            calls += 1;
            false
        });
        assert_eq!((stopped.unwrap(), calls), (None, 1));
        assert!(archive.verify_while(|_| true).is_err());
        let archive = checked(None, false, threads);
        assert_eq!(archive.verify_while(|_| true).unwrap(), Some(archive.verify(|_| ()).unwrap()));
    }
}

#[test]
fn the_work_over_whole_files_ends_with_the_archive() {
    let archive = Made::new(Vec::new()).archive(&cpu(), Access::Random);
    let threads = archive.0.context.threads.clone();
    threads.check_open("file").unwrap();
    drop(archive);
    assert_eq!(threads.check_open("file").unwrap_err().errno(), libc::ECANCELED);
}

/// A directory that cannot be listed.
struct Unlisted(fn() -> Error);

impl DescribedDirectory for Unlisted {
    fn entries(&self) -> Result<Vec<Described>> {
        Err((self.0)())
    }
}

#[test]
fn the_arrays_of_an_archive_have_names_and_files() {
    let typed = |name: &str| {
        let array = format::Array { descr: "'|u1'".into(), itemsize: 1, shape: vec![5] };
        Described::named(name, ".raw", DescribedFile::new(Content::bytes(noise(5))).typed(Some(array)))
    };
    let nested = |name: &str| Described { nested: true, ..typed(name) };
    let broken = |why| Described::own("broken", DescribedNode::Dir(Arc::new(Unlisted(why))));
    let stored = DescribedNode::dir(Attrs::new(), vec![typed("c")]);
    let plain = Described::named("plain", ".raw", DescribedFile::new(Content::Zeros(5)));
    let archive = |why| {
        let entries =
            vec![typed("a"), nested("g/h/b"), plain.clone(), Described::own("stored", stored.clone()), broken(why)];
        Made::new(entries).archive(&cpu(), Access::Random)
    };
    let names = archive(|| Error::corrupt("broken", "list")).arrays().unwrap();
    let want = ["a", "g/h/b", "stored/c"].map(|name| (name.to_owned(), format!("{name}.raw")));
    assert_eq!(names, want);
    assert!(archive(crate::wanted::given_up).arrays().is_err());
    // There, directories of their own have them, and others show them again.
    let archive = Archive::open(data("ztensor/v12-all-dtypes.zt"), &cpu()).unwrap();
    let names = archive.arrays().unwrap();
    assert!(names.contains(&("t.f32".to_owned(), "tensors/t.f32.raw".to_owned())), "{names:?}");
    assert!(names.iter().all(|(name, path)| *path == format!("tensors/{name}.raw")), "{names:?}");
}

#[cfg(all(feature = "cli", feature = "fuse"))]
#[test]
fn a_mount_gets_the_container_and_its_options() {
    let (_tmp, path) = compressed(b"some text");
    let (container, context) = Archive::open_container(&path, &cpu().window(12345), Gpu::none()).unwrap();
    assert_eq!((container.info().format, context.window), ("zstd", 12345));
}

#[cfg(feature = "serve")]
#[test]
fn an_array_is_drawn() {
    let array = format::Array { descr: "'|u1'".into(), itemsize: 1, shape: vec![16, 16] };
    let header = crate::format::npy::header(&array);
    let parts = [Content::bytes(header), Content::bytes((0..=255).collect::<Vec<u8>>())];
    let file = DescribedFile::new(Content::Join(parts.into())).typed(Some(array));
    let made = Made::new(vec![Described::named("a", ".npy", file)]);
    let array = made.archive(&cpu(), Access::Random).file("a.npy").unwrap().array().unwrap();
    let drawing = |slice: &str| Drawing { slice: slice.to_owned(), ..Drawing::default() };
    assert!(array.picture(&drawing("")).unwrap().starts_with(b"\x89PNG"));
    let curve = array.curve(&drawing("3,:")).unwrap();
    assert_eq!(
        (curve.low, curve.minimum.as_str(), curve.maximum.as_str()),
        ((48..64).map(f64::from).collect(), "48", "63")
    );
}

#[test]
fn checks_in_the_background_are_waited_for() {
    let (_tmp, path) = compressed(b"text");
    let archive = Archive::open(&path, &cpu()).unwrap();
    let mode = checksum::Verify::Background(archive.0.background_checks.clone());
    let late = || Err(Error::corrupt("late", "checksum"));
    ChecksumGate::new(&mode, 0, &archive.0.context.threads, late).wait().unwrap();
    assert_eq!(archive.check().unwrap_err().to_string(), "late (checksum)");
}
