//! The command line: commands, options, and the types of their values.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

#[cfg(feature = "fuse")]
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::{invocation, mount_options, size};
use crate::archive::{Device, Verify};
use crate::gpu::Gpu;

/// Mount compressed scientific containers as read-only directories of decoded files.
#[derive(Debug, Parser)]
#[command(
    name = "fzmfs",
    bin_name = "fzmfs",
    version,
    args_override_self = true,
    arg_required_else_help = true,
    after_help = "`fzmfs FILE MOUNTPOINT [-o OPTIONS]` mounts too, as mount(8) and fstab(5) call it.\n\
                  Exit codes: 0 all well; 1 a file is broken, unsupported or changed, or the operation failed; 2 wrong usage."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    /// Append the log to FILE instead of standard error; `FZMFS_LOG` sets the level (error, warn, info, debug, trace)
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[cfg(feature = "fuse")]
    /// Mount FILE read-only on the directory MOUNTPOINT; returns when the mount answers
    Mount(Box<Mount>),
    #[cfg(feature = "fuse")]
    /// Unmount, and wait until the daemon is gone
    Umount {
        /// The directory that fzmfs is mounted on
        mountpoint: PathBuf,
    },
    /// List the virtual tree, without mounting
    ///
    /// Prints the names that a mount shows, and that `cat` takes. On a terminal, invisible characters (such as a byte
    /// order mark) are escaped as \\u{...}.
    Ls(Ls),
    /// Write virtual files to standard output, without mounting
    Cat(Cat),
    /// Print format, sizes, pipeline, element type and checksums of a container
    Info(Info),
    /// Verify every checksum and decode everything
    Verify(Check),
    /// Write virtual files as real files below a directory
    Extract(Extract),
    #[cfg(feature = "fuse")]
    /// Report whether mounting works here, whether a GPU can be used, and what to do if not
    Doctor,
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, fzmfs(1)
    Man,
}

