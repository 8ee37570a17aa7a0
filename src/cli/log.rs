//! Logging: which events are written, and where.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tracing::{Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{FormatFields, debug_fn};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::report::Failure;
use crate::error::Error;
use crate::text::escaped;

/// The environment variable for the log level: `debug`, or directives like `fzmfs::fs=trace`.
const VARIABLE: &str = "FZMFS_LOG";
/// The socket of the system log.
const SYSLOG: &str = "/dev/log";

/// The log level if the variable is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Warnings and errors.
    Warnings,
    /// All requests too.
    Requests,
}

/// Where the log goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// Standard error.
    Terminal,
    /// Append to a file.
    File(&'a Path),
    #[cfg_attr(not(feature = "fuse"), expect(dead_code, reason = "only a mount logs there"))]
    /// Standard error while it is open, and the system log: for a process that goes to the background.
    System,
}

impl<'a> Target<'a> {
    /// `file` if given, else `otherwise`.
    pub(super) fn choose(file: Option<&'a Path>, otherwise: Self) -> Self {
        file.map_or(otherwise, Self::File)
    }
}

/// Starts logging. Starts no thread, and opens everything it needs.
///
/// # Errors
/// Fails if the file cannot be opened or the variable does not parse.
pub(super) fn start(level: Level, target: Target<'_>) -> Result<(), Failure> {
    let directives = match std::env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => text,
        // fuser's messages repeat ours, and report readers that were killed before their reply.
        _ if level == Level::Requests => "debug,fuser=off".to_owned(),
        _ => "warn,fuser=off".to_owned(),
    };
    let filter =
        EnvFilter::try_new(&directives).map_err(|e| Failure::usage(format!("{VARIABLE}={directives}: {e}")))?;
    // Their messages may carry credentials; our own report failed requests.
    let quiet = ["object_store", "reqwest", "hyper", "hyper_util", "rustls"];
    let directives = quiet.iter().filter_map(|name| format!("{name}=off").parse().ok());
    let filter = directives.fold(filter, EnvFilter::add_directive);
    let log = tracing_subscriber::registry().with(filter);
    let log = match target {
        Target::Terminal => log.with(vec![terminal()]),
        Target::System => log.with(vec![terminal()].into_iter().chain(system()).collect::<Vec<_>>()),
        Target::File(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|e| Failure::of(path, &Error::io(e, "log")))?;
            log.with(vec![fmt::layer().fmt_fields(fields()).with_ansi(false).with_writer(Mutex::new(file)).boxed()])
        }
    };
    // Fails only if called twice.
    log.try_init().map_err(|e| Failure::new(format!("log: {e}")))
}

/// Whether a log daemon is listening.
#[cfg(feature = "fuse")]
pub(super) fn reaches_system() -> bool {
    UnixDatagram::unbound().and_then(|socket| socket.connect(SYSLOG)).is_ok()
}

/// Formats the message and the values of an event, escaped: names and errors may contain text from containers.
fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    let field = debug_fn(|out, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => out.write_str(&escaped(&value)),
            name => write!(out, "{name}={}", escaped(&value)),
        }
    });
    field.delimited(" ")
}

type Boxed<S> = Box<dyn Layer<S> + Send + Sync>;

fn terminal<S>() -> Boxed<S>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer().fmt_fields(fields()).with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).boxed()
}

/// `None` if no descriptor is left.
fn system<S>() -> Option<Boxed<S>>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let socket = UnixDatagram::unbound().ok()?;
    // A blocked log daemon must not block reads.
    socket.set_nonblocking(true).ok()?;
    Some(syslog(socket, SYSLOG.into()).boxed())
}

/// The layer that writes to the system log at `path`.
fn syslog<S>(socket: UnixDatagram, path: PathBuf) -> impl Layer<S>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let layer = fmt::layer().fmt_fields(fields()).with_ansi(false).without_time().with_level(false).with_target(false);
    layer.with_writer(Syslog(Arc::new((socket, path))))
}

/// A socket, and the address of the system log. Not connected to it: a log daemon may start or restart at any time.
#[derive(Debug)]
struct Syslog(Arc<(UnixDatagram, PathBuf)>);

/// Writer for one message.
struct Line {
    log: Arc<(UnixDatagram, PathBuf)>,
    /// Facility times 8 plus severity.
    priority: u8,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { log: Arc::clone(&self.0), priority: priority(tracing::Level::INFO) }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line { priority: priority(*meta.level()), ..self.make_writer() }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut message = format!("<{}>fzmfs[{}]: ", self.priority, std::process::id()).into_bytes();
        message.extend_from_slice(line.trim_ascii_end());
        // If nobody listens, or the log daemon's queue is full, the message is lost, but the read continues.
        let (socket, path) = &*self.log;
        socket.send_to(&message, path).ok();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Facility `daemon`, with the syslog(3) severity of the level.
fn priority(level: tracing::Level) -> u8 {
    const DAEMON: u8 = 3;
    let severity = match level {
        tracing::Level::ERROR => 3,
        tracing::Level::WARN => 4,
        tracing::Level::INFO => 6,
        _ => 7,
    };
    DAEMON * 8 + severity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_the_system_log_is_one_datagram_with_its_priority() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Arc::new((UnixDatagram::unbound().unwrap(), path.clone()));
        let mut line = Line { log, priority: priority(tracing::Level::WARN) };
        line.write_all(b"nobody listens\n").unwrap();
        // A log daemon that starts later, or is restarted, gets later messages.
        for _ in 0..2 {
            let theirs = UnixDatagram::bind(&path).unwrap();
            line.write_all(b"piece 3: broken\n").unwrap();
            let mut buffer = [0; 100];
            let n = theirs.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..n], format!("<28>fzmfs[{}]: piece 3: broken", std::process::id()).into_bytes()[..]);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_container_can_neither_draw_in_the_log_nor_begin_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = UnixDatagram::bind(dir.path().join("log")).unwrap();
        let layer = syslog(UnixDatagram::unbound().unwrap(), dir.path().join("log"));
        let log = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(log, || {
            let name = "a\u{9b}2J\nb\u{202e}\u{feff}";
            tracing::error!(ino = 3, shown = %name, quoted = ?name, "{name}: broken");
        });
        let mut buffer = [0; 300];
        let n = theirs.recv(&mut buffer).unwrap();
        let line = str::from_utf8(&buffer[..n]).unwrap();
        let shown = "a\\u{9b}2J\\nb\\u{202e}\\u{feff}";
        let want = format!("{shown}: broken ino=3 shown={shown} quoted=\"{shown}\"");
        assert!(line.ends_with(&want), "{line}");
    }
}
