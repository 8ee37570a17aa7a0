//! Wrong usage: for each wrong command line the exit code, and the message word for word: what is wrong, where, and
//! what to do.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::mounts::{fzmfs, run};

/// Arguments of `fzmfs`, the exit code, and the message up to the first empty line.
type Row = (&'static str, i32, &'static str);

/// Of commands and their arguments.
const ARGUMENTS: &[Row] = &[
    ("lss a.fzm", 2, "unrecognized subcommand 'lss'"),
    ("help nosuch", 2, "unrecognized subcommand 'nosuch'"),
    ("mount", 2, "the following required arguments were not provided:\n  <FILE>\n  <MOUNTPOINT>"),
    ("mount a.fzm", 2, "the following required arguments were not provided:\n  <MOUNTPOINT>"),
    ("a.fzm", 2, "the following required arguments were not provided:\n  <MOUNTPOINT>"),
    ("mount a.fzm m extra", 2, "unexpected argument 'extra' found"),
    ("umount", 2, "the following required arguments were not provided:\n  <MOUNTPOINT>..."),
    ("umount -l m", 2, "unexpected argument '-l' found"),
    ("ls", 2, "the following required arguments were not provided:\n  <FILE>"),
    ("cat a.fzm", 2, "the following required arguments were not provided:\n  <PATH>..."),
    ("info", 2, "the following required arguments were not provided:\n  <FILE>..."),
    ("info a.fzm --layout flat", 2, "unexpected argument '--layout' found"),
    ("info a.fzm --json=yes", 2, "unexpected value 'yes' for '--json' found; no more were expected"),
    ("verify", 2, "the following required arguments were not provided:\n  <FILE>..."),
    ("extract a.fzm", 2, "the following required arguments were not provided:\n  <DIR>"),
    ("completions", 2, "the following required arguments were not provided:\n  <SHELL>"),
    (
        "completions tcsh",
        2,
        "invalid value 'tcsh' for '<SHELL>'\n  [possible values: bash, elvish, fish, powershell, zsh]",
    ),
    ("doctor now", 2, "unexpected argument 'now' found"),
    ("man page", 2, "unexpected argument 'page' found"),
    ("--log", 2, "a value is required for '--log <FILE>' but none was supplied"),
];

/// Of options.
const OPTIONS: &[Row] = &[
    ("mount a.fzm m -o alow_other", 2, "-o alow_other: no such option; did you mean allow_other?"),
    ("a.fzm m -o noexce", 2, "-o noexce: no such option; did you mean noexec?"),
    ("mount a.fzm m --chace 1G", 2, "unexpected argument '--chace' found"),
    ("--chace 1G mount a.fzm m", 2, "unexpected argument '--chace' found"),
    ("mount a.fzm m -o cache", 2, "-o cache needs a value: cache=SIZE"),
    (
        "mount a.fzm m -o cache=lots",
        2,
        "invalid value 'lots' for '--cache <SIZE>': \"lots\" is not a size; write a number and K, M or G, such as 512M",
    ),
    (
        "--cache 1.5G mount a.fzm m",
        2,
        "invalid value '1.5G' for '--cache <SIZE>': \"1.5G\" is not a size; write a number and K, M or G, such as 512M",
    ),
    (
        "mount a.fzm m -o idle=soon",
        2,
        "invalid value 'soon' for '--idle <SECONDS>': \"soon\" is not a time; write a number of seconds, or one with m, h \
         or d, such as 5m",
    ),
    (
        "mount a.fzm m -o idle=-1",
        2,
        "invalid value '-1' for '--idle <SECONDS>': \"-1\" is not a time; write a number of seconds, or one with m, h or \
         d, such as 5m",
    ),
    ("info a.fzm --timeout 0", 2, "invalid value '0' for '--timeout <SECONDS>': \"0\" is not from 1s to 1d"),
    ("info a.fzm --timeout 2d", 2, "invalid value '2d' for '--timeout <SECONDS>': \"2d\" is not from 1s to 1d"),
    ("cat a.fzm x -o threads=0", 2, "invalid value '0' for '--threads <N>': expected a number from 1 to 1024"),
    (
        "cat a.fzm x --verify never",
        2,
        "invalid value 'never' for '--verify <WHEN>'\n  [possible values: auto, first, background, off]",
    ),
    (
        "mount d m -o layout=tree",
        2,
        "invalid value 'tree' for '--layout <LAYOUT>'\n  [possible values: replace, beside, flat, plain]",
    ),
    (
        "mount d m -o containers=a/b",
        2,
        "invalid value 'a/b' for '--containers <GLOB>': a/b: a pattern of file names contains no /",
    ),
    ("mount a.fzm m -o ro=1", 2, "unexpected value '1' for '--ro' found; no more were expected"),
    (
        "mount a.fzm m -o umask=8",
        2,
        "invalid value '8' for '--umask <OCTAL>': expected up to three octal digits, as in 022",
    ),
    (
        "mount a.fzm m -o uid=me",
        2,
        "invalid value 'me' for '--uid <UID>': expected a number from 0 to 4294967294, as `id` shows it",
    ),
    ("mount a.fzm m -o fsname=", 2, "invalid value '' for '--fsname <NAME>': expected a name of 1 to 4095 bytes"),
    ("mount a.fzm m -o allow_other,allow_root", 2, "the argument '--allow-other' cannot be used with '--allow-root'"),
    ("mount a.fzm m -o remount,ro", 2, "-o remount: a mount cannot be changed; unmount it and mount it again"),
    ("mount a.fzm m -o shape=3,4", 2, "-o 4: a comma ends an option; write a shape as in shape=512x4, others with \\,"),
    (
        "info c.zst --shape 3y4",
        2,
        "invalid value '3y4' for '--shape <SHAPE>': expected the elements per dimension, slowest first, as in 512x512",
    ),
    ("ls a.fzm -o allow_other", 2, "-o allow_other: applies only to `fzmfs mount`"),
    ("info a.fzm --device tpu", 2, "invalid value 'tpu' for '--device <DEVICE>': expected auto, cpu, cuda or cuda:N"),
    ("verify --format zip a.fzm", 2, "unknown format zip; supported formats: fzm, zstd, ztensor, zxc, blosc2, tar"),
    ("cat c.zst data.npy -o dtype=f5", 2, "c.zst: NumPy has no element type f5 (dtype)"),
    ("ls c.zst -o shape=512", 2, "c.zst: the container has no element type: give dtype= too (shape)"),
    (
        "ls c.zst -o dtype=f4,shape=1000000x1000",
        2,
        "c.zst: the array would be larger than the 65792 decoded bytes (shape)",
    ),
    ("ls d -o layout=flat", 2, "d: only a mount has the layouts flat and plain (layout)"),
    ("info a.fzm --dict nosuch", 1, "nosuch: No such file or directory"),
    ("--log /nosuch/log ls a.fzm", 1, "/nosuch/log: No such file or directory (log)"),
];

