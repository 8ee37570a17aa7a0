//! Ordinary users: they mount through fusermount3, and others look in only where that is allowed.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::made::{DATA, bytes};
use crate::support::mounts::{
    Mounted, can_mount, fzmfs, has, is_alive, is_mounted, made, run, sh, skip, wait_for, wait_until,
};

/// A user that owns nothing else.
const NOBODY: u32 = 65534;

/// Whether ordinary users can mount here.
fn users_can_mount() -> bool {
    if !can_mount() || !has("fusermount3") || !has("setpriv") {
        return false;
    }
    let setuid = sh(Path::new("/"), "[ -u $(command -v fusermount3) ] && echo yes || echo no");
    if setuid.trim() != "yes" {
        skip("mounts of users", "fusermount3 is not setuid");
        return false;
    }
    // It opens the device as the user.
    let as_nobody = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    let opens = sh(Path::new("/"), &format!("{as_nobody} bash -c ': <>/dev/fuse' 2>/dev/null && echo yes || echo no"));
    if opens.trim() != "yes" {
        skip("mounts of users", "only root may open /dev/fuse; chmod 0666 /dev/fuse lets them in, as udev does");
        return false;
    }
    true
}

/// A directory of the user's, with the program in it: the one of the build may lie where users cannot look.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        // Not by us: a descriptor that we write through is copied into what other tests start, and what is open for
        // writing cannot be run.
        for program in [made(), fzmfs()] {
            sh(dir.path(), &format!("cp '{}' .", program.get_program().display()));
        }
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        sh(dir.path(), &format!("chown -R {NOBODY}:{NOBODY} . && chmod 755 ."));
        Self(dir)
    }

    fn as_user(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        command.arg(program).current_dir(self.0.path());
        command
    }

    fn mount(&self, words: &[&str]) -> Output {
        run(self.as_user("./made").arg("mnt").args(words))
    }

    fn is_mounted(&self) -> bool {
        is_mounted(&self.0.path().join("mnt"))
    }

    /// The daemon's process id, which root has to become the user for.
    fn daemon(&self) -> u32 {
        let pid = self.sh("getfattr --only-values -n user.fzmfs.daemon.pid mnt");
        String::from_utf8_lossy(&pid.stdout).trim().parse().unwrap()
    }

    /// A shell line of the user's.
    fn sh(&self, line: &str) -> Output {
        run(self.as_user("bash").arg("-euc").arg(line))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        Command::new("umount").arg("-lq").arg(self.0.path().join("mnt")).status().ok();
    }
}

#[test]
fn a_user_mounts_reads_and_unmounts() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    let output = home.mount(&["size=3000000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = sh(home.0.path(), "grep -F $PWD/mnt /proc/self/mountinfo");
    assert!(line.contains("fuse.fzmfs") && line.contains("ro,nosuid,nodev"), "{line}");
    assert!(line.contains(&format!("user_id={NOBODY}")), "{line}");
    let read = home.sh("cat mnt/data.raw");
    assert!(read.stdout == bytes(DATA, 0, 3_000_000));
    let owner = home.sh("stat -c %u:%g mnt/data.raw");
    assert_eq!(String::from_utf8_lossy(&owner.stdout).trim(), format!("{NOBODY}:{NOBODY}"));
    // Not even root looks into it.
    assert_eq!(std::fs::metadata(home.0.path().join("mnt/data.raw")).unwrap_err().raw_os_error(), Some(libc::EACCES));

    let pid = home.daemon();
    sh(home.0.path(), &format!("kill -TERM {pid}"));
    wait_until("the mount ends", || !is_alive(pid) && !home.is_mounted());
}

#[test]
fn a_user_s_mount_is_unmounted_by_its_user_and_by_root() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    for by_user in [true, false] {
        assert!(home.mount(&[]).status.success());
        let pid = home.daemon();
        let mut umount = if by_user { home.as_user("./fzmfs") } else { fzmfs() };
        let output = run(umount.arg("umount").arg(home.0.path().join("mnt")));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!is_alive(pid) && !home.is_mounted(), "by the user: {by_user}");
    }
}

