//! What users see of a file whose every word is hostile: names, messages, logs, JSON and pictures are safe to print.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ciborium::{Value, cbor};
use fzmfs::text::is_plain;

use crate::support::mounts::{Mounted, can_mount, fzmfs, has, run, sh};

/// A title of the terminal, colours, DEL, text in another direction, and what shows as nothing.
const EVIL: &str =
    "A\u{1b}]0;pwn\u{7}B\u{9b}31mC\u{202e}dcb\u{2066}a\nD\u{7f}\u{61c}\u{200e}\u{200b}\u{2028}\u{feff}\u{ad}\u{e0041}";
/// The same as a name in the tree: what could draw is written out, the rest is a matter of printing.
const NAME: &str = "A%1B]0;pwn%07B%C2%9B31mC%E2%80%AEdcb%E2%81%A6a%0AD%7F\
                    \u{61c}\u{200e}\u{200b}\u{2028}\u{feff}\u{ad}\u{e0041}";

/// A zTensor file of dialect 1.1 with hostile words wherever it may have words: good tensors, one of a layout that
/// nobody knows, and two that are broken.
fn hostile(dir: &Path) -> PathBuf {
    let part = |digest: &str, encoding: &str| {
        cbor!({ "dtype" => "u8", "offset" => 64, "length" => 4, "digest" => digest, "encoding" => encoding }).unwrap()
    };
    let tensor = |layout: &str, role: &str, part: Value| {
        cbor!({ "shape" => [4], "format" => layout, "components" => { role => part } }).unwrap()
    };
    let plain = cbor!({ "dtype" => "u8", "offset" => 64, "length" => 4 }).unwrap();
    let manifest = cbor!({
        "version" => "1.1.0",
        "attributes" => { EVIL => EVIL },
        "objects" => {
            EVIL => tensor("dense", "data", plain.clone()),
            format!("lay/{EVIL}/x") => tensor(EVIL, EVIL, plain),
            format!("dig {EVIL}") => tensor("dense", "data", part(EVIL, "raw")),
            format!("enc {EVIL}") => tensor("dense", "data", part("crc32c:0x00000000", EVIL)),
            format!("crc {EVIL}") => tensor("dense", "data", part("crc32c:0x00000000", "raw")),
        },
    });
    let mut encoded = Vec::new();
    ciborium::into_writer(&manifest.unwrap(), &mut encoded).unwrap();
    let mut bytes = b"ZTEN1000".to_vec();
    bytes.resize(64, 0);
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    bytes.resize(128, 0);
    bytes.extend_from_slice(&encoded);
    bytes.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
    bytes.extend_from_slice(b"ZTEN1000");
    // A name that a file can have is as hostile as the words in it.
    let file = dir.join(format!("{EVIL}.zt"));
    fs::write(&file, bytes).unwrap();
    file
}

fn ran(args: &[&[u8]]) -> Output {
    run(fzmfs().env("FZMFS_LOG", "debug").args(args.iter().map(|arg| std::ffi::OsStr::from_bytes(arg))))
}

/// Nothing but lines of characters that show as themselves.
#[track_caller]
fn assert_plain(what: &str, bytes: &[u8]) {
    let text = str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    for line in text.lines() {
        assert!(line.chars().all(is_plain), "{what}: {line:?}");
    }
}

/// What a pipe gets: names that cannot draw, one a line.
#[track_caller]
fn assert_names(what: &str, bytes: &[u8], lines: usize) {
    let text = str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let draws = |c: char| c.is_control() && c != '\n' || "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}".contains(c);
    let isolates = |c: char| "\u{2066}\u{2067}\u{2068}\u{2069}".contains(c);
    assert!(!text.contains(|c| draws(c) || isolates(c)), "{what}: {text:?}");
    assert_eq!(text.split_terminator('\n').count(), lines, "{what}: {text:?}");
}

#[test]
fn what_a_hostile_file_says_is_safe_to_print() {
    let dir = tempfile::tempdir().unwrap();
    let file = hostile(dir.path());
    let file = file.as_os_str().as_bytes();

    let top = ran(&[b"ls", file]);
    assert!(top.status.success(), "{top:?}");
    assert_names("ls", &top.stdout, 7);
    for (options, lines) in [(&b"-R"[..], 50), (b"-lR", 50)] {
        let listed = ran(&[b"ls", options, file]);
        assert_names("ls", &listed.stdout, lines);
        assert_plain("messages of ls", &listed.stderr);
        assert!(String::from_utf8_lossy(&listed.stdout).contains(NAME), "{listed:?}");
    }

    for (args, code) in
        [(&[&b"info"[..]][..], 0), (&[b"info", b"--json"], 0), (&[b"verify"], 1), (&[b"verify", b"--json"], 1)]
    {
        let said = ran(&[args, &[file]].concat());
        assert_eq!(said.status.code(), Some(code), "{said:?}");
        assert_plain("standard output", &said.stdout);
        assert_plain("standard error", &said.stderr);
        if args.contains(&&b"--json"[..]) {
            let json: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
            assert!(said.stdout.is_ascii() && json.to_string().contains("\u{202e}"), "{json}");
        }
    }
}

