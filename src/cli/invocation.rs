//! Ways to invoke the program: with a command, as `fzmfs FILE MOUNTPOINT`, and as a mount helper.
//!
//! Each is normalized to a command line with an explicit command.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The helper names that mount(8) looks for.
const HELPERS: [&str; 2] = ["mount.fzmfs", "mount.fuse.fzmfs"];

/// Returns the command line with an explicit command, and the index of the command.
pub(super) fn normalise(argv: Vec<OsString>, commands: &[String]) -> (Vec<OsString>, usize) {
    if argv.first().and_then(|me| Path::new(me).file_name()).is_some_and(|me| HELPERS.iter().any(|name| me == *name)) {
        return (helper(argv), 1);
    }
    let mut at = 1;
    while argv.get(at).is_some_and(|arg| arg == "--log") {
        at += 2;
    }
    while argv.get(at).is_some_and(|arg| arg.as_bytes().starts_with(b"--log=")) {
        at += 1;
    }
    let bare = argv.get(at).is_some_and(|arg| is_container(arg, commands));
    let mut argv = argv;
    if bare {
        argv.insert(at, "mount".into());
    }
    (argv, at)
}

/// Whether the first word is a container to mount, rather than a command, a misspelled command, or an option.
fn is_container(word: &OsString, commands: &[String]) -> bool {
    let bytes = word.as_bytes();
    if commands.iter().any(|command| word == command.as_str()) {
        return false;
    }
    if bytes.starts_with(b"-") {
        return !matches!(bytes, b"-h" | b"--help" | b"-V" | b"--version");
    }
    !bytes.iter().all(u8::is_ascii_lowercase) || Path::new(word).exists()
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
        let commands: Vec<String> = ["mount", "ls", "cat", "help"].map(String::from).into();
        let argv = line.split_whitespace().map(OsString::from).collect();
        let (got, at) = normalise(argv, &commands);
        let got: Vec<_> = got.iter().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(got.join(" "), want);
        if let Some(first) = got.get(at) {
            assert!(
                commands.iter().any(|c| c == first) || first.starts_with('-') || !want.contains("mount"),
                "{got:?}"
            );
        }
    }

    #[test]
    fn a_command_stays_as_it_is() {
        check("fzmfs", "fzmfs");
        check("fzmfs ls a.fzm", "fzmfs ls a.fzm");
        check("fzmfs --log x ls a.fzm", "fzmfs --log x ls a.fzm");
        check("fzmfs mount ls /mnt", "fzmfs mount ls /mnt");
        check("fzmfs --help", "fzmfs --help");
        check("/usr/bin/fzmfs -V", "/usr/bin/fzmfs -V");
    }

    #[test]
    fn a_file_and_a_mountpoint_are_a_mount() {
        check("fzmfs a.fzm /mnt", "fzmfs mount a.fzm /mnt");
        check("fzmfs a.fzm /mnt -o ro,dev", "fzmfs mount a.fzm /mnt -o ro,dev");
        check("fzmfs -o ro a.fzm /mnt", "fzmfs mount -o ro a.fzm /mnt");
        check("fzmfs --log=x a.fzm /mnt", "fzmfs --log=x mount a.fzm /mnt");
        check("fzmfs --log x /data/a /mnt", "fzmfs --log x mount /data/a /mnt");
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
