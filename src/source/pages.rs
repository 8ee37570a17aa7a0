//! How far the list of a server was read, which gives it page by page.
#![forbid(unsafe_code)]

use std::io;

use crate::error::{Error, Result};

/// Pages in a row that may bring nothing new: objects that were deleted can fill some.
const BARREN: u32 = 8;

/// The pages that were read.
#[derive(Debug, Default)]
pub(super) struct Pages {
    state: PageState,
    /// Pages in a row that brought nothing new.
    barren: u32,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum PageState {
    #[default]
    First,
    From(String),
    End,
}

impl Pages {
    /// Where the next page begins; `None` for the first one.
    pub(super) fn from(&self) -> Option<&str> {
        match &self.state {
            PageState::From(token) => Some(token),
            PageState::First | PageState::End => None,
        }
    }

    /// Whether all were read.
    pub(super) fn is_end(&self) -> bool {
        self.state == PageState::End
    }

    /// A page was read that brought `found` entries, and that the one at `next` follows.
    ///
    /// # Errors
    /// [`crate::error::Kind::Io`] if the list has no end.
    pub(super) fn read(&mut self, found: usize, next: Option<String>) -> Result<()> {
        self.barren = if found == 0 { self.barren.saturating_add(1) } else { 0 };
        let next = next.map_or(PageState::End, PageState::From);
        if next != PageState::End && (self.barren > BARREN || next == self.state) {
            let why = "the server's list of objects has no end";
            return Err(Error::io(io::Error::new(io::ErrorKind::InvalidData, why), "list of objects"));
        }
        self.state = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_page_by_page_and_ends() {
        let mut pages = Pages::default();
        assert_eq!((pages.from(), pages.is_end()), (None, false));
        pages.read(1, Some("b".into())).unwrap();
        assert_eq!((pages.from(), pages.is_end()), (Some("b"), false));
        pages.read(0, None).unwrap();
        assert_eq!((pages.from(), pages.is_end()), (None, true));
        pages.read(0, None).unwrap();
    }

    #[test]
    fn a_list_that_repeats_a_page_or_brings_nothing_for_long_is_refused() {
        let mut pages = Pages::default();
        let mut read = |found, next: u32| pages.read(found, Some(next.to_string()));
        // Entries begin the count again.
        for (found, next) in [(1, 0), (0, 1), (1, 2)].into_iter().chain((3..3 + BARREN).map(|next| (0, next))) {
            read(found, next).unwrap();
        }
        assert!(read(0, 100).is_err());
        let mut pages = Pages::default();
        pages.read(1, Some("b".into())).unwrap();
        assert!(pages.read(1, Some("b".into())).is_err());
    }
}