#[cfg(feature = "fuse")]
#[derive(Debug, Args)]
pub(super) struct Mount {
    /// The container
    pub(super) file: PathBuf,
    /// The directory to mount on
    pub(super) mountpoint: PathBuf,
    /// Stay in the foreground
    #[arg(short, long)]
    pub(super) foreground: bool,
    /// Log every request; implies --foreground
    #[arg(short, long)]
    pub(super) debug: bool,
    /// Do everything but the mount (`mount -f`)
    #[arg(long, hide = true)]
    pub(super) fake: bool,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
    #[command(flatten)]
    pub(super) mounting: MountArgs,
}

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// The container
    pub(super) file: PathBuf,
    /// A directory or file of the virtual tree
    #[arg(default_value = "", hide_default_value = true)]
    pub(super) path: OsString,
    /// Mode, size and name; links with their target
    #[arg(short, long)]
    pub(super) long: bool,
    /// Everything below PATH, as full paths, sorted
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Cat {
    /// The container
    pub(super) file: PathBuf,
    /// Files of the virtual tree
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Info {
    /// The container
    pub(super) file: PathBuf,
    /// The same as the file info.json of the virtual tree
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The containers
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// An array with an object for each file
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Extract {
    /// The container
    pub(super) file: PathBuf,
    /// The directory to write to; created if missing
    pub(super) dir: PathBuf,
    /// Files and directories of the virtual tree [default: everything but stored/]
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
    /// Replace existing files
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

/// What every command that opens a container takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Reading")]
pub(super) struct DecodeArgs {
    /// When to verify checksums that cover much more than the bytes read: before the first byte, in the background, or never
    #[arg(long, value_name = "WHEN", default_value = "first")]
    pub(super) verify: VerifyMode,
    /// Decoded bytes to keep, with suffix K, M or G [default: 1/8 of the memory, at most 1G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(super) cache: Option<u64>,
    /// Number of decoding threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<u16>,
    /// Device that decodes FZM: auto (a GPU if it is faster), cpu, cuda or cuda:N (that GPU, or fail)
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(super) device: Device,
    /// Maximum GPU memory to use [default: half of the free memory]
    #[arg(long, alias = "gpu_memory", value_name = "SIZE", value_parser = size::parse)]
    pub(super) gpu_memory: Option<u64>,
    /// Open FILE as this format instead of detecting it
    #[arg(long, value_name = "NAME")]
    pub(super) format: Option<String>,
    /// A dictionary file, chosen by its id; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) dict: Vec<PathBuf>,
    /// Element type, if the container has none, as in NumPy: f4, <i8
    #[arg(long, value_name = "TYPE")]
    pub(super) dtype: Option<String>,
    /// Shape, if the container has none, slowest dimension first: 512x512
    #[arg(long, value_name = "SHAPE")]
    pub(super) shape: Option<Shape>,
    /// Maximum Zstandard window size, for files written with --long
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "128M")]
    pub(super) window: u64,
    /// Maximum temporary disk space for decoded data that does not fit in memory; 0 for none [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(super) spill: Option<u64>,
    /// Long options as a comma-separated list, as in mount(8) and fstab(5)
    #[arg(short = 'o', value_name = "WORD,...")]
    pub(super) words: Vec<OsString>,
    /// The GPU of this process, created on first use.
    #[arg(skip)]
    pub(super) gpu: OnceLock<Arc<Gpu>>,
}

#[cfg(feature = "fuse")]
/// What only a mount takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Mounting")]
#[expect(clippy::struct_excessive_bools, reason = "switches of the command line")]
pub(super) struct MountArgs {
    /// Let all users read the mount
    #[arg(long, alias = "allow_other")]
    pub(super) allow_other: bool,
    /// Let root read the mount, too
    #[arg(long, alias = "allow_root", conflicts_with = "allow_other")]
    pub(super) allow_root: bool,
    /// Unmount when the daemon ends, even if it is killed
    #[arg(long, alias = "auto_unmount")]
    pub(super) auto_unmount: bool,
    /// Let the kernel check file modes (always on)
    #[arg(long, alias = "default_permissions")]
    pub(super) default_permissions: bool,
    /// Mount read-only (always on)
    #[arg(long)]
    pub(super) ro: bool,
    /// Source that mount(8) and df(1) show [default: FILE]
    #[arg(long, value_name = "NAME", value_parser = OsStringValueParser::new().try_map(fsname))]
    pub(super) fsname: Option<OsString>,
    /// Owner of all files [default: the user who mounts]
    #[arg(long, value_name = "UID", value_parser = id)]
    pub(super) uid: Option<u32>,
    /// Group of all files [default: the group of the user who mounts]
    #[arg(long, value_name = "GID", value_parser = id)]
    pub(super) gid: Option<u32>,
    /// Permission bits to clear in all files, in octal
    #[arg(long, value_name = "OCTAL", value_parser = umask)]
    pub(super) umask: Option<u16>,
}

/// [`Verify`] as an option value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum VerifyMode {
    First,
    Background,
    Off,
}

impl From<VerifyMode> for Verify {
    fn from(when: VerifyMode) -> Self {
        match when {
            VerifyMode::First => Self::First,
            VerifyMode::Background => Self::Background,
            VerifyMode::Off => Self::Off,
        }
    }
}

/// Elements per dimension, slowest first: `512x512`; commas also separate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape(pub(super) Vec<u64>);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Result<Vec<u64>, _> = text.split(['x', ',']).map(str::parse).collect();
        match sizes {
            Ok(sizes) if sizes.iter().try_fold(1_u64, |n, &d| n.checked_mul(d)).is_some() => Ok(Self(sizes)),
            Ok(_) => Err("so many elements do not fit 64 bits".to_owned()),
            Err(_) => Err("write the elements per dimension, slowest first, as in 512x512".to_owned()),
        }
    }
}

fn threads(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| "write a number from 1 to 1024".to_owned())
}

