//! The command line: the commands and their arguments.
#![forbid(unsafe_code)]

mod decode;
mod mirroring;
#[cfg(feature = "fuse")]
mod mounting;
mod parse;

use std::ffi::OsString;
#[cfg(feature = "serve")]
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(super) use decode::{DecodeArgs, IndexPlace, VerifyMode};
pub(super) use mirroring::MirrorArgs;
#[cfg(feature = "fuse")]
pub(super) use mounting::MountArgs;
#[cfg(feature = "fuse")]
pub(super) use parse::normalised;
pub(super) use parse::parse;

/// Mount compressed scientific containers as read-only directories of decoded files.
#[derive(Debug, Parser)]
#[command(
    name = "fzmfs",
    bin_name = "fzmfs",
    version,
    args_override_self = true,
    arg_required_else_help = true,
    after_help = "`fzmfs FILE MOUNTPOINT [-o OPTIONS]` mounts too, as mount(8) and fstab(5) call it.\n\
                  Exit status: 0 success; 1 a file is broken, unsupported or changed, or the operation failed; 2 wrong usage."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    /// Append the log to FILE, instead of the system log (a mount) or standard error; `FZMFS_LOG` sets the level (error,
    /// warn, info, debug, trace)
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[cfg(feature = "fuse")]
    /// Mount FILE, or the containers of a directory, read-only on the directory MOUNTPOINT, and return when it is ready
    #[command(
        after_help = "SIGTERM, SIGINT and SIGHUP detach the mount. Its daemon exits when the last open file is closed, after 10 \
                      seconds, or on a second signal."
    )]
    Mount(Box<Mount>),
    #[cfg(feature = "fuse")]
    /// Unmount, and wait until the daemons have exited
    Umount(Umount),
    #[cfg(feature = "fuse")]
    /// List the mounts of this user, for root those of all: their daemons, and what these have decoded and keep
    List(List),
    /// List the virtual tree, without mounting
    ///
    /// Prints the names that a mount shows and `cat` accepts. On a terminal, invisible characters (such as a byte
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
    #[cfg(feature = "serve")]
    /// Serve the same tree over HTTP and WebDAV, for a browser, Zarr readers, and where there is no FUSE
    ///
    /// Prints the address: open it in a browser, read data.zarr below it with zarr, xarray or TensorStore, or connect to it as a
    /// disk of WebDAV (Finder, Explorer, rclone). Its path is secret, so that only those who know it can read, unless
    /// --no-token or --public is given. Runs until SIGTERM or SIGINT.
    Serve(Box<Serve>),
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
    /// The container, or a directory of containers
    pub(super) file: PathBuf,
    /// The directory to mount on
    pub(super) mountpoint: PathBuf,
    /// Stay in the foreground
    #[arg(short, long)]
    pub(super) foreground: bool,
    /// Log every request; implies --foreground
    #[arg(short, long)]
    pub(super) debug: bool,
    #[command(flatten)]
    pub(super) purpose: Purpose,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
    #[command(flatten)]
    pub(super) mirroring: MirrorArgs,
    #[command(flatten)]
    pub(super) mounting: MountArgs,
}

/// Modes for programs that start this one.
#[cfg(feature = "fuse")]
#[derive(Debug, Args)]
pub(super) struct Purpose {
    /// Do everything but the mount (`mount -f`)
    #[arg(long, hide = true)]
    pub(super) fake: bool,
    /// Be the daemon of the process at the other end of standard input
    #[arg(long, hide = true)]
    pub(super) daemon: bool,
}

#[cfg(feature = "fuse")]
#[derive(Debug, Args)]
pub(super) struct Umount {
    /// The directories that fzmfs is mounted on
    #[arg(required = true, value_name = "MOUNTPOINT")]
    pub(super) points: Vec<PathBuf>,
}

