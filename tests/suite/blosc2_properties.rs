//! Blosc2 against the official encoder: random data, codecs, filters, item sizes, block sizes and shapes; frames that
//! were edited, in files and directories; chunks of any size.
//!
//! The encoder is python-blosc2 in the environment that `scripts/oracle blosc2` makes; without it the test reports
//! that it was skipped. `BLOSC2_RANDOM=COUNT,SEED` runs more than the default few.

use std::path::Path;
use std::process::Command;

use fzmfs::format::Options;

use crate::blosc2::Opened;
use crate::support::oracle::oracle;

#[test]
fn files_of_the_official_package_are_read() {
    let Some(python) = oracle("blosc2") else { return };
    let asked = std::env::var("BLOSC2_RANDOM").unwrap_or_else(|_| "60,7".into());
    let (count, seed) = asked.split_once(',').unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/make_blosc2.py");
    let status = Command::new(python).arg(script).arg("random").arg(dir.path()).args([seed, count]).status().unwrap();
    assert!(status.success(), "make_blosc2.py failed");
    let mut read = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e == "raw") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let want = std::fs::read(path.with_extension("raw")).unwrap();
        let opened = Opened::with(&path, None, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let got = opened.read("data.raw").unwrap_or_else(|e| panic!("{name}: {e}"));
        if got != want {
            let at = got.iter().zip(&want).position(|(a, b)| a != b);
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
            Command::new("cp").arg("-r").args([&path, &kept]).status().unwrap();
            panic!(
                "{name}: {} bytes, expected {}, first difference at {at:?}; kept as {}",
                got.len(),
                want.len(),
                kept.display()
            );
        }
        opened.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        read += 1;
    }
    assert_eq!(read.to_string(), count);
    eprintln!("{read} files of the official encoder");
}
