//! A prefix of S3 as a directory: lists by pages, containers as directories, everything else passed through.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::{copy, noise};
use crate::support::mounts::{PATIENCE, can_mount, finish, fzmfs, run, wait_until};
use crate::support::opened::data;
use crate::support::server::{Fault, Object, Server};
use crate::support::services::{BUCKET, Moto};

/// The program with S3 at `endpoint`.
fn with(endpoint: &str) -> Command {
    let mut command = fzmfs();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1").env("NO_PROXY", "127.0.0.1");
    command.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// A mount in the background, taken down at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn of(mut command: Command, source: &str, point: &Path, options: &[&str]) -> Self {
        fs::create_dir_all(point).unwrap();
        let output = run(command.arg("mount").arg(source).arg(point).args(options));
        assert!(output.status.success(), "{}", text(&output));
        Self(point.to_path_buf())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(fzmfs().arg("umount").arg(&self.0));
    }
}

/// A path, and the bytes of a file or why they cannot be read.
type Entry = (PathBuf, Option<Result<Vec<u8>, i32>>);

/// Everything below `dir`: paths, and the bytes of files.
fn tree(dir: &Path) -> Vec<Entry> {
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

fn put_all(moto: &Moto, dir: &Path, key: &str) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().replace(' ', "%20").replace('+', "%2B");
        let key = format!("{key}/{name}");
        if path.is_dir() { put_all(moto, &path, &key) } else { moto.put(&key, &fs::read(&path).unwrap()) }
    }
}

#[test]
fn a_prefix_is_the_tree_that_the_same_directory_on_the_disk_is() {
    let Some(moto) = Moto::start() else { return };
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
    let url = format!("s3://{BUCKET}/top/dir/");
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
    assert!(text(&none).contains("no object has a key that begins so"), "{}", text(&none));
    let sparse = run(s3().args(["ls", &format!("{url}run 1/n22_sframe_b2nd.b2nd/")]));
    assert!(text(&sparse).contains("data.npy"), "{}", text(&sparse));

    if !can_mount() {
        return;
    }
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

#[test]
fn a_list_of_several_pages_is_whole() {
    let Some(moto) = Moto::start() else { return };
    let count = 1100;
    for i in 0..count {
        moto.put(&format!("many/{i:06}.bin"), &[7; 3]);
    }
    moto.put("many/x.zst", &super::mounted::frames(b"in it"));
    let s3 = || with(&moto.endpoint());
    let listed = text(&run(s3().args(["ls", &format!("s3://{BUCKET}/many/")])));
    assert_eq!(listed.lines().count(), count + 1, "{listed}");
    if !can_mount() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let mounted = Mounted::of(s3(), &format!("s3://{BUCKET}/many/"), &tmp.path().join("m"), &[]);
    for _ in 0..2 {
        let names: BTreeSet<_> = fs::read_dir(&mounted.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), count + 1);
    }
    assert_eq!(fs::read(mounted.0.join("001099.bin")).unwrap(), [7; 3]);
    assert_eq!(fs::read(mounted.0.join("x.zst/data.raw")).unwrap(), b"in it");
}

/// A bucket with `objects`, on our server: every list is the whole one.
fn bucket(server: &Server, objects: &[(&str, Vec<u8>, &str)]) {
    let mut list = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, bytes, tag) in objects {
        let object = Object::new(bytes.clone()).with_etag(&format!("\"{tag}\""));
        server.put(&format!("{BUCKET}/{key}"), object);
        write!(
            list,
            "<Contents><Key>{key}</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified>\
             <ETag>&quot;{tag}&quot;</ETag><Size>{}</Size></Contents>",
            bytes.len()
        )
        .unwrap();
    }
    list += "</ListBucketResult>";
    server.put(BUCKET, Object::new(list.clone().into_bytes()));
    server.put(&format!("{BUCKET}/"), Object::new(list.into_bytes()));
}

/// The targets of the requests since the last call: lists, and objects.
fn counts(server: &Server) -> (usize, usize) {
    let log = server.take_log();
    let lists = log.iter().filter(|request| request.target.contains("list-type=2")).count();
    (lists, log.len() - lists)
}

