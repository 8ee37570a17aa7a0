//! A directory of containers, mounted as one tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::mounts::{Mounted, can_mount, fzmfs, is_alive, run, sh, wait_until};

pub(super) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Containers of several formats, and other files.
const CONTAINERS: [(&str, &str); 4] = [
    ("n05.b2nd", "blosc2/n05_5d_f4.b2nd"),
    ("f06.b2frame", "blosc2/f06_lz4_l5_never_ts4.b2frame"),
    ("sub/n01.b2nd", "blosc2/n01_1d_i4.b2nd"),
    ("sub/deep/n11.b2nd", "blosc2/n11_complex.b2nd"),
];

pub(super) struct Tree {
    pub(super) mounted: Mounted,
    pub(super) source: PathBuf,
}

/// A directory with [`CONTAINERS`] and other files, mounted with `words`.
pub(super) fn tree(words: &[&str]) -> Tree {
    let mounted = Mounted::nothing();
    let source = mounted.dir.path().join("source");
    fs::create_dir_all(source.join("sub/deep")).unwrap();
    for (name, file) in CONTAINERS {
        fs::copy(data(file), source.join(name)).unwrap();
    }
    fs::write(source.join("text.txt"), "some text\n").unwrap();
    fs::write(source.join("broken.fzm"), "this is not a container\n").unwrap();
    let mut command = fzmfs();
    command.arg("mount").arg(&source).arg(&mounted.point).args(words).args(["--log".into(), mounted.log()]);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Tree { mounted, source }
}

impl Tree {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.mounted.path(name)
    }

    pub(super) fn is_alive(&self) -> bool {
        is_alive(self.mounted.daemon())
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What the program gives for one container, without a mount.
pub(super) fn cat(file: &Path, path: &str) -> Vec<u8> {
    let output = run(fzmfs().arg("cat").arg(file).arg(path));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn containers_are_directories_and_other_files_are_passed_through() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    assert_eq!(names(&tree.path("")), ["broken.fzm", "f06.b2frame", "n05.b2nd", "sub", "text.txt"]);
    assert_eq!(names(&tree.path("sub")), ["deep", "n01.b2nd"]);
    assert_eq!(fs::read(tree.path("text.txt")).unwrap(), b"some text\n");
    for (name, file) in CONTAINERS {
        let listed = String::from_utf8(run(fzmfs().args(["ls"]).arg(data(file))).stdout).unwrap();
        let mut listed: Vec<_> = listed.lines().map(str::to_owned).collect();
        listed.sort();
        assert_eq!(names(&tree.path(name)), listed, "{name}");
        for inner in ["data.raw", "info.json", "chunks/000000.raw", "stored/000000.bin"] {
            let found = fs::read(tree.path(name).join(inner)).unwrap();
            assert!(found == cat(&tree.source.join(name), inner), "{name}/{inner}");
        }
    }
    // A listing shows the same as `stat`.
    let checked = sh(
        &tree.mounted.point,
        "find . -printf '%i %y %p\\n' | while read i t p; do test $(stat -c %i \"$p\") = $i || echo \"$p\"; done; \
         ls -iRU | awk '$1 ~ /^[0-9]+$/ {print $1}' | sort | uniq -d",
    );
    assert_eq!(checked, "", "inode numbers differ or are not unique");
    assert!(tree.is_alive());
}

#[test]
fn a_broken_container_is_a_directory_with_the_reason_and_the_stored_file() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    assert_eq!(names(&tree.path("broken.fzm")), ["broken.fzm", "error.txt"]);
    let why = fs::read_to_string(tree.path("broken.fzm/error.txt")).unwrap();
    assert!(why.contains("unrecognized format"), "{why}");
    assert_eq!(fs::read(tree.path("broken.fzm/broken.fzm")).unwrap(), b"this is not a container\n");
    fs::create_dir(tree.source.join("broken.b2d")).unwrap();
    fs::write(tree.source.join("broken.b2d/embed.b2e"), "this is not an index").unwrap();
    wait_until("it is seen", || tree.path("broken.b2d").exists());
    assert_eq!(names(&tree.path("broken.b2d")), ["error.txt"]);
    let why = fs::read_to_string(tree.path("broken.b2d/error.txt")).unwrap();
    assert!(why.contains("a directory without a frame index"), "{why}");
}

