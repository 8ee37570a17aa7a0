//! The progress bar of `verify` and `extract`: on standard error, if it is a terminal.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text::escaped;

const KNOWN: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {elapsed}";
const UNKNOWN: &str = "{msg} {spinner} {bytes} {bytes_per_sec} {elapsed}";

/// Redraw interval while there is no progress.
const TICK: Duration = Duration::from_millis(200);

/// The progress of one file.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Whether the total was known from the start; otherwise it grows as files are opened.
    known: bool,
}

impl Progress {
    /// A bar for `file`, with a total of `all` bytes if known.
    pub(super) fn new(file: &Path, all: Option<u64>) -> Self {
        let bar = match all {
            _ if !io::stderr().is_terminal() => ProgressBar::hidden(),
            Some(all) => ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr()),
            None => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
        };
        // The templates are constant and tested.
        if let Ok(style) = ProgressStyle::with_template(if all.is_some() { KNOWN } else { UNKNOWN }) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            // A single step may take long: keep the elapsed time moving.
            bar.enable_steady_tick(TICK);
        }
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        bar.set_message(escaped(&name).into_owned());
        Self { bar, known: all.is_some() }
    }

    /// Adds `bytes` to the total, unless it was known from the start.
    pub(super) fn add_total(&self, bytes: u64) {
        if !self.known {
            self.bar.inc_length(bytes);
        }
    }

    /// Adds `bytes` to the progress.
    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Runs `print` with the bar hidden.
    pub(super) fn suspended<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the bar from the terminal.
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