#[cfg(feature = "fuse")]
#[derive(Debug, Args)]
pub(super) struct List {
    /// Directories that fzmfs is mounted on [default: all]
    #[arg(value_name = "MOUNTPOINT")]
    pub(super) points: Vec<PathBuf>,
    /// Print JSON: an array with an object for each mount
    #[arg(long)]
    pub(super) json: bool,
    /// Print what the daemon of the mount with this number in mountinfo answers
    #[arg(long, hide = true, value_name = "ID")]
    pub(super) ask: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// The container, or a directory of containers
    pub(super) file: PathBuf,
    /// A directory or file of the virtual tree
    #[arg(default_value = "", hide_default_value = true)]
    pub(super) path: OsString,
    /// Print mode, size and name, and the target of links
    #[arg(short, long)]
    pub(super) long: bool,
    /// Taken as of ls(1): every name is printed anyway
    #[arg(short = 'a', long = "all", hide = true)]
    _all: bool,
    /// List everything below PATH as full paths, sorted
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
    #[command(flatten)]
    pub(super) mirroring: MirrorArgs,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Cat {
    /// The container, or a directory of containers
    pub(super) file: PathBuf,
    /// Files of the virtual tree
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
    #[command(flatten)]
    pub(super) mirroring: MirrorArgs,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Info {
    /// The containers
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Print JSON: the content of info.json in the virtual tree; of several files, an array with an object for each
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The containers, or directories of containers
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Print JSON: an array with an object for each file
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) mirroring: MirrorArgs,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[derive(Debug, Clone, Args)]
pub(super) struct Extract {
    /// The container, or a directory of containers
    pub(super) file: PathBuf,
    /// The directory to write to; created if missing
    pub(super) dir: PathBuf,
    /// Files and directories of the virtual tree [default: everything but stored/ and data.zarr/]
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
    /// Replace existing files
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) mirroring: MirrorArgs,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

#[cfg(feature = "serve")]
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The container, or a directory of containers
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) reach: Reach,
    /// Serve what the server does and holds at -/metrics, for Prometheus
    #[arg(long)]
    pub(super) metrics: bool,
    /// Let the pages of this origin (scheme, name and port) read replies, or those of all: *
    #[arg(long, value_name = "ORIGIN")]
    pub(super) allow_origin: Option<String>,
    /// Let the pages of this origin show the page in a frame, as in `http://localhost:*`, or those of all: *; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub(super) frame: Vec<String>,
    /// End when standard input ends: with the program that has started this one
    #[arg(long, hide = true)]
    pub(super) until_eof: bool,
    /// Serve the static viewer in this folder too (Neuroglancer, vizarr), which the page links to
    #[arg(long, value_name = "DIR")]
    pub(super) viewer: Option<PathBuf>,
    #[command(flatten)]
    pub(super) mirroring: MirrorArgs,
    #[command(flatten)]
    pub(super) reading: DecodeArgs,
}

/// Where a tree is served, and for whom.
#[cfg(feature = "serve")]
#[derive(Debug, Args)]
pub(super) struct Reach {
    /// The address and port to listen on; port 0 is any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8700", value_parser = address)]
    pub(super) listen: SocketAddr,
    /// Take the secret path from this file, instead of another one each time
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_token", "public"])]
    pub(super) token: Option<PathBuf>,
    /// Serve at / instead of a secret path, so that all users and programs of this machine can read
    #[arg(long)]
    pub(super) no_token: bool,
    /// As --no-token, on any address: everybody who can connect can read
    #[arg(long)]
    pub(super) public: bool,
    /// A name of this server, if clients do not use its address; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) host: Vec<String>,
    /// Serve NFS version 3 too, at this port of the same address; 0 is any free one
    #[arg(long, value_name = "PORT")]
    pub(super) nfs: Option<u16>,
}

/// Parses the address of a server.
#[cfg(feature = "serve")]
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an address and a port, as in 127.0.0.1:8700, [::1]:8700, or 0.0.0.0:8700 for all".to_owned()
    })
}

impl Command {
    /// The values of `-o`, one list of options each.
    fn option_lists(&self) -> &[OsString] {
        match self {
            #[cfg(feature = "fuse")]
            Self::Mount(mount) => &mount.reading.option_lists,
            Self::Ls(ls) => &ls.reading.option_lists,
            Self::Cat(cat) => &cat.reading.option_lists,
            Self::Info(info) => &info.reading.option_lists,
            Self::Verify(check) => &check.reading.option_lists,
            Self::Extract(extract) => &extract.reading.option_lists,
            #[cfg(feature = "serve")]
            Self::Serve(serve) => &serve.reading.option_lists,
            #[cfg(feature = "fuse")]
            Self::Umount(_) | Self::List(_) | Self::Doctor => &[],
            Self::Completions { .. } | Self::Man => &[],
        }
    }
}
