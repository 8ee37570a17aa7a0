//! Official libraries as Python has them, in the environments that `scripts/oracle NAME` make.

use std::path::{Path, PathBuf};

use super::mounts::skip;

/// The Python of the environment `name`, or the one that the variable `NAME_PYTHON` says; where there is none,
/// says that the test is skipped.
pub(crate) fn oracle(name: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/oracles").join(name).join("bin/python");
    let path = std::env::var_os(format!("{}_PYTHON", name.to_uppercase())).map_or(own, PathBuf::from);
    if !path.exists() {
        skip(&format!("the official {name} library"), &format!("scripts/oracle {name} installs it"));
        return None;
    }
    Some(path)
}
