//! Access control of `fzmfs serve`: the secret path, names of the server, paths, links.

use std::fs;
use std::os::unix::fs::symlink;

use super::server::{Server, cat};
use crate::support::mounts::fzmfs;
use crate::support::opened::data;

const SAMPLE: &str = "fzm/lq1d_f32_noa_rle.fzm";

#[test]
fn nobody_reads_without_the_secret_path() {
    let server = Server::start(&data(SAMPLE), &[]);
    let raw = |path: &str| {
        server.send(format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.at).as_bytes())
    };
    let secret = server.prefix.trim_matches('/');
    assert!(secret.len() >= 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()), "{secret}");
    for path in ["/", "/data.raw", "/0/data.raw", &format!("/{secret}x/data.raw"), &format!("/x/{secret}/data.raw")] {
        let reply = raw(path);
        assert_eq!(reply.status, 404, "{path}");
        assert!(!reply.head.contains(secret));
    }
    assert_eq!(raw(&format!("/{secret}/data.raw")).status, 200);
    let page = server.get("");
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert!(!String::from_utf8_lossy(&page.body).contains(secret), "links are relative");
    assert_ne!(Server::start(&data(SAMPLE), &[]).prefix, server.prefix);
}

#[test]
fn the_secret_path_is_in_no_log_and_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut bad = fs::read(data(SAMPLE)).unwrap();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join("bad.fzm"), bad).unwrap();
    let server = Server::start(dir.path(), &[]);
    let secret = server.prefix.trim_matches('/');
    for path in ["bad.fzm/data.raw", "missing", "bad.fzm/missing", "%zz", "bad.fzm"] {
        assert!(!String::from_utf8_lossy(&server.get(path).body).contains(secret), "{path}");
    }
    server.send(&b"x".repeat(100_000));
    let logged = server.logged();
    assert!(logged.contains("bad.fzm/data.raw") && !logged.contains(secret), "{logged}");
}

#[test]
fn requests_are_logged_without_the_secret_path() {
    let server = Server::start(&data(SAMPLE), &[]);
    let secret = server.prefix.trim_matches('/').to_owned();
    assert_eq!((server.get("info.json").status, server.get("missing").status), (200, 404));
    let sent = format!("GET /{}x/info.json HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", secret, server.at);
    assert_eq!(server.send(sent.as_bytes()).status, 404);
    let logged = server.logged();
    for line in ["127.0.0.1 GET /info.json 200", "127.0.0.1 GET /missing 404", "127.0.0.1 GET - 404"] {
        assert!(logged.contains(line), "{logged}");
    }
    assert!(!logged.contains(&secret), "{logged}");
}

#[test]
fn a_name_that_is_not_the_servers_is_refused() {
    let server = Server::start(&data(SAMPLE), &["--no-token", "--host", "data.example.org"]);
    let port = server.at.rsplit_once(':').unwrap().1;
    let ask = |target: &str, hosts: &str| {
        server.send(format!("GET {target} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n").as_bytes())
    };
    let own = format!("host: {}\r\n", server.at);
    for (target, hosts, status) in [
        ("/info.json", own.clone(), 200),
        ("/info.json", format!("host: localhost:{port}\r\n"), 200),
        ("/info.json", "host: Data.Example.Org\r\n".to_owned(), 200),
        ("/info.json", "host: rebound.example\r\n".to_owned(), 421),
        ("/info.json", format!("host: localhost.example:{port}\r\n"), 421),
        ("/info.json", format!("host: 127.0.0.1.example:{port}\r\n"), 421),
        ("/info.json", "host: \r\n".to_owned(), 421),
        ("/info.json", String::new(), 400),
        ("/info.json", format!("{own}host: rebound.example\r\n"), 400),
        ("http://rebound.example/info.json", own.clone(), 421),
        (&format!("http://{}/info.json", server.at), own.clone(), 200),
        (&format!("http://{}/../etc/passwd", server.at), own.clone(), 404),
        (&format!("http://rebound.example@{}/info.json", server.at), own.clone(), 421),
        ("https://rebound.example:443/", own.clone(), 421),
        ("rebound.example:80", own.clone(), 421),
    ] {
        assert_eq!(ask(target, &hosts).status, status, "{target} {hosts}");
    }
}

