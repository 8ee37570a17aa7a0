//! The options for a directory of containers.
#![forbid(unsafe_code)]

use clap::Args;

use crate::mirror::{Glob, Layout, Rules};

/// How a directory of containers is shown.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Directories of containers")]
pub(in crate::cli) struct MirrorArgs {
    /// Show a container as a directory in the place of its file (replace) or beside it, with .d
    /// added (beside), or in a mount, as the files of its array: x.raw, x.npy, x.nhdr, x.json (flat)
    #[arg(long, value_name = "LAYOUT", default_value = "replace", hide_default_value = true)]
    pub(in crate::cli) layout: Layout,
    /// The files that are containers, by name; repeatable [default: those with the usual extensions]
    #[arg(long, value_name = "GLOB")]
    pub(in crate::cli) containers: Vec<Glob>,
}

impl MirrorArgs {
    /// The rules.
    pub(in crate::cli) fn rules(&self) -> Rules {
        Rules { layout: self.layout, containers: self.containers.clone() }
    }
}