#[test]
fn what_cat_says_of_a_hostile_file_is_safe_to_print() {
    let dir = tempfile::tempdir().unwrap();
    let file = hostile(dir.path());
    let file = file.as_os_str().as_bytes();
    let evil = format!("tensors/{NAME}");
    for (path, code) in [
        (format!("{evil}.raw"), 0),
        (format!("tensors/dig {NAME}.raw"), 1),
        (format!("tensors/crc {NAME}.raw"), 1),
        (format!("tensors/enc {NAME}.raw"), 1),
        (format!("nosuch{EVIL}"), 1),
        (format!("{evil}.raw/{EVIL}"), 1),
    ] {
        let said = ran(&[b"cat", file, path.as_bytes()]);
        assert_eq!(said.status.code(), Some(code), "{path:?}: {said:?}");
        assert_eq!(said.stdout, if code == 0 { &[1, 2, 3, 4][..] } else { b"" });
        assert_plain("messages of cat", &said.stderr);
        let lines = String::from_utf8_lossy(&said.stderr).matches("fzmfs: ").count();
        assert_eq!(lines, usize::from(code != 0), "a message is one line: {said:?}");
    }
    for path in [format!("{evil}.json"), format!("tensors/enc {NAME}.json"), "manifest.json".into(), "info.json".into()]
    {
        let said = ran(&[b"cat", file, path.as_bytes()]);
        assert!(said.status.success() && said.stdout.is_ascii(), "{path:?}: {said:?}");
        assert_plain(&path, &said.stdout);
    }
}

/// Missing, no container, no directory, no option: the name alone is enough.
#[test]
fn what_is_said_of_hostile_arguments_is_safe_to_print() {
    let dir = tempfile::tempdir().unwrap();
    let file = hostile(dir.path());
    let file = file.as_os_str().as_bytes();
    let missing = [file, EVIL.as_bytes()].concat();
    let own = fs::write(dir.path().join(format!("own{EVIL}")), EVIL).map(|()| dir.path().join(format!("own{EVIL}")));
    let own = own.unwrap().into_os_string();
    for args in [
        &[&b"ls"[..], &missing][..],
        &[b"mount", file, &missing],
        &[b"mount", own.as_bytes(), dir.path().as_os_str().as_bytes()],
        &[b"verify", &missing, own.as_bytes()],
        &[b"extract", file, own.as_bytes()],
        &[b"umount", &missing],
        &[b"info", b"--format", EVIL.as_bytes(), file],
        &[b"info", b"-o", EVIL.as_bytes(), file],
        &[b"info", b"--dict", &missing, file],
        &[b"info", b"--threads", EVIL.as_bytes(), file],
        &[b"info", b"--log", &[&missing[..], b"/x"].concat(), file],
        &[EVIL.as_bytes()],
    ] {
        let said = ran(args);
        assert!(!said.status.success(), "{said:?}");
        assert_plain("standard output", &said.stdout);
        assert_plain("standard error", &said.stderr);
    }
}

#[test]
fn extracted_files_have_the_names_of_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let file = hostile(dir.path());
    let out = dir.path().join("out");
    let said = ran(&[b"extract", file.as_os_str().as_bytes(), out.as_os_str().as_bytes()]);
    assert_eq!(said.status.code(), Some(1), "two tensors are broken: {said:?}");
    assert_plain("messages of extract", &said.stderr);
    assert_eq!(fs::read(out.join(format!("tensors/{NAME}.raw"))).unwrap(), [1, 2, 3, 4]);
}

#[test]
fn invisible_characters_are_escaped_on_a_terminal() {
    if !has("python3") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = hostile(dir.path());
    for options in ["-R", "-lR"] {
        let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
        let mut command = Command::new("python3");
        command.args(["-c", spawn]).arg(env!("CARGO_BIN_EXE_fzmfs")).args(["ls", options]).arg(&file);
        let said = run(&mut command);
        let shown = String::from_utf8(said.stdout).unwrap().replace("\r\n", "\n");
        assert_plain("ls on a terminal", shown.as_bytes());
        assert!(shown.contains("\\u{61c}\\u{200e}\\u{200b}\\u{2028}\\u{feff}\\u{ad}\\u{e0041}.raw"), "{shown}");
    }
}

#[test]
fn a_mount_has_the_names_of_ls_and_logs_safely() {
    if !can_mount() || !has("getfattr") {
        return;
    }
    let mounted = Mounted::nothing();
    let file = hostile(mounted.dir.path());
    let mut mount = fzmfs();
    mount.env("FZMFS_LOG", "debug").arg("--log").arg(mounted.log()).arg("mount").arg(&file).arg(&mounted.point);
    let said = run(&mut mount);
    assert!(said.status.success(), "{said:?}");

    let mut names = BTreeSet::new();
    walk(&mounted.point, &mounted.point, &mut names);
    let listed = ran(&[b"ls", b"-R", file.as_os_str().as_bytes()]).stdout;
    let listed: BTreeSet<OsString> =
        String::from_utf8(listed).unwrap().split_terminator('\n').map(OsString::from).collect();
    assert_eq!(names, listed);
    assert_eq!(fs::read(mounted.path(&format!("tensors/{NAME}.raw"))).unwrap(), [1, 2, 3, 4]);
    for broken in ["crc", "enc"] {
        assert!(fs::read(mounted.path(&format!("tensors/{broken} {NAME}.raw"))).is_err());
    }
    // What a reader asks for is hostile too.
    assert!(fs::metadata(mounted.path(EVIL)).is_err());
    let values = "find mnt ! -name 'enc *' -print0 | xargs -0 -n1 getfattr --absolute-names --only-values -d";
    assert_plain("extended attributes", sh(mounted.dir.path(), values).as_bytes());
    let log = mounted.logged();
    assert_plain("the log", log.as_bytes());
    assert!(log.contains("A\\u{1b}]0;pwn") && log.contains("lookup"), "{log}");
    assert!(log.lines().all(|line| line.starts_with("20")), "a line is one event: {log}");
    sh(mounted.dir.path(), "umount mnt");
}

fn walk(root: &Path, dir: &Path, names: &mut BTreeSet<OsString>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        names.insert(entry.path().strip_prefix(root).unwrap().into());
        if entry.file_type().unwrap().is_dir() {
            walk(root, &entry.path(), names);
        }
    }
}
