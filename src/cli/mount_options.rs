//! Converts `-o` words (`a,b=c`, as in mount(8) and fstab(5)) to long options.
//!
//! The valid words are the long options of the command, so that both stay in sync. A backslash escapes a comma or a
//! backslash.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

use crate::platform::OsStrExt;

/// Words of mount(8) and fstab(5) that do not affect a read-only mount, or that mount(8) has handled already. Words
/// that promise what a mount would not keep are not among them.
const IGNORED: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "comment",
    "defaults",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "group",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nogroup",
    "noiversion",
    "nolazytime",
    "nomand",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "suid",
    "symfollow",
    "sync",
    "user",
    "users",
];

/// An option that a word can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OptionSpec {
    /// The long option, without leading dashes.
    pub(super) long: String,
    /// The value's name in the help; `None` for a switch.
    pub(super) value: Option<String>,
}

impl OptionSpec {
    /// The long options of `command`, except help and version.
    pub(super) fn of(command: &clap::Command) -> Vec<Self> {
        let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
        args.filter_map(|arg| {
            let takes = arg.get_action().takes_values();
            let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
            let long = arg.get_long().filter(|long| !matches!(*long, "help" | "version"))?.to_owned();
            Some(Self { long, value: takes.then(|| value.unwrap_or_else(|| "VALUE".to_owned())) })
        })
        .collect()
    }

    /// The name as used in `-o`.
    fn word(&self) -> String {
        self.long.replace('-', "_")
    }
}

/// Converts the words in `lists` to long options, in order. `known` are the options of the command; `mounting` those of
/// `mount`, for the error message about a word that only applies there.
///
/// # Errors
/// A message for the user if a word is unknown or lacks its value.
pub(super) fn expand(
    lists: &[OsString],
    known: &[OptionSpec],
    mounting: &[OptionSpec],
) -> Result<Vec<OsString>, String> {
    let mut options = Vec::new();
    for word in lists.iter().flat_map(|list| split(list)) {
        let (name, value) = match word.iter().position(|&b| b == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (&word[..], None),
        };
        let name = String::from_utf8_lossy(name);
        let Some(option) = known.iter().find(|option| option.long == name.replace('_', "-")) else {
            if is_ignored(&name) {
                continue;
            }
            return Err(unknown(&name, known, mounting));
        };
        let mut long = OsString::from(format!("--{}", option.long));
        match (value, &option.value) {
            (Some(value), _) => {
                long.push("=");
                long.push(OsStr::from_bytes(value));
            }
            (None, Some(value)) => return Err(format!("-o {name} needs a value: {name}={value}")),
            (None, None) => {}
        }
        options.push(long);
    }
    Ok(options)
}