#[test]
fn new_changed_and_removed_files_are_seen_and_old_bytes_are_not_served() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    let raw = tree.path("n05.b2nd/data.raw");
    let old = fs::read(&raw).unwrap();
    let open = fs::File::open(&raw).unwrap();
    let before = fs::metadata(tree.path("n05.b2nd")).unwrap().ino();
    assert!(!tree.path("new.b2nd").exists());
    fs::copy(data("blosc2/n11_complex.b2nd"), tree.source.join("new.b2nd")).unwrap();
    wait_until("the new file", || tree.path("new.b2nd/data.raw").exists());
    // Replaced.
    fs::copy(data("blosc2/n01_1d_i4.b2nd"), tree.source.join("other")).unwrap();
    fs::rename(tree.source.join("other"), tree.source.join("n05.b2nd")).unwrap();
    let new = cat(&data("blosc2/n01_1d_i4.b2nd"), "data.raw");
    wait_until("the other container", || fs::read(&raw).is_ok_and(|bytes| bytes == new));
    assert!(new != old && fs::metadata(tree.path("n05.b2nd")).unwrap().ino() != before);
    let mut byte = [0];
    let refused = || std::os::unix::fs::FileExt::read_at(&open, &mut byte, 0).is_err();
    wait_until("the pages of the old container are gone", refused);
    // Written to in place, as a file that is passed through.
    fs::write(tree.source.join("text.txt"), "other text\n").unwrap();
    wait_until("what was written", || fs::read(tree.path("text.txt")).is_ok_and(|bytes| bytes == b"other text\n"));
    fs::remove_file(tree.source.join("n05.b2nd")).unwrap();
    wait_until("it is gone", || !tree.path("n05.b2nd").exists());
    fs::rename(tree.source.join("sub"), tree.source.join("moved")).unwrap();
    wait_until("the directory has moved", || {
        tree.path("moved/n01.b2nd/data.raw").exists() && !tree.path("sub").exists()
    });
    assert!(tree.is_alive());
}

#[test]
fn nothing_leads_out_of_the_directory_and_nothing_blocks() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    let outside = tree.mounted.dir.path().join("secret");
    fs::write(&outside, "secret").unwrap();
    for (target, name) in
        [("../secret", "up"), ("sub/../../secret", "around"), ("sub/n01.b2nd", "inside"), ("loop", "loop")]
    {
        symlink(target, tree.source.join(name)).unwrap();
    }
    symlink(&outside, tree.source.join("absolute.fzm")).unwrap();
    sh(&tree.source, "mkfifo fifo pipe.fzm; mknod null c 1 3; mknod dev.fzm c 1 3");
    for name in ["up", "around", "absolute.fzm", "loop"] {
        assert!(fs::symlink_metadata(tree.path(name)).unwrap().is_symlink(), "{name}");
        assert!(fs::read(tree.path(name)).is_err(), "{name}");
    }
    assert!(tree.path("inside/data.raw").exists());
    for name in ["pipe.fzm", "dev.fzm"] {
        assert!(!fs::symlink_metadata(tree.path(name)).unwrap().is_dir(), "{name}");
    }
    assert!(fs::write(tree.path("text.txt"), "x").is_err());
    // The directory itself may be renamed, and removed.
    fs::rename(&tree.source, tree.mounted.dir.path().join("renamed")).unwrap();
    wait_until("the renamed directory", || fs::read(tree.path("sub/n01.b2nd/data.raw")).is_ok());
    fs::remove_dir_all(tree.mounted.dir.path().join("renamed")).unwrap();
    wait_until("nothing is left", || names(&tree.path("")).is_empty());
    assert!(tree.is_alive());
}