#[test]
fn what_a_list_says_is_not_asked_for_again() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let names: Vec<String> = (0..300).map(|i| format!("p/{i:03}.zst")).collect();
    let mut objects: Vec<_> = names.iter().map(|name| (name.as_str(), vec![1; 10], "a")).collect();
    let frames = super::mounted::frames(&noise(3 << 20));
    objects.push(("p/x.zst", frames, "b"));
    bucket(&server, &objects);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = server.url("").trim_end_matches('/').to_owned();
    let mounted = Mounted::of(with(&endpoint), &format!("s3://{BUCKET}/p/"), &tmp.path().join("m"), &[]);
    server.take_log();
    for entry in fs::read_dir(&mounted.0).unwrap() {
        assert!(entry.unwrap().metadata().unwrap().is_dir());
    }
    assert_eq!(counts(&server), (1, 0), "one list");
    assert!(fs::read(mounted.0.join("x.zst/chunks/000001.raw")).unwrap() == noise(3 << 20)[1 << 20..2 << 20]);
    let lists: Vec<_> = server.log().into_iter().filter(|request| request.target.contains("list-type=2")).collect();
    counts(&server);
    assert!(lists.len() <= 1, "{lists:?}");
    assert!(fs::read(mounted.0.join("x.zst/chunks/000001.raw")).unwrap() == noise(3 << 20)[1 << 20..2 << 20]);
    assert_eq!(counts(&server), (0, 0), "the pages of the kernel");
}

#[test]
fn a_container_that_a_list_names_takes_one_request() {
    let server = Server::start();
    let count = 40;
    let keys: Vec<String> = (0..count).map(|i| format!("p/{i:02}.zst")).collect();
    let frames = super::mounted::frames(&noise(1000));
    let objects: Vec<_> = keys.iter().map(|key| (key.as_str(), frames.clone(), "a")).collect();
    bucket(&server, &objects);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = server.url("").trim_end_matches('/').to_owned();
    let url = format!("s3://{BUCKET}/p/");
    let to = tmp.path().join("to").into_os_string().into_string().unwrap();
    for args in [&["verify", &url][..], &["ls", "-R", &url], &["extract", &url, &to], &["cat", &url, "07.zst/data.raw"]]
    {
        let output = run(with(&endpoint).args(args));
        let is_silent = args[0] == "extract";
        assert!(output.status.success() && output.stdout.is_empty() == is_silent, "{}", text(&output));
        let (lists, reads) = counts(&server);
        assert_eq!(reads, if args[0] == "cat" { 1 } else { count }, "{args:?}");
        assert!(lists < 8, "{args:?}: {lists} lists");
    }
    if !can_mount() {
        return;
    }
    let options = ["-o", "layout=flat"];
    let mounted = Mounted::of(with(&endpoint), &url, &tmp.path().join("m"), &options);
    server.take_log();
    let entries = || fs::read_dir(&mounted.0).unwrap().map(Result::unwrap);
    assert_eq!(entries().count(), 2 * count);
    let sizes: BTreeMap<_, _> = entries().map(|e| (e.file_name(), e.metadata().unwrap().len())).collect();
    let (lists, reads) = counts(&server);
    assert!(reads == count && lists < 8, "{reads} reads, {lists} lists");
    assert_eq!((sizes.len(), sizes[OsStr::new("07.raw")]), (2 * count, 1000));
    assert_eq!(fs::read(mounted.0.join("07.json")).unwrap().len() as u64, sizes[OsStr::new("07.json")]);
    assert_eq!(fs::read(mounted.0.join("07.raw")).unwrap(), noise(1000));
}

