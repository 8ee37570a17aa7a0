//! Parses a command line: its form first, then the words of `-o`.
#![forbid(unsafe_code)]

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::super::{invocation, mount_options};
use super::Cli;

/// Parses a command line in any of its forms, and expands the words of `-o`.
///
/// # Errors
/// Errors for clap to print: incorrect usage, or requested help.
pub(in crate::cli) fn parse(argv: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut program = Cli::command();
    program.build();
    let mut argv = normalised(argv);
    let cli = Cli::try_parse_from(&argv)?;
    if cli.command.option_lists().is_empty() {
        return Ok(cli);
    }
    let command = argv.get(1).and_then(|name| program.find_subcommand(name)).unwrap_or(&program);
    let mounting = program.find_subcommand("mount").map(mount_options::OptionSpec::of).unwrap_or_default();
    let options = mount_options::expand(cli.command.option_lists(), &mount_options::OptionSpec::of(command), &mounting)
        .map_err(|line| clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{line}\n")))?;
    // Insert before the long options given explicitly, which therefore take precedence.
    let behind = argv.split_off(2.min(argv.len()));
    argv.extend(options.into_iter().chain(behind));
    Cli::try_parse_from(&argv)
}

/// A command line in any of its forms as one with the command first.
pub(in crate::cli) fn normalised(argv: Vec<OsString>) -> Vec<OsString> {
    let mut program = Cli::command();
    program.build();
    invocation::normalise(argv, &words(&program))
}

/// The commands, and all options that take a value.
fn words(program: &clap::Command) -> invocation::InvocationWords {
    let commands = program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let args = program.get_subcommands().flat_map(clap::Command::get_arguments).chain(program.get_arguments());
    let valued = args.filter(|arg| arg.get_action().takes_values() && !arg.is_positional()).flat_map(|arg| {
        let long = arg.get_long_and_visible_aliases().into_iter().chain(arg.get_all_aliases()).flatten();
        let short = arg.get_short().map(|short| format!("-{short}"));
        long.map(|long| format!("--{long}")).chain(short).collect::<Vec<_>>()
    });
    invocation::InvocationWords { commands, valued: valued.collect() }
}

#[cfg(feature = "fuse")]
#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::decode::Shape;
    use super::super::{Command, Mount, VerifyMode};
    use super::*;
    use crate::archive::Device;

    fn parsed(line: &str) -> Result<Cli, String> {
        parse(line.split(' ').map(OsString::from).collect()).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn mount(line: &str) -> Box<Mount> {
        match parsed(line).unwrap().command {
            Command::Mount(mount) => mount,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_of_a_mount_is_a_word_and_a_long_option() {
        let option_lists = "allow_other,auto_unmount,default_permissions,ro,fsname=me,uid=3,gid=4,umask=027,verify=off,\
                     cache=16M,threads=3,device=cuda:1,gpu_memory=8M,format=fzm,dict=a,dict=b,dtype=<f4,shape=2x3,idle=9m";
        let long = format!(" --{}", option_lists.replace(',', " --"));
        let by_word = mount(&format!("fzmfs mount a /mnt -o {option_lists}"));
        let by_option = mount(&format!("fzmfs mount a /mnt{long}"));
        let dashed = mount(&format!("fzmfs mount a /mnt{}", long.replace('_', "-")));
        for m in [&by_word, &by_option, &dashed] {
            let (on, r) = (&m.mounting, &m.reading);
            assert!(on.allow_other && on.auto_unmount && on.default_permissions && on.ro && !on.allow_root);
            assert_eq!((on.fsname.as_deref(), on.uid, on.gid), (Some("me".as_ref()), Some(3), Some(4)));
            assert_eq!(on.idle, Some(540));
            assert_eq!((on.umask, r.verify, r.cache), (Some(0o027), VerifyMode::Off, Some(16 << 20)));
            assert_eq!((r.threads, r.device, r.format.as_deref()), (Some(3), Device::Cuda(1), Some("fzm")));
            assert_eq!((r.gpu_memory, &r.dict[..]), (Some(8 << 20), &["a", "b"].map(PathBuf::from)[..]));
            assert_eq!((r.dtype.as_deref(), &r.shape), (Some("<f4"), &Some(Shape(vec![2, 3]))));
        }
    }

    #[test]
    fn the_option_written_out_wins_over_the_word_and_the_last_word_over_the_first() {
        let m = mount("fzmfs a.fzm /mnt --cache 1G -o cache=2G,threads=1 -o threads=2,noauto --dict c -o dict=d");
        assert_eq!((m.reading.cache, m.reading.threads), (Some(1 << 30), Some(2)));
        assert_eq!(m.reading.dict, ["d", "c"].map(PathBuf::from));
    }

    #[test]
    fn a_file_named_like_a_command_mounts_by_the_command() {
        assert_eq!(mount("fzmfs mount info /mnt").file, PathBuf::from("info"));
        assert!(matches!(parsed("fzmfs info a").unwrap().command, Command::Info(_)));
    }

    #[test]
    fn a_reading_command_takes_the_words_that_mean_something_to_it() {
        let Command::Cat(cat) = parsed("fzmfs cat a data.raw -o verify=off,dtype=f4,rw").unwrap().command else {
            panic!("not cat")
        };
        assert_eq!((cat.reading.verify, cat.reading.dtype.as_deref()), (VerifyMode::Off, Some("f4")));
        assert_eq!(cat.paths, ["data.raw"]);
        assert!(parsed("fzmfs cat a data.raw -o allow_other").is_err());
    }

    #[test]
    fn wrong_values_are_refused() {
        for option in [
            "cache=lots",
            "threads=0",
            "threads=x",
            "verify=never",
            "device=gpu",
            "device=cuda:x",
            "shape=2xx3",
            "shape=",
            "umask=8",
            "umask=1777",
            "umask=+7",
            "uid=-1",
            "uid=4294967295",
            "fsname=",
            "gid=me",
            "idle=-1",
            "idle=soon",
            "ro=1",
            "cache",
            "allow_root,allow_other",
        ] {
            assert!(parsed(&format!("fzmfs mount a /mnt -o {option}")).is_err(), "{option}");
        }
        for line in ["fzmfs", "fzmfs mount a", "fzmfs cat a", "fzmfs nosuch a", "fzmfs ls", "fzmfs umount"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_helper_that_fakes_does_everything_but_mount() {
        let m = mount("/sbin/mount.fzmfs a /mnt -sfnv -o rw,noexec,nosuid,nodev,user=anna");
        assert!(m.purpose.fake && !m.foreground);
    }
}
