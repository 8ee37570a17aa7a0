//! Logging: which events are written, and where.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use tracing::Subscriber;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{FormatFields, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::report::Failure;
use crate::error::Error;
use crate::text::escaped;

/// The environment variable for the log level: `debug`, or directives like `fzmfs::fs=trace`.
const VARIABLE: &str = "FZMFS_LOG";

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
    #[cfg(feature = "fuse")]
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
        #[cfg(feature = "fuse")]
        Target::System => {
            let system = super::syslog::layer(fields()).map(Layer::boxed);
            log.with(vec![terminal()].into_iter().chain(system).collect::<Vec<_>>())
        }
        Target::File(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|e| Failure::of(path, &Error::io(e, "log")))?;
            log.with(vec![fmt::layer().fmt_fields(fields()).with_ansi(false).with_writer(Mutex::new(file)).boxed()])
        }
    };
    // Fails only if called twice.
    log.try_init().map_err(|e| Failure::new(format!("log: {e}")))
}

/// Formats the message and the values of an event, escaped: names and errors may contain text from containers.
pub(super) fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
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
