//! A prefix of S3 as a directory: lists by pages, containers as directories, everything else passed through.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::{copy, noise};
use crate::support::mounts::{can_mount, fzmfs, run, wait_for};
use crate::support::opened::data;
use crate::support::services::{BUCKET, Moto};

/// The program with S3 at `endpoint`.
pub(super) fn with(endpoint: &str) -> Command {
    let mut command = fzmfs();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1").env("NO_PROXY", "127.0.0.1");
    command.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// A mount in the background, taken down at the end.
pub(super) struct Mounted(pub(super) PathBuf);

impl Mounted {
    pub(super) fn of(command: Command, source: &str, point: &Path, options: &[&str]) -> Self {
        Self::made(command, source, point, options).unwrap_or_else(|said| panic!("{said}"))
    }

    /// The same, or what the program said.
    pub(super) fn made(mut command: Command, source: &str, point: &Path, options: &[&str]) -> Result<Self, String> {
        fs::create_dir_all(point).unwrap();
        let output = run(command.arg("mount").arg(source).arg(point).args(options));
        if output.status.success() { Ok(Self(point.to_path_buf())) } else { Err(text(&output)) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(fzmfs().arg("umount").arg(&self.0));
    }
}

/// A path, and the bytes of a file or why they cannot be read.
pub(super) type Entry = (PathBuf, Option<Result<Vec<u8>, i32>>);

/// Everything below `dir`: paths, and the bytes of files.
pub(super) fn tree(dir: &Path) -> Vec<Entry> {
    let (mut out, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(dir.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                out.push((path.clone(), None));
                open.push(path);
            } else if entry.file_type().unwrap().is_file() {
                // These say when the container was changed.
                let is_dated = ["zarr.json", "error.txt"].iter().any(|name| path.ends_with(name));
                let bytes = fs::read(dir.join(&path)).map_err(|e| e.raw_os_error().unwrap());
                out.push((path, Some(if is_dated { Ok(Vec::new()) } else { bytes })));
            }
        }
    }
    out.sort();
    out
}

/// Containers of several formats, plain files, a broken container and a sparse frame.
fn fill(dir: &Path) {
    for name in ["blosc2/n05_5d_f4.b2nd", "blosc2/n22_sframe_b2nd.b2nd", "ztensor/conformance-v2/valid/shards-table.zt"]
    {
        let from = data(name);
        copy(&from, &dir.join("run 1").join(from.file_name().unwrap()));
    }
}

pub(super) fn put_all(moto: &Moto, dir: &Path, key: &str) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().replace(' ', "%20").replace('+', "%2B");
        let key = format!("{key}/{name}");
        if path.is_dir() { put_all(moto, &path, &key) } else { moto.put(&key, &fs::read(&path).unwrap()) }
    }
}

/// S3 with the objects of a directory below `top/dir/`, and what holds that directory as `dir`.
fn with_tree() -> Option<(Moto, TempDir)> {
    let moto = Moto::start()?;
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("dir");
    fs::create_dir_all(dir.join("run 1/deep")).unwrap();
    fill(&dir);
    fs::write(dir.join("a+b.txt"), b"plain").unwrap();
    fs::write(dir.join("run 1/large.bin"), noise(3 << 20)).unwrap();
    fs::write(dir.join("run 1/deep/broken.fzm"), b"no container").unwrap();
    fs::write(dir.join("run 1/deep/x.zst"), super::mounted::frames(&noise(100_000))).unwrap();
    put_all(&moto, &dir, "top/dir");
    // The mark of a directory, and names that no file can have.
    for key in ["top/dir/run%201/", "top/dir//x", "top/dir/%01"] {
        moto.put(key, b"");
    }
    Some((moto, tmp))
}

#[test]
fn a_prefix_is_the_tree_that_the_same_directory_on_the_disk_is() {
    let Some((moto, tmp)) = with_tree() else { return };
    let (url, dir) = (format!("s3://{BUCKET}/top/dir/"), tmp.path().join("dir"));
    let local = dir.to_str().unwrap();
    let s3 = || with(&moto.endpoint());
    for args in [&["ls", "-R"][..], &["ls"], &["ls", "-R", "-o", "layout=beside"]] {
        let (near, far) = (run(s3().args(args).arg(local)), run(s3().args(args).arg(&url)));
        assert_eq!(text(&far), text(&near), "{args:?}");
        assert!(near.stdout.len() > 10 && far.status.code() == near.status.code(), "{}", text(&far));
    }
    let far = text(&run(s3().args(["verify", &url])));
    assert!(far.contains("run 1/n05_5d_f4.b2nd: OK") && far.contains("deep/broken.fzm: FAILED"), "{far}");
    let path = "run 1/n05_5d_f4.b2nd/data.raw";
    let cat = |of: &str, path: &str| run(s3().args(["cat", of, path])).stdout;
    assert!(cat(&url, path) == cat(local, path) && cat(&url, "run 1/large.bin") == noise(3 << 20));
    let extracted = |of: &str, name: &str| {
        let to = tmp.path().join(name);
        let output = run(s3().args(["extract", of]).arg(&to));
        // A shard is missing; the rest is there.
        let said = text(&output);
        assert!(output.status.code() == Some(1) && said.contains("tensors/t.raw: the file is missing"), "{said}");
        tree(&to)
    };
    let (near, far) = (extracted(local, "near files"), extracted(&url, "far files"));
    assert!(near == far && near.len() > 20, "{near:?} {far:?}");
    assert!(text(&run(s3().args(["ls", &format!("s3://{BUCKET}")]))).contains("top"));
    let none = run(s3().args(["ls", &format!("s3://{BUCKET}/none/")]));
    assert!(text(&none).contains("no object has a key with this prefix"), "{}", text(&none));
    let sparse = run(s3().args(["ls", &format!("{url}run 1/n22_sframe_b2nd.b2nd/")]));
    assert!(text(&sparse).contains("data.npy"), "{}", text(&sparse));
}