#[test]
fn paths_never_lead_out_of_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    fs::create_dir_all(inside.join("deep")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    fs::write(inside.join("plain.txt"), "text").unwrap();
    fs::write(inside.join("a %2e#?\u{fc}.txt"), "odd").unwrap();
    fs::copy(data(SAMPLE), inside.join("x.fzm")).unwrap();
    symlink("../plain.txt", inside.join("deep/link.txt")).unwrap();
    symlink("../inside/x.fzm", inside.join("around.fzm")).unwrap();
    symlink("../../secret", inside.join("deep/out")).unwrap();
    symlink("/etc/passwd", inside.join("absolute")).unwrap();
    symlink("..", inside.join("up")).unwrap();
    symlink("loop", inside.join("loop")).unwrap();
    let server = Server::start(&inside, &["--no-token"]);
    for path in [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "%252e%252e/secret",
        "%2e%2e%2fsecret",
        "deep/../../secret",
        "deep/../plain.txt",
        ".%2e/secret",
        "..;/secret",
        "..\\secret",
        "..%5csecret",
        "%c0%ae%c0%ae/secret",
        "/etc/passwd",
        "//etc/passwd",
        "plain.txt%00",
        "plain.txt%00.png",
        "plain.txt/",
        "plain.txt/.",
        "./plain.txt",
        "x.fzm/../plain.txt",
        "x.fzm//data.raw",
        "x.fzm/%2e%2e/plain.txt",
        "deep/out",
        "absolute",
        "up/secret",
        "around.fzm/data.raw",
        "%zz",
        "%",
    ] {
        let reply = server.get(path);
        assert!(matches!(reply.status, 400 | 404), "{path}: {reply:?}");
        assert!(!reply.body.starts_with(b"secret") && !reply.body.starts_with(b"root:"), "{path}");
    }
    assert_eq!(server.get("loop").status / 100, 5);
    for (path, want) in [("plain.txt", "text"), ("deep/link.txt", "text"), ("a%20%252e%23%3F%C3%BC.txt", "odd")] {
        assert_eq!(String::from_utf8(server.get(path).body).unwrap(), want, "{path}");
    }
    assert_eq!(server.get("x.fzm/data.raw").body, cat(&data(SAMPLE), "data.raw"));
}

#[test]
fn an_address_that_others_reach_needs_the_secret_path_or_the_users_word() {
    let source = data(SAMPLE);
    let refused = |options: &[&str]| {
        let out = fzmfs().arg("serve").arg(&source).args(options).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, message) = refused(&["--listen", "0.0.0.0:0", "--no-token"]);
    assert!(code == Some(2) && message.contains("--public"), "{message}");
    let (code, message) = refused(&["--listen", "nowhere"]);
    assert!(code == Some(2), "{message}");
    // An address in use.
    let server = Server::start(&source, &[]);
    let (code, message) = refused(&["--listen", &server.at]);
    assert!(code == Some(1) && message.contains(&server.at), "{message}");
    for options in [&["--listen", "0.0.0.0:0"][..], &["--listen", "0.0.0.0:0", "--public"]] {
        let mut server = Server::start(&source, options);
        assert_eq!(server.prefix.len() > 1, options.len() == 2);
        server.at = server.at.replace("0.0.0.0", "127.0.0.1");
        assert_eq!(server.get("info.json").status, 200);
    }
}

#[test]
fn names_of_a_container_are_text_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let name = "<script>alert(1)<\u{202e}\"'&.txt";
    fs::write(dir.path().join(name), "text").unwrap();
    let server = Server::start(dir.path(), &[]);
    let page = String::from_utf8(server.get("").body).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains('\u{202e}'), "{page}");
    let list = server.ask("GET", "", "accept: application/json\r\n").json();
    assert_eq!(list["entries"][0]["name"].as_str(), Some(name));
}
