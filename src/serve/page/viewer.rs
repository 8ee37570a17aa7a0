//! A static viewer of arrays, such as Neuroglancer or vizarr, from a folder of the user, at the origin of the arrays.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use hyper::Method;
use hyper::header::{self, HeaderMap};

use super::super::reply::{Reply, failed, set};
use super::{Page, given};
use crate::error::{Error, Kind, Result};

/// Largest file of a viewer, in bytes.
const LARGEST: u64 = 64 << 20;

/// Media types by suffix.
const TYPES: [(&str, &str); 12] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("wasm", "application/wasm"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("woff2", "font/woff2"),
    ("txt", "text/plain; charset=utf-8"),
];

/// Answers for the file `below` of the folder `dir`; `below` has no `..`.
pub(super) fn answer(page: &Page, method: &Method, headers: &HeaderMap, dir: &Path, below: &str) -> Reply {
    let below = if below.is_empty() { "index.html" } else { below };
    let bytes = match read(dir, below) {
        Ok(bytes) => bytes,
        Err(e) => return failed(&e),
    };
    let suffix = Path::new(below).extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    let kind = TYPES.iter().find(|(own, _)| *own == suffix).map_or("application/octet-stream", |(_, kind)| *kind);
    let mut answer = given(method, headers, kind, bytes);
    // Viewers compile WebAssembly and start workers from it; they too get nothing from elsewhere.
    let policy = format!(
        "default-src 'self' data: blob:; script-src 'self' 'wasm-unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; \
         worker-src 'self' blob:; base-uri 'none'; form-action 'none'; {}",
        page.frame_ancestors()
    );
    set(&mut answer, header::CONTENT_SECURITY_POLICY, &policy);
    answer
}

/// Reads a file of the folder; links do not lead out of it.
fn read(dir: &Path, below: &str) -> Result<Vec<u8>> {
    let io = |e| Error::io(e, "viewer");
    let (dir, path) = (fs::canonicalize(dir).map_err(io)?, fs::canonicalize(dir.join(below)).map_err(io)?);
    let file = fs::metadata(&path).map_err(io)?;
    if !path.starts_with(&dir) || !file.is_file() {
        return Err(Error::new(Kind::NotFound, "viewer"));
    }
    if file.len() > LARGEST {
        return Err(Error::new(Kind::TooLarge { value: file.len(), limit: LARGEST }, "file of the viewer"));
    }
    fs::read(&path).map_err(io)
}
