//! Sources for tests, which need neither a file nor a server.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Need, Origin, Source};
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};

#[path = "../../tests/support/skip.rs"]
mod skip;

pub(crate) use skip::skip;

/// A source that is far away, and what is asked of it.
#[derive(Debug)]
struct Far {
    len: u64,
    near: Range<u64>,
    asked: Asked,
}

/// In words, in order.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

/// A far source of `len` bytes, of which `near` are near.
pub(crate) fn far(len: u64, near: Range<u64>) -> (Arc<Source>, Asked) {
    let asked = Asked::default();
    (Source::of("far", Far { len, near, asked: asked.clone() }), asked)
}

impl Origin for Far {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: FileOffset, dst: &mut [u8], _: &'static str) -> Result<()> {
        self.asked.lock().unwrap().push(format!("read {:?}", at.0..at.0 + to_u64(dst.len())));
        Ok(())
    }

    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        self.asked.lock().unwrap().push(format!("{need:?} {ranges:?}"));
    }

    fn etag(&self) -> Option<&str> {
        Some("tag")
    }

    fn is_far(&self) -> bool {
        true
    }

    fn is_near(&self, range: Range<u64>) -> bool {
        range == self.near
    }

    fn cancel(&self) {
        self.asked.lock().unwrap().push("cancel".to_owned());
    }
}

/// A hundred bytes that cannot be read at the first attempt.
#[derive(Debug, Default)]
pub(crate) struct FailsOnce(AtomicBool);

impl Origin for FailsOnce {
    fn len(&self) -> u64 {
        100
    }

    fn read(&self, _: FileOffset, dst: &mut [u8], what: &'static str) -> Result<()> {
        dst.fill(7);
        if self.0.swap(true, Ordering::Relaxed) { Ok(()) } else { Err(Error::corrupt("not now", what)) }
    }
}
