//! Mounted zTensor files in the programs that tensors are made for: `NumPy`, `SciPy` and safetensors see what
//! the official package sees.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::mounts::{Mounted, can_mount, run};
use crate::support::oracle::oracle;

/// The official package and those programs, if mounts can be made too.
fn python() -> Option<PathBuf> {
    can_mount().then(|| oracle("ztensor")).flatten()
}

/// Runs a script of tests/support, which has to succeed; gives what it said.
#[track_caller]
fn script<'a>(python: &Path, name: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name);
    let output = run(Command::new(python).arg(script).args(words));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_mount_shows_what_the_official_package_reads() {
    let Some(python) = python() else { return };
    let place = TempDir::new().unwrap();
    script(&python, "make_ztensor.py", ["random", place.path().to_str().unwrap(), "11", "12"]);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ztensor");
    let mut files: Vec<PathBuf> = (0..12).map(|number| place.path().join(format!("{number:03}.zt"))).collect();
    files.extend(["v20-append.zt", "v20-pypi-zstd.zt", "v20-zstd-seekable.zt"].map(|name| data.join(name)));
    let mounts: Vec<Mounted> = files.iter().map(|file| Mounted::of(file)).collect();
    let words = files.iter().zip(&mounts).flat_map(|(file, mount)| [file.as_path(), &mount.point]);
    let compared = script(&python, "check_ztensor.py", words.map(|path| path.to_str().unwrap()));
    for what in ["parts", "arrays", "matrices", "lazily loaded", "deserialized"] {
        assert!(compared.contains(what), "no {what}: {compared}");
    }
    println!("{} files: {compared}", files.len());
}

#[test]
fn one_tensor_is_taken_out_of_a_model_without_reading_the_others() {
    let Some(python) = python() else { return };
    let place = TempDir::new().unwrap();
    let file = place.path().join("model.zt");
    let name = file.to_str().unwrap();
    script(&python, "make_ztensor.py", ["model", name]);
    let mount = Mounted::of(&file);
    let pid = mount.daemon().to_string();
    println!("{}", script(&python, "check_ztensor.py", ["lazily", name, mount.point.to_str().unwrap(), &pid]));
}
