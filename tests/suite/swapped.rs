//! Files of a container that are swapped, rewritten or no files at all: an error, and never a byte of something else.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{self, Container, Input, Options};

use crate::support::mounts::{finish, fzmfs};
use crate::support::opened as support;

fn open(path: &Path) -> Result<Arc<dyn Container>> {
    format::open(&Input::open(path)?, None, &Options::default())
}

/// A copy of the files of a folder of the test data.
fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(support::data(name)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    dir
}

fn sparse() -> tempfile::TempDir {
    copy("blosc2/s01_sframe.b2frame")
}

fn is_changed(e: &Error) -> bool {
    matches!(e.kind(), Kind::Changed) && e.errno() == libc::EIO
}

type Swap = Box<dyn Fn(&Path)>;

/// Each way in which a file may come to hold other bytes under its name.
fn swaps(secret: PathBuf) -> Vec<(&'static str, Swap)> {
    let write = |path: &Path| {
        let other = fs::read(path).unwrap().iter().map(|b| !b).collect::<Vec<_>>();
        fs::File::options().write(true).open(path).unwrap().write_all_at(&other, 0).unwrap();
    };
    vec![
        (
            "link",
            Box::new(move |path| {
                fs::remove_file(path).unwrap();
                symlink(&secret, path).unwrap();
            }),
        ),
        (
            "rename",
            Box::new(|path| {
                fs::copy(path, path.with_extension("new")).unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            }),
        ),
        ("in place", Box::new(write)),
        (
            "in place, time restored",
            Box::new(move |path| {
                let was = path.metadata().unwrap().modified().unwrap();
                write(path);
                fs::File::options().write(true).open(path).unwrap().set_modified(was).unwrap();
            }),
        ),
        ("deleted", Box::new(|path| fs::remove_file(path).unwrap())),
    ]
}

#[test]
fn a_chunk_file_that_is_swapped_is_an_error_everywhere() {
    let secrets = tempfile::tempdir().unwrap();
    // A chunk that could be read: another frame's.
    let secret = secrets.path().join("secret");
    fs::copy(support::data("blosc2/s01_sframe.b2frame/00000002.chunk"), &secret).unwrap();
    for (what, swap) in swaps(secret) {
        let dir = sparse();
        let container = open(dir.path()).unwrap();
        let stored = support::numbered(&*container, "stored");
        let before = support::read_at(&*container, "data.raw").unwrap();
        swap(&dir.path().join("00000001.chunk"));
        let [first, second] = [0, 1].map(|i| stored[i].clone().unwrap());
        let e = support::read(&second).expect_err(what);
        assert!(is_changed(&e), "{what}: {e}");
        // From then on the others too: half of what is served would be old.
        assert!(is_changed(&support::read(&first).unwrap_err()), "{what}");
        assert!(is_changed(&container.unchanged().unwrap_err()), "{what}");
        // The container opened before is in memory, and old.
        if let Ok(after) = support::read_at(&*container, "data.raw") {
            assert!(after == before, "{what}");
        }
    }
}

#[test]
fn chunks_that_are_links_are_refused_and_the_others_are_read() {
    let dir = sparse();
    let chunk = dir.path().join("00000001.chunk");
    fs::rename(&chunk, dir.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &chunk).unwrap();
    let container = open(dir.path()).unwrap();
    let e = support::read_at(&*container, "data.raw").unwrap_err();
    assert!(e.to_string().contains("symbolic link") && e.what().contains("00000001.chunk"), "{e}");
    assert!(support::numbered(&*container, "stored")[0].is_ok());
    assert!(container.unchanged().is_ok());
}

#[test]
fn a_sparse_frame_pins_its_chunks_and_holds_one_file_open() {
    let dir = sparse();
    let container = open(dir.path()).unwrap();
    assert_eq!((container.sources().len(), container.folder().unwrap().len()), (1, 5));
}

/// Runs the program, which has to end by itself.
fn ends(command: &mut Command) -> String {
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let status = finish(&mut child).expect("hangs");
    assert!(!status.success());
    std::io::read_to_string(child.stderr.take().unwrap()).unwrap()
}

