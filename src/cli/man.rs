//! `fzmfs man`: the manual page, generated from the definitions of `--help` and a written reference.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use clap::CommandFactory;
use clap_mangen::Man;

use super::args::Cli;
use super::report::{self, Outcome};

/// The sections before the commands, in man(7) format.
const HEAD: &str = r"
.SH SYNOPSIS
.B fzmfs
.I COMMAND
[\fIOPTION\fR]... [\fIARGUMENT\fR]...
.br
.B fzmfs
.I FILE MOUNTPOINT
[\fB\-o\fR \fIOPTION\fR,...]
.SH DESCRIPTION
.B fzmfs mount
mounts a container of compressed arrays (FZM, Blosc2, ZXC, zTensor or Zstandard) as a read-only directory of decoded files.
Only the parts of it that are read are decoded, and a cache keeps them.
The second form does the same, as
.BR mount (8)
and
.BR fstab (5)
call it.
The other commands read a container without mounting it.
";

/// The sections after the options, in man(7) format.
const REFERENCE: &str = include_str!("man/reference.roff");

/// The units that the reference shows, by their place in it; packages bring the same files.
const UNITS: [(&str, &str); 2] = [
    ("@mnt-field.mount@", include_str!("man/systemd/mnt-field.mount")),
    ("@fzmfs@.service@", include_str!("man/systemd/fzmfs@.service")),
];

pub(super) fn run(out: &mut dyn Write) -> Outcome {
    let page = page().map_err(|e| report::output(&e))?;
    out.write_all(&page).map_err(|e| report::output(&e))
}

/// The page in man(7) format.
fn page() -> io::Result<Vec<u8>> {
    let mut program = Cli::command();
    program.build();
    let man = Man::new(program.clone()).manual("User Commands").source(concat!("fzmfs ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend_from_slice(HEAD.trim_start().as_bytes());
    writeln!(page, ".SH COMMANDS")?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
        writeln!(page, ".TP\n.B {usage}")?;
        if let Some(about) = command.get_about() {
            writeln!(page, "{}", about.to_string().replace('-', "\\-"))?;
        }
    }
    writeln!(page, ".SH OPTIONS\nEach can also be given in a list, as in \\fB\\-o\\fR \\fIa,b=c\\fR.")?;
    writeln!(page, "A backslash before a comma makes it part of the value.")?;
    writeln!(page, "Sizes may end in K, M or G: powers of 1024; times in s, m, h or d.")?;
    let mount = program.find_subcommand("mount").cloned().unwrap_or_default();
    let mut options = Vec::new();
    Man::new(mount).render_options_section(&mut options)?;
    let text = String::from_utf8_lossy(&options);
    let body = text.split_once(".SH OPTIONS\n").map_or(&*text, |(_, body)| body);
    page.extend_from_slice(body.as_bytes());
    let shown = |text: &str| text.trim_end().replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let reference = UNITS.iter().fold(REFERENCE.to_owned(), |text, (place, unit)| text.replace(place, &shown(unit)));
    page.extend_from_slice(reference.as_bytes());
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_every_option_and_every_section() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        let plain = page.replace("\\-", "-");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(plain.contains(&format!("fzmfs {}", command.get_name())), "{}", command.get_name());
            for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                let Some(long) = option.get_long().filter(|_| command.get_name() == "mount") else { continue };
                assert!(plain.contains(&format!("--{long}")), "--{long}");
            }
        }
        for unit in ["What=/data/field.fzm", "ExecStart=/usr/bin/fzmfs mount --foreground"] {
            assert!(plain.contains(unit), "{unit}");
        }
        assert!(!page.contains(".mount@") && !page.contains(".service@\n"));
        for section in
            ["NAME", "SYNOPSIS", "COMMANDS", "OPTIONS", "EXIT STATUS", "LOG", "LIMITS", "EXAMPLES", "SEE ALSO"]
        {
            assert!(page.lines().any(|line| line.strip_prefix(".SH ") == Some(section)), "{section}");
        }
    }
}