#[test]
fn a_file_that_the_user_may_not_read_is_listed_in_the_layout_plain_too() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    let logs = home.0.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    for name in ["a.log.zst", "secret.log.zst"] {
        std::fs::write(logs.join(name), zstd::encode_all(&b"a line\n"[..], 1).unwrap()).unwrap();
    }
    sh(&logs, "chmod 000 secret.log.zst && chmod 755 .");
    let output = home.sh("./fzmfs mount -o layout=plain,noexec logs mnt");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&home.sh("ls mnt").stdout), "a.log\nsecret.log.zst\n");
    let copied = home.sh("cp -r mnt copy");
    let said = String::from_utf8_lossy(&copied.stderr);
    assert!(!copied.status.success() && said.contains("secret.log") && said.contains("Permission denied"), "{said}");
    assert_eq!(home.sh("cat copy/a.log").stdout, b"a line\n");
    let line = sh(home.0.path(), "grep -F $PWD/mnt /proc/self/mountinfo");
    assert!(line.contains("noexec"), "{line}");
    // Root sees that it is there, and no more.
    let listed = run(fzmfs().arg("list").arg(home.0.path().join("mnt"))).stdout;
    let listed = String::from_utf8_lossy(&listed);
    assert!(listed.contains(&format!("it answers only the user with the id {NOBODY}")), "{listed}");
    let output = home.sh("./fzmfs umount mnt");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_user_is_told_whose_mount_it_is() {
    if !can_mount() || !has("setpriv") {
        return;
    }
    let home = Home::new();
    let point = home.0.path().join("mnt");
    let output = run(made().arg(&point));
    assert!(output.status.success(), "{output:?}");
    let said = |words: &[&str]| {
        let output = run(home.as_user("./fzmfs").args(words).arg(&point));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let whose = "of the user with the id 0: only that user and root may unmount it";
    assert!(said(&["umount"]).contains(whose), "{}", said(&["umount"]));
    let output = run(fzmfs().arg("umount").arg(&point));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_stopped_daemon_without_a_mount_is_not_taken_for_that_of_a_user() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    for _ in 0..3 {
        // Its device number is free, and is probably that of the next mount.
        let stopped = Mounted::made(&[]);
        let daemon = stopped.signal("STOP");
        sh(stopped.dir.path(), "umount -l mnt");
        assert!(home.mount(&[]).status.success());
        let pid = home.daemon();
        let output = run(fzmfs().arg("umount").arg(home.0.path().join("mnt")));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!is_alive(pid) && is_alive(daemon));
        sh(stopped.dir.path(), &format!("kill -KILL {daemon}"));
    }
}

#[test]
fn a_mount_in_namespaces_of_a_user_needs_no_helper_and_ends_when_it_is_idle() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    if !home.sh("unshare -Urm true").status.success() {
        skip("mounts in namespaces of users", "unshare -Urm: the kernel refuses them");
        return;
    }
    let ask = "$asks --only-values -n user.fzmfs.daemon.pid mnt || [ ! -e mnt/data.raw ]";
    let mut idle = 200;
    let pid = wait_for("asked before the mount ends", || {
        let made = format!("./made mnt idle={idle} size=1000");
        let mount = format!("asks=$(command -v getfattr); PATH=/nowhere; {made} && {{ {ask}; }}");
        let output = home.sh(&format!("unshare -Urm bash -c '{mount}'"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !home.is_mounted(), "{said}");
        idle *= 2;
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    });
    wait_until("the daemon ends", || !is_alive(pid));
}

#[test]
fn a_user_is_told_that_the_mount_is_in_use() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    assert!(home.mount(&[]).status.success());
    let output = home.sh("exec 7<mnt/data.raw; ./fzmfs umount mnt");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("in use"), "{said}");
    assert!(home.is_mounted());
    assert!(home.sh("./fzmfs umount mnt").status.success());
}

#[test]
fn allow_other_is_refused_to_users_with_the_reason() {
    if !users_can_mount() {
        return;
    }
    if sh(Path::new("/"), "grep -qx user_allow_other /etc/fuse.conf && echo yes || echo no").trim() == "yes" {
        return skip("refusal of allow_other", "/etc/fuse.conf allows it");
    }
    let home = Home::new();
    for word in ["allow_other", "allow_root"] {
        let output = home.mount(&[word]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("user_allow_other"), "{said}");
        assert!(!home.is_mounted());
    }
}

#[test]
fn a_mount_point_that_is_not_the_user_s_is_refused() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    sh(home.0.path(), "chown 0:0 mnt");
    let output = home.mount(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("mnt"), "{said}");
    assert!(!home.is_mounted());
}

#[test]
fn other_users_read_the_mount_if_it_allows_them_and_modes_apply() {
    if !users_can_mount() {
        return;
    }
    let home = Home::new();
    let read = |mounted: &Mounted| {
        sh(mounted.dir.path(), "chmod 755 .");
        let line = format!("cat {}/info.json", mounted.point.display());
        home.sh(&line)
    };
    let alone = Mounted::made(&[]);
    assert!(!read(&alone).status.success());
    let root = Mounted::made(&["allow_root"]);
    assert!(!read(&root).status.success());
    let all = Mounted::made(&["allow_other"]);
    assert!(read(&all).status.success());
    let masked = Mounted::made(&["allow_other", "umask=077"]);
    assert!(!read(&masked).status.success());
    let given = Mounted::made(&["allow_other", "umask=077", &format!("uid={NOBODY}")]);
    assert!(read(&given).status.success());
}
