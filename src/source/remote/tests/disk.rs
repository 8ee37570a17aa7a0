//! Files of `remote_cache`: what is there for the next process, and what is not touched.
#![forbid(unsafe_code)]
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test")]
use std::fs;
use std::path::Path;

use crate::platform::testing::{make_fifo, set_mode, symlink};

use super::*;
use crate::source::cache_dir::{NAMES, PART};

fn version(etag: &str) -> Version {
    Version { etag: Some(etag.to_owned()), modified: None, size: 1000 }
}

fn disk(dir: &Path) -> Disk {
    Disk::new(&CacheDir::new(dir.join("cache"), None), "http://h/x").unwrap()
}

fn span(range: Range<u64>) -> Span {
    let span = Span::new(range.clone());
    span.push(&range.map(|i| i.to_le_bytes()[0]).collect::<Vec<u8>>()).unwrap();
    span
}

fn loaded(disk: &Disk, range: Range<u64>) -> Option<Vec<u8>> {
    let span = Span::new(range);
    disk.load(&span).then(|| span.with(<[u8]>::to_vec))
}

#[test]
fn what_is_stored_is_there_for_the_next_one_and_of_no_other_version() {
    let tmp = tempfile::tempdir().unwrap();
    let first = disk(tmp.path());
    assert_eq!(first.known(), None);
    first.pin(&version("\"a\""));
    first.store(&span(0..100));
    first.store(&span(300..500));
    assert_eq!((first.there(50), first.there(200)), (Ok(50..100), Err(Some(300))));
    let second = disk(tmp.path());
    assert_eq!(second.known(), Some(version("\"a\"")));
    second.pin(&version("\"a\""));
    assert_eq!(loaded(&second, 310..312), Some(vec![310_u64.to_le_bytes()[0], 311_u64.to_le_bytes()[0]]));
    assert!(second.has(&(0..100)) && !second.has(&(0..101)) && loaded(&second, 90..110).is_none());
    let third = disk(tmp.path());
    third.pin(&version("\"b\""));
    assert!(third.there(0).is_err() && third.known().is_none());
    assert_eq!(loaded(&second, 0..100), None, "removed, and fetched again");
    for weak in [version("W/\"a\""), Version { etag: None, ..version("") }] {
        let disk = disk(tmp.path());
        disk.pin(&weak);
        disk.store(&span(0..100));
        assert!(disk.there(0).is_err());
    }
    assert_eq!(Disk::new(&first.settings, "http://h/y").unwrap().known(), None, "another object");
}

#[test]
fn the_version_is_known_if_all_that_its_file_says_is_whole() {
    let tmp = tempfile::tempdir().unwrap();
    let disk = disk(tmp.path());
    disk.pin(&version("\"a\""));
    disk.store(&span(0..100));
    assert_eq!(disk.known(), Some(version("\"a\"")));
    let text = "\"a\"\n\n1000\n";
    let sum = |text: &str| crc32c::crc32c(text.as_bytes());
    let more = format!("{text}more\n");
    for (sum, text) in [(sum(text) ^ 1, text), (sum(&more), &*more), (sum(text), &*more), (sum("\"a\"\n"), "\"a\"\n")] {
        fs::write(disk.path().join(VERSION), format!("{sum}\n{text}")).unwrap();
        assert_eq!(disk.known(), None, "{sum} {text}");
    }
    fs::write(disk.path().join(VERSION), format!("{}\n{text}", sum(text))).unwrap();
    assert_eq!(disk.known(), Some(version("\"a\"")));
}

#[test]
fn of_two_files_with_the_same_beginning_the_longer_one_is_served() {
    let tmp = tempfile::tempdir().unwrap();
    let first = disk(tmp.path());
    first.pin(&version("\"a\""));
    for (end, there) in [(50, 50), (300, 300), (100, 300), (200, 300), (10, 300)] {
        first.store(&span(0..end));
        assert_eq!(first.there(0), Ok(0..there));
    }
    // Spans on disk are not written again.
    assert_eq!(fs::read_dir(first.path()).unwrap().count(), 3);
    let second = disk(tmp.path());
    second.pin(&version("\"a\""));
    assert_eq!(second.there(0), Ok(0..300));
}

