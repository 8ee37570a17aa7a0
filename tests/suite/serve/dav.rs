//! WebDAV: what PROPFIND lists, and what it refuses.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;

use super::server::{Reply, Server};
use crate::support::opened::data;

const SAMPLE: &str = "fzm/lq1d_f32_noa_rle.fzm";

fn propfind(server: &Server, path: &str, depth: &str, body: &str) -> Reply {
    let headers = format!("depth: {depth}\r\ncontent-length: {}\r\n", body.len());
    server.send((server.request("PROPFIND", path, &headers) + body).as_bytes())
}

/// The responses of a multistatus, by their paths below the prefix.
fn responses(server: &Server, reply: &Reply) -> Vec<(String, String)> {
    assert_eq!((reply.status, reply.length()), (207, Some(reply.body.len())), "{reply:?}");
    let text = String::from_utf8(reply.body.clone()).unwrap();
    let response = |part: &str| {
        let (href, rest) = part.split_once("</D:href>").unwrap();
        (href.strip_prefix(&format!("<D:href>{}", server.prefix)).unwrap().to_owned(), rest.to_owned())
    };
    text.split("<D:response>").skip(1).map(response).collect()
}

#[test]
fn a_directory_is_listed_with_what_get_says_of_its_files() {
    let server = Server::start(&data(SAMPLE), &[]);
    let listed = responses(&server, &propfind(&server, "", "1", ""));
    let (root, files) = listed.split_first().unwrap();
    assert!(root.0.is_empty() && root.1.contains("<D:resourcetype><D:collection/></D:resourcetype>"), "{root:?}");
    let name = format!("<D:displayname>{}</D:displayname>", SAMPLE.rsplit('/').next().unwrap());
    assert!(root.1.contains(&name), "{root:?}");
    let stages = files.iter().find(|(path, _)| path == "stages/").unwrap();
    assert!(stages.1.contains("<D:collection/>") && stages.1.contains("<D:displayname>stages</D:displayname>"));
    let mut lengths = 0;
    for (path, properties) in files.iter().filter(|(path, _)| !path.ends_with('/')) {
        let head = server.ask("HEAD", path, "");
        let tag = head.header("etag").unwrap().replace('"', "&quot;");
        for (name, value) in [
            ("getcontentlength", head.header("content-length").unwrap()),
            ("getcontenttype", head.header("content-type").unwrap()),
            ("getetag", &tag),
            ("resourcetype", ""),
        ] {
            assert!(properties.contains(&format!("<D:{name}>{value}</D:{name}>")), "{path} {name}: {properties}");
        }
        let date = head.header("last-modified").unwrap();
        assert!(properties.to_ascii_lowercase().contains(&format!("<d:getlastmodified>{date}</d")), "{properties}");
        lengths += 1;
    }
    assert!(lengths > 3);
    for (path, depth) in [("", "0"), ("stages/", "0"), ("stages", "0"), ("data.raw", "0"), ("data.raw", "1")] {
        let one = responses(&server, &propfind(&server, path, depth, ""));
        assert_eq!(one.len(), 1, "{path}");
        assert_eq!(one[0].0.trim_end_matches('/'), path.trim_end_matches('/'));
    }
    assert!(responses(&server, &propfind(&server, "stages", "1", ""))[1].0.starts_with("stages/"));
}

#[test]
fn properties_that_are_not_there_are_said_to_be_missing() {
    let server = Server::start(&data(SAMPLE), &[]);
    let body = "<?xml version=\"1.0\"?><a:propfind xmlns:a=\"DAV:\" xmlns:b=\"urn:x&amp;y\"><a:prop><a:getcontentlength/>\
                <a:quota-used-bytes/><b:color/></a:prop></a:propfind>";
    let listed = responses(&server, &propfind(&server, "data.raw", "0", body));
    let (have, missing) = listed[0].1.split_once("200 OK").unwrap();
    assert!(have.contains("<D:getcontentlength>") && !have.contains("getetag"), "{have}");
    for part in ["<D:quota-used-bytes/>", "<color xmlns=\"urn:x&amp;y\"/>", "404 Not Found"] {
        assert!(missing.contains(part), "{missing}");
    }
    let names = "<propfind xmlns=\"DAV:\"><propname/></propfind>";
    let listed = responses(&server, &propfind(&server, "stages/", "0", names));
    assert!(listed[0].1.contains("<D:getlastmodified/>") && !listed[0].1.contains("getcontentlength"), "{listed:?}");
}

#[test]
fn what_is_no_propfind_or_too_much_is_refused() {
    let server = Server::start(&data(SAMPLE), &[]);
    for depth in ["infinity", "2", ""] {
        let reply = propfind(&server, "", depth, "");
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 403, "{depth}");
        assert!(text.contains("<D:propfind-finite-depth/>") && reply.length() == Some(text.len()), "{text}");
    }
    assert_eq!(server.ask("PROPFIND", "", "").status, 403, "without a depth it is infinity");
    for body in
        ["<propfind>", "hello", "<!DOCTYPE a [<!ENTITY b \"c\">]><propfind xmlns=\"DAV:\"><allprop/></propfind>"]
    {
        assert_eq!(propfind(&server, "", "1", body).status, 400, "{body}");
    }
    assert_eq!(propfind(&server, "", "1", &"<a>".repeat(30_000)).status, 413);
    for path in ["missing", "data.raw/", "../x", "a%00"] {
        assert_eq!(propfind(&server, path, "1", "").status, 404, "{path}");
    }
    let bare = format!("PROPFIND / HTTP/1.1\r\nhost: {}\r\ndepth: 1\r\nconnection: close\r\n\r\n", server.at);
    assert_eq!(server.send(bare.as_bytes()).status, 404, "the secret path is needed");
}

#[test]
fn a_broken_file_does_not_hide_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    // The second frame does not say its length, which is found by decoding, and fails.
    let content = vec![7; 100_000];
    let mut frames = zstd::bulk::compress(&content, 1).unwrap();
    let block = frames.len() + 6;
    let mut writer = zstd::Encoder::new(&mut frames, 1).unwrap();
    writer.write_all(&content).unwrap();
    writer.finish().unwrap();
    // A block of a type that there is not.
    frames[block] |= 6;
    fs::write(dir.path().join("bad.zst"), frames).unwrap();
    fs::write(dir.path().join("a <&\u{1}.txt"), "text").unwrap();
    symlink("a <&\u{1}.txt", dir.path().join("link.txt")).unwrap();
    symlink("/etc/passwd", dir.path().join("out")).unwrap();
    let server = Server::start(dir.path(), &[]);
    let listed = responses(&server, &propfind(&server, "", "1", ""));
    let paths: Vec<&str> = listed.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["", "a%20%3C%26%01.txt", "bad.zst/", "link.txt"]);
    assert!(listed[1].1.contains("<D:displayname>a &lt;&amp;\u{fffd}.txt</D:displayname>"), "{listed:?}");
    assert!(listed[3].1.contains("<D:getcontentlength>4</D:getcontentlength>"), "{listed:?}");
    let inside = responses(&server, &propfind(&server, "bad.zst/", "1", ""));
    let of = |path: &str| &inside.iter().find(|(at, _)| at == path).unwrap().1;
    assert!(of("bad.zst/data.raw").starts_with("<D:status>HTTP/1.1 500"), "{inside:?}");
    assert!(of("bad.zst/info.json").contains("200 OK"), "{inside:?}");
}
