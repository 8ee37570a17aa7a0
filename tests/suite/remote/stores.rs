//! Stores of python-blosc2 that are directories of objects (`x.b2d/`): what the same directory on the disk is.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::prefix::{Mounted, put_all, text, tree, with};
use super::prefix_requests::{bucket, endpoint};
use super::{copy, everything};
use crate::support::mounts::{can_mount, fzmfs, run};
use crate::support::opened::data;
use crate::support::server::{Object, Server};
use crate::support::services::{BUCKET, Moto};

/// A directory with a store, and what else may be beside and in it.
fn runs() -> (TempDir, PathBuf) {
    let tmp = tempfile::tempdir().unwrap();
    let runs = tmp.path().join("runs");
    for name in ["x.b2d", "deep/er/y.b2d"] {
        copy(&store(), &make(&runs.join(name)));
    }
    let odd = runs.join("deep/er/y.b2d");
    // As its library takes them: a leaf with an unusual extension, a leaf in a deep group, and what is none.
    copy(&store().join("a/large.b2nd"), &odd.join("v1.odd"));
    copy(&store().join("a/large.b2nd"), &make(&odd.join("b c/d/e+f.b2nd")));
    fs::write(odd.join("broken.b2nd"), b"no frame").unwrap();
    fs::write(odd.join("empty"), b"").unwrap();
    copy(&data("blosc2/n22_sframe_b2nd.b2nd"), &runs.join("s.b2nd"));
    (tmp, runs)
}

fn store() -> PathBuf {
    data("blosc2/stores/tree.b2d")
}

fn make(path: &Path) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path.to_path_buf()
}

#[test]
fn a_store_is_the_one_that_the_same_directory_on_the_disk_is() {
    let Some(moto) = Moto::start() else { return };
    let (tmp, runs) = runs();
    put_all(&moto, &runs, "top/runs");
    let s3 = || with(&moto.endpoint());
    for name in ["x.b2d", "deep/er/y.b2d", ""] {
        let (local, far) = (runs.join(name), format!("s3://{BUCKET}/top/runs/{name}"));
        let local = local.to_str().unwrap().trim_end_matches('/');
        let urls = if name.is_empty() { vec![far] } else { vec![format!("{far}/"), far] };
        let extracted = |of: &str, to: &str| {
            let to = tmp.path().join(name.replace('/', "-")).join(to);
            run(s3().args(["extract", of]).arg(&to));
            tree(&to)
        };
        let near = extracted(local, "near");
        assert!(near.len() > 20, "{near:?}");
        for (number, url) in urls.iter().enumerate() {
            let all = [&["ls", "-R"][..], &["ls", "-l"], &["verify"], &["info"], &["info", "--json"]];
            // A directory of containers has no description.
            for args in &all[..if name.is_empty() { 3 } else { 5 }] {
                let (near, far) = (run(s3().args(*args).arg(local)), run(s3().args(*args).arg(url)));
                let said = text(&far).replace(url.trim_end_matches('/'), local);
                assert_eq!(said.replace(&format!("{local}/:"), &format!("{local}:")), text(&near), "{args:?} {url}");
                assert!(!near.stdout.is_empty() && far.status.code() == near.status.code(), "{args:?} {url}");
            }
            assert!(near == extracted(url, &number.to_string()), "{url}");
        }
    }
}

#[test]
fn a_mounted_store_is_the_one_that_the_same_directory_on_the_disk_is() {
    if !can_mount() {
        return;
    }
    let Some(moto) = Moto::start() else { return };
    let (tmp, runs) = runs();
    put_all(&moto, &runs, "runs");
    let s3 = || with(&moto.endpoint());
    for (name, layout) in [("", "replace"), ("", "beside"), ("", "flat"), ("x.b2d", "")] {
        let options = if layout.is_empty() { vec![] } else { vec!["-o".to_owned(), format!("layout={layout}")] };
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let local = Mounted::of(s3(), runs.join(name).to_str().unwrap(), &tmp.path().join("near"), &options);
        let url = format!("s3://{BUCKET}/runs/{name}");
        let far = Mounted::of(s3(), &format!("{}/", url.trim_end_matches('/')), &tmp.path().join("far"), &options);
        let (want, got) = (tree(&local.0), tree(&far.0));
        assert!(want.len() > 10, "{want:?}");
        let paths = |tree: &[super::prefix::Entry]| tree.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&got), paths(&want), "{name} {layout}");
        for (got, want) in got.iter().zip(&want) {
            assert!(got == want, "{name} {layout} {}: {:?}", got.0.display(), got.1.as_ref().map(|b| b.as_ref().err()));
        }
    }
}

/// The objects of the store as `p/x.b2d/...`.
fn objects() -> Vec<(String, Vec<u8>)> {
    let object = |name| (format!("p/x.b2d/{name}"), fs::read(store().join(name)).unwrap());
    ["a/large.b2nd", "a/notes.txt", "embed.b2e"].map(object).into()
}

