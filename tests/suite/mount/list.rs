//! `fzmfs list`: what a mount does, whoever asks, and whatever has become of its daemon.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::mounts::{Mounted, can_mount, fzmfs, is_alive, read_apart, run, sh, wait_for, wait_until};

/// What `list` says of one mount. Of the others, which other tests make use of, it asks nothing.
#[track_caller]
fn listed(point: &Path) -> Value {
    let output = run(fzmfs().args(["list", "--json"]).arg(point));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The same of a daemon that runs: on a busy machine it may be too slow to be waited for.
#[track_caller]
fn answered(point: &Path) -> Value {
    wait_for("the daemon answers in time", || Some(listed(point)).filter(|mount| mount["state"] != "silent"))
}

#[test]
fn the_counters_are_those_of_the_reads() {
    if !can_mount() {
        return;
    }
    // Pieces that are decoded ahead stay until they are read.
    let mounted = Mounted::made(&["size=3000000", "piece=100000", "cache=4000000", "fsname=a b\\c"]);
    let before = answered(&mounted.point);
    assert_eq!((before["state"].as_str(), before["source"].as_str()), (Some("serving"), Some("a b\\c")));
    assert_eq!(before["mountpoint"].as_str(), mounted.point.to_str());
    assert_eq!(before["pid"].as_u64(), Some(mounted.daemon().into()));
    assert_eq!(before["stats"]["decoded_bytes"].as_u64(), Some(0));
    assert_eq!(before["stats"], answered(&mounted.point)["stats"], "asking is not use");

    assert_eq!(read_apart(&mounted.path("data.raw")).len(), 3_000_000);
    wait_until("the file is closed", || listed(&mounted.point)["stats"]["open_files"] == 0);
    let stats = answered(&mounted.point)["stats"].clone();
    let count = |name: &str| stats[name].as_u64().unwrap();
    assert_eq!((count("decoded_bytes"), count("decodes")), (3_000_000, 30));
    assert!(count("requests") > 3 && count("hits") + count("misses") > 0, "{stats}");
    assert!(count("cache_bytes") <= 4_000_000 && count("cache_limit") == 4_000_000, "{stats}");

    wait_until("the line for people", || {
        let line = String::from_utf8(run(fzmfs().arg("list").arg(&mounted.point)).stdout).unwrap();
        assert!(line.contains("MOUNTPOINT") && line.contains("a b\\c"), "{line}");
        line.contains("2.9 MiB")
    });
    let shown = sh(mounted.dir.path(), "getfattr --only-values -n user.fzmfs.stats mnt; getfattr -d -m - mnt");
    assert!(shown.starts_with('{') && shown.contains("\"decoded_bytes\":3000000"), "{shown}");
    assert_eq!(shown.matches("stats").count(), 0, "it is not listed: {shown}");
}

#[test]
fn a_daemon_that_is_stopped_delays_the_list_and_one_that_is_gone_is_called_dead() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let daemon = mounted.signal("STOP");
    let silent = listed(&mounted.point);
    assert!(silent["state"] == "silent" && silent["stats"].is_null() && silent["pid"].is_null(), "{silent}");
    sh(mounted.dir.path(), &format!("kill -KILL {daemon}"));
    wait_until("the daemon ends", || !is_alive(daemon));
    wait_until("dead", || listed(&mounted.point)["state"] == "dead");
    let output = run(fzmfs().arg("list").arg(&mounted.point));
    assert!(String::from_utf8_lossy(&output.stdout).contains("detach it with: fzmfs umount"), "{output:?}");
}

#[test]
fn mounts_of_others_are_counted_and_not_asked() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["allow_other"]);
    // A user of nothing, who has no mounts.
    let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    sh(dir.path(), &format!("cp '{}' fzmfs && chmod 755 .", env!("CARGO_BIN_EXE_fzmfs")));
    let as_user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65533", "--regid=65533", "--clear-groups", "./fzmfs", "list"]).args(args);
        run(command.current_dir(dir.path()))
    };
    let said = as_user(&[]);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("not shown") && !text.contains("MOUNTPOINT"), "{text}");
    assert_eq!(as_user(&["--json"]).stdout, b"[]\n");
    let refused = as_user(&[mounted.point.to_str().unwrap()]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && why.contains("mounted by another user"), "{why}");
}

#[test]
fn a_directory_that_is_no_mount_is_refused_and_a_covered_mount_is_named() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let refused = run(fzmfs().arg("list").arg(mounted.dir.path()));
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("fzmfs is not mounted there"));
    sh(mounted.dir.path(), "mount -t tmpfs none mnt");
    assert_eq!(listed(&mounted.point)["state"], "covered");
}
