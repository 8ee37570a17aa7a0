//! Items as JSON: byte strings become `hex:...`, values that JSON lacks become text.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use ciborium_ll::{Header, simple};
use serde_json::Value;

use crate::account::Account;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::Spool;
use crate::format::about::float;

use super::CborReader;

impl CborReader<'_> {
    /// Reads the next item as JSON: byte strings become `hex:...`, values that JSON lacks become text. For small items
    /// only: the result takes about fifty times the item's size.
    ///
    /// # Errors
    /// Fails if the item is malformed.
    pub(in crate::format::ztensor) fn json(&mut self, account: &Account, what: &'static str) -> Result<Value> {
        let mut text = Spool::new(account, to_u64(self.bytes.len()).saturating_mul(64), what);
        self.json_text(0, &mut text, what)?;
        serde_json::from_slice(&text.bytes()).map_err(|e| Error::corrupt(e.to_string(), what))
    }

    /// Writes the next item as indented JSON, at nesting level `depth`.
    ///
    /// # Errors
    /// Fails if the item is malformed or the text exceeds its limit.
    pub(in crate::format::ztensor) fn json_text(
        &mut self,
        depth: usize,
        out: &mut Spool,
        what: &'static str,
    ) -> Result<()> {
        let start = self.pos;
        let mut peek = self.clone();
        match peek.head(what)? {
            Header::Array(_) => {
                let mut first = true;
                out.push(b"[")?;
                self.array(what, |r| {
                    new_line(&mut first, depth.saturating_add(1), out)?;
                    r.json_text(depth.saturating_add(1), out, what)
                })?;
                close(first, depth, b"]", out)
            }
            Header::Map(_) => {
                let mut first = true;
                out.push(b"{")?;
                let before = std::mem::replace(&mut self.free, true);
                let done = self.map(what, false, |r, key, _| {
                    new_line(&mut first, depth.saturating_add(1), out)?;
                    out.json(&Value::String(key.into_owned()))?;
                    out.push(b": ")?;
                    r.json_text(depth.saturating_add(1), out, what)
                });
                self.free = before;
                done?;
                close(first, depth, b"}", out)
            }
            Header::Text(_) => {
                let text = self.text(what)?.into_owned();
                out.json(&Value::String(text))
            }
            Header::Bytes(_) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let mut done = out.push(b"\"hex:");
                self.chunks(false, what, &mut |bytes| {
                    for group in bytes.chunks(256) {
                        let digits =
                            |b: &u8| [b >> 4, b & 15].map(|n| DIGITS.get(usize::from(n)).copied().unwrap_or(0));
                        let hex: Vec<u8> = group.iter().flat_map(digits).collect();
                        if done.is_ok() {
                            done = out.push(&hex);
                        }
                    }
                })?;
                done?;
                out.push(b"\"")
            }
            Header::Break => Err(self.wrong(start, "a break without an item of indefinite length", what)),
            header => {
                *self = peek;
                out.json(&scalar(header))
            }
        }
    }
}

/// Maximum indented levels; deeper ones would be mostly spaces.
pub(super) const INDENTED: usize = 12;

/// Starts an element on a new line.
fn new_line(first: &mut bool, depth: usize, out: &mut Spool) -> Result<()> {
    const SPACES: &[u8; 2 * INDENTED] = &[b' '; 2 * INDENTED];
    let indent = SPACES.get(..depth.min(INDENTED).saturating_mul(2)).unwrap_or_default();
    out.push(if std::mem::take(first) { b"\n" } else { b",\n" })?;
    out.push(indent)
}

/// Ends an array or a map; an empty one stays on one line.
fn close(empty: bool, depth: usize, mark: &[u8], out: &mut Spool) -> Result<()> {
    if !empty {
        new_line(&mut true, depth, out)?;
    }
    out.push(mark)
}

fn scalar(header: Header) -> Value {
    match header {
        Header::Positive(n) => n.into(),
        Header::Negative(n) => match i64::try_from(n) {
            Ok(n) => Value::from(!n),
            Err(_) => Value::String(format!("-{}", u128::from(n).saturating_add(1))),
        },
        Header::Float(f) => float(f),
        Header::Simple(simple::FALSE) => Value::Bool(false),
        Header::Simple(simple::TRUE) => Value::Bool(true),
        _ => Value::Null,
    }
}
