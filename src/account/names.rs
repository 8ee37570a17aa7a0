//! Names of files: in order and indexed by hash. A few names are compared one by one and have no index.
#![forbid(unsafe_code)]

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

use super::{Account, HashIndex, Text};

/// Unique names, numbered in insertion order.
#[derive(Debug)]
pub struct Names {
    account: Account,
    text: Text,
    /// For more than [`FEW`] names.
    index: Option<Box<HashIndex>>,
}

/// Maximum number of names without an index.
const FEW: usize = 8;
/// Name of the list in error messages.
const WHAT: &str = "names of a directory";

impl Names {
    /// Creates an empty list.
    pub fn new(account: &Account) -> Self {
        Self { account: account.clone(), text: Text::new(account, WHAT), index: None }
    }

    /// The account that is charged for them.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Name number `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.text.get(index)
    }

    /// Name number `index`, which need not be UTF-8.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        self.text.bytes(index)
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// The number of `name`.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.find_by(self.index.as_ref().map_or(0, |index| index.hash(name)), name)
    }

    /// The number of `name`, which has this hash in the index, if there is one.
    fn find_by(&self, hash: u32, name: &[u8]) -> Option<usize> {
        match &self.index {
            None => (0..self.text.len()).find(|&number| self.is(number, name)),
            Some(index) => index.find(hash, |number| self.is(number as usize, name)).map(|n| n as usize),
        }
    }

    /// Adds `name` unless it is present; returns whether it was added.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond 4 billion names; otherwise as [`Text::push`].
    pub fn insert(&mut self, name: impl AsRef<[u8]>) -> Result<bool> {
        let name = name.as_ref();
        let hash = self.index.as_ref().map_or(0, |index| index.hash(name));
        if self.find_by(hash, name).is_some() {
            return Ok(false);
        }
        let count = self.text.len();
        let (value, limit) = (to_u64(count), u64::from(u32::MAX));
        let number = u32::try_from(count).map_err(|_| Error::new(Kind::TooLarge { value, limit }, WHAT))?;
        self.text.push(name)?;
        match &mut self.index {
            Some(index) => index.insert(hash, number)?,
            None if count < FEW => {}
            None => {
                let mut index = HashIndex::new(&self.account);
                for (number, name) in (0..).map_while(|number| Some((number, self.bytes(number as usize)?))) {
                    index.insert(index.hash(name), number)?;
                }
                self.index = Some(Box::new(index));
            }
        }
        Ok(true)
    }

    /// About how many bytes they take.
    pub fn weight(&self) -> u64 {
        self.text.weight() + self.index.as_ref().map_or(0, |index| index.weight())
    }

    /// Marks them as complete.
    ///
    /// # Errors
    /// As [`Text::finish`].
    pub fn finish(&mut self) -> Result<()> {
        self.text.finish()
    }

    /// Whether name number `number` is `name`.
    fn is(&self, number: usize, name: &[u8]) -> bool {
        self.bytes(number) == Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_under_its_number_and_no_other_is() {
        for (memory, disk) in [(1 << 30, 0), (0, 1 << 30)] {
            let account = Account::new(memory, disk);
            let mut names = Names::new(&account);
            assert!(names.len() == 0 && names.find(b"x").is_none());
            for i in 0..100_000 {
                assert!(names.insert(format!("name {i}")).unwrap());
            }
            assert!(!names.insert("name 77").unwrap() && names.len() == 100_000);
            names.finish().unwrap();
            assert!(disk > 0 || names.weight() == account.memory().used(), "{}", names.weight());
            for i in 0..100_000 {
                let name = format!("name {i}");
                assert_eq!((names.get(i), names.find(name.as_bytes())), (Some(name.as_str()), Some(i)));
            }
            assert_eq!((names.find(b"name 100000"), names.find(b""), names.get(100_000)), (None, None, None));
        }
    }

    #[test]
    fn a_few_names_have_no_index_and_are_found_as_well() {
        let mut names = Names::new(&Account::new(0, 0));
        for i in 0..2 * FEW {
            assert!(i > FEW || names.index.is_none(), "{i}");
            assert!(names.insert(i.to_string()).unwrap());
            assert!(!names.insert((i / 2).to_string()).unwrap());
            assert_eq!(names.find((i / 2).to_string().as_bytes()), Some(i / 2));
            assert_eq!(names.find((i + 1).to_string().as_bytes()), None);
        }
    }
}
