//! Tests: telling a change of content from a change of name, and which files may be opened.
#![forbid(unsafe_code)]

use super::*;
use std::io::Write;
use std::sync::Mutex;

use super::testing::FailsOnce;
use crate::platform::FileExt;
use crate::platform::testing::{make_fifo, make_socket, set_mode, symlink};

#[test]
fn bytes_up_to_the_end_that_cannot_be_read_are_not_asked_for_again() {
    for (at, most, got) in [(90, 1000, 10), (90, 10, 10), (0, 10, 10)] {
        let source = Source::of("x", FailsOnce::default());
        assert!(matches!(source.get_most(FileOffset(at), most, "x").unwrap_err().kind(), Kind::Corrupt(_)));
        assert_eq!(source.get_most(FileOffset(at), most, "x").unwrap(), vec![7; got]);
    }
}

#[test]
fn a_file_that_shrinks_or_grows_is_changed_for_good() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 100]).unwrap();
    let source = Source::open(file.path()).unwrap();
    let mut buf = [0; 10];
    source.read(FileOffset(90), &mut buf, "x").unwrap();
    source.check().unwrap();
    assert!(matches!(
        source.read(FileOffset(91), &mut buf, "x").unwrap_err().kind(),
        Kind::Truncated { need: 10, have: 9 }
    ));
    file.as_file().set_len(50).unwrap();
    assert!(matches!(source.read(FileOffset(45), &mut buf, "x").unwrap_err().kind(), Kind::Changed));
    file.as_file().set_len(100).unwrap();
    assert!(matches!(source.check().unwrap_err().kind(), Kind::Changed));
}

#[test]
fn a_file_renamed_over_or_deleted_goes_on_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, b"first").unwrap();
    let source = Source::open(&path).unwrap();
    std::fs::write(dir.path().join("b"), b"second").unwrap();
    std::fs::rename(dir.path().join("b"), &path).unwrap();
    assert_eq!(source.get(FileOffset(0), 5, "x").unwrap(), b"first");
    source.check().unwrap();
}

/// An open file to modify.
struct Case {
    dir: tempfile::TempDir,
    source: Arc<Source>,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), [7; 100]).unwrap();
        let source = Source::open(&dir.path().join("a")).unwrap();
        Self { dir, source }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self) {
        File::options().write(true).open(self.path("a")).unwrap().write_all_at(b"new", 50).unwrap();
    }

    /// Runs `what`, then restores the modification time.
    fn and_restore(&self, what: impl Fn(&Self)) {
        let was = self.path("a").metadata().unwrap().modified().unwrap();
        what(self);
        File::options().write(true).open(self.path("a")).unwrap().set_modified(was).unwrap();
    }

    fn is_changed(&self) -> bool {
        match self.source.check() {
            Ok(()) => false,
            Err(e) => {
                assert!(matches!(e.kind(), Kind::Changed), "{e}");
                // Permanent.
                assert!(self.source.check().is_err());
                true
            }
        }
    }
}

