//! The walls between the layers, read from the sources: who names whom, who prints, who touches what.
//!
//! Every path that starts with `crate`, `super`, `self` or (in `main.rs`) `fzmfs` is resolved to the module
//! that it names, and checked against [`LAYERS`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What every layer may name: errors and failures, the cursor, limits, the account, the source, checksums, threads,
/// the clock, the page size, text, what is wanted.
const BASE: &[&str] = &[
    "account", "bytes", "checksum", "clock", "error", "failure", "index", "limits", "lru_list", "offset", "once",
    "paging", "parallel", "platform", "pool", "recent", "reserve", "source", "sync", "text", "wanted",
];

/// A layer, and the layers besides [`BASE`] that it may name. `format/*` is each of the formats, which may
/// always name itself; nothing else is given.
const LAYERS: &[(&str, &[&str])] = &[
    ("main", &["cli", "huge_pages"]),
    ("lib", &[]),
    ("cli", &["fs", "serve", "archive", "mirror", "tree", "view", "cache", "format", "gpu"]),
    ("fs", &["mirror", "tree", "view", "cache", "format"]),
    ("serve", &["archive", "mirror"]),
    // A crate of its own, which uses the library as any program does.
    ("python", &["lib", "huge_pages"]),
    ("archive", &["mirror", "tree", "view", "cache", "format", "gpu"]),
    ("mirror", &["tree", "view", "cache", "format"]),
    ("tree", &["view", "cache", "format"]),
    ("view", &["format"]),
    ("cache", &["format"]),
    // Only its table of formats names them: see `allowed`. Its options carry the device.
    ("format", &["codec", "gpu"]),
    ("format/*", &["format", "codec"]),
    ("format/fzm/device", &["format", "format/fzm", "codec", "gpu"]),
    ("codec", &[]),
    ("gpu", &[]),
    ("account", &[]),
    ("bytes", &[]),
    ("checksum", &[]),
    ("clock", &[]),
    ("error", &[]),
    ("failure", &[]),
    ("huge_pages", &[]),
    ("index", &[]),
    ("recent", &[]),
    ("limits", &[]),
    ("lru_list", &[]),
    ("offset", &[]),
    ("once", &[]),
    ("paging", &[]),
    ("parallel", &[]),
    ("platform", &[]),
    ("pool", &[]),
    ("reserve", &[]),
    ("source", &[]),
    ("sync", &[]),
    ("text", &[]),
    ("wanted", &[]),
];

/// A word that only some places may use.
const ONLY: &[(&str, &[&str])] = &[
    ("cudarc", &["src/gpu"]),
    ("libloading", &["src/gpu"]),
    ("fuser", &["src/fs"]),
    ("rustix", SYSTEMS),
    ("windows_sys", SYSTEMS),
    ("unix", SYSTEMS),
    ("windows", SYSTEMS),
    ("target_os", SYSTEMS),
];
/// Where systems may differ: the platform; and mounts, which only Linux has.
const SYSTEMS: &[&str] = &["src/platform", "src/fs", "src/cli/syslog.rs"];

/// What prints, and who may.
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln", "stdout", "stderr"];
const PRINTERS: &[&str] = &["src/cli", "src/main.rs"];

/// A word or mark of a source, and its line.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// The code of a source without comments, strings and characters.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' | 'b' | 'c' if literal_prefix(rest).is_some() => {
                let (prefix, hashes) = literal_prefix(rest).unwrap_or_default();
                if rest[..prefix].contains('r') {
                    let end = format!("\"{}", "#".repeat(hashes));
                    let body = prefix + hashes + 1;
                    rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len())
                } else {
                    prefix + quoted(&rest[prefix..])
                }
            }
            '"' => quoted(rest),
            '\'' => character(rest),
            c if c.is_alphabetic() || c == '_' => {
                let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                out.push(Token { text: &rest[..len], line });
                len
            }
            _ if rest.starts_with("::") => {
                out.push(Token { text: "::", line });
                2
            }
            c => {
                if !c.is_whitespace() {
                    out.push(Token { text: &rest[..c.len_utf8()], line });
                }
                c.len_utf8()
            }
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    out
}