/// Of files and directories that are not what a command needs.
const FILES: &[Row] = &[
    ("mount nosuch.fzm m", 1, "nosuch.fzm: No such file or directory"),
    ("mount a.fzm nosuch", 1, "nosuch: no such directory; make it with: mkdir -p nosuch"),
    ("mount a.fzm t.txt", 1, "t.txt: not a directory"),
    ("mount d d/in", 1, "d/in: inside the directory that is to be mounted; mount on a directory outside of it"),
    (
        "mount t.txt m",
        1,
        "t.txt: not supported: unrecognized format (it starts with 74 65 78 74 0a); supported formats: fzm, zstd, \
         ztensor, zxc, blosc2, tar (magic, at byte 0x0)",
    ),
    (
        "ls empty.fzm",
        1,
        "empty.fzm: not supported: unrecognized format (an empty file); supported formats: fzm, zstd, ztensor, zxc, \
         blosc2, tar (magic, at byte 0x0)",
    ),
    (
        "info cut.fzm",
        1,
        "cut.fzm: needs 1616 bytes, 300 left (stage and buffer tables, at byte 0x0); truncated: is the file complete?",
    ),
    ("info /dev/null", 1, "/dev/null: not supported: not a regular file: a device (file)"),
    (
        "ls gs://bucket/key",
        1,
        "gs://bucket/key: not supported: gs:// URLs; use https://, http://, s3:// or file:// (URL)",
    ),
    (
        "ls file://host/a.fzm",
        1,
        "file://host/a.fzm: not supported: a file:// URL with a host; write file:///PATH (URL)",
    ),
    ("umount m", 1, "m: nothing is mounted there"),
    ("umount nosuch", 1, "nosuch: No such file or directory"),
    ("umount m nosuch", 1, "m: nothing is mounted there\nfzmfs: nosuch: No such file or directory"),
    ("umount /proc", 1, "/proc: proc, not fzmfs, is mounted there; unmount it with: umount /proc"),
    ("list m", 1, "m: fzmfs is not mounted there"),
    ("list nosuch", 1, "nosuch: No such file or directory"),
    (
        "ls c.zst nosuch",
        1,
        "c.zst: no such entry (nosuch: no nosuch in the root, which contains info.json, data.raw, chunks, stored, \
         skippable, c)",
    ),
    ("ls c.zst data.raw/x", 1, "c.zst: no such entry (data.raw/x: data.raw is not a directory)"),
    ("ls d nosuch", 1, "d: no such entry (nosuch: no such file or directory)"),
    ("cat a.fzm stages", 1, "a.fzm: stages: Is a directory"),
    ("cat d a.fzm", 1, "d: a.fzm: Is a directory"),
    ("cat d t.txt", 1, "d: no such entry (t.txt: no such file or directory)"),
    (
        "cat crc.fzm data.raw",
        1,
        "crc.fzm: data.raw: checksum mismatch: stored 0x32fa69a5, computed 0xc0b8fcd2 (data_checksum, at byte 0x48)",
    ),
    ("info d", 1, "d: a directory, not a container; `fzmfs ls d` lists what is in it"),
    ("extract nosuch.fzm out", 1, "nosuch.fzm: No such file or directory"),
    ("extract a.fzm t.txt", 1, "t.txt: exists and is not a directory"),
    (
        "extract d d/out",
        1,
        "d/out: inside the directory that is extracted, and would be extracted too; write to one outside of it",
    ),
    (
        "extract d .//d/../d/out/deep",
        1,
        ".//d/../d/out/deep: inside the directory that is extracted, and would be extracted \
      too; write to one outside of it",
    ),
];

