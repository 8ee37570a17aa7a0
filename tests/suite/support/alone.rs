//! A test in a process of its own.

use std::process::Command;

/// Names the test to the process in which it runs.
const ALONE: &str = "FZMFS_TEST_ALONE";

/// Runs `work` in a process without other tests: the test `name`, which calls this, is run again there, with `variables`.
///
/// # Panics
/// If it fails there.
#[track_caller]
pub(crate) fn alone(name: &str, variables: &[(&str, &str)], work: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return work();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", name, "--nocapture"]).env(ALONE, name).envs(variables.iter().copied());
    let output = again.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}
