//! Which listings are kept, for how long, and what they weigh.

use std::sync::atomic::{AtomicU64, Ordering};

use super::numbered::numbered;
use super::*;
use crate::format::{Directory, Generator, LazyFile};
use crate::tree::child::{Chain, What};
use crate::tree::listing::{Listing, Object};

fn list(tree: &Tree, names: &[&str]) {
    for name in names {
        tree.open_dir(tree.resolve(name).unwrap()).unwrap();
    }
}

#[test]
fn of_listings_that_can_be_made_again_those_used_last_are_kept_within_the_limit_and_two_in_any_case() {
    let tree = tree(["a", "b", "c", "d", "e"].map(|name| numbered(name, 1)).to_vec());
    let kept = || {
        let all = ["a", "b", "c", "d", "e"].map(|name| (name, tree.resolve(name).unwrap()));
        let kept = all.into_iter().filter(|(_, dir)| tree.kept().small.contains(dir));
        kept.map(|(name, _)| name).collect::<String>()
    };
    list(&tree, &["a"]);
    let each = tree.kept().small.weight();
    list(&tree, &["b", "c"]);
    assert_eq!(kept(), "abc");
    tree.kept().small_limit = 4 * each;
    list(&tree, &["d"]);
    assert_eq!(kept(), "abcd");
    list(&tree, &["a", "e"]);
    assert_eq!(kept(), "acde");
    tree.kept().small_limit = 0;
    list(&tree, &["b"]);
    assert_eq!(kept(), "be");
}

/// Files that are created on access.
struct Lazies(u64);

impl Directory for Lazies {
    fn entries(&self) -> Result<Vec<Entry>> {
        let file = |number| LazyFile { number, len: Some(1), stored: 0, array: None };
        Ok((0..self.0).map(|n| Entry::named(n.to_string(), "", Node::LazyFile(file(n)))).collect())
    }

    fn file(&self, _: u64) -> Result<File> {
        Ok(bytes("x"))
    }
}

#[test]
fn a_listing_is_dropped_if_it_is_a_few_files_or_the_format_creates_all_of_them_again() {
    let files = |count: u64| (0..count).map(|n| file(&n.to_string(), "")).collect::<Vec<_>>();
    let dir = |entries: Vec<Entry>| Node::dir(Attrs::new(), entries);
    let with = |entry: Entry| dir([files(1), vec![entry]].concat());
    for (what, node, is_dropped) in [
        ("few files", dir(files(16)), true),
        ("more files", dir(files(17)), false),
        ("files created on access", Node::Dir(Arc::new(Lazies(17))), true),
        ("a link", with(Entry::own("link", Node::Link("0".into()))), false),
        ("a directory", with(Entry::own("dir", dir(Vec::new()))), false),
    ] {
        let tree = tree(vec![Entry::own("x", node), numbered("a", 1), numbered("b", 1)]);
        tree.kept().small_limit = 0;
        let before = walk(&tree, ROOT, "");
        let x = tree.resolve("x").unwrap();
        list(&tree, &["a", "b"]);
        assert_eq!(tree.known_dir(x).is_none(), is_dropped, "{what}");
        assert_eq!(walk(&tree, ROOT, ""), before, "{what}");
    }
}

/// A directory that has one more file whenever it is listed.
struct Growing(AtomicU64);

impl Directory for Growing {
    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((0..count).map(|n| file(&n.to_string(), "")).collect())
    }
}

#[test]
fn a_directory_that_has_other_entries_than_before_is_an_error() {
    let growing = Node::Dir(Arc::new(Growing(AtomicU64::new(0))));
    let tree = tree(vec![Entry::own("x", growing), numbered("a", 1), numbered("b", 1)]);
    tree.kept().small_limit = 0;
    list(&tree, &["x", "a", "b"]);
    let error = tree.entry(tree.resolve("x").unwrap(), 0).unwrap_err();
    assert_eq!(error.to_string(), "it does not have the entries that it had before (directory)");
}

#[test]
fn either_all_entries_with_a_common_component_have_item_numbers_or_none_has() {
    let entry = |name, item| Entry { item, ..nested(name, "") };
    for items in [[Some(0), None], [None, Some(0)]] {
        let dir = Node::dir(Attrs::new(), vec![entry("g/a", items[0]), entry("g/b", items[1])]);
        let tree = tree(vec![Entry::own("x", dir)]);
        let error = tree.resolve("x/g").unwrap_err();
        assert_eq!(error.to_string(), "only some of its entries have item numbers (directory)");
    }
}

#[test]
fn entries_with_a_common_component_are_kept_once_when_they_are_listed() {
    let make: Generator = Arc::new(|_| Ok(Vec::new()));
    let made = File::new(Content::Computed { len: Some(0), make: Arc::clone(&make) });
    let tree = tree(vec![Entry { nested: true, ..Entry::named("group/x", "", made) }]);
    tree.resolve("group").unwrap();
    let before = Arc::strong_count(&make);
    tree.resolve("group/x").unwrap();
    assert_eq!(Arc::strong_count(&make), before);
}

#[test]
fn a_listing_weighs_what_is_charged_for_it_and_its_objects() {
    let account = Account::new(1 << 30, 0);
    let mut listing = Listing::new(&account, 0, 0, None);
    let own = listing.weight();
    let Chain { first, mut last } = listing.chain(0).unwrap();
    for number in 0..10_000 {
        listing.push(&format!("name {number}"), What::Lazy(number, 0, 0)).unwrap();
        last = listing.extend(Chain { first, last }, number as u32 + 1).unwrap().last;
    }
    listing.finish().unwrap();
    assert_eq!(listing.weight(), own + account.memory().used());
    assert!(account.memory().used() >= 10_000 * (32 + 8));
    let before = listing.weight();
    for _ in 0..3 {
        listing.object(Object::Link("to".into()));
    }
    assert_eq!(listing.weight(), before + 3 * 100);
}
