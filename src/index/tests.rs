//! Tests of records: one is found again; stale, damaged and foreign ones are ignored.
#![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;
use crate::platform::testing::{mode, set_mode, symlink};

/// A file, and an index of it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.file(), (0..200_000_u32).map(|i| (i >> 3) as u8).collect::<Vec<_>>()).unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("file")
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("index")
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn index(&self, size: u64) -> Index {
        Index::new(self.dir(), size, self.state())
    }

    /// The records about the file as it is now, as another process has them.
    fn records(&self) -> Arc<Records> {
        self.index(SIZE).of(&Source::open(&self.file()).unwrap()).unwrap()
    }

    /// The only record.
    fn record(&self) -> PathBuf {
        let of = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let records: Vec<PathBuf> = of(&self.dir()).iter().flat_map(|dir| of(dir)).collect();
        assert_eq!(records.len(), 1);
        records[0].clone()
    }
}

#[test]
fn a_record_is_found_again_and_nothing_else() {
    let place = Place::new();
    let records = place.records();
    assert_eq!(records.get("kind-1", 100), None);
    assert!(records.put("kind-1", b"payload") && records.put("kind-2", b"") && records.put("other", &[7; 1000]));
    let again = place.records();
    assert_eq!(again.get("kind-1", 7).as_deref(), Some(&b"payload"[..]));
    assert_eq!((again.get("kind-2", 0), again.get("kind-3", 100)), (Some(Vec::new()), None));
    let mut names = again.names("kind-");
    names.sort();
    assert_eq!(names, ["kind-1", "kind-2"]);
    assert!(again.put("kind-1", b"new") && again.get("kind-1", 100).as_deref() == Some(b"new"));
    assert_eq!(again.get("other", 500), None, "larger than the caller has room for");
    again.remove("kind-2");
    assert_eq!(records.get("kind-2", 100), None);
    for name in ["", "part-1", "a/b", "..", "A", &"a".repeat(65)] {
        assert!(!again.put(name, b"x") && again.get(name, 100).is_none(), "{name}");
    }
    assert!(Index::off().of(&Source::open(&place.file()).unwrap()).is_none());
    let small = Source::from_bytes(vec![0; 100_000]);
    assert_eq!(place.index(SIZE).of(&small).unwrap().get("kind-1", 100), None, "memory has no identity");
}

#[test]
fn a_file_that_was_written_to_has_no_records_even_if_its_time_was_set_back() {
    let place = Place::new();
    let (old, mtime) = (place.records(), fs::metadata(place.file()).unwrap().modified().unwrap());
    assert!(old.put("kind-1", b"payload"));
    // In the middle, so that neither end differs.
    let file = File::options().write(true).open(place.file()).unwrap();
    crate::platform::FileExt::write_all_at(&file, b"changed", 100_000).unwrap();
    file.set_modified(mtime).unwrap();
    assert_eq!(place.records().get("kind-1", 100), None);
    assert_eq!(old.get("kind-1", 100), None, "the file is not the one that was opened");
    assert!(!old.put("kind-2", b"payload"), "what was found may be of both");
    let other = place.0.path().join("other");
    fs::copy(place.file(), &other).unwrap();
    let before = place.records();
    assert!(before.put("kind-1", b"payload"));
    fs::rename(&other, place.file()).unwrap();
    assert_eq!(place.records().get("kind-1", 100), None, "another file of this name");
}

#[test]
fn a_record_that_was_changed_in_any_byte_is_ignored() {
    let place = Place::new();
    place.records().put("kind-1", b"payload");
    let path = place.record();
    let good = fs::read(&path).unwrap();
    let check = |bytes: &[u8], why: &str| {
        fs::write(&path, bytes).unwrap();
        assert_eq!(place.records().get("kind-1", 1000), None, "{why}");
        assert!(!path.exists(), "{why}: it is removed");
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        check(&bad, &format!("byte {at}"));
        check(&good[..at], &format!("cut at {at}"));
    }
    check(&[&good[..], &[0]].concat(), "a byte more");
    fs::write(&path, &good).unwrap();
    assert!(place.records().get("kind-1", 1000).is_some());
}

#[test]
fn records_of_another_name_file_version_or_user_are_ignored() {
    let place = Place::new();
    let records = place.records();
    assert!(records.put("kind-1", b"one"));
    let path = place.record();
    fs::rename(&path, path.with_file_name("kind-2")).unwrap();
    assert_eq!(records.get("kind-2", 100), None, "under another name");
    assert!(records.put("kind-1", b"one"));
    // Another file: its directory gets the record of the first.
    let other = place.0.path().join("other");
    fs::write(&other, vec![1; 100_000]).unwrap();
    let others = place.index(SIZE).of(&Source::open(&other).unwrap()).unwrap();
    assert!(others.put("kind-9", b"nine"));
    let dir = others.subject().unwrap().dir.clone();
    fs::copy(&path, place.dir().join(dir).join("kind-1")).unwrap();
    assert_eq!(others.get("kind-1", 100), None, "of another file");
    // Another user: his index is copied, his secret is not.
    let elsewhere = place.0.path().join("elsewhere");
    let index = Index::new(place.dir(), SIZE, elsewhere.clone());
    let source = Source::open(&place.file()).unwrap();
    assert_eq!(index.of(&source).unwrap().get("kind-1", 100), None);
    assert_ne!(fs::read(elsewhere.join("index-key")).unwrap(), fs::read(place.state().join("index-key")).unwrap());
}