type Step = (&'static str, fn(&Case));

const LOSES_ITS_NAME: [Step; 3] = [
    ("renamed over", |case| {
        std::fs::write(case.path("b"), [8; 100]).unwrap();
        std::fs::rename(case.path("b"), case.path("a")).unwrap();
    }),
    ("deleted", |case| std::fs::remove_file(case.path("a")).unwrap()),
    ("replaced and deleted", |case| {
        std::fs::remove_file(case.path("a")).unwrap();
        std::fs::write(case.path("a"), [8; 100]).unwrap();
    }),
];

const OTHER_NAME_OR_RIGHTS: [Step; 2] = [
    ("linked", |case| std::fs::hard_link(case.path("a"), case.path("b")).unwrap()),
    ("mode", |case| set_mode(&case.path("a"), 0o600).unwrap()),
];

const RENAMED: Step = ("renamed", |case| std::fs::rename(case.path("a"), case.path("b")).unwrap());

const CHANGED: [Step; 5] = [
    ("written in place", Case::write),
    ("written in place, time restored", |case| case.and_restore(Case::write)),
    ("cut and rewritten, time restored", |case| {
        case.and_restore(|case| {
            let file = File::create(case.path("a")).unwrap();
            file.write_all_at(&[9; 100], 0).unwrap();
        });
    }),
    ("touched", |case| {
        let file = File::options().write(true).open(case.path("a")).unwrap();
        file.set_modified(std::time::SystemTime::now()).unwrap();
    }),
    ("time set to what it was", |case| case.and_restore(|_| ())),
];

#[test]
fn a_change_of_the_bytes_is_told_from_one_of_the_name() {
    let evidence = [None, Some(Evidence::Written), Some(Evidence::Untouched), Some(Evidence::Renamed)];
    for known in evidence {
        let check = |(what, step): &Step, want: bool| {
            let case = Case::new();
            if let Some(evidence) = known {
                case.source.set_witness(move || evidence);
            }
            assert!(!case.is_changed(), "{what}");
            step(&case);
            assert_eq!(case.is_changed(), want, "{what}, {known:?}");
            if !want {
                assert_eq!(case.source.get(FileOffset(0), 100, "x").unwrap(), [7; 100]);
            }
        };
        let written = known == Some(Evidence::Written);
        for step in &LOSES_ITS_NAME {
            check(step, written);
        }
        let is_unexplained = matches!(known, None | Some(Evidence::Written));
        for step in &OTHER_NAME_OR_RIGHTS {
            check(step, is_unexplained);
        }
        check(&RENAMED, known != Some(Evidence::Renamed));
        // A witness that saw only a rename cannot have seen these; `stat` detects the rest.
        let lot = if known == Some(Evidence::Renamed) { &CHANGED[..1] } else { &CHANGED[..] };
        for step in lot {
            check(step, true);
        }
    }
}

#[test]
fn a_change_of_the_name_excuses_no_write_after_it() {
    let case = Case::new();
    case.source.set_witness(|| Evidence::Untouched);
    (OTHER_NAME_OR_RIGHTS[0].1)(&case);
    assert!(!case.is_changed());
    case.and_restore(Case::write);
    assert!(case.is_changed());
}

#[test]
fn a_thread_that_must_not_wait_does_not_wait_for_another_that_judges_a_change() {
    let case = Case::new();
    assert!(case.source.is_same_in_memory());
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    case.source.set_witness(move || {
        asked.send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        Evidence::Untouched
    });
    (OTHER_NAME_OR_RIGHTS[1].1)(&case);
    std::thread::scope(|scope| {
        let judge = scope.spawn(|| case.source.check());
        is_asked.recv().unwrap();
        assert!(!case.source.is_same_in_memory());
        go.send(()).unwrap();
        judge.join().unwrap().unwrap();
    });
    assert!(case.source.is_same_in_memory());
    case.write();
    assert!(!case.source.is_same_in_memory() && case.is_changed() && !case.source.is_same_in_memory());
}

#[test]
fn a_change_that_a_witness_saw_counts_whatever_stat_says() {
    let case = Case::new();
    case.source.set_changed();
    assert!(case.is_changed());
}

#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_fifo(&at("fifo")).unwrap();
    let _socket = make_socket(&at("socket")).unwrap();
    std::fs::write(at("file"), b"x").unwrap();
    symlink("file", at("link")).unwrap();
    symlink("fifo", at("link to a fifo")).unwrap();
    let kinds = [("fifo", "FIFO"), ("socket", "socket"), ("link to a fifo", "FIFO"), (".", "directory")];
    for (path, what) in kinds.map(|(name, what)| (at(name), what)).into_iter().chain([("/dev/null".into(), "device")]) {
        for e in [Source::open(&path).unwrap_err(), Source::open_with_dir(&path).unwrap_err()] {
            assert!(matches!(e.kind(), Kind::Unsupported(_)) && e.to_string().contains(what), "{e}");
        }
    }
    // A link is allowed as the user's path, but not inside a container.
    assert_eq!(Source::open(&at("link")).unwrap().len(), 1);
    let inside = Dir::open(dir.path()).unwrap();
    assert_eq!(inside.source("file").unwrap().len(), 1);
    for name in ["link", "fifo", "socket", ".", "..", "", "../x", "a/file"] {
        let e = inside.source(name).unwrap_err();
        assert!(matches!(e.kind(), Kind::Unsupported(_)), "{name}: {e}");
    }
}

#[test]
fn a_length_past_the_end_is_refused_before_it_is_allocated() {
    let source = Source::from_bytes(vec![1, 2, 3]);
    assert!(source.get(FileOffset(1), 1 << 60, "x").is_err());
    assert!(source.get(FileOffset(u64::MAX), 1, "x").is_err());
    assert_eq!(source.get(FileOffset(1), 2, "x").unwrap(), [2, 3]);
}