/// Options that have no effect on what is opened: a message, and the command goes on.
const UNUSED: &[Row] = &[
    ("cat b.b2nd info.json --dtype f4", 0, "b.b2nd: dtype= is used instead of what the container records"),
    ("cat a.fzm info.json -o shape=3", 0, "a.fzm: shape= is used instead of what the container records"),
    ("cat b.b2nd info.json --dict c.zst", 0, "b.b2nd: dict= has no effect: its format does not need it"),
    ("ls b.b2nd -o window=1G", 0, "b.b2nd: window= has no effect: its format does not need it"),
    ("ls b.b2nd -o layout=flat", 0, "b.b2nd: layout= has no effect: it is for directories of containers"),
    ("verify c.zst -o containers=*.zst", 0, "c.zst: containers= has no effect: it is for directories of containers"),
    ("info c.zst --timeout 5m", 0, "c.zst: timeout= has no effect: it is for URLs"),
    ("ls d -o unpinned", 0, "d: unpinned has no effect: it is for URLs"),
];

/// A directory with the files of the table.
fn place() -> tempfile::TempDir {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let dir = tempfile::tempdir().unwrap();
    for (from, to) in [
        ("fzm/lq1d_f32_noa_rle.fzm", "a.fzm"),
        ("blosc2/n05_5d_f4.b2nd", "b.b2nd"),
        ("zstd/v07-len65792.zst", "c.zst"),
        ("fzm/bad/data_crc.fzm", "crc.fzm"),
    ] {
        fs::copy(data.join(from), dir.path().join(to)).unwrap();
    }
    for name in ["d/in", "m"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let whole = fs::read(dir.path().join("a.fzm")).unwrap();
    for (name, bytes) in [("d/a.fzm", &whole[..]), ("cut.fzm", &whole[..300]), ("t.txt", b"text\n"), ("empty.fzm", b"")]
    {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn fzmfs_in(dir: &Path, line: &str) -> (Option<i32>, Vec<u8>, String) {
    let mut command: Command = fzmfs();
    command.current_dir(dir).env_remove("FZMFS_LOG").args(line.split(' '));
    let output = run(&mut command);
    (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn wrong_usage_has_an_exit_code_and_says_what_to_do() {
    let dir = place();
    let rows = || ARGUMENTS.iter().chain(OPTIONS).chain(FILES);
    assert!(rows().count() >= 70);
    let mut wrong = Vec::new();
    for (line, code, want) in rows() {
        let (got, out, err) = fzmfs_in(dir.path(), line);
        let said = err.split("\n\n").next().unwrap_or_default().trim_end();
        if got != Some(*code) || !out.is_empty() || said.strip_prefix("fzmfs: ") != Some(*want) {
            wrong.push(format!("fzmfs {line}: {got:?}\n  {said}\n  wanted {code}: {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!dir.path().join("d/out").exists() && !dir.path().join("out").exists(), "nothing is written");
}

#[test]
fn an_option_that_has_no_effect_is_named_and_the_command_goes_on() {
    let dir = place();
    for (line, code, want) in UNUSED {
        let (got, out, err) = fzmfs_in(dir.path(), line);
        assert_eq!((got, err.trim_end()), (Some(*code), &*format!("fzmfs: {want}")), "{line}");
        assert!(!out.is_empty(), "{line}");
    }
}