/// Length of what stands before the quote of `r"`, `br#"`, `b"` and so on, and the number of hashes.
fn literal_prefix(rest: &str) -> Option<(usize, usize)> {
    let letters = rest.find(|c| !matches!(c, 'r' | 'b' | 'c'))?;
    let hashes = rest[letters..].find(|c| c != '#')?;
    let is_raw = rest[..letters].contains('r');
    (letters <= 2 && rest[letters + hashes..].starts_with('"') && (is_raw || hashes == 0)).then_some((letters, hashes))
}

/// Length of a string with escapes, from its opening quote on.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of a character, or of the quote alone where it begins a lifetime.
fn character(rest: &str) -> usize {
    if rest[1..].starts_with('\\') {
        return 3 + rest[3..].find('\'').map_or(0, |at| at + 1);
    }
    let mut chars = rest.char_indices().skip(2);
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

/// A path that a source names: its modules, and where it stands.
type Named = (Vec<String>, usize);

/// All paths in `tokens` that start at the crate or relative to `module`, as paths from the crate's root.
fn paths(tokens: &[Token<'_>], module: &[String]) -> Vec<Named> {
    let mut out = Vec::new();
    let mut inner: Vec<Option<String>> = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let before = |k: usize| i.checked_sub(k).map_or("", |at| tokens[at].text);
        match token.text {
            "{" => inner.push((before(2) == "mod").then(|| before(1).to_owned())),
            "}" => {
                inner.pop();
            }
            "crate" | "super" | "self" | "fzmfs"
                if before(1) != "::" && tokens.get(i + 1).is_some_and(|t| t.text == "::") =>
            {
                let mut here: Vec<String> = module.to_vec();
                here.extend(inner.iter().flatten().cloned());
                tree(&tokens[i..], &mut 0, &here, &mut out);
            }
            _ => {}
        }
    }
    out
}

/// Reads one `a::b::{c, d::e}` from `at` on, relative to `here`.
fn tree(tokens: &[Token<'_>], at: &mut usize, here: &[String], out: &mut Vec<Named>) {
    let mut path = here.to_vec();
    let Some(mut token) = tokens.get(*at).copied() else { return };
    loop {
        match token.text {
            "crate" | "fzmfs" => path.clear(),
            "self" => {}
            "super" => {
                path.pop();
            }
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|t| t.text != "}") {
                    let start = *at;
                    tree(tokens, at, &path, out);
                    if tokens.get(*at).is_some_and(|t| t.text == ",") || *at == start {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            word => path.push(word.to_owned()),
        }
        let line = token.line;
        *at += 1;
        match (tokens.get(*at), tokens.get(*at + 1)) {
            (Some(colons), Some(next))
                if colons.text == "::" && (is_word(next.text) || next.text == "{" || next.text == "*") =>
            {
                *at += 1;
                token = *next;
            }
            _ => {
                // `use a as b`.
                while tokens.get(*at).is_some_and(|t| t.text == "as" || tokens[*at - 1].text == "as") {
                    *at += 1;
                }
                out.push((path, line));
                return;
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The module that a file is: `src/format/fzm/mod.rs` is `format::fzm`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    if matches!(path, "lib" | "main") { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// The layer of a module; `formats` are the names of those that there are. `None`: a module of no known layer.
fn layer(module: &[String], formats: &BTreeSet<String>) -> Option<String> {
    let [first, rest @ ..] = module else { return Some("lib".into()) };
    if first == "format" {
        return Some(match rest {
            [one, part, ..] if one == "fzm" && part == "device" => "format/fzm/device".into(),
            [one, ..] if formats.contains(one) => format!("format/{one}"),
            _ => "format".into(),
        });
    }
    LAYERS.iter().find(|l| l.0 == first).map(|l| l.0.to_owned())
}

/// Whether code of layer `from`, in `file`, may name layer `to`.
fn allowed(file: &str, from: &str, to: &str) -> bool {
    let row = LAYERS
        .iter()
        .find(|l| l.0 == from)
        .or_else(|| LAYERS.iter().find(|l| l.0 == "format/*" && from.starts_with("format/")));
    from == to
        || from == "lib"
        || to == "lib" && from == "main"
        || from == "format/fzm" && to == "format/fzm/device" && !file.starts_with("src/format/fzm/stage/")
        || file == "src/format/mod.rs" && to.starts_with("format/")
        || BASE.contains(&to) && from != "python"
        || row.is_some_and(|l| l.1.contains(&to))
}

/// Everything that one source does against the rules, each as `file:line: what`.
fn faults(file: &str, source: &str, formats: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: String| faults.push(format!("{file}:{line}: {what}"));
    if !source.starts_with("//! ") {
        fault(1, "a source begins with a `//!` header that says what it is".into());
    }
    for (i, line) in source.lines().enumerate().filter(|l| !l.1.is_ascii()) {
        fault(i + 1, format!("not plain ASCII: {line}"));
    }
    // What waits can be run in a model only with its own threads.
    let is_wait = |line: &str| line.trim_start().starts_with("use std::sync::") && line.contains("Condvar");
    for (i, _) in source.lines().enumerate().filter(|l| file != "src/sync.rs" && is_wait(l.1)) {
        fault(i + 1, "Condvar is that of src/sync.rs".into());
    }
    let code = tokens(source);
    for (i, token) in code.iter().enumerate() {
        for (word, places) in ONLY.iter().filter(|o| token.text == o.0) {
            let before = |n: usize| i.checked_sub(n).map_or("", |at| code[at].text);
            let is_condition =
                || code[..i].iter().rev().take_while(|t| t.line == token.line).any(|t| t.text.starts_with("cfg"));
            let named = match *word {
                // Others are names of ours: of windows of data, for example.
                "unix" | "windows" => before(2) == "os" || is_condition(),
                // `format::fuser` would be a name of ours; a path of the crate starts a path.
                _ => before(1) != "::",
            };
            if named && !places.iter().any(|place| file.starts_with(place)) {
                fault(token.line, format!("only {} names {word}", places[0]));
            }
        }
        let follows = code.get(i + 1).map_or("", |t| t.text);
        // `.stdout(...)` says where a child's output goes.
        let before = i.checked_sub(1).and_then(|i| code.get(i)).map_or("", |t| t.text);
        if PRINTING.contains(&token.text)
            && (follows == "!" || token.text.starts_with("std") && follows == "(" && before != ".")
            && !PRINTERS.iter().any(|p| file.starts_with(p))
        {
            fault(token.line, format!("only {} print, not with {}", PRINTERS.join(" and "), token.text));
        }
    }
    let module = module_of(file);
    let from = if file == "src/main.rs" { Some("main".to_owned()) } else { layer(&module, formats) };
    let Some(from) = from else {
        fault(
            1,
            format!("{} is in no layer: give it a place in the table of tests/suite/layers.rs", module.join("::")),
        );
        return faults;
    };
    // In another crate only `fzmfs` names modules of the library.
    let is_outside = file.starts_with("src/python/");
    let names_library = |at: usize| code.iter().any(|t| t.line == at && t.text == "fzmfs");
    for (path, line) in paths(&code, &module) {
        if is_outside && !names_library(line) {
            continue;
        }
        // In lib.rs and main.rs a relative path names modules declared there.
        let Some(to) = layer(&path, formats) else { continue };
        if to != "lib" && !allowed(file, &from, &to) {
            fault(line, format!("{from} -> {to} ({}): this arrow points against the layers", path.join("::")));
        }
    }
    faults
}

/// All `.rs` files below `folder`, sorted.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out.sort();
    out
}

/// The lines of a source before its module of tests.
pub(crate) fn without_tests(source: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    // An attribute may stand between the two lines.
    let is_start = |at: &usize| {
        lines[*at] == "#[cfg(test)]" && lines[*at..].iter().take(3).any(|line| line.contains("mod tests {"))
    };
    let end = (0..lines.len()).find(is_start).unwrap_or(lines.len());
    lines[..end].join("\n")
}

/// Pairs of files that import each other, outside of tests; a module and its submodules are one thing here. `files` are
/// names and sources.
fn circles(files: &[(String, String)]) -> BTreeSet<(String, String)> {
    let modules: BTreeMap<Vec<String>, &str> = files.iter().map(|(file, _)| (module_of(file), &**file)).collect();
    let mut imports = BTreeSet::new();
    for (file, source) in files {
        let source = without_tests(source);
        let own = module_of(file);
        for (path, _) in paths(&tokens(&source), &own) {
            let named = (1..=path.len()).rev().find_map(|n| modules.get_key_value(&path[..n]));
            if let Some((module, other)) = named.filter(|(m, _)| !m.starts_with(&own) && !own.starts_with(m)) {
                imports.insert((file.clone(), (*other).to_owned()));
                assert!(!module.is_empty());
            }
        }
    }
    let is_mutual = |(a, b): &&(String, String)| a < b && imports.contains(&(b.clone(), a.clone()));
    imports.iter().filter(is_mutual).cloned().collect()
}

#[test]
fn no_two_files_import_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<_> = sources(&root.join("src"))
        .into_iter()
        .map(|path| {
            (path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect();
    let found = circles(&files);

    assert!(found.is_empty(), "{found:?}");
    let of = |a: &str, b: &str| {
        let file = |name: &str, code: &str| (format!("src/{name}.rs"), format!("//! A header.\n{code}\n"));
        circles(&[file("x/a", a), file("x/b", b), file("x/mod", "pub use self::a::A;")]).len()
    };
    assert_eq!(of("use super::b::B;", "use crate::x::a::A;"), 1);
    assert_eq!(of("use super::b::B;", "#[cfg(test)]\nmod tests { use super::super::a::A; }"), 0);
    assert_eq!(of("use super::b::B;", "use super::A;"), 0);
}

#[test]
fn the_sources_keep_to_their_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let formats = fzmfs::format::FORMATS.iter().map(|f| f.name.to_owned()).collect();
    let files = sources(&root.join("src"));
    assert!(files.len() > 10, "found only {files:?}");
    let mut report = String::new();
    for path in files {
        let file = path.strip_prefix(root).unwrap().to_string_lossy();
        for fault in faults(&file, &fs::read_to_string(&path).unwrap(), &formats) {
            writeln!(report, "  {fault}").unwrap();
        }
    }
    assert!(report.is_empty(), "violations of the rules:\n{report}");
}

#[test]
fn every_violation_of_a_rule_is_reported() {
    let formats: BTreeSet<String> = ["fzm", "zxc"].map(str::to_owned).into();
    for (file, code, want) in [
        ("src/codec/x.rs", "use crate::format::Blob;", "src/codec/x.rs:2: codec -> format (format::Blob)"),
        ("src/format/zxc/a.rs", "use crate::{error::Result,\n cache::Cache};", "x.rs:3: format/zxc -> cache"),
        ("src/format/zxc/a.rs", "fn f() { super::super::fzm::g() }", "2: format/zxc -> format/fzm (format::fzm::g)"),
        (
            "src/format/zxc/a.rs",
            "use super::{b, super::fzm::{self, X as Y}};",
            "2: format/zxc -> format/fzm (format::fzm)",
        ),
        ("src/format/entry.rs", "use super::zxc;", "2: format -> format/zxc"),
        ("src/format/fzm/a.rs", "use crate::gpu::Device;", "2: format/fzm -> gpu"),
        ("src/format/fzm/stage/a.rs", "use super::super::device::Plan;", "2: format/fzm -> format/fzm/device"),
        ("src/view/a.rs", "mod tests { use crate::tree::Tree; }", "2: view -> tree"),
        ("src/view/a.rs", "mod tests { use super::super::super::cache::Cache; }", "2: view -> cache"),
        ("src/tree/a.rs", "/* crate::fs */ use crate::fs::Mount;", "2: tree -> fs"),
        ("src/odd.rs", "", "1: odd is in no layer"),
        ("src/python/a.rs", "use fzmfs::{Archive, cache::Cache};", "2: python -> cache"),
        ("src/python/a.rs", "fn f() -> fzmfs::tree::Tree {}", "2: python -> tree"),
        ("src/python/a.rs", "fn f() { fzmfs::error::os_message() }", "2: python -> error"),
        ("src/tree/a.rs", "use fuser::Session;", "2: only src/fs names fuser"),
        ("src/fs/a.rs", "fn f() { cudarc::x() }", "2: only src/gpu names cudarc"),
        ("src/tree/a.rs", "use rustix::fs::openat;", "2: only src/platform names rustix"),
        ("src/tree/a.rs", "use std::os::unix::fs::FileExt;", "2: only src/platform names unix"),
        ("src/tree/a.rs", "#[cfg(not(windows))]", "2: only src/platform names windows"),
        ("src/tree/a.rs", "#[cfg(any(unix, test))]", "2: only src/platform names unix"),
        ("src/tree/a.rs", "#[cfg(target_os = \"linux\")]", "2: only src/platform names target_os"),
        ("src/fs/a.rs", "fn f() { println!(\"x\") }", "2: only src/cli and src/main.rs print"),
        ("src/fs/a.rs", "fn f() { std::io::stderr() }", "2: only src/cli and src/main.rs print"),
        ("src/fs/a.rs", "use std::sync::{Arc, Condvar};", "2: Condvar is that of src/sync.rs"),
        ("src/fs/a.rs", "// \u{e9}", "2: not plain ASCII"),
    ] {
        let found = faults(file, &format!("//! A header.\n{code}\n"), &formats);
        let want = want.split_once("rs:").map_or(want, |w| w.1);
        assert!(found.iter().any(|f| f.contains(want)), "{code}: {found:?}, not {want}");
    }
    assert!(faults("src/tree/a.rs", "use std::fmt;\n", &formats)[0].contains("header"));
    for (file, code) in [
        ("src/main.rs", "fn main() { fzmfs::cli::main() }"),
        ("src/python/a.rs", "use crate::cache::x;\nuse fzmfs::{Archive, Error};\nfn f() -> fzmfs::Result<()> {}"),
        ("src/lib.rs", "pub mod cli; pub use format::Blob;"),
        ("src/format/mod.rs", "mod fzm; static F: &[Format] = &[fzm::FORMAT, self::zxc::FORMAT];"),
        ("src/format/fzm/device/a.rs", "use crate::gpu::Device; use super::super::graph::Graph;"),
        ("src/format/fzm/mod.rs", "use self::device::X; use crate::codec::bitshuffle; use super::Blob;"),
        ("src/tree/a.rs", "const S: &str = \"crate::fs\\\"\"; const R: &str = r#\"fuser\"#; const C: char = '\\'';"),
        ("src/tree/a.rs", "fn f<'a>(x: &'a str) -> char { '\"' } // println!(fuser)"),
        ("src/tree/a.rs", "fn f(x: &[u8]) -> X { let windows = x.windows(2); X(x, windows) }"),
        ("src/fs/a.rs", "use std::os::unix::fs::FileExt; use rustix::fs::openat;"),
    ] {
        assert_eq!(faults(file, &format!("//! A header.\n{code}\n"), &formats), [""; 0], "{code}");
    }
}
