//! The log: which events are written, and where to.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing::{Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{FormatFields, debug_fn};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::report::Failure;
use crate::error::os_message;
use crate::text::escaped;

/// The variable that says how much is logged: `debug`, or directives such as `fzmfs::fs=trace`.
const VARIABLE: &str = "FZMFS_LOG";
/// Where the system's log listens.
const SYSLOG: &str = "/dev/log";

/// How much is logged where the variable does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What went wrong.
    Warnings,
    /// Every request too.
    Requests,
}

/// Where the log goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// Standard error.
    Terminal,
    /// The end of a file.
    File(&'a Path),
    #[cfg_attr(not(feature = "fuse"), expect(dead_code, reason = "only a mount logs there"))]
    /// Standard error as long as it is there, and the system's log: for what goes to the background.
    System,
}

impl<'a> Target<'a> {
    /// `file` where one is given, and `otherwise` else.
    pub(super) fn choose(file: Option<&'a Path>, otherwise: Self) -> Self {
        file.map_or(otherwise, Self::File)
    }
}

/// Starts the log. No thread is started, and everything is open afterwards.
///
/// # Errors
/// Where the file cannot be written, or the variable cannot be understood.
pub(super) fn start(level: Level, target: Target<'_>) -> Result<(), Failure> {
    let directives = match std::env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => text,
        // fuser's own lines say the same again, and that a reader was killed before its answer came.
        _ if level == Level::Requests => "debug,fuser=off".to_owned(),
        _ => "warn,fuser=off".to_owned(),
    };
    let filter =
        EnvFilter::try_new(&directives).map_err(|e| Failure::usage(format!("{VARIABLE}={directives}: {e}")))?;
    let log = tracing_subscriber::registry().with(filter);
    let log = match target {
        Target::Terminal => log.with(vec![terminal()]),
        Target::System => log.with(vec![terminal()].into_iter().chain(system()).collect::<Vec<_>>()),
        Target::File(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|e| Failure::new(format!("{}: {} (log)", path.display(), os_message(&e))))?;
            log.with(vec![fmt::layer().fmt_fields(fields()).with_ansi(false).with_writer(Mutex::new(file)).boxed()])
        }
    };
    // There is no other log: this is called once.
    log.try_init().map_err(|e| Failure::new(format!("log: {e}")))
}

/// The text and the values of an event, each safe to print: names and errors have words of containers in them.
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

/// `None` where no log daemon listens.
fn system<S>() -> Option<Boxed<S>>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(SYSLOG).ok()?;
    // A log daemon that is stuck must not stop reads.
    socket.set_nonblocking(true).ok()?;
    let layer = fmt::layer().fmt_fields(fields()).with_ansi(false).without_time().with_level(false);
    Some(layer.with_writer(Syslog(Arc::new(socket))).boxed())
}

/// The system's log, over its socket.
#[derive(Debug)]
struct Syslog(Arc<UnixDatagram>);

/// One line for it.
struct Line {
    socket: Arc<UnixDatagram>,
    /// Facility times 8 plus severity.
    priority: u8,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { socket: Arc::clone(&self.0), priority: priority(tracing::Level::INFO) }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line { priority: priority(*meta.level()), ..self.make_writer() }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut message = format!("<{}>fzmfs[{}]: ", self.priority, std::process::id()).into_bytes();
        message.extend_from_slice(line.trim_ascii_end());
        // A full or restarted log daemon loses the line, not the read that wrote it.
        self.socket.send(&message).ok();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The facility `daemon`, with the severity that syslog(3) gives the level.
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
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let mut line = Line { socket: Arc::new(ours), priority: priority(tracing::Level::WARN) };
        line.write_all(b"piece 3: broken\n").unwrap();
        let mut buffer = [0; 100];
        let n = theirs.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..n], format!("<28>fzmfs[{}]: piece 3: broken", std::process::id()).into_bytes()[..]);
    }

    #[test]
    fn a_container_can_neither_draw_in_the_log_nor_begin_a_line() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let layer = fmt::layer().fmt_fields(fields()).with_ansi(false).without_time().with_level(false);
        let log = tracing_subscriber::registry().with(layer.with_writer(Syslog(Arc::new(ours))));
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
