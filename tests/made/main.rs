//! Mounts a made container: `made MOUNTPOINT [size=N] [piece=N] [entries=N] [slow=MS] [source=FILE] [hold=FILE] [...]`.
//!
//! For the tests of the mount, and for measuring it without any decoder in the way.

mod container;
#[path = "../suite/support/made.rs"]
mod made;

use std::fs::File;
use std::process::ExitCode;
use std::sync::Mutex;

use container::Computed;
use fzmfs::fs::{Access, MountOptions, Process, mount_container, start_daemon};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            #[expect(clippy::print_stderr, reason = "a program of its own")]
            {
                eprintln!("made: {why}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let point = args.next().ok_or("made MOUNTPOINT [NAME=VALUE]...")?;
    let mut made = Computed::default();
    let mut request = MountOptions::new("made", &point);
    let (mut foreground, mut daemon) = (false, false);
    for arg in args {
        let (name, value) = arg.split_once('=').unwrap_or((&arg, ""));
        let number = || value.parse::<u64>().map_err(|e| format!("{arg}: {e}"));
        let id = || value.parse::<u32>().map_err(|e| format!("{arg}: {e}"));
        match name {
            "size" => made.size = number()?,
            "piece" => made.piece = number()?,
            "entries" => made.entries = number()?,
            "slow" => made.slow = number()?,
            "hold" => made.hold = Some(value.into()),
            "source" => made.source = Some(value.into()),
            "cache" => request.cache = number()?,
            "threads" => request.threads = usize::try_from(number()?).map_err(|e| e.to_string())?,
            "idle" => request.idle = Some(std::time::Duration::from_millis(number()?)),
            "grace" => request.grace = number()?,
            "fsname" => request.fsname = Some(value.into()),
            "uid" => request.owner.uid = Some(id()?),
            "gid" => request.owner.gid = Some(id()?),
            "umask" => request.owner.umask = u16::from_str_radix(value, 8).map_err(|e| e.to_string())?,
            "allow_other" => request.access = Access::AllUsers,
            "allow_root" => request.access = Access::OwnerAndRoot,
            "auto_unmount" => request.auto_unmount = true,
            "foreground" => foreground = true,
            "daemon" => daemon = true,
            "log" => {
                let file =
                    File::options().create(true).append(true).open(value).map_err(|e| format!("{value}: {e}"))?;
                let filter = tracing_subscriber::EnvFilter::new(std::env::var("FZMFS_LOG").unwrap_or("info".into()));
                tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(Mutex::new(file)).init();
            }
            _ => return Err(format!("{arg}: not known")),
        }
    }
    if !foreground && !daemon {
        let args = std::env::args().skip(1).chain(["daemon".to_owned()]);
        return start_daemon(args).map_err(|e| e.to_string());
    }
    let process = if daemon { Process::daemon() } else { Process::foreground() }.map_err(|e| e.to_string())?;
    let container = made.open().map_err(|e| e.to_string())?;
    mount_container(&request, &container, process).map_err(|e| e.to_string())
}
