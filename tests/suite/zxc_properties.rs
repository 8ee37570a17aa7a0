//! ZXC against the official encoders of every format version: random data, levels, block sizes, checksums, seek
//! tables, dictionaries, and frames that follow one another.
//!
//! The encoders are the releases of zxc-compress that `scripts/oracle zxc` installs; without them the test reports
//! that it was skipped. `ZXC_RANDOM=COUNT,SEED` runs more than the default few of each release.

use std::path::Path;
use std::process::Command;

use fzmfs::format::{self, Input, Options};
use fzmfs::view::View;

use crate::support::opened::{Plain, file, numbered, read, verify};
use crate::support::oracle::oracle;

#[test]
fn files_of_the_official_packages_are_read() {
    let Some(python) = oracle("zxc") else { return };
    let asked = std::env::var("ZXC_RANDOM").unwrap_or_else(|_| "12,1".into());
    let (count, seed) = asked.split_once(',').unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/make_zxc.py");
    let made = Command::new(python).arg(script).arg(dir.path()).args([seed, count]).output().unwrap();
    assert!(made.status.success(), "make_zxc.py failed: {}", String::from_utf8_lossy(&made.stderr));
    let made = String::from_utf8(made.stdout).unwrap();
    for line in made.lines() {
        let (name, _) = line.split_once(' ').unwrap();
        if let Err(why) = check(dir.path(), name) {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
            for file in ["zxc", "raw", "zxd"].map(|suffix| format!("{name}.{suffix}")) {
                std::fs::copy(dir.path().join(&file), kept.join(&file)).ok();
            }
            panic!("{line}: {why}; kept in {}", kept.display());
        }
    }
    // Ten releases: two of version 4, four dialects of version 5, and versions 6 to 9.
    assert_eq!(made.lines().count(), 10 * count.parse::<usize>().unwrap());
}

/// Whether the file `name` is read as it was written, in all the ways there are to read it.
fn check(dir: &Path, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let path = |suffix: &str| dir.join(format!("{name}.{suffix}"));
    let want = std::fs::read(path("raw")).unwrap();
    let dicts = Some(path("zxd")).filter(|path| path.exists()).into_iter().collect();
    let options = Options { dicts, ..Options::default() };
    let container = format::open(&Input::open(&path("zxc")).unwrap(), None, &options)?;
    let same = |got: &[u8], want: &[u8], what: &str| match got.iter().zip(want).position(|(a, b)| a != b) {
        _ if got == want => Ok(()),
        at => Err(format!("{what}: {} bytes, {} wanted, first other at {at:?}", got.len(), want.len())),
    };

    let data = file(&*container, "data.raw").unwrap();
    same(&read(&data)?, &want, "data.raw")?;
    let view = View::new(&data.content, &Plain)?;
    for (i, len) in [1, 13, 5000].into_iter().enumerate() {
        let len = len.min(want.len());
        let at = (want.len() - len) * (i + 1) / 4;
        let mut bytes = vec![0xA5; len];
        view.read(at as u64, &mut bytes, &Plain)?;
        same(&bytes, &want[at..][..len], "a part of data.raw")?;
    }
    let mut chunks = Vec::new();
    for chunk in numbered(&*container, "chunks") {
        chunks.extend(read(&chunk?)?);
    }
    same(&chunks, &want, "all chunks")?;
    Ok(verify(&*container)?)
}