#[test]
fn files_keep_their_owner_and_their_rights() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "allow_other"]);
    fs::set_permissions(tree.source.join("n05.b2nd"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(tree.source.join("text.txt"), fs::Permissions::from_mode(0o751)).unwrap();
    let mode = |name: &str| fs::metadata(tree.path(name)).unwrap().mode() & 0o7777;
    wait_until("the rights", || mode("text.txt") == 0o551 && mode("n05.b2nd") == 0o550);
    let denied = "setpriv --reuid 12345 --regid 12345 --clear-groups cat mnt/n05.b2nd/data.raw 2>&1 || true";
    assert!(sh(tree.mounted.dir.path(), denied).contains("Permission denied"));
}

#[test]
fn a_tree_is_shown_beside_its_file() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "layout=beside"]);
    fs::create_dir(tree.source.join("f06.b2frame.d")).unwrap();
    wait_until("the directory", || tree.path("f06.b2frame.d").exists());
    let found = names(&tree.path(""));
    let want = [
        "broken.fzm",
        "broken.fzm.d",
        "f06.b2frame",
        "f06.b2frame.d",
        "f06.b2frame~2.d",
        "n05.b2nd",
        "n05.b2nd.d",
        "sub",
        "text.txt",
    ];
    assert_eq!(found, want);
    assert!(fs::read(tree.path("n05.b2nd")).unwrap() == fs::read(tree.source.join("n05.b2nd")).unwrap());
    assert!(fs::read(tree.path("n05.b2nd.d/data.raw")).unwrap() == cat(&tree.source.join("n05.b2nd"), "data.raw"));
    assert!(names(&tree.path("f06.b2frame.d")).is_empty());
    assert!(tree.path("f06.b2frame~2.d/data.raw").exists());
}

#[test]
fn arrays_are_files_in_the_place_of_their_containers() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "layout=flat"]);
    let found = names(&tree.path(""));
    let want = [
        "broken.fzm",
        "f06.json",
        "f06.nhdr",
        "f06.npy",
        "f06.raw",
        "n05.json",
        "n05.nhdr",
        "n05.npy",
        "n05.raw",
        "sub",
        "text.txt",
    ];
    let want: Vec<_> = want.iter().filter(|name| found.iter().any(|there| there == *name)).copied().collect();
    assert_eq!(found, want);
    assert!(["n05.json", "n05.npy", "n05.raw", "f06.raw"].iter().all(|name| found.iter().any(|there| there == name)));
    assert_eq!(names(&tree.path("broken.fzm")), ["broken.fzm", "error.txt"]);
    let file = tree.source.join("n05.b2nd");
    for (name, inner) in [("n05.raw", "data.raw"), ("n05.npy", "data.npy"), ("n05.json", "info.json")] {
        assert!(fs::read(tree.path(name)).unwrap() == cat(&file, inner), "{name}");
    }
    let header = fs::read_to_string(tree.path("sub/n01.nhdr")).unwrap();
    assert!(header.contains("data file: n01.raw"), "{header}");
    assert!(!tree.path("n05.b2nd").exists() && !tree.path("n05.mhd").exists());
    // As listed, and as found by name.
    let checked = sh(
        &tree.mounted.point,
        "find . -printf '%i %y %p\\n' | while read i t p; do test $(stat -c %i \"$p\") = $i || echo \"$p\"; done",
    );
    assert_eq!(checked, "", "inode numbers differ");
    // A name that is taken is not hidden, and a changed container is shown as it is now.
    fs::write(tree.source.join("n05.npy"), "mine").unwrap();
    wait_until("the file of this name", || fs::read(tree.path("n05.npy")).is_ok_and(|bytes| bytes == b"mine"));
    wait_until("another name", || tree.path("n05~2.raw").exists() && !tree.path("n05.raw").exists());
    fs::copy(data("blosc2/n01_1d_i4.b2nd"), tree.source.join("other")).unwrap();
    fs::rename(tree.source.join("other"), &file).unwrap();
    let want = cat(&data("blosc2/n01_1d_i4.b2nd"), "data.npy");
    wait_until("the changed container", || fs::read(tree.path("n05~2.npy")).is_ok_and(|bytes| bytes == want));
    assert!(tree.is_alive());
}