#[test]
fn a_reader_of_a_prefix_that_is_killed_ends_at_once_and_so_does_its_request() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let frames = super::mounted::frames(&noise(3 << 20));
    bucket(&server, &[("p/x.zst", frames, "a"), ("p/plain", noise(3 << 20), "b")]);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = server.url("").trim_end_matches('/').to_owned();
    let url = format!("s3://{BUCKET}/p/");
    for (path, range) in [("x.zst/chunks/000002.raw", 2 << 20..3 << 20), ("plain", 0..3 << 20)] {
        let mounted = Mounted::of(with(&endpoint), &url, &tmp.path().join("m"), &["-o", "timeout=600"]);
        let file = fs::File::open(mounted.0.join(path)).unwrap();
        server.take_log();
        server.fail([Fault::Dribble(Duration::from_millis(50), usize::MAX)]);
        let mut reader = Command::new("cat").stdin(Stdio::from(file)).stdout(Stdio::null()).spawn().unwrap();
        wait_until("it is being fetched", || !server.log().is_empty());
        reader.kill().unwrap();
        assert!(finish(&mut reader, PATIENCE).is_some(), "the reader of {path} hangs");
        wait_until("the request has ended", || server.log().iter().all(|request| request.sent > 0));
        server.fail([]);
        assert!(fs::read(mounted.0.join(path)).unwrap() == noise(3 << 20)[range]);
    }
}

#[test]
fn a_listing_by_content_names_all_or_fails_when_the_server_goes() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let names = ["a", "b", "c", "d", "e"];
    let keys: Vec<String> = names.iter().map(|name| format!("p/{name}.zst")).collect();
    let frames = super::mounted::frames(&noise(1000));
    let objects: Vec<_> = keys.iter().map(|key| (key.as_str(), frames.clone(), "a")).collect();
    bucket(&server, &objects);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = server.url("").trim_end_matches('/').to_owned();
    let mut failed = 0;
    for answered in 1..8 {
        server.fail([]);
        let options = ["-o", "layout=flat,timeout=1"];
        let mounted = Mounted::of(with(&endpoint), &format!("s3://{BUCKET}/p/"), &tmp.path().join("m"), &options);
        let mut faults = vec![Fault::None; answered];
        faults.push(Fault::Close);
        server.fail(faults);
        match fs::read_dir(&mounted.0).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(found) => assert_eq!(found.len(), 2 * names.len(), "after {answered} answers"),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 1 && failed < 7, "the server was always there, or never: {failed}");
}

#[test]
fn an_object_of_a_prefix_that_was_replaced_is_never_mixed() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let (old, new) = (noise(3 << 20), noise(4 << 20).into_iter().rev().collect::<Vec<u8>>());
    let (old_frames, new_frames) = (super::mounted::frames(&old), super::mounted::frames(&new));
    bucket(&server, &[("p/x.zst", old_frames, "a"), ("p/plain", old.clone(), "b")]);
    let tmp = tempfile::tempdir().unwrap();
    let endpoint = server.url("").trim_end_matches('/').to_owned();
    let mounted = Mounted::of(with(&endpoint), &format!("s3://{BUCKET}/p/"), &tmp.path().join("m"), &[]);
    let (plain, inside) = (mounted.0.join("plain"), mounted.0.join("x.zst/data.raw"));
    assert_eq!(fs::metadata(&plain).unwrap().len(), 3 << 20);
    assert!(fs::read(mounted.0.join("x.zst/chunks/000000.raw")).unwrap() == old[..1 << 20]);
    let open = fs::File::open(&plain).unwrap();
    bucket(&server, &[("p/x.zst", new_frames, "c"), ("p/plain", new.clone(), "d")]);
    // What is open is of the old version or an error.
    let mut bytes = vec![0; 1 << 20];
    if std::os::unix::fs::FileExt::read_exact_at(&open, &mut bytes, 2 << 20).is_ok() {
        assert!(bytes == old[2 << 20..]);
    }
    drop(open);
    wait_until("the new version", || match fs::read(&plain) {
        Ok(read) => {
            assert!(read == new || read == old);
            read == new
        }
        Err(e) => {
            assert!([libc::EIO, libc::ESTALE].contains(&e.raw_os_error().unwrap()), "{e}");
            false
        }
    });
    if let Ok(read) = fs::read(&inside) {
        assert!(read == old || read == new);
    }
}
