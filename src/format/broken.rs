//! A container that cannot be opened: a directory with the reason and, unless it is a directory itself, the stored file.
//!
//! In a mounted directory, `x.fzm`, of which the end is missing, is a directory with `error.txt`, the message that
//! `fzmfs info` prints, and `x.fzm`, the stored bytes. The other containers are not affected.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::bytes::FileOffset;
use crate::error::{Error, Result};
use crate::platform::OsStrExt;
use crate::source::Source;
use crate::text::escaped;

use super::{Check, Container, Content, Entry, File, FileExtent, Info, Input, Options};

/// Opens a container; for a broken one, returns its stand-in, and the error.
///
/// # Errors
/// Only errors that may be transient.
pub fn open_or_explain(input: &Input, options: &Options) -> Result<(Arc<dyn Container>, Option<Error>)> {
    let opened = catch_unwind(AssertUnwindSafe(|| super::open(input, None, options)));
    let opened = opened.unwrap_or_else(|_| {
        Err(Error::corrupt("the decoder failed on it, which is a bug of fzmfs; please report it", "file"))
    });
    match opened {
        Err(error) if error.is_lasting() => Ok((explain(input.source.clone(), &error), Some(error))),
        opened => opened.map(|container| (container, None)),
    }
}

/// The stand-in for the file `source`, or a directory, that cannot be opened because of `error`.
pub(super) fn explain(source: Option<Arc<Source>>, error: &Error) -> Arc<dyn Container> {
    // It is shown with its size.
    let source = source.filter(|source| source.size().is_ok());
    Arc::new(Broken { source, error: error.clone() })
}

/// A file or a directory that cannot be opened as a container.
struct Broken {
    source: Option<Arc<Source>>,
    error: Error,
}

impl Container for Broken {
    fn info(&self) -> Info {
        Info {
            format: "broken",
            format_version: String::new(),
            file_size: self.source.as_ref().map_or(0, |source| source.len()),
            decoded_size: None,
            checksums: Value::Null,
            checksum_count: None,
            details: Map::new(),
        }
    }

    fn is_described(&self) -> bool {
        false
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let why = format!("{}\n", escaped(&self.error.explain()));
        let stored = self.source.clone().map(|source| {
            let (len, name) =
                (source.len(), source.path().file_name().unwrap_or(OsStr::new("file")).as_bytes().to_vec());
            let stored = FileExtent { source, at: FileOffset(0), len, gate: None };
            Entry::named(name, "", File::new(Content::FileExtent(stored)).stored(len))
        });
        let reason = Entry::own("error.txt", File::new(Content::bytes(why.into_bytes())));
        Ok([reason].into_iter().chain(stored).collect())
    }

    fn checks(&self) -> Vec<Check> {
        let error = self.error.clone();
        let run = Box::new(move || Err(error.clone()));
        vec![Check::Run { name: "file".into(), bytes: 0, run }]
    }

    fn sources(&self) -> Vec<Arc<Source>> {
        self.source.iter().cloned().collect()
    }
}
