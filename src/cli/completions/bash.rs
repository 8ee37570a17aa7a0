//! The script for bash: a template, with the commands, options and values of the command line.
#![forbid(unsafe_code)]

use std::fmt::Write;

use clap::{Arg, Command};

use crate::format::FORMATS;

const TEMPLATE: &str = include_str!("fzmfs.bash");

/// The script for `program`.
pub(super) fn script(program: &Command) -> String {
    let commands = program.get_subcommands().map(Command::get_name).collect::<Vec<_>>();
    let (mut options, mut values) = (String::new(), String::new());
    for command in program.get_subcommands() {
        let (mut longs, mut words) = (Vec::new(), Vec::new());
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            longs.extend(arg.get_short().map(|short| format!("-{short}")));
            let Some(long) = arg.get_long() else { continue };
            longs.push(format!("--{long}"));
            let end = if arg.get_action().takes_values() { "=" } else { "" };
            if !matches!(long, "help" | "version" | "foreground" | "debug" | "json" | "force") {
                words.push(format!("{}{end}", long.replace('-', "_")));
            }
            let known = known_values(arg);
            let row = format!("        {long}) values='{}' ;;\n", known.join(" "));
            if !known.is_empty() && !values.contains(&row) {
                values.push_str(&row);
            }
        }
        // Without -o, a command takes no words.
        let takes_words = command.get_arguments().any(|arg| arg.get_short() == Some('o'));
        let words = if takes_words { words.join(" ") } else { String::new() };
        let name = command.get_name();
        // Writing to a string does not fail.
        let _ = writeln!(options, "        {name}) options='{}' words='{words}' ;;", longs.join(" "));
    }
    TEMPLATE
        .replace("@COMMANDS@", &commands.join(" "))
        .replace("        @OPTIONS@\n", &options)
        .replace("        @VALUES@\n", &values)
}

/// The values of an option, if they can be listed.
fn known_values(arg: &Arg) -> Vec<String> {
    match arg.get_long() {
        Some("device") => ["auto", "cpu", "cuda"].map(str::to_owned).into(),
        Some("format") => FORMATS.iter().map(|format| format.name.to_owned()).collect(),
        _ if arg.get_action().takes_values() => {
            arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}
