//! `fzmfs completions`: shell completions for the command line.
#![forbid(unsafe_code)]

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Cli;
use super::report::{self, Outcome};

pub(super) fn run(shell: Shell, out: &mut dyn Write) -> Outcome {
    // Generated in memory first: the generator panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fzmfs", &mut script);
    out.write_all(&script).map_err(|e| report::output(&e))
}