#[test]
fn a_few_spans_are_written_at_a_time_and_the_others_not_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let disk = disk(tmp.path());
    disk.pin(&version("\"a\""));
    for (writing, is_kept) in [(WRITING, false), (WRITING - 1, true)] {
        disk.writing.store(writing, Ordering::Release);
        disk.store(&span(0..100));
        assert_eq!((disk.has(&(0..100)), disk.writing.load(Ordering::Acquire)), (is_kept, writing));
    }
    let files = fs::read_dir(disk.path()).unwrap().count();
    disk.store(&span(50..50));
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), files);
}

#[test]
fn a_file_that_is_not_whole_is_not_served() {
    let breaks: [fn(&mut Vec<u8>); 5] = [
        |bytes| bytes.truncate(150),
        |bytes| bytes[120] ^= 1,
        |bytes| bytes[60] ^= 1,
        |bytes| bytes.push(0),
        Vec::clear,
    ];
    for break_it in breaks {
        let tmp = tempfile::tempdir().unwrap();
        let disk = disk(tmp.path());
        disk.pin(&version("\"a\""));
        disk.store(&span(0..100));
        let path = disk.path().join(name(number(&version("\"a\"")).unwrap(), &(0..100)));
        let mut bytes = fs::read(&path).unwrap();
        break_it(&mut bytes);
        fs::write(&path, bytes).unwrap();
        assert_eq!(loaded(&disk, 0..100), None);
        assert!(!path.exists() && disk.there(0).is_err());
        disk.store(&span(0..100));
        assert!(loaded(&disk, 0..100).is_some());
    }
}

#[test]
fn what_is_put_in_the_place_of_the_directory_is_not_touched() {
    let tmp = tempfile::tempdir().unwrap();
    let disk = disk(tmp.path());
    disk.pin(&version("\"a\""));
    let (cache, old, victim) = (tmp.path().join("cache"), tmp.path().join("old"), tmp.path().join("victim"));
    fs::write(&victim, b"precious").unwrap();
    fs::rename(&cache, &old).unwrap();
    fs::create_dir_all(cache.join(&disk.dir)).unwrap();
    for number in 0..NAMES {
        let link = cache.join(&disk.dir).join(format!("{PART}{}-{number}", std::process::id()));
        symlink(&victim, link).unwrap();
    }
    disk.store(&span(0..100));
    assert!(loaded(&disk, 0..100).is_some());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert!(old.join(&disk.dir).join(name(number(&version("\"a\"")).unwrap(), &(0..100))).exists());
}

#[test]
fn no_link_is_followed_and_no_pipe_is_waited_for() {
    let tmp = tempfile::tempdir().unwrap();
    let disk = disk(tmp.path());
    disk.pin(&version("\"a\""));
    disk.store(&span(0..100));
    let (path, victim) = (disk.path().join(VERSION), tmp.path().join("victim"));
    let (first, _) = disk.settings.new_file(&disk.dir).unwrap();
    let next: usize = first.rsplit_once('-').unwrap().1.parse().unwrap();
    // Other tests of this process use up some.
    for number in next..next + NAMES / 2 {
        let link = disk.path().join(format!("{PART}{}-{number}", std::process::id()));
        symlink(&victim, link).ok();
    }
    disk.store(&span(200..300));
    assert!(!victim.exists());
    for make in [make_fifo, |path: &Path| symlink("elsewhere", path)] {
        fs::remove_file(&path).unwrap();
        make(&path).unwrap();
        assert_eq!(disk.known(), None);
    }
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    set_mode(tmp.path(), 0o777).unwrap();
    let settings = CacheDir::new(tmp.path().to_path_buf(), None);
    assert!(Disk::new(&settings, "x").unwrap_err().to_string().contains("only this user"));
}
