//! The system log, for mounts in the background.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::FormatFields;
use tracing_subscriber::fmt::{self, MakeWriter};

/// The socket of the system log.
const SYSLOG: &str = "/dev/log";

/// Whether a log daemon is listening.
pub(super) fn is_reached() -> bool {
    UnixDatagram::unbound().and_then(|socket| socket.connect(SYSLOG)).is_ok()
}

/// The layer that writes to the system log, with events formatted by `fields`; `None` if no descriptor is left.
pub(super) fn layer<S>(
    fields: impl for<'a> FormatFields<'a> + Send + Sync + 'static,
) -> Option<impl Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let socket = UnixDatagram::unbound().ok()?;
    // A blocked log daemon must not block reads.
    socket.set_nonblocking(true).ok()?;
    Some(layer_at(socket, SYSLOG.into(), fields))
}

/// The layer that writes to the system log at `path`.
fn layer_at<S>(
    socket: UnixDatagram,
    path: PathBuf,
    fields: impl for<'a> FormatFields<'a> + Send + Sync + 'static,
) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let layer = fmt::layer().fmt_fields(fields).with_ansi(false).without_time().with_level(false).with_target(false);
    layer.with_writer(Syslog(Arc::new((socket, path))))
}

/// A socket, and the address of the system log. Not connected to it: a log daemon may start or restart at any time.
#[derive(Debug)]
struct Syslog(Arc<(UnixDatagram, PathBuf)>);

/// Writer for one message.
struct SyslogLine {
    log: Arc<(UnixDatagram, PathBuf)>,
    /// Facility times 8 plus severity.
    priority: u8,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = SyslogLine;

    fn make_writer(&'a self) -> SyslogLine {
        SyslogLine { log: Arc::clone(&self.0), priority: priority(tracing::Level::INFO) }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> SyslogLine {
        SyslogLine { priority: priority(*meta.level()), ..self.make_writer() }
    }
}

impl Write for SyslogLine {
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
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn a_line_for_the_system_log_is_one_datagram_with_its_priority() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Arc::new((UnixDatagram::unbound().unwrap(), path.clone()));
        let mut line = SyslogLine { log, priority: priority(tracing::Level::WARN) };
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
        let layer = layer_at(UnixDatagram::unbound().unwrap(), dir.path().join("log"), super::super::log::fields());
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