#[test]
fn a_compressed_file_is_the_file_that_it_was() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "layout=plain"]);
    let (text, array) = (b"a line of a log\n".repeat(100_000), fs::read(data("blosc2/n05_5d_f4.b2nd")).unwrap());
    for (name, bytes) in [("log.txt.zst", &text), ("sub/taken.txt.zst", &text), ("field.b2nd.zst", &array)] {
        fs::write(tree.source.join(name), zstd::encode_all(&**bytes, 1).unwrap()).unwrap();
    }
    fs::write(tree.source.join("sub/taken.txt"), "mine").unwrap();
    fs::copy(data("zxc/v7_struct_l4_seek.zxc"), tree.source.join("table.bin.zxc")).unwrap();
    let want = ["broken.fzm", "f06.b2frame", "field.b2nd.zst", "log.txt", "n05.b2nd", "sub", "table.bin", "text.txt"];
    wait_until("what is new is seen", || names(&tree.path("")) == want);
    assert!(fs::read(tree.path("log.txt")).unwrap() == text);
    assert_eq!(fs::metadata(tree.path("log.txt")).unwrap().len(), text.len() as u64);
    assert!(fs::read(tree.path("table.bin")).unwrap() == cat(&tree.source.join("table.bin.zxc"), "data.raw"));
    // A name that is taken is not hidden: the other file keeps its own. A file that is not a stream is a directory, as is a
    // container in one.
    assert_eq!(fs::read(tree.path("sub/taken.txt")).unwrap(), b"mine");
    assert!(fs::read(tree.path("sub/taken.txt.zst")).unwrap() == text);
    for name in ["n05.b2nd/data.npy", "field.b2nd.zst/field.b2nd/data.npy", "broken.fzm/error.txt"] {
        assert!(tree.path(name).is_file(), "{name}");
    }
    // As programs see it: each datum once.
    let hits = sh(&tree.mounted.point, "grep -rl 'a line of a log' . | sort");
    assert_eq!(hits, "./log.txt\n./sub/taken.txt.zst\n");
    assert!(!tree.path("log.txt.zst").exists() && tree.is_alive());
}

#[test]
fn a_link_to_a_compressed_file_leads_to_the_file_that_it_was() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "layout=plain"]);
    fs::write(tree.source.join("log.2.zst"), zstd::encode_all(&b"a line\n"[..], 1).unwrap()).unwrap();
    for (name, target) in
        [("latest.zst", "log.2.zst"), ("also", "./log.2.zst"), ("text", "text.txt"), ("array", "n05.b2nd")]
    {
        std::os::unix::fs::symlink(target, tree.source.join(name)).unwrap();
    }
    wait_until("the links are seen", || fs::symlink_metadata(tree.path("array")).is_ok());
    for name in ["latest.zst", "also"] {
        assert_eq!(fs::read(tree.path(name)).unwrap(), b"a line\n", "{name}");
        assert_eq!(fs::read_link(tree.path(name)).unwrap().to_str(), Some("log.2"), "{name}");
        assert_eq!(fs::symlink_metadata(tree.path(name)).unwrap().len(), 5, "{name}");
    }
    assert!(tree.path("array/data.npy").is_file() && tree.path("text").is_file());
    let sizes = sh(&tree.mounted.point, "find . -maxdepth 1 -type l -printf '%s %l\\n' | sort");
    assert_eq!(sizes, "5 log.2\n5 log.2\n8 n05.b2nd\n8 text.txt\n");
}

