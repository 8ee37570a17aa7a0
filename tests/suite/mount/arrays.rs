//! Blosc2 files of the official library, side by side with how the library reads them: all of each array and
//! slices of it, every chunk, and the metalayers.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::mounts::{Mounted, can_mount, fzmfs, run};
use crate::support::oracle::oracle;

#[test]
fn a_mount_equals_what_the_official_library_reads() {
    if !can_mount() {
        return;
    }
    let Some(python) = oracle("blosc2") else { return };
    let script = |words: &[&Path]| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mount_blosc2.py");
        let output = run(Command::new(&python).arg(script).args(words));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let [files, points] = ["files", "points"].map(|name| dir.path().join(name));
    std::fs::create_dir(&files).unwrap();
    std::fs::create_dir(&points).unwrap();
    script(&[Path::new("make"), &files]);

    let mut mounts = Vec::new();
    for entry in std::fs::read_dir(&files).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "npy") {
            continue;
        }
        let output = run(fzmfs().arg("verify").arg(&path));
        assert!(output.status.success(), "{output:?}");
        let mounted = Mounted::of(&path);
        symlink(&mounted.point, points.join(path.file_name().unwrap())).unwrap();
        mounts.push(mounted);
    }
    let compared = script(&[Path::new("compare"), &files, &points]);
    assert_eq!(compared.lines().count(), mounts.len(), "{compared}");
    assert!(mounts.len() > 30, "{compared}");
}
