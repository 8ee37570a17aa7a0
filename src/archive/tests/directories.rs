//! Directories of containers: what is in them, under which names, and what is opened.

use super::*;
use crate::mirror::{Layout, Rules};
use crate::platform::testing::symlink;
use crate::source::Passed;

fn compressed(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

/// Two containers, one that is broken, a file, a link and an empty directory.
fn made() -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    std::fs::create_dir_all(at("sub/empty")).unwrap();
    std::fs::write(at("a.zst"), compressed("first")).unwrap();
    std::fs::write(at("sub/b.zst"), compressed("second")).unwrap();
    std::fs::write(at("sub/broken.zst"), b"no frame").unwrap();
    std::fs::write(at("sub/plain"), b"text").unwrap();
    symlink("plain", at("sub/link")).unwrap();
    tmp
}

fn opened(tmp: &tempfile::TempDir, layout: Layout, access: Access) -> Directory {
    let rules = Rules { layout, ..Rules::default() };
    Directory::of(tmp.path(), &Options::new(), rules, Gpu::none(), access).unwrap().unwrap()
}

fn container(path: &str) -> NodeKind {
    NodeKind::Container(path.to_owned())
}

#[test]
fn paths_lead_to_files_directories_and_into_containers() {
    let tmp = made();
    for (layout, path, file, kind) in [
        (Layout::Replace, "", "", NodeKind::Dir),
        (Layout::Replace, "/./sub", "sub", NodeKind::Dir),
        (Layout::Replace, "sub/plain", "sub/plain", NodeKind::File),
        (Layout::Replace, "sub/link", "sub/link", NodeKind::Other),
        (Layout::Replace, "a.zst", "a.zst", container("")),
        (Layout::Replace, "sub/b.zst/x/data.raw", "sub/b.zst", container("x/data.raw")),
        (Layout::Beside, "a.zst", "a.zst", NodeKind::File),
        (Layout::Beside, "a.zst.d/data.raw", "a.zst", container("data.raw")),
    ] {
        let node = opened(&tmp, layout, Access::Random).find(OsStr::new(path)).unwrap();
        assert_eq!((node.file.as_path(), &node.kind), (Path::new(file), &kind), "{path}");
        assert_eq!(node.is_container(), matches!(kind, NodeKind::Container(_)));
        let shown = path.trim_start_matches("/./").split("/x").next().unwrap().trim_end_matches("/data.raw");
        assert_eq!(node.shown, Path::new(shown));
        assert_eq!(node.seen.size, tmp.path().join(file).symlink_metadata().unwrap().len(), "{path}");
    }
    let directory = opened(&tmp, Layout::Replace, Access::Random);
    for missing in ["none", "sub/none", "../x"] {
        let error = directory.find(OsStr::new(missing)).unwrap_err();
        assert!(matches!(error.kind(), Kind::NotFound), "{missing}: {error}");
        assert_eq!(error.what(), format!("{missing}: no such file or directory"));
    }
    // A file on the way is no missing name.
    assert_eq!(directory.find(OsStr::new("sub/plain/x")).unwrap_err().errno(), libc::ENOTDIR);
}

#[test]
fn a_directory_has_its_containers_as_its_layout_shows_them() {
    let tmp = made();
    let entries = |layout, dir: &str| {
        let nodes = opened(&tmp, layout, Access::Random).entries(Path::new(dir)).unwrap();
        nodes.into_iter().map(|node| (node.shown.display().to_string(), node.kind)).collect::<Vec<_>>()
    };
    let entry = |name: &str, kind| (name.to_owned(), kind);
    let rest =
        [entry("sub/empty", NodeKind::Dir), entry("sub/link", NodeKind::Other), entry("sub/plain", NodeKind::File)];
    let replaced = [entry("sub/b.zst", container("")), entry("sub/broken.zst", container(""))];
    assert_eq!(entries(Layout::Replace, "sub"), [&replaced[..], &rest].concat());
    let beside = [
        entry("sub/b.zst", NodeKind::File),
        entry("sub/b.zst.d", container("")),
        entry("sub/broken.zst", NodeKind::File),
        entry("sub/broken.zst.d", container("")),
    ];
    assert_eq!(entries(Layout::Beside, "sub"), [&beside[..], &rest].concat());
    assert_eq!(entries(Layout::Replace, "sub/empty"), []);
}