#[test]
fn a_mounted_prefix_is_the_tree_that_the_same_directory_on_the_disk_is() {
    if !can_mount() {
        return;
    }
    let Some((moto, tmp)) = with_tree() else { return };
    let (url, dir) = (format!("s3://{BUCKET}/top/dir/"), tmp.path().join("dir"));
    let local = dir.to_str().unwrap();
    let s3 = || with(&moto.endpoint());
    for layout in ["replace", "beside", "flat"] {
        let option = format!("layout={layout}");
        let near = Mounted::of(s3(), local, &tmp.path().join("near"), &["-o", &option]);
        let far = Mounted::of(s3(), &url, &tmp.path().join("far"), &["-o", &option]);
        let (want, got) = (tree(&near.0), tree(&far.0));
        let names = |tree: &[Entry]| tree.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(names(&got), names(&want), "{layout}");
        for (got, want) in got.iter().zip(&want) {
            assert!(got == want, "{layout} {}", got.0.display());
        }
        let about = fs::metadata(far.0.join("a+b.txt")).unwrap();
        assert!(about.len() == 5 && about.is_file());
        assert!(fs::metadata(far.0.join("none")).is_err() && fs::metadata(far.0.join("none.fzm/x")).is_err());
    }
}

/// More objects than a page has.
const SEVERAL: usize = 1100;

/// S3 with so many objects below `many/`, and a container.
fn with_many() -> Option<Moto> {
    let moto = Moto::start()?;
    (0..SEVERAL).for_each(|i| moto.put(&format!("many/{i:06}.bin"), &[7; 3]));
    moto.put("many/x.zst", &super::mounted::frames(b"in it"));
    Some(moto)
}

#[test]
fn a_list_of_several_pages_is_whole() {
    let Some(moto) = with_many() else { return };
    let listed = text(&run(with(&moto.endpoint()).args(["ls", &format!("s3://{BUCKET}/many/")])));
    assert_eq!(listed.lines().count(), SEVERAL + 1, "{listed}");
}

#[test]
fn a_mounted_list_of_several_pages_is_whole() {
    if !can_mount() {
        return;
    }
    let Some(moto) = with_many() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let mounted = Mounted::of(with(&moto.endpoint()), &format!("s3://{BUCKET}/many/"), &tmp.path().join("m"), &[]);
    for _ in 0..2 {
        let names: BTreeSet<_> = fs::read_dir(&mounted.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), SEVERAL + 1);
    }
    assert_eq!(fs::read(mounted.0.join("001099.bin")).unwrap(), [7; 3]);
    assert_eq!(fs::read(mounted.0.join("x.zst/data.raw")).unwrap(), b"in it");
}

#[test]
fn an_object_that_was_replaced_is_another_file_and_no_reader_mixes_the_two() {
    if !can_mount() {
        return;
    }
    let Some(moto) = Moto::start() else { return };
    let (old, new) = (b"OLD!".repeat(1 << 20), b"NEW!".repeat(1 << 20));
    moto.put("top/x", &old);
    let tmp = tempfile::tempdir().unwrap();
    let url = format!("s3://{BUCKET}/top/");
    let mounted = Mounted::of(with(&moto.endpoint()), &url, &tmp.path().join("mnt"), &["-o", "cache=64M"]);
    let name = mounted.0.join("x");
    let before = fs::File::open(&name).unwrap();
    before.read_exact_at(&mut [0; 4], 0).unwrap();
    moto.put("top/x", &new);
    let is_new = |file: &fs::File| file.metadata().unwrap().ino() != before.metadata().unwrap().ino();
    let after = wait_for("the new object", || fs::File::open(&name).ok().filter(is_new));
    after.read_exact_at(&mut [0; 4], 0).unwrap();
    let mut words = vec![0; old.len()];
    // Unread parts of the old one are gone, or still those of the old one.
    assert!(before.read_exact_at(&mut words, 0).is_err() || words == old);
    after.read_exact_at(&mut words, 0).unwrap();
    assert!(words == new);
}