#[test]
fn a_fifo_in_place_of_any_file_is_refused_at_once() {
    let tmp = tempfile::tempdir().unwrap();
    let fifo = |path: PathBuf| {
        fs::remove_file(&path).ok();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let main = fifo(tmp.path().join("a.fzm"));
    let index = sparse();
    fifo(index.path().join("chunks.b2frame"));
    let chunk = sparse();
    fifo(chunk.path().join("00000001.chunk"));
    let shards = copy("ztensor/v20-sharded");
    fifo(shards.path().join("model-00001-of-00002.zt"));
    for (file, what) in [
        (main.as_path(), "a FIFO"),
        (index.path(), "a FIFO"),
        (chunk.path(), "FIFO"),
        (&shards.path().join("model.zt"), "FIFO"),
    ] {
        let said = ends(fzmfs().arg("verify").arg(file).stdout(std::process::Stdio::null()));
        assert!(said.contains(what) || said.is_empty(), "{}: {said}", file.display());
    }
    let good = support::data("zstd");
    let good = fs::read_dir(good).unwrap().map(|e| e.unwrap().path()).find(|p| p.is_file()).unwrap();
    for dict in [main.clone(), "/dev/zero".into()] {
        let said = ends(fzmfs().arg("cat").arg("--dict").arg(&dict).arg(&good).arg("data.raw"));
        assert!(said.contains("not a regular file"), "{said}");
    }
}

#[test]
fn a_shard_that_is_a_link_is_refused_and_tells_nothing_of_where_it_leads() {
    let shards = copy("ztensor/v20-sharded");
    let shard = shards.path().join("model-00001-of-00002.zt");
    let outside = tempfile::tempdir().unwrap();
    for len in [None, Some(4321)] {
        let victim = outside.path().join("victim.zt");
        match len {
            // The very bytes that the manifest means.
            None => drop(fs::copy(support::data("ztensor/v20-sharded/model-00001-of-00002.zt"), &victim).unwrap()),
            Some(len) => fs::write(&victim, vec![0; len]).unwrap(),
        }
        fs::remove_file(&shard).unwrap();
        symlink(&victim, &shard).unwrap();
        let container = open(&shards.path().join("model.zt")).unwrap();
        let e = support::verify(&*container).unwrap_err().to_string();
        assert!(e.contains("symbolic link, which is not followed") && !e.contains("4321"), "{e}");
        let files = support::files(&*container);
        let is_there = |(_, file): &&(String, format::File)| file.attrs.contains(&("shard", "00001-of-00002".into()));
        let (path, file) = files.iter().find(is_there).unwrap();
        assert!(support::read(file).is_err(), "{path}");
    }
}

#[test]
fn a_shard_of_another_size_does_not_say_which() {
    let shards = copy("ztensor/v20-sharded");
    fs::write(shards.path().join("model-00001-of-00002.zt"), vec![0; 4321]).unwrap();
    let container = open(&shards.path().join("model.zt")).unwrap();
    let e = support::verify(&*container).unwrap_err().to_string();
    assert!(e.contains("recorded in the manifest") && !e.contains("4321"), "{e}");
}

#[test]
fn a_shard_that_is_swapped_after_the_opening_is_an_error() {
    let secrets = tempfile::tempdir().unwrap();
    let secret = secrets.path().join("secret");
    fs::copy(support::data("ztensor/v20-sharded/model-00001-of-00002.zt"), &secret).unwrap();
    for (what, swap) in swaps(secret) {
        let shards = copy("ztensor/v20-sharded");
        let container = open(&shards.path().join("model.zt")).unwrap();
        assert_eq!((container.sources().len(), container.folder().unwrap().len()), (1, 2), "{what}");
        swap(&shards.path().join("model-00001-of-00002.zt"));
        let files = support::files(&*container);
        let is_there = |(_, file): &&(String, format::File)| file.attrs.contains(&("shard", "00001-of-00002".into()));
        let (path, file) = files.iter().find(is_there).unwrap();
        let e = support::read(file).expect_err(what);
        assert!(is_changed(&e), "{what}: {path}: {e}");
        assert!(is_changed(&container.unchanged().unwrap_err()), "{what}");
    }
}

#[test]
fn shards_are_found_next_to_the_link_that_the_user_named_and_in_the_current_directory() {
    let shards = copy("ztensor/v20-sharded");
    fs::rename(shards.path().join("model.zt"), shards.path().join("blob")).unwrap();
    symlink("blob", shards.path().join("model.zt")).unwrap();
    support::verify(&*open(&shards.path().join("model.zt")).unwrap()).unwrap();
    for name in ["model.zt", "./model.zt"] {
        let status = fzmfs().arg("verify").arg(name).current_dir(shards.path()).status().unwrap();
        assert!(status.success(), "{name}");
    }
}