/// The same file, opened in every way; the last 50 bytes of it, and what it tells of itself.
fn opened(case: &Case) -> Vec<(&'static str, Arc<Source>)> {
    let dir = case.dir.path();
    let alone = Source::open(&case.path("a")).unwrap();
    let folder = Folder::pin(&Dir::open(dir).unwrap(), [Ok("a")], &Account::new(1 << 20, 0)).unwrap();
    let (on_demand, seen) = Source::on_demand(&Top::open(dir).unwrap(), Path::new("a"), &Arc::default()).unwrap();
    assert_eq!((seen.size, seen.mtime), (100, TIME));
    let part = |source: &Arc<Source>| Source::within(source, 50..100, "part").unwrap();
    vec![
        ("a part of a file in a folder", part(&folder.source("a").unwrap())),
        ("a part of a file opened when needed", part(&on_demand)),
        ("a file opened when needed", on_demand),
        ("a part", part(&alone)),
        ("a file", alone),
        ("a file in a folder", folder.source("a").unwrap()),
    ]
}

/// Seconds and nanoseconds.
const TIME: (i64, i64) = (1_234_567_890, 500_000_000);

fn dated() -> Case {
    let case = Case::new();
    let file = File::options().write(true).open(case.path("a")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_234_567_890_500)).unwrap();
    case
}

#[test]
fn a_file_tells_the_same_of_itself_however_it_is_opened() {
    let case = dated();
    set_mode(&case.path("a"), 0o640).unwrap();
    for (name, source) in opened(&case) {
        assert_eq!(source.get(FileOffset(10), 2, "x").unwrap(), [7, 7], "{name}");
        assert_eq!((source.mtime(), source.etag(), source.is_far()), (TIME, None, false), "{name}");
        assert!(source.is_near(FileOffset(0), 10) && source.is_same_in_memory(), "{name}");
        assert!(source.file().is_some() != name.contains("part"), "{name}");
        let rights = source.rights().unwrap().map(|rights| rights.mode);
        assert_eq!(rights, (!name.contains("folder")).then_some(0o640), "{name}");
        assert!(source.fingerprint().is_none() || !name.contains("folder"), "{name}");
        source.check().unwrap();
    }
    let all = opened(&case);
    let prints: Vec<_> = all.iter().filter_map(|(_, source)| source.fingerprint()).collect();
    assert_eq!(prints.len(), 4);
    assert!(prints[0] == prints[2] && prints[1] == prints[3] && prints[0] != prints[1]);
}

#[test]
fn a_write_is_seen_however_the_file_is_opened_and_so_is_one_that_was_seen_elsewhere() {
    for write in [Case::write, |_: &Case| ()] {
        let case = dated();
        let sources = opened(&case);
        for (_, source) in &sources {
            source.get(FileOffset(10), 2, "x").unwrap();
        }
        write(&case);
        for (name, source) in sources {
            if source.check().is_ok() {
                source.set_changed();
            }
            assert!(!source.is_same_in_memory(), "{name}");
            assert!(matches!(source.check().unwrap_err().kind(), Kind::Changed), "{name}");
            // Of a file that is held open the caller checks it.
            let read = source.get(FileOffset(10), 2, "x");
            let is_checked = name.contains("folder") || name.contains("when needed");
            assert!(!is_checked || matches!(read.unwrap_err().kind(), Kind::Changed), "{name}");
        }
    }
}

#[test]
fn a_file_that_has_become_shorter_is_changed_however_it_is_opened() {
    let case = dated();
    let sources = opened(&case);
    for (_, source) in &sources {
        source.get(FileOffset(0), 2, "x").unwrap();
    }
    File::options().write(true).open(case.path("a")).unwrap().set_len(20).unwrap();
    for (name, source) in sources {
        assert!(matches!(source.get(FileOffset(30), 2, "x").unwrap_err().kind(), Kind::Changed), "{name}");
    }
}

#[test]
fn a_copy_of_a_directory_has_the_state_of_the_directory() {
    let copies = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let place = |copy: &tempfile::TempDir| Place::Local(Dir::open(copy.path()).unwrap());
    let states = || copies.each_ref().map(|copy| place(copy).pin_below(&Account::new(1 << 20, 0)).unwrap().state());
    for (i, copy) in (0..).zip(&copies) {
        std::fs::create_dir(copy.path().join("in")).unwrap();
        let file = File::create(copy.path().join("in/a")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let dir = File::open(copy.path().join("in")).unwrap();
        dir.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(i)).unwrap();
    }
    let [first, second] = states();
    assert_eq!(first, second);
    assert!(place(&copies[0]).pin_below(&Account::new(1 << 20, 0)).unwrap().folder().is_some());
    File::options()
        .write(true)
        .open(copies[0].path().join("in/a"))
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    assert_ne!(states(), [first, second]);
}
