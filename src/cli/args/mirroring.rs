//! The options for a directory of containers.
#![forbid(unsafe_code)]

use clap::{Args, ValueEnum};

use crate::mirror::{Glob, Layout, Rules};

/// How a directory of containers is shown.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Directories of containers")]
pub(in crate::cli) struct MirrorArgs {
    /// Show a container as a directory in the place of its file (replace) or beside it, with .d added (beside); or in
    /// a mount, as the files of its array: x.raw, x.npy, x.nhdr, x.json (flat), or, if it is a compressed file, as what
    /// was compressed: x.parquet, x.tar/ (plain, also for one file) [default: replace]
    #[arg(long, value_name = "LAYOUT")]
    pub(in crate::cli) layout: Option<LayoutName>,
    /// The files that are containers, by name; repeatable [default: those with the usual extensions]
    #[arg(long, value_name = "GLOB")]
    pub(in crate::cli) containers: Vec<Glob>,
}

/// [`Layout`] as an option value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LayoutName {
    Replace,
    Beside,
    Flat,
    Plain,
}

impl From<LayoutName> for Layout {
    fn from(name: LayoutName) -> Self {
        match name {
            LayoutName::Replace => Self::Replace,
            LayoutName::Beside => Self::Beside,
            LayoutName::Flat => Self::Flat,
            LayoutName::Plain => Self::Plain,
        }
    }
}

impl MirrorArgs {
    /// The rules.
    pub(in crate::cli) fn rules(&self) -> Rules {
        let layout = self.layout.map(Layout::from).unwrap_or_default();
        Rules { layout, containers: self.containers.clone() }
    }
}
