//! A mounted archive, as programs see it: the tree that tar extracts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::mounts::{Mounted, can_mount, fzmfs, run, sh, wait_until};

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
    // Holes take no blocks.
    sh(&found, "test $(du -k holes | cut -f 1) -le 1");
    // What tar makes of it again is the same.
    let again = sh(&found, "tar -cf - . | tar -t | sort");
    assert_eq!(again, sh(&want, "tar -cf - . | tar -t | sort"));
}

#[test]
fn with_noexec_no_member_can_be_run() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let dir = mounted.dir.path();
    sh(dir, "mkdir in && printf '#!/bin/sh\\necho ran\\n' > in/run && chmod 755 in/run && tar -cf x.tar -C in run");
    fs::write(dir.join("x.tar.zst"), zstd(&fs::read(dir.join("x.tar")).unwrap())).unwrap();
    for (options, want) in [("ro", "ran\n"), ("ro,noexec,nosuid,nodev,user=anna", "")] {
        mount(&mounted, &dir.join("x.tar.zst"), &["-o", options]);
        assert_eq!(sh(dir, "mnt/x.tar/run 2>/dev/null || true"), want, "{options}");
        assert!(run(fzmfs().arg("umount").arg(&mounted.point)).status.success());
    }
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
    let compressed = zstd(&archive);
    for (name, bytes) in [
        ("x.tar.zst", &compressed[..]),
        ("short.tzst", &compressed),
        ("y.tar.zst", &compressed),
        ("y.tar", &archive),
        ("z.tar.zst", &zstd(b"no archive")),
        ("broken.tar.zst", b"no stream"),
        ("log.txt.zst", &zstd(b"a line\n")),
    ] {
        fs::write(source.join(name), bytes).unwrap();
    }
    fs::copy(source.join("x.tar.zst"), source.join("X.TAR.ZST")).unwrap();
    mount(&mounted, &source, &["-o", "layout=plain"]);
    let names = "X.TAR\nbroken.tar.zst\nlog.txt\nshort.tar\nx.tar\ny.tar\ny.tar.zst\nz.tar\n";
    assert_eq!(sh(&mounted.point, "LC_ALL=C ls"), names);
    for name in ["x.tar", "X.TAR", "short.tar", "y.tar.zst"] {
        assert_eq!(listed(&mounted.path(name)), listed(&dir.join("want")), "{name}");
        sh(&dir, &format!("diff -r --no-dereference {} want", mounted.path(name).display()));
    }
    for hidden in ["x.tar.zst", "short.tzst", "z.tar.zst", "log.txt.zst", "broken.tar"] {
        assert!(!mounted.path(hidden).exists(), "{hidden}");
    }
    assert!(fs::read(mounted.path("y.tar")).unwrap() == archive);
    assert!(fs::read_to_string(mounted.path("z.tar/error.txt")).unwrap().contains("unrecognized format"));
    assert!(mounted.path("broken.tar.zst/error.txt").is_file());
    assert_eq!(fs::read(mounted.path("log.txt")).unwrap(), b"a line\n");
    // A link among the members leads to a member, whatever is called like that around the archive.
    assert_eq!(fs::read(mounted.path("x.tar/a/b/up")).unwrap(), b"text\n");
    // New archives are seen, and gone ones not.
    fs::rename(source.join("x.tar.zst"), source.join("new.tar.zst")).unwrap();
    wait_until("the new name", || mounted.path("new.tar/hard").is_file() && !mounted.path("x.tar").exists());
}

#[test]
fn the_layout_plain_of_one_file_is_that_file_or_the_directory_of_the_archive() {
    if !can_mount() {
        return;
    }
    let (mounted, dir) = made();
    let text = fs::read(dir.join("want/a/b/numbers")).unwrap();
    // Without the size of the content.
    let stream = zstd::encode_all(&*text, 1).unwrap();
    fs::write(dir.join("numbers.csv.zst"), stream).unwrap();
    fs::write(dir.join("x.tar.zst"), zstd(&fs::read(dir.join("x.tar")).unwrap())).unwrap();
    sh(&dir, "touch -d '2001-02-03 04:05:06' numbers.csv.zst");
    mount(&mounted, &dir.join("numbers.csv.zst"), &["-o", "layout=plain"]);
    assert_eq!(sh(&mounted.point, "find . -mindepth 1 -printf '%y %p\n'"), "f ./numbers.csv\n");
    assert_eq!(sh(&mounted.point, "stat -c '%s %Y %a' *"), format!("{} 981173106 444\n", text.len()));
    assert!(fs::read(mounted.path("numbers.csv")).unwrap() == text);
    sh(&mounted.point, "tail -n 1 numbers.csv | grep -qx 200000");
    let unmount = || assert!(run(fzmfs().arg("umount").arg(&mounted.point)).status.success());
    unmount();

    mount(&mounted, &dir.join("x.tar.zst"), &["-o", "layout=plain"]);
    assert_eq!(sh(&mounted.point, "ls"), "x.tar\n");
    assert_eq!(listed(&mounted.path("x.tar")), listed(&dir.join("want")));
    unmount();

    // Any other container has its tree as ever.
    let array = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc2/n05_5d_f4.b2nd");
    let mut command = fzmfs();
    let output = run(command.arg("mount").arg(&array).arg(&mounted.point).args(["-o", "layout=plain"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("layout= has no effect"), "{output:?}");
    assert!(mounted.path("data.npy").is_file());
}

#[test]
fn extracting_writes_the_members_with_their_times_and_programs_stay_programs() {
    let (_mounted, dir) = made();
    let file = dir.join("x.tar.zst");
    fs::write(&file, zstd(&fs::read(dir.join("x.tar")).unwrap())).unwrap();
    let output = run(fzmfs().arg("extract").arg(&file).arg(dir.join("out")).arg("x.tar"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sh(&dir, "diff -r --no-dereference out/x.tar want");
    let files = r"find . -type f -printf '%T@ %s %p\n' | sort; find . -mindepth 1 -type d -printf '%T@ %p\n' | sort; find . -type f -perm /111 | sort; find . -type l -printf '%p %l\n' | sort";
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
    // Holes stay holes.
    sh(&dir, "cmp out/x.tar/holes want/holes && test $(stat -c %b out/x.tar/holes) -lt 100");
}

#[test]
fn what_is_there_of_the_last_member_of_a_cut_off_archive_is_read_however_much_is_missing() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::nothing();
    let dir = mounted.dir.path();
    sh(dir, "seq 3000 > big && truncate -s 1T big && (tar -cf - big || true) 2>/dev/null | head -c 9728 > x.tar");
    fs::write(dir.join("x.tar.zst"), zstd(&fs::read(dir.join("x.tar")).unwrap())).unwrap();
    mount(&mounted, &dir.join("x.tar.zst"), &[]);
    let found = mounted.path("x.tar");
    assert_eq!(sh(&found, "stat -c %s big"), format!("{}\n", 1_u64 << 40));
    // The page of 4 KiB in which it ends is missing.
    sh(dir, &format!("cmp -n 8192 big {}/big", found.display()));
    for skip in ["9216", "1G"] {
        let command = format!("dd if=big bs=1 count=1 iflag=skip_bytes skip={skip} 2>&1 || true");
        assert!(sh(&found, &command).contains("Input/output error"), "{skip}");
    }
    assert!(sh(&found, "cat error.txt").contains("truncated"));
}
