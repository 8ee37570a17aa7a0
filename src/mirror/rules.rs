//! Which files are containers, and under which names they are shown.
//!
//! With `replace`, a container `x.fzm` is a directory of that name. With `beside`, it stays a file, and its tree is the
//! directory `x.fzm.d`. A name that exists is never hidden: if there is a file `x.fzm.d`, the tree is `x.fzm~2.d`. With
//! `flat`, it is the files of its array (`flat`), with `plain` the file that was compressed, or the members of the archive
//! that was; a container without such files follows the rules of `replace`.
#![forbid(unsafe_code)]

use std::ffi::OsStr;

use super::Glob;
use crate::format;
use crate::platform::OsStrExt;

/// Suffix of `beside`.
const BESIDE: &[u8] = b".d";
/// The highest number in a name that avoids another one.
const NUMBERS: std::ops::RangeInclusive<u32> = 2..=9;

/// How containers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// As directories, under the same names.
    #[default]
    Replace,
    /// As files, each with a directory next to it.
    Beside,
    /// As the files of their arrays, in the directory in which they are.
    Flat,
    /// Compressed files as the original ones, in the same directory; others as with `Replace`.
    Plain,
}

/// The meaning of a name in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// The file, directory or link of this name.
    Itself,
    /// The tree of the container of this name.
    Tree(&'a [u8]),
}

/// Which files of a directory are containers, and how they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The layout.
    pub layout: Layout,
    /// Patterns for the names of containers; by default the usual extensions.
    pub containers: Vec<Glob>,
}

impl Rules {
    /// Whether a file called `name` is a container.
    pub fn is_container(&self, name: &[u8]) -> bool {
        if !self.containers.is_empty() {
            return self.containers.iter().any(|glob| glob.matches(name));
        }
        format::has_usual_extension(name)
    }

    /// Whether containers are shown as files too.
    pub fn shows_file(&self) -> bool {
        self.layout == Layout::Beside
    }

    /// Whether containers are shown as files in the directory in which they are.
    pub fn is_flat(&self) -> bool {
        matches!(self.layout, Layout::Flat | Layout::Plain)
    }

    /// Whether the tree of a container may have another name than its file.
    pub fn renames_trees(&self) -> bool {
        matches!(self.layout, Layout::Beside | Layout::Plain)
    }

    /// Resolves `name`. `is_there` tells whether a name exists that can be a container, `exists` whether anything does.
    pub fn target<'a>(
        &self,
        name: &'a [u8],
        is_there: impl Fn(&OsStr) -> bool,
        exists: impl Fn(&OsStr) -> bool,
    ) -> Target<'a> {
        let holds = |base: &[u8]| self.is_container(base) && is_there(OsStr::from_bytes(base));
        match self.layout {
            Layout::Replace | Layout::Flat | Layout::Plain if holds(name) => Target::Tree(name),
            Layout::Replace | Layout::Flat | Layout::Plain => Target::Itself,
            Layout::Beside => {
                let Some(stem) = name.strip_suffix(BESIDE) else { return Target::Itself };
                if exists(OsStr::from_bytes(name)) {
                    return Target::Itself;
                }
                if holds(stem) {
                    return Target::Tree(stem);
                }
                // `x.fzm~3` of `x.fzm~3.d`: the names before it are taken.
                let numbered = NUMBERS.filter_map(|n| Some((n, stem.strip_suffix(format!("~{n}").as_bytes())?)));
                for (number, base) in numbered {
                    let free = |n| !exists(OsStr::from_bytes(&beside(base, n)));
                    if holds(base) && (1..number).all(|n| !free(n)) {
                        return Target::Tree(base);
                    }
                }
                Target::Itself
            }
        }
    }

    /// The name of the tree of the container `name`, if that is not its own; `None` if all names are taken.
    pub fn tree_name(&self, name: &[u8], exists: impl Fn(&OsStr) -> bool) -> Option<Vec<u8>> {
        match self.layout {
            Layout::Replace | Layout::Flat | Layout::Plain => None,
            Layout::Beside => {
                (1..=*NUMBERS.end()).map(|n| beside(name, n)).find(|made| !exists(OsStr::from_bytes(made)))
            }
        }
    }
}

/// The `number`th candidate for the name of the tree of `name`.
fn beside(name: &[u8], number: u32) -> Vec<u8> {
    let number = if number > 1 { format!("~{number}") } else { String::new() };
    [name, number.as_bytes(), BESIDE].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target<'a>(rules: &Rules, name: &'a str, there: &[&str]) -> Target<'a> {
        let exists = |name: &OsStr| there.iter().any(|there| name == *there);
        rules.target(name.as_bytes(), exists, exists)
    }

    #[test]
    fn containers_are_told_by_extension_or_pattern() {
        let rules = Rules::default();
        for (name, is) in [
            ("a.fzm", true),
            ("A.B2ND", true),
            ("x.fzm.zst", true),
            ("fzm", false),
            (".fzm", false),
            ("a.fzm.d", false),
            ("a.txt", false),
            ("", false),
        ] {
            assert_eq!(rules.is_container(name.as_bytes()), is, "{name}");
        }
        let rules = Rules { containers: vec!["*.dat".parse().unwrap()], ..Rules::default() };
        assert!(rules.is_container(b"a.dat") && !rules.is_container(b"a.fzm"));
    }

    #[test]
    fn a_tree_beside_its_file_never_hides_what_is_there() {
        let rules = Rules { layout: Layout::Beside, ..Rules::default() };
        let there = ["a.fzm", "b.fzm", "b.fzm.d", "c.fzm", "c.fzm.d", "c.fzm~2.d", "t.txt"];
        let exists = |name: &OsStr| there.iter().any(|there| name == *there);
        for (file, tree) in [("a.fzm", "a.fzm.d"), ("b.fzm", "b.fzm~2.d"), ("c.fzm", "c.fzm~3.d")] {
            assert_eq!(rules.tree_name(file.as_bytes(), exists).unwrap(), tree.as_bytes());
            assert_eq!(target(&rules, tree, &there), Target::Tree(file.as_bytes()));
            assert_eq!(target(&rules, file, &there), Target::Itself);
        }
        for name in ["b.fzm.d", "c.fzm~2.d", "a.fzm~2.d", "t.txt.d", "x.fzm.d", "b.fzm~3.d"] {
            assert_eq!(target(&rules, name, &there), Target::Itself, "{name}");
        }
        assert_eq!(target(&Rules::default(), "a.fzm", &there), Target::Tree(b"a.fzm"));
        assert_eq!(target(&Rules::default(), "x.fzm", &there), Target::Itself);
    }
}