#[cfg(feature = "fuse")]
/// Parses a user or group id; the largest number means "none" to the kernel.
fn id(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number != u32::MAX);
    number.ok_or_else(|| format!("write a number from 0 to {}, as `id` shows it", u32::MAX - 1))
}

#[cfg(feature = "fuse")]
/// Checks the length that mount(2) accepts for a source.
fn fsname(name: OsString) -> Result<OsString, String> {
    let fits = (1..libc::PATH_MAX.unsigned_abs() as usize).contains(&name.len());
    if fits { Ok(name) } else { Err("write a name of 1 to 4095 bytes".to_owned()) }
}

#[cfg(feature = "fuse")]
fn umask(text: &str) -> Result<u16, String> {
    let mask = u16::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777 && !text.starts_with('+'));
    mask.ok_or_else(|| "write up to three octal digits, as in 022".to_owned())
}

impl Command {
    /// The values of `-o`, one list of words each.
    fn words(&self) -> &[OsString] {
        match self {
            #[cfg(feature = "fuse")]
            Self::Mount(mount) => &mount.reading.words,
            Self::Ls(ls) => &ls.reading.words,
            Self::Cat(cat) => &cat.reading.words,
            Self::Info(info) => &info.reading.words,
            Self::Verify(check) => &check.reading.words,
            Self::Extract(extract) => &extract.reading.words,
            #[cfg(feature = "fuse")]
            Self::Umount { .. } | Self::Doctor => &[],
            Self::Completions { .. } | Self::Man => &[],
        }
    }
}

/// Parses a command line in any of its forms, and expands the words of `-o`.
///
/// # Errors
/// Errors for clap to print: incorrect usage, or requested help.
pub(super) fn parse(argv: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut program = Cli::command();
    program.build();
    let names = program.get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>();
    let (mut argv, at) = invocation::normalise(argv, &names);
    let cli = Cli::try_parse_from(&argv)?;
    if cli.command.words().is_empty() {
        return Ok(cli);
    }
    let command = argv.get(at).and_then(|name| program.find_subcommand(name)).unwrap_or(&program);
    let mounting = program.find_subcommand("mount").map(mount_options::OptionSpec::of).unwrap_or_default();
    let options = mount_options::expand(cli.command.words(), &mount_options::OptionSpec::of(command), &mounting)
        .map_err(|line| clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{line}\n")))?;
    // Insert before the long options given explicitly, which therefore take precedence.
    let behind = argv.split_off((at + 1).min(argv.len()));
    argv.extend(options.into_iter().chain(behind));
    Cli::try_parse_from(&argv)
}

#[cfg(feature = "fuse")]
#[cfg(test)]
mod tests {
    use super::*;

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
        let words = "allow_other,auto_unmount,default_permissions,ro,fsname=me,uid=3,gid=4,umask=027,verify=off,\
                     cache=16M,threads=3,device=cuda:1,gpu_memory=8M,format=fzm,dict=a,dict=b,dtype=<f4,shape=2x3";
        let long = format!(" --{}", words.replace(',', " --"));
        let by_word = mount(&format!("fzmfs mount a /mnt -o {words}"));
        let by_option = mount(&format!("fzmfs mount a /mnt{long}"));
        let dashed = mount(&format!("fzmfs mount a /mnt{}", long.replace('_', "-")));
        for m in [&by_word, &by_option, &dashed] {
            let (on, r) = (&m.mounting, &m.reading);
            assert!(on.allow_other && on.auto_unmount && on.default_permissions && on.ro && !on.allow_root);
            assert_eq!((on.fsname.as_deref(), on.uid, on.gid), (Some("me".as_ref()), Some(3), Some(4)));
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
    fn a_helper_that_is_to_fake_does_all_but_mount() {
        let m = mount("/sbin/mount.fzmfs a /mnt -sfnv -o rw,noexec,nosuid,nodev,user=anna");
        assert!(m.fake && !m.foreground);
    }
}
