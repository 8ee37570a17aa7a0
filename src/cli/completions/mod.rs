//! `fzmfs completions`: shell completions for the command line.
//!
//! The script for bash is our own: it completes words of `-o` and mount points too. The others are generated.
#![forbid(unsafe_code)]

mod bash;

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Cli;
use super::report::{self, Outcome};

pub(super) fn run(shell: Shell, out: &mut dyn Write) -> Outcome {
    let mut program = Cli::command();
    program.build();
    let script = if shell == Shell::Bash { bash::script(&program) } else { generated(shell, &mut program) };
    out.write_all(script.as_bytes()).map_err(|e| report::output(&e))
}

fn generated(shell: Shell, program: &mut clap::Command) -> String {
    // Generated in memory first: the generator panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "fzmfs", &mut script);
    let hidden = program.get_subcommands().flat_map(clap::Command::get_arguments).filter(|arg| arg.is_hide_set());
    // It has a line for each option, hidden ones included, with its help; other characters may be escaped.
    let plain = |help: String| help.chars().take_while(|&c| c.is_alphanumeric() || c == ' ').collect::<String>();
    let hidden: Vec<_> = hidden.filter_map(clap::Arg::get_help).map(|help| plain(help.to_string())).collect();
    let is_shown = |line: &&str| !hidden.iter().any(|help| line.contains(help));
    String::from_utf8_lossy(&script).lines().filter(is_shown).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shell_completes_what_is_hidden() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            run(shell, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("threads"), "{shell}");
            assert!(!script.contains("as of ls(1)"), "{shell}");
            assert!(!script.contains("fake"), "{shell}: {:?}", script.lines().find(|line| line.contains("fake")));
        }
    }
}
