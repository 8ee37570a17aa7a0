//! The Python of an official package, which writes the files of a benchmark and is asked for the seconds that something
//! takes it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

pub(crate) struct Official {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Official {
    /// Runs `script ARGS` with the Python of `scripts/oracle package`, if that is installed.
    pub(crate) fn start(package: &str, script: &str, args: &[&str]) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let own = root.join("target/oracles").join(package).join("bin/python");
        let python = std::env::var_os(format!("{}_PYTHON", package.to_uppercase())).map_or(own, PathBuf::from);
        let mut command = Command::new(python);
        command.arg(root.join("tests/support").join(script)).args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let answers = BufReader::new(child.stdout.take()?).lines();
        Some(Self { child, answers })
    }

    /// The next line that it prints.
    pub(crate) fn answer(&mut self) -> String {
        self.answers.next().unwrap().unwrap()
    }

    /// The time that `task` takes it, usually a word and a path.
    pub(crate) fn ask(&mut self, task: impl std::fmt::Display) -> Duration {
        writeln!(self.child.stdin.as_mut().unwrap(), "{task}").unwrap();
        Duration::from_secs_f64(self.answer().parse().unwrap())
    }
}

impl Drop for Official {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}
