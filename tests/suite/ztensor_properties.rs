//! zTensor against the official writer: random tensors of every type, sparse ones, layouts that nobody knows, raw
//! and compressed, in canonical files and in files that were added to.
//!
//! The writer is the Python package of `scripts/oracle ztensor`. `ZTENSOR_RANDOM=COUNT,SEED` asks for more than the
//! usual few.

use std::path::Path;
use std::process::Command;

use fzmfs::format::Options;
use serde_json::Value;

use crate::blosc2::Opened;
use crate::support::oracle::oracle;

/// Bytes of the header of a `.npy` file of version 1.0, which says `descr` and `shape`.
#[track_caller]
fn header(npy: &[u8], descr: &str, shape: &str) -> usize {
    assert_eq!(npy[..8], *b"\x93NUMPY\x01\0");
    let end = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
    let text = String::from_utf8_lossy(&npy[10..end]);
    assert!(text.contains(&format!("'descr': '{descr}'")), "{descr}: {text}");
    assert!(text.contains(&format!("'shape': {shape},")), "{shape}: {text}");
    end
}

/// Compares the part that shows as `path` with what was written.
fn compare(opened: &Opened, dir: &Path, path: &str, part: &Value) {
    let read = |suffix| opened.read(&format!("{path}{suffix}")).unwrap_or_else(|e| panic!("{path}{suffix}: {e}"));
    let want = std::fs::read(dir.join(part["bytes"].as_str().unwrap())).unwrap();
    assert!(read(".raw") == want, "{path}.raw has other bytes");
    if let Some(descr) = part["descr"].as_str() {
        let npy = read(".npy");
        let end = header(&npy, descr, part["shape"].as_str().unwrap());
        assert!(npy[end..] == want, "{path}.npy has other bytes");
    } else {
        assert!(opened.read(&format!("{path}.npy")).is_err(), "{path} has a type that NumPy has not");
    }
}

#[test]
fn files_of_the_official_package_are_read() {
    let Some(python) = oracle("ztensor") else { return };
    let asked = std::env::var("ZTENSOR_RANDOM").unwrap_or_else(|_| "60,7".into());
    let (count, seed) = asked.split_once(',').unwrap();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/make_ztensor.py");
    let status = Command::new(python).arg(script).arg("random").arg(dir).args([seed, count]).status().unwrap();
    assert!(status.success(), "make_ztensor.py failed");
    let count: usize = count.parse().unwrap();
    let mut compared = 0;
    for number in 0..count {
        let file = dir.join(format!("{number:03}.zt"));
        // Named in whatever fails: count and seed make the file again.
        eprintln!("{number:03}.zt");
        let opened = Opened::with(&file, None, &Options::default()).unwrap_or_else(|e| panic!("does not open: {e}"));
        let tensors = std::fs::read(file.with_extension("json")).unwrap();
        let tensors: Vec<Value> = serde_json::from_slice(&tensors).unwrap();
        for tensor in tensors {
            let path = format!("tensors/{}", tensor["path"].as_str().unwrap());
            let parts = tensor["parts"].as_object().unwrap();
            for (role, part) in parts {
                let of_part = if tensor["dense"] == true { path.clone() } else { format!("{path}/{role}") };
                compare(&opened, dir, &of_part, part);
                compared += 1;
            }
        }
        opened.verify().unwrap_or_else(|e| panic!("is found wrong: {e}"));
    }
    assert!(compared > count, "{compared} parts");
    eprintln!("{count} files of the official writer, {compared} parts");
}
