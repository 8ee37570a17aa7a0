//! `fzmfs completions`: what a shell needs to complete our command line.
#![forbid(unsafe_code)]

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Cli;
use super::report::{Failure, Outcome};

pub(super) fn run(shell: Shell, out: &mut dyn Write) -> Outcome {
    // Made in memory first: the generator panics where writing fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fzmfs", &mut script);
    out.write_all(&script).map_err(|e| Failure::output(&e))
}
