//! The names that the containers of a directory have in the layouts `flat` and `plain`.
//!
//! Containers whose files would clash with each other or with another file get the suffix `~2`, `~3`, ..., in the order
//! of their file names; with `plain`, they keep the names of their files. Limits: the names of all files twice, charged
//! to the account.
#![forbid(unsafe_code)]

use crate::account::{Account, Names};
use crate::error::Result;

use super::Layout;

/// The highest number in a name that avoids another one; a container for which there is none stays a directory.
const MOST: u32 = 1000;

/// The containers of a directory, and their names.
#[derive(Debug)]
pub struct FlatNames {
    /// The files of the containers.
    files: Names,
    /// Their names without suffixes, in the same order.
    stems: Names,
    layout: Layout,
}

impl FlatNames {
    /// From the names of all entries of a directory, and whether each is a container.
    ///
    /// # Errors
    /// If the account is exhausted.
    pub fn new(entries: &mut [(Vec<u8>, bool)], layout: Layout, account: &Account) -> Result<Self> {
        entries.sort_unstable();
        let [mut there, mut files, mut stems] = [(); 3].map(|()| Names::new(account));
        for (name, _) in &*entries {
            there.insert(name)?;
        }
        for (name, _) in entries.iter().filter(|(_, is_container)| *is_container) {
            let base = layout.stem(name);
            let made = |number| match number {
                1 => base.to_vec(),
                _ if layout == Layout::Plain => name.clone(),
                number => [&*base, format!("~{number}").as_bytes()].concat(),
            };
            let is_free = |made: &Vec<u8>| {
                let exists = |suffix: &&str| {
                    let made = [made, suffix.as_bytes()].concat();
                    made != *name && there.find(&made).is_some()
                };
                stems.find(made).is_none() && !layout.suffixes().iter().any(exists)
            };
            let most = if layout == Layout::Plain { 2 } else { MOST };
            if let Some(made) = (1..=most).map(made).find(is_free) {
                files.insert(name)?;
                stems.insert(made)?;
            }
        }
        [&mut files, &mut stems].into_iter().try_for_each(Names::finish)?;
        Ok(Self { files, stems, layout })
    }

    /// The container that has the file `name`, and the number of its suffix.
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], usize)> {
        (0..).zip(self.layout.suffixes()).find_map(|(number, suffix)| {
            let stem = name.strip_suffix(suffix.as_bytes())?;
            Some((self.files.bytes(self.stems.find(stem)?)?, number))
        })
    }

    /// The name of the container `file`, without a suffix.
    pub fn stem(&self, file: &[u8]) -> Option<&[u8]> {
        self.stems.bytes(self.files.find(file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_hide_nothing() {
        let names = ["a.fzm", "a.b2nd", "b.fzm.zst", "c.fzm", "c.npy", "d.fzm", "x.txt", ".zst", "e.v1.zxc"];
        let mut entries: Vec<_> = names
            .iter()
            .map(|name| (name.as_bytes().to_vec(), !["c.npy", "d.fzm", "x.txt", ".zst"].contains(name)))
            .collect();
        let names = FlatNames::new(&mut entries, Layout::Flat, &Account::new(1 << 20, 0)).unwrap();
        for (file, stem) in
            [("a.b2nd", "a"), ("a.fzm", "a~2"), ("b.fzm.zst", "b"), ("c.fzm", "c~2"), ("e.v1.zxc", "e.v1")]
        {
            assert_eq!(names.stem(file.as_bytes()), Some(stem.as_bytes()), "{file}");
            assert_eq!(names.find(format!("{stem}.npy").as_bytes()), Some((file.as_bytes(), 1)));
        }
        for name in ["c.npy", "d.npy", "x.npy", "a.fzm", "a.mhd", ".raw", "b.fzm.raw"] {
            assert_eq!(names.find(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_compressed_file_has_the_name_that_it_had_unless_that_is_taken() {
        let names =
            ["a.parquet.zst", "b.txt", "b.txt.zxc", "c.fzm.zst", "d", "e.tzst", "e.tar.zst", "f.txt", "f.txt.zst"];
        let mut entries: Vec<_> =
            names.map(|name| (name.as_bytes().to_vec(), !["b.txt", "f.txt"].contains(&name))).into();
        let names = FlatNames::new(&mut entries, Layout::Plain, &Account::new(1 << 20, 0)).unwrap();
        for (file, shown) in [
            ("a.parquet.zst", "a.parquet"),
            ("b.txt.zxc", "b.txt.zxc"),
            ("c.fzm.zst", "c.fzm"),
            ("d", "d"),
            ("e.tar.zst", "e.tar"),
            ("e.tzst", "e.tzst"),
        ] {
            assert_eq!(names.find(shown.as_bytes()), Some((file.as_bytes(), 0)), "{file}");
        }
        assert_eq!(names.find(b"b.txt"), None);
    }
}
