//! The `fzmfs` commands, one file each. The only module that prints.
//!
//! A command takes its parsed options and standard output, and returns nothing or a `Failure`: one line for standard
//! error and the exit code.

mod args;
mod beneath;
mod cat;
mod completions;
#[cfg(feature = "fuse")]
mod doctor;
mod extract;
mod info;
mod invocation;
#[cfg(feature = "fuse")]
mod list;
mod log;
mod ls;
mod man;
#[cfg(feature = "fuse")]
mod mount;
mod mount_options;
mod open;
mod paths;
mod process;
mod progress;
mod report;
mod seconds;
#[cfg(feature = "serve")]
mod serve;
mod size;
#[cfg(feature = "fuse")]
mod syslog;
#[cfg(feature = "fuse")]
mod umount;
mod unused;
mod verify;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use args::{Cli, Command};
use clap::error::ErrorKind;
use report::{Failure, Outcome};

/// Runs the command given on this process's command line.
pub fn main() -> ExitCode {
    let outcome = process::join().and_then(|()| match args::parse(std::env::args_os().collect()) {
        Ok(cli) => run(&cli),
        Err(error) => print_usage(&error),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report::report(&failure),
    }
}

fn run(cli: &Cli) -> Outcome {
    #[cfg(feature = "fuse")]
    if let Command::Mount(args) = &cli.command {
        return mount::run(args, cli.log.as_deref());
    }
    log::start(log::Level::Warnings, log::Target::choose(cli.log.as_deref(), log::Target::Terminal))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = match &cli.command {
        #[cfg(feature = "fuse")]
        Command::Mount(_) => Ok(()),
        #[cfg(feature = "fuse")]
        Command::Umount(args) => umount::run(args),
        #[cfg(feature = "fuse")]
        Command::List(args) => list::run(args, &mut out),
        Command::Ls(args) => ls::run(args, &mut out, io::stdout().is_terminal()),
        Command::Cat(args) => cat::run(args),
        Command::Info(args) => info::run(args, &mut out),
        Command::Verify(args) => verify::run(args, &mut out),
        Command::Extract(args) => extract::run(args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(args, &mut out),
        #[cfg(feature = "fuse")]
        Command::Doctor => doctor::run(&mut out),
        Command::Completions { shell } => completions::run(*shell, &mut out),
        Command::Man => man::run(&mut out),
    };
    let flushed = out.flush().map_err(|e| report::output(&e));
    outcome.and(flushed)
}

/// Prints help and version unchanged; converts usage errors to our message format.
fn print_usage(error: &clap::Error) -> Outcome {
    if !error.use_stderr() {
        return error.print().map_err(|e| report::output(&e));
    }
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(Failure::usage_lines(&format!("no command given\n\n{}", text.trim_end())));
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    // Newlines in an argument must not look like separate messages.
    let has_lines = std::env::args_os().any(|arg| arg.as_encoded_bytes().contains(&b'\n'));
    Err(if has_lines { Failure::usage(text) } else { Failure::usage_lines(text) })
}
