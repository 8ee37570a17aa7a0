//! One meaning for a term: how many types have the same name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::layers::{sources, without_tests};

/// As many types may have one name: a thing, and the same seen from another layer (`format::File` and `archive::File`).
const MOST: usize = 2;
/// Names with one meaning wherever they stand: what each set of instructions of a processor implements.
const SHARED: [&str; 2] = ["Kernels", "Lanes"];

/// The names of the types that a source declares outside of functions and implementations.
fn declared(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let item = match line.strip_prefix("pub(") {
            Some(rest) => rest.split_once(") ")?.1,
            None => line.strip_prefix("pub ").unwrap_or(line),
        };
        let (kind, name) = item.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
        is_type.then(|| name.split(|c: char| !c.is_alphanumeric() && c != '_').next())?
    })
}

#[test]
fn no_name_stands_for_more_than_two_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::<String, Vec<String>>::new();
    for path in sources(&root.join("src")) {
        let file = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        if file.contains("/tests/") || file.ends_with("/tests.rs") || file.ends_with("/testing.rs") {
            continue;
        }
        for name in declared(&without_tests(&fs::read_to_string(&path).unwrap())) {
            files.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    assert!(files.len() > 1000, "found only {} names", files.len());
    files.retain(|name, files| files.len() > MOST && !SHARED.contains(&&**name));
    assert!(files.is_empty(), "names of more than {MOST} types: {files:#?}");
}

#[test]
fn names_are_those_of_items() {
    let source = "pub(in crate::format) struct A<T>(T);\n\npub(super) type B = u8;\n    type Target = [u8];\ntype C<'a> = &'a A;\n\
                  // struct D;\nuse a::E;\nunion F {}";
    assert_eq!(declared(source).collect::<Vec<_>>(), ["A", "B", "C", "F"]);
}