#[test]
fn containers_in_containers_are_directories() {
    if !can_mount() {
        return;
    }
    let bytes = zstd::bulk::compress(&fs::read(data("blosc2/n05_5d_f4.b2nd")).unwrap(), 1).unwrap();
    let want = cat(&data("blosc2/n05_5d_f4.b2nd"), "data.npy");
    let of = |words| {
        let tree = tree(words);
        fs::write(tree.source.join("x.b2nd.zst"), &bytes).unwrap();
        tree
    };
    let nested = of(&[]);
    wait_until("the container in a container", || {
        fs::read(nested.path("x.b2nd.zst/x.b2nd/data.npy")).is_ok_and(|bytes| bytes == want)
    });
    let flat = of(&["-o", "layout=flat"]);
    wait_until("the array in a container", || fs::read(flat.path("x.npy")).is_ok_and(|bytes| bytes == want));
    assert!(nested.is_alive() && flat.is_alive());
}

#[test]
fn no_header_names_a_file_whose_name_is_more_than_a_line() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "layout=flat"]);
    fs::copy(data("blosc2/n01_1d_i4.b2nd"), tree.source.join("a\nb.b2nd")).unwrap();
    wait_until("the array", || tree.path("a\nb.raw").exists());
    assert!(tree.path("a\nb.npy").exists() && !tree.path("a\nb.nhdr").exists());
    assert!(tree.path("sub/n01.nhdr").exists());
}

#[test]
fn a_sparse_frame_is_a_container() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    let sparse = data("blosc2/s01_sframe.b2frame");
    sh(&tree.source, &format!("cp -r {} sparse.b2frame; mkdir empty.b2frame", sparse.display()));
    let want = cat(&sparse, "data.raw");
    wait_until("the sparse frame", || fs::read(tree.path("sparse.b2frame/data.raw")).is_ok_and(|bytes| bytes == want));
    assert!(names(&tree.path("empty.b2frame")).is_empty());
    let ls = |what: &str| run(fzmfs().args(["ls", "-R"]).arg(&tree.source).arg(what)).stdout;
    assert!(!ls("sparse.b2frame").is_empty());
    assert!(String::from_utf8(ls("")).unwrap().lines().any(|line| line == "sparse.b2frame/data.raw"));
    fs::remove_dir_all(tree.source.join("sparse.b2frame")).unwrap();
    wait_until("it is gone", || !tree.path("sparse.b2frame").exists());
    assert!(tree.is_alive());
}

#[test]
fn containers_are_chosen_by_name() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "containers=*.txt,containers=n0*"]);
    assert!(tree.path("text.txt/error.txt").exists() && tree.path("n05.b2nd/data.raw").exists());
    assert!(tree.path("f06.b2frame").is_file());
}

#[test]
fn many_readers_of_many_containers_get_the_bytes_of_each_with_few_descriptors() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let source = mounted.dir.path().join("source");
    let kinds: Vec<(PathBuf, Vec<u8>)> =
        CONTAINERS.iter().map(|(_, file)| (data(file), cat(&data(file), "data.raw"))).collect();
    let mut want = BTreeMap::new();
    for i in 0..1000 {
        let (file, bytes) = &kinds[i % kinds.len()];
        let dir = source.join(format!("{:02}", i % 17));
        fs::create_dir_all(&dir).unwrap();
        let name = format!("{i:04}.b2nd");
        fs::hard_link(file, dir.join(&name)).or_else(|_| fs::copy(file, dir.join(&name)).map(drop)).unwrap();
        want.insert(format!("{:02}/{name}/data.raw", i % 17), bytes);
    }
    let line = format!("ulimit -n 256; exec {} mount source mnt --log log", env!("CARGO_BIN_EXE_fzmfs"));
    sh(mounted.dir.path(), &line);
    let paths: Vec<_> = want.keys().collect();
    std::thread::scope(|scope| {
        for reader in 0..64 {
            let (mounted, paths, want) = (&mounted, &paths, &want);
            scope.spawn(move || {
                for step in 0..100 {
                    let path = paths[(reader * 37 + step * 101) % paths.len()];
                    let found = fs::read(mounted.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
                    assert!(found == *want[path], "{path}");
                }
            });
        }
    });
    let all = sh(&mounted.point, "find . -name data.raw | wc -l");
    assert_eq!(all.trim(), "1000");
    let pid = mounted.daemon();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open < 200, "{open} descriptors");
    let log = mounted.logged();
    assert!(log.is_empty(), "{log}");
}