fn put(server: &Server, objects: &[(String, Vec<u8>)]) {
    bucket(server, &objects.iter().map(|(key, bytes)| (key.as_str(), bytes.clone(), "a")).collect::<Vec<_>>());
}

#[test]
fn a_list_opens_no_leaf_that_its_name_tells() {
    let server = Server::start();
    put(&server, &objects());
    let args = ["ls", &format!("s3://{BUCKET}/p/x.b2d/")];
    let output = run(with(&endpoint(&server)).args(args));
    assert!(text(&output).contains("data.zarr"), "{}", text(&output));
    let log = server.take_log();
    let lists = log.iter().filter(|request| request.target.contains("list-type=2")).count();
    let opened = |name: &str| log.iter().any(|request| request.target.contains(name));
    assert!(opened("embed.b2e") && !opened("large.b2nd"), "{log:?}");
    assert!(lists < 6, "{lists} lists");
}

#[test]
fn a_store_of_which_an_object_was_replaced_or_removed_is_an_error_until_it_is_opened_again() {
    if !can_mount() {
        return;
    }
    let Some(moto) = Moto::start() else { return };
    for is_removed in [false, true] {
        let (tmp, key) = (tempfile::tempdir().unwrap(), format!("p{is_removed}"));
        put_all(&moto, &store(), &format!("{key}/x.b2d"));
        let endpoint = moto.endpoint();
        let (one, all) = (format!("s3://{BUCKET}/{key}/x.b2d/"), format!("s3://{BUCKET}/{key}/"));
        let mounted = Mounted::of(with(&endpoint), &one, &tmp.path().join("one"), &[]);
        fs::read(mounted.0.join("a/small/data.raw")).unwrap();

        let leaf = format!("{key}/x.b2d/a/large.b2nd");
        let other = fs::read(data("blosc2/n05_5d_f4.b2nd")).unwrap();
        if is_removed {
            moto.remove(&leaf);
        } else {
            moto.put(&leaf, &other);
        }
        for _ in 0..2 {
            let read = fs::read(mounted.0.join("a/large/data.raw"));
            assert!(read.is_err(), "{read:?}");
        }
        for path in ["a/notes.txt", "a/small/data.raw", "info.json"] {
            assert!(fs::File::open(mounted.0.join(path)).is_err(), "the whole store has changed");
        }
        // The next open sees the present version.
        let cat = |source: &str, path: &str| run(with(&endpoint).args(["cat", source, path]));
        let want = run(fzmfs().arg("cat").arg(data("blosc2/n05_5d_f4.b2nd")).arg("data.raw")).stdout;
        for now in [cat(&one, "a/large/data.raw"), cat(&all, "x.b2d/a/large/data.raw")] {
            assert!(if is_removed { !now.status.success() } else { now.stdout == want }, "{}", text(&now));
        }
        assert_eq!(text(&cat(&all, "x.b2d/a/notes.txt")), "hello\n");
    }
}

#[test]
fn objects_that_cannot_be_files_are_none_and_too_deep_ones_are_refused() {
    let server = Server::start();
    let hostile = ["../up.b2nd", "a/../../x.b2nd", "a//x.b2nd", "a/./x.b2nd", "a"];
    let mut all = objects();
    let leaf = all[0].1.clone();
    all.extend(hostile.map(|name| (format!("p/x.b2d/{name}"), leaf.clone())));
    put(&server, &all);
    let url = format!("s3://{BUCKET}/p/x.b2d/");
    let ls = || text(&run(with(&endpoint(&server)).args(["ls", "-R", &url])));
    let listed = ls();
    let has = |path: &str| listed.lines().any(|line| line == path);
    // A leaf and a group of one name.
    assert!(has("a/data.raw") && has("a~2/large/data.raw"), "{listed}");
    let is_odd = |line: &str| line.split('/').any(|name| matches!(name, "" | "." | ".." | "x" | "up"));
    assert!(!listed.lines().any(is_odd), "{listed}");
    all.push((format!("p/x.b2d/{}x.b2nd", "d/".repeat(65)), leaf));
    put(&server, &all);
    assert!(ls().contains("depth of directories"), "{}", ls());
}

#[test]
fn a_store_on_a_server_without_lists_is_refused_with_what_can_be_done() {
    let server = Server::start();
    for name in ["a/large.b2nd", "embed.b2e"] {
        server.put(&format!("x.b2d/{name}"), Object::new(fs::read(store().join(name)).unwrap()));
    }
    for url in ["x.b2d/", "x.b2d"] {
        let error = everything(&server.url(url)).remove(0);
        assert!(error.contains("cannot be listed") && error.contains(".b2z") && error.contains("embed.b2e"), "{error}");
    }
    let index = everything(&server.url("x.b2d/embed.b2e"));
    assert!(index.iter().any(|line| line.starts_with("a/small/data.raw Ok")), "{index:?}");
}
