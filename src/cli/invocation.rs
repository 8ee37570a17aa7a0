//! Ways to invoke the program: with a command, as `fzmfs FILE MOUNTPOINT`, and as a mount helper.
//!
//! Each is normalized to a command line with an explicit command.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;

use crate::platform::OsStrExt;

/// The helper names that mount(8) looks for.
const HELPERS: [&str; 2] = ["mount.fzmfs", "mount.fuse.fzmfs"];

/// The words of a command line that this module distinguishes.
#[derive(Debug)]
pub(super) struct InvocationWords {
    /// The commands.
    pub(super) commands: Vec<String>,
    /// The options that take a value, with their dashes.
    pub(super) valued: Vec<String>,
}

impl InvocationWords {
    /// Whether the value of the option `arg` is the next word.
    fn takes_next(&self, arg: &OsString) -> bool {
        self.valued.iter().any(|option| arg == option.as_str())
    }

    fn is_command(&self, word: &OsString) -> bool {
        self.commands.iter().any(|command| word == command.as_str())
    }
}

/// Returns the command line with the command first, if there is one. Options before it are moved behind it.
pub(super) fn normalise(mut argv: Vec<OsString>, words: &InvocationWords) -> Vec<OsString> {
    if argv.first().and_then(|me| Path::new(me).file_name()).is_some_and(|me| HELPERS.iter().any(|name| me == *name)) {
        return helper(argv);
    }
    let mut at = 1;
    while let Some(arg) = argv.get(at).filter(|arg| arg.as_bytes().starts_with(b"-")) {
        if matches!(arg.as_bytes(), b"-h" | b"--help" | b"-V" | b"--version") {
            return argv;
        }
        at += if words.takes_next(arg) { 2 } else { 1 };
    }
    match argv.get(at) {
        Some(word) if words.is_command(word) => {
            let command = argv.remove(at);
            argv.insert(1, command);
        }
        // A misspelled command.
        Some(word) if at == 1 && !is_container(word) => {}
        None if argv.len() < 2 => {}
        _ => argv.insert(1, "mount".into()),
    }
    argv
}

/// Whether the first word, which is not a command, is a container to mount.
fn is_container(word: &OsString) -> bool {
    !word.as_bytes().iter().all(u8::is_ascii_lowercase) || Path::new(word).exists()
}

/// Translates `mount.fzmfs FILE MOUNTPOINT [-sfnv] [-t TYPE] [-o OPTIONS]`, as documented in mount(8).
///
/// `-f` means "fake": everything except the mount. `-s`, `-n` and `-v` have no effect.
fn helper(argv: Vec<OsString>) -> Vec<OsString> {
    if matches!(argv.get(1).map(|arg| arg.as_bytes()), Some(b"-V" | b"--version")) {
        return argv;
    }
    let mut args = argv.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    out.push("mount".into());
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        match bytes {
            b"-o" => {
                out.push(arg);
                out.extend(args.next());
            }
            b"-t" => drop(args.next()),
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(|flag| b"sfnv".contains(flag)) => {
                if flags.contains(&b'f') {
                    out.push("--fake".into());
                }
            }
            _ => out.push(arg),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: &str) {
        let commands = ["mount", "ls", "cat", "help"].map(String::from).into();
        let valued = ["--log", "--cache", "-o"].map(String::from).into();
        let argv = line.split_whitespace().map(OsString::from).collect();
        let got = normalise(argv, &InvocationWords { commands, valued });
        let got: Vec<_> = got.iter().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(got.join(" "), want);
    }

    #[test]
    fn a_command_stays_as_it_is() {
        check("fzmfs", "fzmfs");
        check("fzmfs ls a.fzm", "fzmfs ls a.fzm");
        check("fzmfs --log x ls a.fzm", "fzmfs ls --log x a.fzm");
        check("fzmfs mount ls /mnt", "fzmfs mount ls /mnt");
        check("fzmfs --help", "fzmfs --help");
        check("/usr/bin/fzmfs -V", "/usr/bin/fzmfs -V");
    }

    #[test]
    fn options_may_come_before_the_command() {
        check("fzmfs --cache 1G mount a.fzm /mnt", "fzmfs mount --cache 1G a.fzm /mnt");
        check("fzmfs --cache=1G -o ro ls a.fzm", "fzmfs ls --cache=1G -o ro a.fzm");
        check("fzmfs -l ls a.fzm", "fzmfs ls -l a.fzm");
        check("fzmfs --cache ls mount a.fzm", "fzmfs mount --cache ls a.fzm");
        check("fzmfs -o ls", "fzmfs mount -o ls");
        check("fzmfs --cache 1G --help", "fzmfs --cache 1G --help");
    }

    #[test]
    fn a_file_and_a_mountpoint_are_a_mount() {
        check("fzmfs a.fzm /mnt", "fzmfs mount a.fzm /mnt");
        check("fzmfs a.fzm /mnt -o ro,dev", "fzmfs mount a.fzm /mnt -o ro,dev");
        check("fzmfs -o ro a.fzm /mnt", "fzmfs mount -o ro a.fzm /mnt");
        check("fzmfs --log=x a.fzm /mnt", "fzmfs mount --log=x a.fzm /mnt");
        check("fzmfs --log x /data/a /mnt", "fzmfs mount --log x /data/a /mnt");
        check("fzmfs src /mnt", "fzmfs mount src /mnt");
    }

    #[test]
    fn a_misspelled_command_is_not_a_file() {
        check("fzmfs lss a.fzm", "fzmfs lss a.fzm");
    }

    #[test]
    fn a_mount_helper_takes_what_mount_passes() {
        check("/sbin/mount.fzmfs a /mnt -o rw,noexec", "/sbin/mount.fzmfs mount a /mnt -o rw,noexec");
        check("mount.fuse.fzmfs a /mnt -n -v -s -o ro", "mount.fuse.fzmfs mount a /mnt -o ro");
        check("mount.fzmfs a /mnt -fv -o ro", "mount.fzmfs mount a /mnt --fake -o ro");
        check("mount.fzmfs -V", "mount.fzmfs -V");
        check("mount.fzmfs ls /mnt -t fuse.fzmfs -o -f", "mount.fzmfs mount ls /mnt -o -f");
    }
}
