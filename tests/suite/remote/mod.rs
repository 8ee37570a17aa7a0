//! Objects on servers: the same bytes as from a local file, few requests, and every fault an error or the right bytes.

mod disk;
mod fault_table;
mod faults;
mod many;
mod mounted;
mod others;
mod prefix;
mod prefix_requests;
mod prefix_waiting;
mod reading;
mod stores;
mod versions;
mod waiting;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fzmfs::account::Account;
use fzmfs::error::Result;
use fzmfs::source::{RemoteOptions, Source};
use fzmfs::{Archive, EntryKind, Options, Verify};

use crate::support::server::Server;

/// Bytes that do not repeat.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn open_with(server: &Server, name: &str, options: &RemoteOptions) -> Result<Arc<Source>> {
    Source::open_remote(&server.url(name), options, &Account::new(256 << 20, 0))
}

/// Every file of a container, or why it cannot be read.
fn everything(source: &str) -> Vec<String> {
    everything_verified(source, Verify::Auto)
}

fn everything_verified(source: &str, verify: Verify) -> Vec<String> {
    let options = Options::new().threads(2).cache(64 << 20).verify(verify);
    let archive = match Archive::open(source, &options) {
        Ok(archive) => archive,
        Err(e) => return vec![e.to_string()],
    };
    let mut out = vec![archive.info().unwrap().to_json().to_string()];
    for entry in archive.walk("").unwrap().take(400) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                out.push(e.to_string());
                continue;
            }
        };
        // The name of the container is part of that of a link.
        if entry.kind() != EntryKind::File {
            continue;
        }
        let mut bytes = Vec::new();
        let read = archive.file(entry.path()).and_then(|file| {
            if file.len() > 32 << 20 {
                return Ok(());
            }
            bytes = vec![0; file.len() as usize];
            file.read_exact_at(0, &mut bytes)
        });
        if read.is_err() {
            // The content of the buffer then depends on how far the threads came.
            bytes.clear();
        } else if entry.path().ends_with("zarr.json") {
            bytes = untagged(&bytes);
        }
        out.push(format!("{} {:?} {:x}", entry.path(), read.map_err(|e| e.to_string()), crc32fast::hash(&bytes)));
    }
    out
}

/// A document without the entity tag of the container, which local files lack.
fn untagged(json: &[u8]) -> Vec<u8> {
    let mut document: serde_json::Value = serde_json::from_slice(json).unwrap();
    if let Some(identity) = document.pointer_mut("/attributes/container").and_then(|identity| identity.as_object_mut())
    {
        identity.remove("etag");
    }
    document.to_string().into_bytes()
}

/// `lines` about files in `dir`, as they are about objects below `url`.
fn relocated(lines: &[String], dir: &Path, url: &str) -> Vec<String> {
    lines.iter().map(|line| line.replace(&format!("{}/", dir.display()), url)).collect()
}

/// Copies the file or directory `from` to `to`, with the time that the objects of our server have.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    std::fs::write(to, std::fs::read(from).unwrap()).unwrap();
    let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
    std::fs::File::options().write(true).open(to).unwrap().set_modified(modified).unwrap();
}

fn open(server: &Server, name: &str) -> Result<Arc<Source>> {
    open_with(server, name, &RemoteOptions::default())
}
