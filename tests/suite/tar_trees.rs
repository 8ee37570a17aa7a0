//! Archives as trees: names, links, holes, and archives that lie.

use std::sync::Arc;

use fzmfs::ErrorKind as Cause;
use fzmfs::format::{self, Container, Input, Options};
use fzmfs::source::Source;
use fzmfs::tree::{Ino, Kind, ROOT, Tree};
use fzmfs::view;

use crate::support::opened::Plain;
use crate::tar_blocks::{entry, header, member, padded, pax, summed};

fn opened(bytes: Vec<u8>) -> Arc<dyn Container> {
    let input = Input::of(Source::from_bytes(bytes)).unwrap();
    format::open(&input, Some("tar"), &Options::default()).unwrap()
}

fn tree(parts: &[Vec<u8>]) -> Tree {
    Tree::new(opened(parts.concat()), "x.tar".as_ref()).unwrap()
}

/// Everything below `dir`: directories with a slash, links with their target, files with what they contain.
fn shown(tree: &Tree, dir: Ino, above: &str) -> Vec<String> {
    let mut all = Vec::new();
    for found in tree.entries(dir) {
        let found = found.unwrap();
        let path = format!("{above}{}", found.name);
        match found.kind {
            Kind::Dir => {
                all.push(format!("{path}/"));
                all.extend(shown(tree, found.ino, &format!("{path}/")));
            }
            Kind::Link => {
                let to = tree.link(found.ino);
                all.push(format!("{path} -> {}", to.unwrap_or_else(|e| format!("({})", e.errno()))));
            }
            Kind::File => all.push(format!("{path} = {}", text(tree, found.ino))),
        }
    }
    all
}

