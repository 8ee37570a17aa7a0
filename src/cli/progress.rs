//! The progress bar of `verify` and `extract`: on standard error, if that is a terminal.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text::escaped;

const KNOWN: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {elapsed}";
const UNKNOWN: &str = "{msg} {spinner} {bytes} {bytes_per_sec} {elapsed}";

/// How often it is drawn again while nothing new is known.
const TICK: Duration = Duration::from_millis(200);

/// How far one file is.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Whether all bytes were known from the start; otherwise they are added as they are found.
    known: bool,
}

impl Progress {
    /// A bar for `file`, over `all` bytes where that is known.
    pub(super) fn new(file: &Path, all: Option<u64>) -> Self {
        let bar = match all {
            _ if !io::stderr().is_terminal() => ProgressBar::hidden(),
            Some(all) => ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr()),
            None => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
        };
        // The templates are constant; a test parses them.
        if let Ok(style) = ProgressStyle::with_template(if all.is_some() { KNOWN } else { UNKNOWN }) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            // One step may take long: it shows that something happens, and for how long.
            bar.enable_steady_tick(TICK);
        }
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        bar.set_message(escaped(&name).into_owned());
        Self { bar, known: all.is_some() }
    }

    /// There are `bytes` more to do, where they were not known from the start.
    pub(super) fn expect(&self, bytes: u64) {
        if !self.known {
            self.bar.inc_length(bytes);
        }
    }

    /// `bytes` more are done.
    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Does what prints, without the bar in its way.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the bar off the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_sound() {
        for template in [KNOWN, UNKNOWN] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
