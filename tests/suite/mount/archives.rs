//! A mounted archive, as programs see it: the tree that tar extracts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::mounts::{Mounted, can_mount, fzmfs, run, sh};

/// Makes `source`, `x.tar` of it and `want`, which tar has extracted.
const MAKE: &str = r#"
mkdir -p source/a/b/c source/empty && cd source
echo text > a/x.txt && seq 200000 > a/b/numbers && ln -s ../x.txt a/b/up && ln -s b a/to-b && ln a/x.txt hard
chmod 755 a/x.txt && chmod 640 a/b/numbers && chmod 711 a/b && chmod 555 empty
touch -d '2001-02-03 04:05:06.789' a/b/numbers && touch -hd '1999-01-01' a/to-b && truncate -s 3M holes
touch -d '1960-05-05' hard
mkdir "$(printf 'n%.0s' $(seq 120))" && echo long > "$(printf 'n%.0s' $(seq 120))/$(printf 'm%.0s' $(seq 120))"
touch -d '2010-10-10' a/b a empty
cd .. && tar -C source --format=pax -S -cf x.tar . && mkdir want && tar -xpf x.tar -C want
"#;

/// Mode without the bits to write, time, size and name of everything, or the target of a link.
fn listed(dir: &Path) -> String {
    let line =
        r"find . -mindepth 1 \( -type d -printf '%y %m %T@ %p\n' -o -printf '%y %m %T@ %s %p %l\n' \) | sort -k 3";
    let lines = sh(dir, line);
    let shown = lines.lines().map(|line| {
        let mut words = line.splitn(3, ' ');
        let (kind, mode, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let mode = u32::from_str_radix(mode, 8).unwrap() & if kind == "l" { 0o777 } else { 0o555 };
        format!("{kind} {mode:o} {rest}\n")
    });
    shown.collect()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(1 << 20).flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect()
}

/// A folder with `x.tar` and `want`.
fn made() -> (Mounted, PathBuf) {
    let mounted = Mounted::nothing();
    let dir = mounted.dir.path().join("made");
    fs::create_dir(&dir).unwrap();
    sh(&dir, MAKE);
    (mounted, dir)
}

fn mount(mounted: &Mounted, source: &Path, words: &[&str]) {
    let mut command = fzmfs();
    command.arg("mount").arg(source).arg(&mounted.point).args(words).args(["--log".into(), mounted.log()]);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_compressed_archive_is_the_directory_that_tar_extracts() {
    if !can_mount() {
        return;
    }
    let (mounted, dir) = made();
    let file = dir.join("x.tar.zst");
    fs::write(&file, zstd(&fs::read(dir.join("x.tar")).unwrap())).unwrap();
    mount(&mounted, &file, &[]);
    let top = sh(&mounted.point, "ls -l");
    assert!(top.contains(" x.tar"), "{top}");
    let (found, want) = (mounted.path("x.tar"), dir.join("want"));
    sh(&dir, &format!("diff -r --no-dereference {} want", found.display()));
    assert_eq!(listed(&found), listed(&want));
    // Through the links, and by parts in any order.
    let read = |path: &str| (fs::read(found.join(path)).unwrap(), fs::read(want.join(path)).unwrap());
    for path in ["a/to-b/up", "a/to-b/numbers", "hard", "holes"] {
        let (found, want) = read(path);
        assert!(found == want, "{path}");
    }
    sh(&found, "tail -n 1 a/b/numbers | grep -qx 200000 && test $(find . -type f | wc -l) -eq 5");
    // What tar makes of it again is the same.
    let again = sh(&found, "tar -cf - . | tar -t | sort");
    assert_eq!(again, sh(&want, "tar -cf - . | tar -t | sort"));
}

#[test]
fn the_layout_plain_shows_members_where_the_compressed_archive_is_and_leaves_others_alone() {
    if !can_mount() {
        return;
    }
    let (mounted, dir) = made();
    let source = dir.join("files");
    fs::create_dir(&source).unwrap();
    let archive = fs::read(dir.join("x.tar")).unwrap();
    fs::write(source.join("x.tar.zst"), zstd(&archive)).unwrap();
    fs::write(source.join("y.tar"), &archive).unwrap();
    fs::write(source.join("z.tar.zst"), zstd(b"no archive")).unwrap();
    fs::write(source.join("log.txt.zst"), zstd(b"a line\n")).unwrap();
    mount(&mounted, &source, &["-o", "layout=plain"]);
    assert_eq!(sh(&mounted.point, "ls"), "log.txt\nx.tar.zst\ny.tar\nz.tar.zst\n");
    assert_eq!(listed(&mounted.path("x.tar.zst")), listed(&dir.join("want")));
    sh(&dir, &format!("diff -r --no-dereference {} want", mounted.path("x.tar.zst").display()));
    assert!(fs::read(mounted.path("y.tar")).unwrap() == archive);
    assert!(fs::read_to_string(mounted.path("z.tar.zst/error.txt")).unwrap().contains("unrecognized format"));
    assert_eq!(fs::read(mounted.path("log.txt")).unwrap(), b"a line\n");
}

#[test]
fn extracting_writes_the_members_with_their_times_and_programs_stay_programs() {
    let (_mounted, dir) = made();
    let file = dir.join("x.tar.zst");
    fs::write(&file, zstd(&fs::read(dir.join("x.tar")).unwrap())).unwrap();
    let output = run(fzmfs().arg("extract").arg(&file).arg(dir.join("out")).arg("x.tar"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sh(&dir, "diff -r --no-dereference out/x.tar want");
    let files = r"find . -type f -printf '%T@ %s %p\n' | sort; find . -type f -perm /111 | sort; find . -type l -printf '%p %l\n' | sort";
    // Times before 1970 are not set.
    let but = |dir: &Path| {
        sh(dir, files)
            .lines()
            .filter(|line| !line.ends_with("hard") && !line.ends_with("x.txt"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(but(&dir.join("out/x.tar")), but(&dir.join("want")));
    sh(&dir, "test -x out/x.tar/a/x.txt && test -x out/x.tar/hard && test ! -x out/x.tar/holes");
}