#[test]
fn a_walk_comes_to_each_directory_before_what_is_in_it() {
    let tmp = made();
    let directory = opened(&tmp, Layout::Replace, Access::Random);
    let walked = |dir: &str| {
        let nodes = directory.walk(Path::new(dir)).map(|node| node.map(|node| node.shown.display().to_string()));
        nodes.collect::<Vec<_>>()
    };
    let names: Vec<String> = walked("").into_iter().map(Result::unwrap).collect();
    let sub = ["sub/b.zst", "sub/broken.zst", "sub/empty", "sub/link", "sub/plain"];
    assert_eq!(names, [&["a.zst", "sub"][..], &sub].concat());
    assert!(matches!(&walked("none")[..], [Err(_)]));
    assert!(!directory.is_far());
}

#[test]
fn containers_share_a_cache_unless_each_is_read_once() {
    let tmp = made();
    for access in [Access::Random, Access::Sequential] {
        let directory = opened(&tmp, Layout::Replace, access);
        let open = |path: &str| directory.open_container(&directory.find(OsStr::new(path)).unwrap()).unwrap();
        let [a, b] = [open("a.zst"), open("sub/b.zst")];
        assert_eq!(a.file("data.raw").unwrap().read().unwrap(), b"first");
        assert_eq!(b.file("data.raw").unwrap().read().unwrap(), b"second");
        assert_eq!(Arc::ptr_eq(a.cache(), b.cache()), access == Access::Random);
        // One that is closed ends its own work and no other.
        drop(a);
        b.0.context.threads.check_open("file").unwrap();
        // It has an entry that says so.
        let names = open("sub/broken.zst").list("").unwrap().map(|entry| entry.unwrap().path().to_owned());
        assert!(names.into_iter().all(|name| name != "data.raw"));
    }
}

#[test]
fn files_and_links_are_passed_through() {
    let tmp = made();
    let directory = opened(&tmp, Layout::Replace, Access::Random);
    let Passed::Local(mut file) = directory.file(Path::new("sub/plain")).unwrap() else { unreachable!() };
    assert_eq!(std::io::read_to_string(&mut file).unwrap(), "text");
    assert_eq!(directory.link(Path::new("sub/link")).unwrap(), b"plain");
    assert!(directory.file(Path::new("sub/link")).is_err() && directory.link(Path::new("sub/plain")).is_err());
}

#[test]
fn what_is_no_directory_of_containers_is_said() {
    let tmp = made();
    let open = |path: &Path, options: &Options| Directory::open(path, options);
    assert!(open(tmp.path(), &Options::new()).unwrap().is_some());
    assert!(open(tmp.path(), &Options::new().format("zstd")).unwrap().is_none());
    assert!(open(&tmp.path().join("a.zst"), &Options::new()).unwrap().is_none());
    assert_eq!(open(&tmp.path().join("none"), &Options::new()).unwrap_err().errno(), libc::ENOENT);
}

#[cfg(feature = "cli")]
#[test]
fn a_walk_finds_the_containers_and_ends_with_the_first_error() {
    let tmp = made();
    let directory = opened(&tmp, Layout::Beside, Access::Sequential);
    assert_eq!(directory.layout(), Layout::Beside);
    let mut found = Vec::new();
    let each = |node: Result<(Node, Option<Result<Unopened>>)>| {
        let (node, container) = node?;
        let opened = container.map(|container| container?.open()).transpose()?;
        assert_eq!(opened.is_some(), node.is_container());
        found.extend(opened.map(|_| node.shown));
        Ok::<(), Error>(())
    };
    directory.walk_finding(Path::new(""), each).unwrap();
    assert_eq!(found, ["a.zst.d", "sub/b.zst.d", "sub/broken.zst.d"].map(PathBuf::from));
    let mut count = 0;
    let ended = directory.walk_finding(Path::new(""), |_| {
        count += 1;
        if count == 2 { Err("enough") } else { Ok(()) }
    });
    assert_eq!((ended, count), (Err("enough"), 2));
}

#[cfg(all(feature = "cli", feature = "fuse"))]
#[test]
fn a_mount_takes_the_containers() {
    let tmp = made();
    assert_eq!(opened(&tmp, Layout::Flat, Access::Random).containers().unwrap().rules.layout, Layout::Flat);
}