fn text(tree: &Tree, ino: Ino) -> String {
    let read = || {
        let len = view::len(&tree.file(ino)?.file.content, &Plain)?;
        assert_eq!(tree.attr(tree.follow(ino)?, &Plain)?.size, len);
        let mut bytes = vec![0; len as usize];
        tree.file(ino)?.view(&Plain)?.read(0, &mut bytes, &Plain)?;
        Ok::<_, fzmfs::Error>(bytes)
    };
    read().map_or_else(|e| format!("({})", e.errno()), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn check(what: &str, parts: &[Vec<u8>], want: &[&str]) {
    assert_eq!(shown(&tree(parts), ROOT, ""), want, "{what}");
}

#[test]
fn members_are_shown_once_and_the_last_of_a_name_counts() {
    let file = |name: &str| member(name, b'0', name.as_bytes());
    let dir = |name: &str| entry(name, b'5', "");
    check("in order", &[file("b"), file("a/c"), file("a/b")], &["b = b", "a/", "a/c = a/c", "a/b = a/b"]);
    check("the same name", &[member("a", b'0', b"1"), file("b"), member("a", b'0', b"2")], &["a = 2", "b = b"]);
    check("a directory twice", &[dir("a"), file("a/b"), dir("a/")], &["a/", "a/b = a/b"]);
    check("dots say nothing", &[dir("./"), file("./a/./b"), file("a//c")], &["a/", "a/b = ./a/./b", "a/c = a//c"]);
    check("a name of old programs", &[member("a/", 0, b"")], &["a/"]);
    check("an empty name", &[file(""), file("/"), file(".")], &[]);
    check("a file, then a directory", &[file("a"), dir("a"), file("a/b")], &["a/", "a/b = a/b"]);
    check("an empty directory, then a file", &[dir("a"), file("a")], &["a = a"]);
    check("a directory that is not empty stays", &[file("a/b"), file("a")], &["a/", "a/b = a/b"]);
    check("nothing is below a file", &[file("a"), file("a/b")], &["a = a"]);
    check("nothing is below a link", &[entry("a", b'2', "b"), file("a/b")], &["a -> b"]);
    check("devices are left out", &[entry("a", b'3', ""), entry("p", b'6', ""), file("b")], &["b = b"]);
    check("an unknown type is a file", &[member("a", b'Z', b"z")], &["a = z"]);
    check("nothing after the end", &[file("a"), vec![0; 512], file("b")], &["a = a"]);
    check("no member at all", &[vec![0; 1024]], &[]);
}

#[test]
fn names_that_lead_out_are_names_like_any_other() {
    let file = |name: &str| member(name, b'0', b".");
    check(
        "up",
        &[file("../../x"), file("a/../b")],
        &["%2E%2E/", "%2E%2E/%2E%2E/", "%2E%2E/%2E%2E/x = .", "a/", "a/%2E%2E/", "a/%2E%2E/b = ."],
    );
    check("absolute", &[file("/etc/passwd")], &["etc/", "etc/passwd = ."]);
    check("controls", &[file("a\nb\x1b[m%")], &["a%0Ab%1B[m%25 = ."]);
}

#[test]
fn symbolic_links_stay_inside() {
    let link = |name: &str, to: &str| entry(name, b'2', to);
    let denied = |name: &str| format!("{name} -> ({})", libc::EACCES);
    for (name, to, inside) in [
        ("a", "b", true),
        ("a", "./b/c", true),
        ("d/a", "../b", true),
        ("d/e/a", "../../b%", true),
        ("a", "..", false),
        ("a", "../x", false),
        ("d/a", "../../x", false),
        ("d/a", "e/..", false),
        ("a", "/etc/passwd", false),
        ("a", "", false),
    ] {
        let all = shown(&tree(&[link(name, to)]), ROOT, "");
        let want = if inside { format!("{name} -> {}", to.replace('%', "%25")) } else { denied(name) };
        assert_eq!(all.last(), Some(&want), "{name} -> {to}");
    }
}

#[test]
fn links_are_followed_and_loops_end() {
    let tree = tree(&[
        member("d/f", b'0', b"f"),
        entry("l", b'2', "d"),
        entry("d/up", b'2', "../d/f"),
        entry("m", b'2', "l/up"),
        entry("x", b'2', "y"),
        entry("y", b'2', "x"),
        entry("s", b'2', "s/s"),
        entry("n", b'2', "d/f/g"),
    ]);
    for path in ["m", "d/up", "l/f", "l/up", "l/../l/f"] {
        assert_eq!(text(&tree, tree.resolve(path).unwrap()), "f", "{path}");
    }
    for path in ["x", "s"] {
        assert_eq!(tree.follow(tree.resolve(path).unwrap()).unwrap_err().errno(), libc::ELOOP, "{path}");
    }
    assert!(matches!(tree.follow(tree.resolve("n").unwrap()).unwrap_err().kind(), Cause::NotFound));
}

#[test]
fn hard_links_have_the_content_that_the_name_had() {
    let link = |name: &str, to: &str| entry(name, b'1', to);
    check("a file", &[member("a", b'0', b"1"), link("b", "a"), member("a", b'0', b"2")], &["a = 2", "b = 1"]);
    check("a symbolic link", &[entry("a", b'2', "x"), link("b", "./a")], &["a -> x", "b -> x"]);
    let broken = format!("b = ({})", libc::EIO);
    check("missing", &[link("b", "a"), member("a", b'0', b"1")], &[&broken, "a = 1"]);
    check("itself", &[link("b", "b")], &[&broken]);
    check("a directory", &[member("d/f", b'0', b"1"), link("b", "d")], &["d/", "d/f = 1", &broken]);
    // Its size is that of the target, and no content follows.
    check(
        "a size",
        &[member("a", b'0', b"1"), header("b", b'1', 1, "a"), member("c", b'0', b"3")],
        &["a = 1", "b = 1", "c = 3"],
    );
}

#[test]
fn long_names_and_large_numbers_are_read() {
    let long = "n".repeat(150) + "/" + &"m".repeat(150);
    let shown = format!("{}/", "n".repeat(150));
    let file = format!("{} = x", &long);
    check(
        "gnu",
        &[member("././@LongLink", b'L', format!("{long}\0").as_bytes()), member("n", b'0', b"x")],
        &[&shown, &file],
    );
    check(
        "pax",
        &[pax(b'x', &[("path", &long), ("size", "1")]), header("n", b'0', 0, ""), padded(b"x")],
        &[&shown, &file],
    );
    check("a link of gnu", &[member("", b'K', b"abc\0"), entry("l", b'2', "")], &["l -> abc"]);
    check("a link of pax", &[pax(b'x', &[("linkpath", "abc")]), entry("l", b'2', "x")], &["l -> abc"]);
    let mut prefixed = header("name", b'0', 0, "");
    prefixed[345..351].copy_from_slice(b"prefix");
    check("a prefix", &[summed(prefixed)], &["prefix/", "prefix/name = "]);
}

#[test]
fn modes_and_times_are_those_of_the_members() {
    let tree = tree(&[
        member("a", b'0', b""),
        pax(b'x', &[("mtime", "-1.5")]),
        entry("d", b'5', ""),
        pax(b'g', &[("mtime", "77")]),
        entry("d/l", b'2', "x"),
        pax(b'x', &[("mtime", "99999999999999")]),
        member("z", b'0', b""),
    ]);
    let attr = |path: &str| {
        let attr = tree.attr(tree.resolve(path).unwrap(), &Plain).unwrap();
        (attr.mode, attr.mtime, attr.nlink)
    };
    assert_eq!(attr("a"), (Some(0o440), (1000, 0), 1));
    assert_eq!(attr("d"), (Some(0o440), (-2, 500_000_000), 2));
    assert_eq!(attr("d/l"), (Some(0o440), (77, 0), 1));
    // Further away than an index can hold.
    assert_eq!(attr("z"), (Some(0o440), (0, 0), 1));
    assert_eq!(attr(""), (None, (0, 0), 3));
}

#[test]
fn holes_of_sparse_files_are_zeros() {
    let want = "s = \0\0ab\0c\0\0";
    let mut old = header("s", b'S', 3, "");
    old[257..265].copy_from_slice(b"ustar  \0");
    let numbers = [(386, 2), (398, 2), (410, 5), (422, 1), (483, 8)];
    for (at, n) in numbers {
        old[at..at + 12].copy_from_slice(format!("{n:011o}\0").as_bytes());
    }
    check("old gnu", &[summed(old.clone()), padded(b"abc"), member("z", b'0', b"z")], &[want, "z = z"]);
    // The second pair in a block of its own.
    let mut more = vec![0; 512];
    more[..24].copy_from_slice(&old[410..434]);
    old[410..434].fill(0);
    old[482] = 1;
    check("with more blocks", &[summed(old), more, padded(b"abc"), member("z", b'0', b"z")], &[want, "z = z"]);
    let file = |records: &[(&str, &str)], content: &[u8]| [pax(b'x', records), member("n", b'0', content)].concat();
    let pairs = [("GNU.sparse.size", "8"), ("GNU.sparse.offset", "2"), ("GNU.sparse.numbytes", "2")];
    let pairs = [&pairs[..], &[("GNU.sparse.offset", "5"), ("GNU.sparse.numbytes", "1"), ("path", "s")]].concat();
    check("0.0", &[file(&pairs, b"abc")], &[want]);
    let map = [("GNU.sparse.map", "2,2,5,1"), ("GNU.sparse.size", "8"), ("GNU.sparse.name", "s")];
    check("0.1", &[file(&map, b"abc")], &[want]);
    let in_content =
        [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "s"), ("GNU.sparse.realsize", "8")];
    let content = [padded(b"2\n2\n2\n5\n1\n"), b"abc".to_vec()].concat();
    check("1.0", &[file(&in_content, &content), member("z", b'0', b"z")], &[want, "z = z"]);
    let broken = format!("s = ({})", libc::EIO);
    for (what, list) in [("order", "5,1,2,2"), ("past the end", "2,2,8,1"), ("too much content", "0,8")] {
        let map = [("GNU.sparse.map", list), ("GNU.sparse.size", "8"), ("GNU.sparse.name", "s")];
        check(what, &[file(&map, b"abc")], &[&broken]);
    }
    for (what, content) in [("no map", &b"2\n2\n"[..]), ("no number", b"x\n"), ("a long map", b"999999999\n")] {
        check(
            what,
            &[file(&in_content, &padded(content))],
            &[&*if what == "a long map" { format!("s = ({})", libc::EFBIG) } else { broken.clone() }],
        );
    }
}

#[test]
fn a_broken_archive_shows_what_is_before_the_damage() {
    let file = |name: &str| member(name, b'0', name.as_bytes());
    let mut wrong = file("b");
    wrong[3] ^= 1;
    let mut large = header("b", b'0', 0, "");
    large[124..136].copy_from_slice(b"\x80\0\0\0\0\x01\0\0\0\0\0\0");
    for (what, parts, want) in [
        ("a wrong sum", &[file("a"), wrong, file("c")][..], &["a = a"][..]),
        ("content that is cut off", &[file("a"), header("b", b'0', 5000, ""), padded(b"b")], &["a = a", "b = (5)"]),
        ("a header that is cut off", &[file("a"), header("b", b'0', 0, "")[..100].to_vec()], &["a = a"]),
        ("a size of 4 GiB", &[file("a"), header("b", b'0', 1 << 32, ""), file("c")], &["a = a", "b = (5)"]),
        ("a size of 256 TiB", &[file("a"), summed(large), file("c")], &["a = a"]),
        ("a long name that is too long", &[file("a"), header("b", b'L', 1 << 30, ""), file("c")], &["a = a"]),
        ("records that are too many", &[file("a"), header("b", b'x', 1 << 30, ""), file("c")], &["a = a"]),
    ] {
        let tree = tree(parts);
        let all = shown(&tree, ROOT, "");
        let (last, before) = all.split_last().unwrap();
        assert_eq!(before, want, "{what}");
        assert!(last.starts_with("error.txt = "), "{what}: {all:?}");
        assert!(tree.container().info().details["damage"].is_string(), "{what}");
        let checks = tree.container().checks();
        let [format::Check::Run { run, .. }] = &checks[..] else { panic!("{checks:?}") };
        assert!(run().is_err(), "{what}");
    }
}

#[test]
fn names_without_end_are_left_out() {
    let deep = "d/".repeat(300) + "x";
    let broad = "n".repeat(20_000);
    let named = |path: &str| [pax(b'x', &[("path", path)]), member("n", b'0', b"n")].concat();
    let tree = tree(&[named(&deep), named(&broad), named("ok")]);
    let top: Vec<_> = tree.entries(ROOT).map(|entry| entry.unwrap().name).collect();
    assert_eq!(top, ["ok"]);
    assert_eq!(tree.container().info().details["left_out"], 2);
}

#[test]
fn an_archive_is_told_by_its_magic_or_else_by_its_name_and_sum() {
    let v7 = {
        let mut block = header("a", b'0', 0, "");
        block[257..265].fill(0);
        summed(block)
    };
    for (path, bytes, is) in [
        ("x", header("a", b'0', 0, ""), true),
        ("x.tar", v7.clone(), true),
        ("x", v7, false),
        ("x.TAR", vec![0; 1024], true),
        ("x.tar", b"not a tar".repeat(100), false),
        ("x.tar", Vec::new(), false),
    ] {
        let len = bytes.len() as u64;
        let source = Source::within(&Source::from_bytes(bytes), 0..len, path).unwrap();
        let found = format::detect(&Input::of(source).unwrap(), None);
        assert_eq!(found.is_ok_and(|format| format.name == "tar"), is, "{path}");
    }
}