/// Splits one `-o` value into words and removes escapes; drops empty words.
fn split(list: &OsStr) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new()];
    let mut bytes = list.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let literal = if byte == b'\\' { bytes.next_if(|next| matches!(next, b',' | b'\\')) } else { None };
        match (literal, words.last_mut()) {
            (None, _) if byte == b',' => words.push(Vec::new()),
            (_, Some(word)) => word.push(literal.unwrap_or(byte)),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_ignored(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-") || IGNORED.contains(&name)
}

fn unknown(name: &str, known: &[OptionSpec], mounting: &[OptionSpec]) -> String {
    if mounting.iter().any(|option| option.word() == name) {
        return format!("-o {name}: applies only to `fzmfs mount`");
    }
    if name == "remount" {
        return "-o remount: a mount cannot be changed; unmount it and mount it again".to_owned();
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return format!("-o {name}: a comma ends an option; write a shape as in shape=512x{name}, others with \\,");
    }
    let words: Vec<String> = known.iter().map(OptionSpec::word).collect();
    let all = words.iter().map(String::as_str).chain(IGNORED.iter().copied());
    let near = all.map(|word| (distance(name, word), word)).min().filter(|(far, _)| *far <= 1 + name.len() / 4);
    match near {
        Some((_, word)) => format!("-o {name}: no such option; did you mean {word}?"),
        None => format!("-o {name}: no such option; the options are {}", words.join(", ")),
    }
}

/// Edit distance: insertions, deletions, substitutions and swaps of adjacent characters that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<OptionSpec> {
        let option =
            |long: &str, value: Option<&str>| OptionSpec { long: long.to_owned(), value: value.map(ToOwned::to_owned) };
        vec![
            option("allow-other", None),
            option("cache", Some("SIZE")),
            option("dict", Some("FILE")),
            option("ro", None),
        ]
    }

    fn mounting() -> Vec<OptionSpec> {
        vec![OptionSpec { long: "allow-root".to_owned(), value: None }]
    }

    fn check(lists: &[&str], want: Result<&[&str], &str>) {
        let lists: Vec<OsString> = lists.iter().map(OsString::from).collect();
        let got = expand(&lists, &known(), &mounting());
        let want = want.map(|w| w.iter().map(OsString::from).collect::<Vec<_>>()).map_err(ToOwned::to_owned);
        assert_eq!(got, want, "{lists:?}");
    }

    #[test]
    fn words_become_long_options() {
        check(&[""], Ok(&[]));
        check(&["allow_other"], Ok(&["--allow-other"]));
        check(&["allow-other,ro"], Ok(&["--allow-other", "--ro"]));
        check(&["cache=16M", "dict=a,dict=b"], Ok(&["--cache=16M", "--dict=a", "--dict=b"]));
        check(&["cache=1=2"], Ok(&["--cache=1=2"]));
        check(&[",,ro,"], Ok(&["--ro"]));
        check(&["ro=1"], Ok(&["--ro=1"]));
    }

    #[test]
    fn a_backslash_takes_a_comma_literally() {
        check(&[r"dict=a\,b,ro"], Ok(&["--dict=a,b", "--ro"]));
        check(&[r"dict=a\\,ro"], Ok(&[r"--dict=a\", "--ro"]));
        check(&[r"dict=a\b"], Ok(&[r"--dict=a\b"]));
        check(&[r"dict=a\"], Ok(&[r"--dict=a\"]));
        let list = OsStr::from_bytes(br"dict=odd\,name\\\,").to_os_string();
        assert_eq!(expand(&[list], &known(), &[]).unwrap(), [r"--dict=odd,name\,"]);
        let list = OsStr::from_bytes(b"dict=\xff").to_os_string();
        assert_eq!(expand(&[list], &known(), &[]).unwrap()[0].as_bytes(), b"--dict=\xff");
    }

    #[test]
    fn words_of_mount_and_fstab_are_accepted_and_ignored() {
        for word in IGNORED {
            check(&[word], Ok(&[]));
        }
        check(&["rw,user=anna,x-systemd.automount,X-mount.mkdir=0755,comment=a b,noauto"], Ok(&[]));
    }

    #[test]
    fn an_unknown_word_suggests_the_nearest() {
        check(&["allow_othre"], Err("-o allow_othre: no such option; did you mean allow_other?"));
        check(&["cach=1"], Err("-o cach: no such option; did you mean cache?"));
        check(&["nodve"], Err("-o nodve: no such option; did you mean nodev?"));
        check(&["elephant"], Err("-o elephant: no such option; the options are allow_other, cache, dict, ro"));
        check(&["ro,dict"], Err("-o dict needs a value: dict=FILE"));
    }

    #[test]
    fn a_word_that_does_not_apply_is_refused_with_the_reason() {
        check(&["allow_root"], Err("-o allow_root: applies only to `fzmfs mount`"));
        check(&["ro,remount"], Err("-o remount: a mount cannot be changed; unmount it and mount it again"));
        let said = r"-o 7: a comma ends an option; write a shape as in shape=512x7, others with \,";
        check(&["dict=5,7"], Err(said));
    }

    #[test]
    fn the_distance_counts_edits() {
        for (a, b, want) in [("", "", 0), ("", "abc", 3), ("abc", "acb", 1), ("kitten", "sitting", 3), ("ro", "rw", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (want, want), "{a} {b}");
        }
    }
}
