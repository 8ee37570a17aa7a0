//! Nobody reads through the mount of a directory what its files keep from him: neither at once, nor after they were
//! replaced or got other rights.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::support::mounts::{Mounted, can_mount, fzmfs, has, run, sh, skip, wait_until};

/// A user that owns nothing, and a group of his.
const USER: u32 = 12345;
const GROUP: u32 = 23456;

/// A directory that root mounts for all users.
struct Shared {
    mounted: Mounted,
    source: PathBuf,
}

impl Shared {
    /// Of what the shell makes by `lines`; `$data` are the containers of the tests.
    fn new(lines: &str, words: &[&str]) -> Option<Self> {
        if !can_mount() || !has("setpriv") {
            return None;
        }
        let mounted = Mounted::nothing();
        let source = mounted.dir.path().join("source");
        fs::create_dir(&source).unwrap();
        sh(mounted.dir.path(), "chmod 755 . source");
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        sh(&source, &format!("umask 022; data='{}'; {lines}", data.display()));
        let mut command = fzmfs();
        command.args(["mount", "-o", "allow_other"]).args(words).arg(&source).arg(&mounted.point);
        let output = run(&mut command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { mounted, source })
    }

    /// Output of a line of the shell, run by the user in the mount.
    fn by_user(&self, line: &str) -> String {
        let line = format!("cd {} && {line}", self.mounted.point.display());
        let output = run(as_user().arg("-c").arg(line));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.path(name)
    }
}

/// A shell of the user's.
fn as_user() -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={GROUP}"), "--clear-groups", "bash"]);
    command
}

/// A shell of the user's that goes on when it is told to.
struct Waiting {
    child: Child,
    go: ChildStdin,
    out: BufReader<std::process::ChildStdout>,
}

impl Waiting {
    /// One that has done `first` in `dir`.
    fn after(dir: &Path, first: &str, then: &str) -> Self {
        let line = format!("{first}; echo ready; read; {then}");
        let mut command = as_user();
        command.arg("-c").arg(line).current_dir(dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (go, mut out) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "{first}");
        }
        Self { child, go, out }
    }

    /// Its content from now on.
    fn goes_on(mut self) -> String {
        self.go.write_all(b"\n").unwrap();
        let said = std::io::read_to_string(&mut self.out).unwrap();
        self.child.wait().unwrap();
        said
    }
}