#[test]
fn the_secret_is_made_once_by_any_number_of_processes_and_only_its_user_can_read_it() {
    let place = Place::new();
    let secrets: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| secret::load(&place.state()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(secrets.iter().all(|secret| *secret == secrets[0] && *secret != Key::default()));
    let path = place.state().join("index-key");
    assert_eq!(fs::read_dir(place.state()).unwrap().count(), 1);
    assert_eq!(mode(&path).unwrap() & 0o777, 0o600);
    let refused = |why: &str| {
        let records = place.records();
        assert!(!records.put("kind-1", b"x") && records.get("kind-1", 100).is_none() && !records.is_usable(), "{why}");
    };
    set_mode(&path, 0o644).unwrap();
    refused("others can read it");
    set_mode(&path, 0o600).unwrap();
    fs::write(&path, [0; 31]).unwrap();
    refused("too short");
    fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    refused("a link");
}

#[test]
fn without_a_usable_directory_there_is_no_index_and_no_error() {
    let place = Place::new();
    fs::create_dir(place.dir()).unwrap();
    set_mode(&place.dir(), 0o777).unwrap();
    assert!(!place.records().put("kind-1", b"x"), "others can write to it");
    assert!(place.index(SIZE).used().unwrap_err().contains("only this user"));
    fs::remove_dir(place.dir()).unwrap();
    fs::write(place.dir(), b"a file").unwrap();
    assert!(!place.records().put("kind-1", b"x") && place.records().names("").is_empty());
}

#[test]
fn the_oldest_records_make_room_and_a_killed_writer_leaves_nothing_that_is_read() {
    let place = Place::new();
    let source = Source::open(&place.file()).unwrap();
    let index = place.index(100_000);
    let records = index.of(&source).unwrap();
    let path = |name: &str| place.dir().join(&records.subject().unwrap().dir).join(name);
    for i in 0..40_u64 {
        assert!(records.put(&format!("kind-{i}"), &[i as u8; 5000]));
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + i);
        File::options().write(true).open(path(&format!("kind-{i}"))).unwrap().set_modified(used).unwrap();
    }
    assert!(index.used().unwrap() <= 100_000);
    assert!(records.get("kind-39", 5000).is_some() && records.get("kind-0", 5000).is_none());
    assert!(!records.put("kind-40", &vec![0; 200_000]), "larger than all of it");
    // Half a record, as it is before it is renamed.
    fs::write(path("part-1-1"), b"fzmfs index").unwrap();
    assert!(records.names("part").is_empty() && records.get("part-1-1", 100).is_none());
}

#[test]
fn processes_that_share_an_index_find_whole_records() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let records = place.records();
            scope.spawn(move || {
                for round in 0..100 {
                    let name = format!("kind-{}", round % 5);
                    if let Some(found) = records.get(&name, 10_000) {
                        assert!(found.len() == 5000 && found.iter().all(|byte| *byte == found[0]));
                    }
                    assert!(records.put(&name, &[writer; 5000]));
                }
            });
        }
    });
}

#[test]
fn a_check_over_much_that_has_passed_is_not_repeated_until_the_file_changes() {
    let place = Place::new();
    let ran = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let runs = |cost: u64, stored: &[u8], verdict: fn() -> crate::error::Result<()>| {
        let (before, counter) = (ran.load(Ordering::Relaxed), ran.clone());
        let source = Source::open(&place.file()).unwrap();
        let check = place.index(SIZE).once(&source, crate::bytes::FileOffset(64), stored, cost, move || {
            counter.fetch_add(1, Ordering::Relaxed);
            verdict()
        });
        let passed = check().is_ok();
        (ran.load(Ordering::Relaxed) - before, passed)
    };
    let broken = || Err(crate::error::Error::corrupt("broken", "x"));
    let long = 64 << 20;
    assert_eq!([runs(long - 1, b"1", || Ok(())), runs(long - 1, b"1", || Ok(()))], [(1, true); 2], "cheap");
    assert_eq!([runs(long, b"1", broken), runs(long, b"1", broken)], [(1, false); 2], "a failure is not kept");
    assert_eq!([runs(long, b"1", || Ok(())), runs(long, b"1", broken)], [(1, true), (0, true)]);
    assert_eq!(runs(long, b"2", broken), (1, false), "another checksum");
    assert_eq!(runs(long + 1, b"1", broken), (1, false), "over more");
    let mut bytes = fs::read(place.file()).unwrap();
    bytes[100_000] ^= 1;
    fs::write(place.file(), bytes).unwrap();
    assert_eq!(runs(long, b"1", broken), (1, false), "another version");
}
