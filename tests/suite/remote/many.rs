//! Containers of several objects: sparse frames, shards.

use std::path::Path;

use super::{copy, everything, relocated};
use crate::support::opened::data;
use crate::support::server::{Object, Server};

/// Serves the files below `from` under `name`.
fn serve(server: &Server, from: &Path, name: &str) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{name}/{}", path.file_name().unwrap().to_str().unwrap());
        server.put(&name, Object::new(std::fs::read(&path).unwrap()));
    }
}

#[test]
fn the_directory_of_a_sparse_frame_reads_as_from_the_disk() {
    for name in [
        "blosc2/s01_sframe.b2frame",
        "blosc2/s02_sframe_edited.b2frame",
        "blosc2/n22_sframe_b2nd.b2nd",
        "blosc2/bad/sframe_missing_chunk.b2frame",
    ] {
        let (server, tmp) = (Server::start(), tempfile::tempdir().unwrap());
        let local = tmp.path().join("x");
        copy(&data(name), &local);
        serve(&server, &local, "dir/x");
        let near = everything(local.to_str().unwrap());
        assert!(near.len() > 3, "{near:?}");
        for url in ["dir/x", "dir/x/"] {
            assert_eq!(near, everything(&server.url(url)), "{name}");
        }
    }
}

#[test]
fn a_directory_that_is_no_container_is_an_error_that_names_the_url() {
    let server = Server::start();
    let error = everything(&server.url("dir/")).remove(0);
    assert!(error.contains("unrecognized format") || error.contains("no such"), "{error}");
    assert!(everything(&server.url("dir")).remove(0).contains("no such object (HTTP 404)"));
}

#[test]
fn shards_beside_the_object_read_as_from_the_disk() {
    let (server, tmp) = (Server::start(), tempfile::tempdir().unwrap());
    copy(&data("ztensor/v20-sharded"), tmp.path());
    serve(&server, tmp.path(), "some/where");
    let mut mains = 0;
    for entry in std::fs::read_dir(tmp.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (near, far) = (everything(path.to_str().unwrap()), everything(&server.url(&format!("some/where/{name}"))));
        let near = relocated(&near, tmp.path(), &server.url("some/where/"));
        assert_eq!(near, far, "{name}");
        mains += usize::from(near[0].contains("\"shards\":["));
    }
    assert!(mains > 0);
}

#[test]
fn a_chunk_that_is_newer_than_the_index_is_not_served() {
    let (server, name) = (Server::start(), "blosc2/n22_sframe_b2nd.b2nd");
    serve(&server, &data(name), "x");
    for entry in std::fs::read_dir(data(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "chunk") {
            let object = Object::new(std::fs::read(&path).unwrap());
            let modified = Some("Sun, 06 Nov 1994 09:00:01 GMT".to_owned());
            server.put(&format!("x/{}", path.file_name().unwrap().to_str().unwrap()), Object { modified, ..object });
        }
    }
    let read = everything(&server.url("x/"));
    let raw = read.iter().find(|line| line.starts_with("data.raw")).unwrap_or(&read[0]);
    assert!(raw.contains("changed"), "{raw}");
}