const CONTAINERS: &str = "
    cp $data/blosc2/n05_5d_f4.b2nd public.b2nd; cp public.b2nd private.b2nd; chmod 600 private.b2nd
    for s in public searched chunk; do cp -r $data/blosc2/s01_sframe.b2frame $s.b2frame; chmod -R u=rwX,go=rX $s.b2frame; done
    chmod 700 searched.b2frame; chmod 600 chunk.b2frame/00000000.chunk
    cp $data/ztensor/v20-sharded/* .; chmod 644 model.zt; chmod 600 model-*-of-*.zt
    echo text > private.txt; chmod 600 private.txt; mkdir private; cp public.b2nd private; chmod 700 private";

#[test]
fn a_container_is_read_by_who_may_read_all_of_its_files_in_every_layout() {
    for layout in ["replace", "beside", "flat"] {
        let Some(shared) = Shared::new(CONTAINERS, &[&format!("-olayout={layout}")]) else { return };
        let readable = "find . -type f -path '*PATTERN*' -exec cat {} + 2>/dev/null | wc -c";
        let bytes =
            |pattern: &str| shared.by_user(&readable.replace("PATTERN", pattern)).trim().parse::<u64>().unwrap();
        let [frame, tensors] = match layout {
            "replace" => ["b2frame/", "model.zt/"],
            "beside" => ["b2frame.d/", "model.zt.d/"],
            _ => ["", "model.zt/"],
        };
        for private in ["private", &format!("searched{frame}"), &format!("chunk.{frame}"), tensors] {
            assert_eq!(bytes(private), 0, "{layout}: {private}");
        }
        assert!(bytes("public") > 100_000, "{layout}");
        // Root reads all of it.
        let all = sh(&shared.mounted.point, &readable.replace("PATTERN", ""));
        assert!(all.trim().parse::<u64>().unwrap() > bytes(""), "{layout}");
    }
}

#[test]
fn a_name_that_was_public_is_not_opened_for_who_may_not_read_what_is_there_now() {
    let lines = "for f in renamed moded owned; do echo public > $f; done
                 mkdir dir dir2 up up/deep; echo public > dir/x; chmod 700 dir2; echo SECRET > dir2/x
                 echo public > up/deep/x; cp $data/blosc2/n05_5d_f4.b2nd x.b2nd
                 cp x.b2nd new.b2nd; chmod 600 new.b2nd; echo SECRET > new; chmod 600 new";
    for (first, change, then) in [
        ("stat mnt/renamed", "mv new renamed", "cat mnt/renamed"),
        ("stat mnt/moded", "chmod 600 moded; echo SECRET > moded", "cat mnt/moded"),
        ("stat mnt/owned", "chown 1 owned; chmod 600 owned; echo SECRET > owned", "cat mnt/owned"),
        ("stat mnt/dir/x", "mv dir old; mv dir2 dir", "cat mnt/dir/x mnt/dir/*"),
        ("ls -l mnt/dir", "chmod 700 dir; echo SECRET > dir/y", "cat mnt/dir/y mnt/dir/*; grep -rl . mnt/dir"),
        ("stat mnt/up/deep/x", "chmod 700 up; echo SECRET > up/deep/x", "cat mnt/up/deep/x"),
    ] {
        for _ in 0..3 {
            let Some(shared) = Shared::new(lines, &[]) else { return };
            let user = Waiting::after(shared.mounted.dir.path(), first, then);
            sh(&shared.source, change);
            let said = user.goes_on();
            assert!(!said.contains("SECRET") && !said.contains("dir/y"), "{change}: {said}");
        }
    }
    // A container is another one, also for who stands in the old one.
    let Some(shared) = Shared::new(lines, &[]) else { return };
    let user =
        Waiting::after(shared.mounted.dir.path(), "cat mnt/x.b2nd/data.raw | wc -c", "cat mnt/x.b2nd/data.raw | wc -c");
    sh(&shared.source, "mv new.b2nd x.b2nd");
    assert_eq!(user.goes_on(), "0\n");
}

#[test]
fn an_access_control_list_is_obeyed() {
    // A version, then tags, rights and ids: the owner, a user, the owning group, the mask, others.
    let list = |user: u8, group: u8, others: u8| {
        let entries = [(1, 6, u32::MAX), (2, user, 1), (4, group, u32::MAX), (16, 4, u32::MAX), (32, others, u32::MAX)];
        let entry = |(tag, rights, id): (u8, u8, u32)| [&[tag, 0, rights, 0][..], &id.to_le_bytes()].concat();
        [vec![2, 0, 0, 0], entries.into_iter().flat_map(entry).collect()].concat()
    };
    let Some(shared) = Shared::new("for f in group others both; do echo text > $f; chmod 640 $f; done", &[]) else {
        return;
    };
    let set = |name: &str, list: &[u8]| {
        let path = shared.source.join(name);
        std::os::unix::fs::chown(&path, None, Some(if name == "others" { 1 } else { GROUP })).unwrap();
        rustix::fs::setxattr(&path, "system.posix_acl_access", list, rustix::fs::XattrFlags::empty())
    };
    if let Err(e) = set("group", &list(4, 0, 0)) {
        return skip("access control lists", &e.to_string());
    }
    set("others", &list(0, 4, 4)).unwrap();
    set("both", &list(4, 4, 0)).unwrap();
    wait_until("the lists are seen", || {
        let mode = |name: &str| fs::metadata(shared.path(name)).unwrap().mode() & 0o777;
        [mode("group"), mode("others"), mode("both")] == [0o400, 0o400, 0o440]
    });
    assert_eq!(shared.by_user("cat group others both"), "text\n");
}

#[test]
fn a_file_that_was_replaced_is_another_one_and_no_reader_mixes_the_two() {
    let Some(shared) = Shared::new("echo", &[]) else { return };
    let (old, new) = (b"public ".repeat(400_000), b"SECRET ".repeat(400_000));
    let name = shared.path("x");
    fs::write(shared.source.join("x"), &old).unwrap();
    let open = fs::File::open(&name).unwrap();
    let read = |file: &fs::File| {
        let mut bytes = vec![0; old.len()];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    open.read_exact_at(&mut [0; 7], 1 << 20).unwrap();
    fs::write(shared.source.join("new"), &new).unwrap();
    fs::rename(shared.source.join("new"), shared.source.join("x")).unwrap();
    let other = |meta: fs::Metadata| meta.ino() != open.metadata().unwrap().ino();
    wait_until("the new file", || fs::metadata(&name).is_ok_and(other));
    let opened = fs::File::open(&name).unwrap();
    opened.read_exact_at(&mut [0; 7], 2 << 20).unwrap();
    assert!(read(&open).unwrap() == old && read(&opened).unwrap() == new);
    // A file that is written to in place is the same file.
    let ino = opened.metadata().unwrap().ino();
    fs::OpenOptions::new().append(true).open(shared.source.join("x")).unwrap().write_all(b"more").unwrap();
    wait_until("its end", || opened.metadata().unwrap().len() == old.len() as u64 + 4);
    assert_eq!(fs::metadata(&name).unwrap().ino(), ino);
    // An open file stays open, whatever becomes of its rights.
    fs::set_permissions(shared.source.join("x"), fs::Permissions::from_mode(0o600)).unwrap();
    wait_until("the rights", || fs::metadata(&name).unwrap().mode() & 0o777 == 0o400);
    assert!(read(&opened).unwrap() == new && opened.metadata().is_ok());
}
