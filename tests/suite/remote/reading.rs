//! What is read, and with how many requests.

use std::path::PathBuf;
use std::time::Duration;

use fzmfs::Verify;
use fzmfs::account::Account;
use fzmfs::bytes::FileOffset;
use fzmfs::source::{Part, RemoteOptions, Source};

use super::{copy, everything_verified, noise, open, relocated};
use crate::support::opened::data;
use crate::support::server::{Object, Request, Server};

const MIB: usize = 1 << 20;

fn sent(log: &[Request]) -> u64 {
    log.iter().map(|request| request.sent).sum()
}

/// The files of the corpus that can be one object.
fn corpus() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![data("")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

#[test]
fn every_file_of_the_corpus_reads_as_from_the_disk() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let mut opened = 0;
    for path in corpus() {
        // A sparse frame and shards are several files.
        if path.to_string_lossy().contains("shard") || path.with_file_name("chunks.b2frame").exists() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        server.put(name, Object::new(std::fs::read(&path).unwrap()));
        // The time is part of what a container says of itself.
        let local = dir.path().join(name);
        copy(&path, &local);
        let (local, url) = (local.to_str().unwrap(), server.url(name));
        let of = |source: &str, verify| relocated(&everything_verified(source, verify), dir.path(), &server.url(""));
        let near = of(local, Verify::First);
        opened += usize::from(near.len() > 1);
        assert_eq!(near, of(&url, Verify::First), "{}", path.display());
        // Of a broken file, more is served from afar by default: checksums over much are not fetched for.
        if near.iter().all(|line| !line.contains(" Err(")) {
            assert_eq!(near, of(&url, Verify::Auto), "{}", path.display());
        }
    }
    assert!(opened > 50, "{opened}");
}

#[test]
fn a_whole_object_takes_few_requests_and_each_byte_once() {
    let server = Server::start();
    let bytes = noise(40 * MIB);
    server.put("x", Object::new(bytes.clone()));
    let source = open(&server, "x").unwrap();
    let mut read = Vec::new();
    for at in (0..bytes.len()).step_by(300_000) {
        let len = 300_000.min(bytes.len() - at);
        read.extend(source.get(FileOffset(at as u64), len as u64, "x").unwrap());
    }
    assert!(read == bytes);
    let log = server.take_log();
    assert!(log.len() <= 40 / 8 + 4, "{}", log.len());
    assert_eq!(sent(&log), bytes.len() as u64);
    for at in [0, 20 * MIB, 39 * MIB] {
        assert!(source.get(FileOffset(at as u64), MIB as u64, "x").unwrap() == bytes[at..at + MIB]);
    }
    assert_eq!(server.take_log().len(), 0, "a second read takes none");
}

#[test]
fn a_reader_that_jumps_gets_little_more_than_it_asks_for() {
    let server = Server::start();
    let bytes = noise(20 * MIB);
    server.put("x", Object::new(bytes.clone()));
    let source = open(&server, "x").unwrap();
    for i in 0..20 {
        let at = i * 7 % 20 * MIB + 12_345;
        assert_eq!(source.get(FileOffset(at as u64), 1000, "x").unwrap(), bytes[at..at + 1000]);
    }
    let log = server.take_log();
    assert_eq!(log.len(), 20, "one to open it, which has the first jump");
    assert!(sent(&log) <= 20 * (32 << 10), "{}", sent(&log));
}

#[test]
fn ranges_that_are_read_together_are_fetched_together() {
    let server = Server::start();
    let bytes = noise(4 * MIB);
    server.put("x", Object::new(bytes.clone()));
    let source = open(&server, "x").unwrap();
    server.take_log();
    let mut buffers = [[0_u8; 100]; 5];
    let at = [3 * MIB, MIB, MIB + 50_000, MIB + 100, MIB + 20_000];
    let mut parts: Vec<Part<'_>> =
        buffers.iter_mut().zip(at).map(|(dst, at)| Part { at: FileOffset(at as u64), dst }).collect();
    source.read_parts(&mut parts, "x").unwrap();
    for (buffer, at) in buffers.iter().zip(at) {
        assert_eq!(buffer[..], bytes[at..at + 100]);
    }
    assert_eq!(server.take_log().len(), 2);
}

#[test]
fn an_object_larger_than_the_memory_is_read_whole_by_several_readers() {
    let server = Server::start();
    let bytes = noise(24 * MIB);
    server.put("x", Object::new(bytes.clone()));
    for memory in [0, 1 << 20, 8 << 20] {
        let account = Account::new(memory, 0);
        let source = Source::open_remote(&server.url("x"), &RemoteOptions::default(), &account).unwrap();
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let (source, bytes) = (&source, &bytes);
                scope.spawn(move || {
                    for i in 0..24 {
                        let at = (i + reader * 6) % 24 * MIB;
                        assert!(source.get(FileOffset(at as u64), MIB as u64, "x").unwrap() == bytes[at..at + MIB]);
                    }
                });
            }
        });
        assert!(account.peaks().memory <= memory);
        drop(source);
    }
}

#[test]
fn readers_of_the_same_bytes_share_one_request() {
    let server = Server::start();
    server.put("x", Object::new(noise(4 * MIB)));
    let source = open(&server, "x").unwrap();
    server.take_log();
    server.delay(Duration::from_millis(50));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| source.get(FileOffset(MIB as u64), 10_000, "x").unwrap());
        }
    });
    assert_eq!(server.take_log().len(), 1);
}

#[test]
fn small_and_empty_objects_are_one_request() {
    let server = Server::start();
    for len in [1, 100, 16 << 10] {
        server.put("x", Object::new(noise(len)));
        let source = open(&server, "x").unwrap();
        assert_eq!(source.get(FileOffset(0), len as u64, "x").unwrap(), noise(len));
        assert_eq!((source.len(), server.take_log().len()), (len as u64, 1));
    }
    server.put("x", Object::new(Vec::new()));
    assert_eq!(open(&server, "x").unwrap().len(), 0);
}