/// The names of the attributes of a file, as listxattr(2) gives them.
fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = std::str::from_utf8(&names[..len]).unwrap();
    names.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn attributes_of_a_container_are_listed_without_opening_it() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    let root = tree.path("sub/deep/n11.b2nd");
    let closed = attributes(&root);
    assert_eq!(closed, ["format", "format_version", "stored_size", "decoder"].map(|name| format!("user.fzmfs.{name}")));
    fs::read(root.join("info.json")).unwrap();
    let open = attributes(&root);
    assert!(open.len() == 5 && closed.iter().all(|name| open.contains(name)), "{open:?}");
}

#[test]
fn a_directory_is_not_mounted_inside_itself() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let output = run(Command::new(env!("CARGO_BIN_EXE_fzmfs")).args(["mount", ".", "mnt"]).current_dir(dir.path()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("inside the directory"), "{said}");
}

#[test]
fn commands_take_paths_into_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::copy(data("blosc2/n05_5d_f4.b2nd"), source.join("sub/n05.b2nd")).unwrap();
    fs::write(source.join("text.txt"), "some text\n").unwrap();
    fs::write(source.join("broken.fzm"), "this is not a container\n").unwrap();
    symlink("../secret", source.join("out")).unwrap();
    let fzmfs = |line: &str| {
        let output = run(fzmfs().args(line.split(' ')).current_dir(dir.path()));
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), output.stderr, output.stdout)
    };
    let (code, listed, ..) = fzmfs("ls source");
    assert_eq!((code, &*listed), (Some(0), "broken.fzm\nout\nsub\ntext.txt\n"));
    let (code, listed, ..) = fzmfs("ls -R source");
    let want = ["broken.fzm", "broken.fzm/error.txt", "sub/n05.b2nd", "sub/n05.b2nd/chunks/000000.raw", "text.txt"];
    for want in want {
        assert!(listed.lines().any(|line| line == want), "{want}: {listed}");
    }
    assert_eq!(code, Some(0));
    assert_eq!(fzmfs("ls source sub/n05.b2nd").1, fzmfs("ls source/sub/n05.b2nd").1);
    let want = [fzmfs("cat source/sub/n05.b2nd data.raw").3, b"some text\n".to_vec()].concat();
    assert!(fzmfs("cat source sub/n05.b2nd/data.raw text.txt").3 == want);
    for path in ["out", "sub", "none", "sub/../text.txt", "sub/n05.b2nd/none"] {
        assert_eq!(fzmfs(&format!("cat source {path}")).0, Some(1), "{path}");
    }
    let (code, verified, ..) = fzmfs("verify source");
    assert_eq!(code, Some(1), "{verified}");
    assert!(
        verified.contains("source/broken.fzm: FAILED: ")
            && verified.contains("source/sub/n05.b2nd: OK (no checksums in this file)\n")
    );
    let summary = "source: 1 OK, 1 FAILED; 1 has no checksums, so that damage may not show\n";
    assert!(verified.ends_with(summary), "{verified}");
    fs::remove_file(source.join("out")).unwrap();
    assert_eq!(fzmfs("extract source all").0, Some(0));
    let found = |name: &str| fs::read(dir.path().join("all").join(name)).unwrap();
    assert!(found("sub/n05.b2nd/data.raw") == fzmfs("cat source/sub/n05.b2nd data.raw").3);
    assert_eq!(
        (found("text.txt"), found("broken.fzm/broken.fzm")),
        (b"some text\n".to_vec(), b"this is not a container\n".to_vec())
    );
    assert_eq!(fzmfs("extract source all").0, Some(1), "nothing is replaced without --force");
    assert_eq!(fzmfs("extract source some sub/n05.b2nd/data.npy text.txt").0, Some(0));
    assert_eq!(names(&dir.path().join("some/sub/n05.b2nd")), ["data.npy"]);
}
