//! The page for people, and what it draws from: pictures of slices, their numbers, what is known of an array.

use std::fs;
use std::os::unix::fs::symlink;

use super::server::Server;
use crate::support::mounts::fzmfs;
use crate::support::opened::data;

const SAMPLE: &str = "blosc2/o271_nd_2d.b2nd";

/// Width, height and the texts of a PNG.
fn png(bytes: &[u8]) -> (u32, u32, Vec<(String, String)>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let info = reader.info();
    let texts = info.uncompressed_latin1_text.iter().map(|text| (text.keyword.clone(), text.text.clone()));
    (info.width, info.height, texts.collect())
}

#[test]
fn a_picture_of_a_slice_has_the_size_the_range_and_the_colours_that_are_asked_for() {
    let server = Server::start(&data(SAMPLE), &[]);
    let reply = server.get("data.png?slice=5:40,:&size=128&vmin=-1&vmax=2.5&cmap=magma");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("image/png")), "{}", reply.head);
    let (width, height, texts) = png(&reply.body);
    let text = |key: &str| &*texts.iter().find(|(own, _)| own == key).unwrap().1;
    assert!(width.max(height) <= 128, "{width} {height}");
    assert_eq!((text("Range"), text("Colours")), ("-1.0 2.5", "magma, from -1.0 to 2.5 (as chosen)"));
    assert!(text("Title").ends_with("elements [5:40, :]"), "{texts:?}");
    assert!(text("Decoded").starts_with("1295 of 1295 elements"), "{texts:?}");
    let tag = reply.header("etag").unwrap();
    let path = "data.png?slice=5:40,:&size=128&vmin=-1&vmax=2.5&cmap=magma";
    assert_eq!(server.ask("GET", path, &format!("if-none-match: {tag}\r\n")).status, 304);
    let head = server.ask("HEAD", path, "");
    assert_eq!((head.length(), head.body.len()), (Some(reply.body.len()), 0));
    assert_ne!(server.get("data.png?slice=").header("etag"), Some(tag));
}

#[test]
fn numbers_of_a_slice_are_those_of_the_array() {
    let server = Server::start(&data(SAMPLE), &[]);
    let raw = server.get("data.raw").body;
    let value = |row: usize, column: usize| {
        let at = 4 * (row * 37 + column);
        i32::from_le_bytes(raw[at..at + 4].try_into().unwrap())
    };
    for (slice, want) in [
        ("7,:", (0..37).map(|column| value(7, column)).collect::<Vec<_>>()),
        (":,11", (0..45).map(|row| value(row, 11)).collect()),
        ("-1,30:33", (30..33).map(|column| value(44, column)).collect()),
        ("44,36", vec![value(44, 36)]),
    ] {
        let numbers = server.get(&format!("data.json?slice={slice}")).json();
        let list = |key: &str| -> Vec<i32> {
            numbers[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as i32).collect()
        };
        assert_eq!((list("low"), list("high")), (want.clone(), want.clone()), "{slice}");
        assert_eq!(numbers["minimum"], want.iter().min().unwrap().to_string(), "{slice}");
        assert_eq!((&numbers["elements"], &numbers["decoded"]), (&want.len().into(), &want.len().into()), "{slice}");
    }
    let about = server.get("data.json?about").json();
    assert_eq!((&about["shape"], &about["dtype"]), (&serde_json::json!([45, 37]), &"<i4".into()));
}

#[test]
fn a_slice_decodes_its_blocks_once_and_no_others() {
    // Blocks of 3 x 3 x 4 elements in chunks of 5 x 6 x 13 of 11 x 12 x 13; two that are neighbours are decoded together.
    for (slice, blocks) in [("5,:,:", 16), (":,5,:", 20), (":,:,5", 40), ("5,5,:", 4), ("5,5,5", 2)] {
        let server = Server::start(&data("blosc2/o271_nd_3d_f8.b2nd"), &["--metrics"]);
        let decoded = || -> u64 {
            let text = String::from_utf8(server.get("-/metrics").body).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("fzmfs_decoded_bytes_total "));
            line.unwrap().parse().unwrap()
        };
        let suffix = if slice.matches(':').count() == 2 { "png" } else { "json" };
        let ask = || assert_eq!(server.get(&format!("data.{suffix}?slice={slice}")).status, 200, "{slice}");
        ask();
        assert_eq!(decoded(), blocks * 288, "{slice}");
        ask();
        assert_eq!(decoded(), blocks * 288, "{slice}");
    }
}

