//! Options without effect on what a command opens. The user is warned: an ignored option looks as if it worked.
#![forbid(unsafe_code)]

use std::path::Path;

use serde_json::Value;

use super::args::{DecodeArgs, IndexPlace, MirrorArgs};
use super::report;
use crate::archive::Device;
use crate::format::Info;
use crate::source::Location;

impl DecodeArgs {
    /// Reports the options that have no effect on the container `file`.
    pub(super) fn report_unused(&self, file: &Path, info: &Info) {
        // A compressed file may be any container inside.
        let is = |formats: &[&str]| formats.contains(&info.format);
        let is_typed = is(&["fzm"]) || is(&["blosc2"]) && info.details.get("array").is_some_and(Value::is_object);
        let typing = [(self.dtype.is_some(), "dtype"), (self.shape.is_some(), "shape")];
        for (_, word) in typing.into_iter().filter(|(is_given, _)| is_typed && *is_given) {
            report::notice(file, format_args!("{word}= is used instead of what the container records"));
        }
        let unused = [
            (is(&["ztensor"]) && self.dtype.is_some(), "dtype"),
            (is(&["ztensor"]) && self.shape.is_some(), "shape"),
            (info.details.get("space").is_none() && self.spacing.is_some(), "spacing"),
            (info.details.get("space").is_none() && self.units.is_some(), "units"),
            (is(&["fzm", "blosc2", "ztensor"]) && !self.dict.is_empty(), "dict"),
            (is(&["fzm", "blosc2"]) && self.window.is_some(), "window"),
            (is(&["blosc2", "ztensor"]) && self.gpu_memory.is_some(), "gpu_memory"),
            (is(&["blosc2", "ztensor"]) && matches!(self.device, Device::Cuda(_)), "device"),
        ];
        for (_, word) in unused.into_iter().filter(|(unused, _)| *unused) {
            let why = match word {
                "dtype" | "shape" => "the container has its own",
                "spacing" => {
                    "it needs a distance for each dimension of an array, and the container has none of as many"
                }
                "units" => "the container has no array that it fits: see spacing=",
                _ => "its format does not need it",
            };
            report::notice(file, format_args!("{word}= has no effect: {why}"));
        }
        self.report_unused_remote(file);
    }

    /// Reports the options for servers if `file` is not on one, and those for an index if there is none.
    pub(super) fn report_unused_remote(&self, file: &Path) {
        if self.index_size.is_some() && self.index == Some(IndexPlace::Off) {
            report::notice(file, format_args!("index_size= has no effect: there is no index"));
        }
        if Location::is_remote(file) {
            return;
        }
        let unused = [
            (self.timeout.is_some(), "timeout="),
            (self.expect.is_some(), "expect="),
            (self.unpinned, "unpinned"),
            (self.remote_cache.is_some(), "remote_cache="),
        ];
        for (_, word) in unused.into_iter().filter(|(unused, _)| *unused) {
            report::notice(file, format_args!("{word} has no effect: it is for URLs"));
        }
    }
}

impl MirrorArgs {
    /// Reports the options for directories: `file` is none. `has_layout`: it is shown in the layout.
    pub(super) fn report_unused(&self, file: &Path, has_layout: bool) {
        let unused = [(self.layout.is_some() && !has_layout, "layout="), (!self.containers.is_empty(), "containers=")];
        for (_, word) in unused.into_iter().filter(|(unused, _)| *unused) {
            report::notice(file, format_args!("{word} has no effect: it is for directories of containers"));
        }
    }
}