#[test]
fn a_slice_that_there_is_not_is_refused_and_a_broken_one_is_an_error() {
    let server = Server::start(&data(SAMPLE), &[]);
    for query in [
        "slice=1",
        "slice=1,2,3",
        "slice=45,:",
        "slice=:,a",
        "slice=::2,:",
        "slice=:,5:5",
        "slice=:,:&size=0",
        "slice=:,:&size=4096",
        "slice=:,:&size=x",
        "slice=:,:&vmin=nan",
        "slice=:,:&vmin=2&vmax=1",
        "slice=:,:&cmap=jet",
        "slice=:,:&bogus=1",
        "slice=:,:&slice=:,:",
        "slice=%zz",
        "slice=1,1",
    ] {
        let reply = server.get(&format!("data.png?{query}"));
        assert_eq!((reply.status, reply.error().is_empty()), (400, false), "{query}: {}", reply.head);
    }
    assert_eq!(server.get("data.json?slice=:,:").status, 400);
    for path in ["info.png?slice=", "nothing.png?slice=", "data.zarr.json?slice=", "data.png"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    // A file of its own is what it is, whatever is asked for besides a slice.
    assert_eq!(server.get("info.json?v=3").body, server.get("info.json").body);
    let text = server.get("../n13_str_U7.b2nd");
    assert_eq!(text.status, 404);
    drop(server);
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(data("fzm/lq1d_f32_noa_rle.fzm")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join("bad.fzm"), bytes).unwrap();
    fs::copy(data("blosc2/n13_str_U7.b2nd"), dir.path().join("text.b2nd")).unwrap();
    let server = Server::start(dir.path(), &[]);
    for path in ["bad.fzm/data.png?slice=:", "bad.fzm/data.json?slice=3"] {
        let reply = server.get(path);
        assert!(reply.status == 500 && reply.error().contains("checksum"), "{path}: {reply:?}");
    }
    assert_eq!(server.get("text.b2nd/data.png?slice=").status, 400);
}

#[test]
fn no_name_of_a_container_is_markup_and_no_script_but_ours_may_run() {
    let dir = tempfile::tempdir().unwrap();
    let name = "<script>alert('1')</script>\"&\u{202e}txt";
    let name = name.replace('/', "_");
    fs::copy(data(SAMPLE), dir.path().join(format!("{name}.b2nd"))).unwrap();
    fs::write(dir.path().join(format!("{name}.txt")), "text").unwrap();
    let server = Server::start(dir.path(), &["--frame", "http://localhost:*"]);
    let reply = server.get("");
    let text = String::from_utf8(reply.body.clone()).unwrap();
    assert_eq!((text.matches("<script").count(), text.contains('\u{202e}')), (1, false), "{text}");
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "), "{policy}");
    assert!(policy.ends_with("frame-ancestors 'self' http://localhost:*"), "{policy}");
    let list = text.split("id=\"list\"").nth(1).unwrap();
    let within = list.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    // All that a page needs is below its own root.
    for link in text.split("src=\"").chain(text.split("href=\"")).skip(1) {
        assert!(!link.starts_with('/') && !link.starts_with("http"), "{link}");
    }
    let inner = server.get(within);
    assert_eq!(inner.status, 200, "{within}");
    for (asset, kind) in [("page.js", "text/javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg+xml")] {
        let reply = server.get(&format!("-/{asset}"));
        assert_eq!(reply.status, 200, "{asset}");
        assert!(reply.header("content-type").unwrap().starts_with(kind), "{asset}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(server.get("-/other").status, 404);
}

#[test]
fn what_the_page_is_made_of_hides_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("-")).unwrap();
    for name in ["page.css", "metrics", "other.txt"] {
        fs::write(dir.path().join("-").join(name), name).unwrap();
    }
    let server = Server::start(dir.path(), &["--metrics"]);
    assert!(String::from_utf8(server.get("").body).unwrap().contains("href=\"%2D/\""));
    for (path, body) in [("%2D/page.css", "page.css"), ("%2D/metrics", "metrics"), ("-/other.txt", "other.txt")] {
        assert_eq!(String::from_utf8(server.get(path).body).unwrap(), body, "{path}");
    }
    let list = server.ask("GET", "%2D/", "accept: application/json\r\n").json();
    assert_eq!(list["entries"].as_array().map(Vec::len), Some(3));
    // Nothing of the tree takes the place of what the page runs.
    assert_eq!(server.get("-/page.css").header("content-type"), Some("text/css; charset=utf-8"));
    assert!(server.get("-/metrics").body.starts_with(b"# HELP"));
}

#[test]
fn a_viewer_is_served_from_its_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let viewer = dir.path().join("viewer");
    fs::create_dir(&viewer).unwrap();
    fs::write(viewer.join("index.html"), "<!DOCTYPE html>").unwrap();
    fs::write(viewer.join("main.js"), "1").unwrap();
    fs::write(dir.path().join("secret.js"), "2").unwrap();
    symlink("../secret.js", viewer.join("out.js")).unwrap();
    let server = Server::start(&data(SAMPLE), &["--viewer", viewer.to_str().unwrap()]);
    let index = server.get("-/viewer/");
    assert_eq!((index.status, &*index.body), (200, &b"<!DOCTYPE html>"[..]));
    assert!(index.header("content-security-policy").unwrap().contains("worker-src 'self' blob:"), "{}", index.head);
    assert_eq!(server.get("-/viewer/main.js").header("content-type"), Some("text/javascript; charset=utf-8"));
    for path in ["-/viewer/out.js", "-/viewer/none.js", "-/viewer/..%2fsecret.js", "-/viewer/../secret.js"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    for (options, why) in [(["--viewer", "/"], "no index.html"), (["--frame", "a;b"], "not an origin")] {
        let out = fzmfs().arg("serve").arg(data(SAMPLE)).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(why), "{options:?}: {said}");
    }
    let page = String::from_utf8(server.get("").body).unwrap();
    assert!(page.contains("data-viewer=\"-/viewer/\""), "{page}");
    assert_eq!(Server::start(&data(SAMPLE), &[]).get("-/viewer/").status, 404);
}
