//! The elements of an array that somebody wants to see: an index for each dimension, or a span of it.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::format::{Array, Content, Grid, Tiles, Window};
use crate::text;

/// Maximum length of a dimension of components.
const COMPONENTS: u64 = 4;
/// Deferred contents within each other.
const DEPTH: usize = 8;

/// The elements along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Along {
    At(u64),
    Span { start: u64, end: u64 },
}

/// One [`Along`] for each dimension, and whether all elements of it are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice(pub(super) Vec<Along>, Vec<u64>);

impl Slice {
    /// The usual two dimensions of `array`, at `index` of the others; `None` without dimensions.
    ///
    /// Dimensions of length 1 are left out. Of the others, the last two are rows and columns, or the two before a last
    /// one of at most [`COMPONENTS`] elements, such as colours or vectors.
    pub(super) fn at(array: &Array, index: impl Fn(u64) -> u64) -> Option<Self> {
        let shape = &array.shape;
        let long: Vec<usize> = (0..shape.len()).filter(|&d| shape[d] > 1).collect();
        let (rows, columns) = match long[..] {
            [] => (None, shape.len().checked_sub(1)?),
            [columns] => (None, columns),
            [.., a, b, c] if shape[c] <= COMPONENTS && shape[a] > COMPONENTS && shape[b] > COMPONENTS => (Some(a), b),
            [.., rows, columns] => (Some(rows), columns),
        };
        let along = |d: usize| {
            let is_shown = d == columns || Some(d) == rows;
            if is_shown { Along::Span { start: 0, end: shape[d] } } else { Along::At(index(shape[d])) }
        };
        Some(Self((0..shape.len()).map(along).collect(), shape.clone()))
    }

    /// Parses `text`, such as `12,:,3:40`, as an index of `array`: what NumPy takes, without steps and without leaving
    /// dimensions out. Empty stands for the middle.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(super) fn parse(text: &str, array: &Array) -> Result<Self> {
        let shape = &array.shape;
        let middle = || Self::at(array, |len| len / 2).unwrap_or_else(|| Self(Vec::new(), Vec::new()));
        if text.is_empty() {
            return Ok(middle());
        }
        let parts: Vec<&str> = text.trim_matches(['[', ']']).split(',').map(str::trim).collect();
        if parts.len() != shape.len() {
            let (n, rank) = (parts.len(), shape.len());
            return Err(usage(format!(
                "{text} has {n} dimensions, and the array has {rank}, for example {}",
                middle()
            )));
        }
        let along = |(part, &len): (&&str, &u64)| along(part, len).ok_or_else(|| usage(wrong(part, len)));
        Ok(Self(parts.iter().zip(shape).map(along).collect::<Result<_>>()?, shape.clone()))
    }

    /// The number of dimensions that it spans.
    pub(super) fn spans(&self) -> usize {
        self.0.iter().filter(|along| matches!(along, Along::Span { .. })).count()
    }

    /// The same elements of `array`, as an array of their own if `data`, which has the elements from `start` on, is made
    /// of blocks: so that a block is decoded only for the elements shown, whatever the dimensions are.
    ///
    /// # Errors
    /// That of a deferred content.
    pub(super) fn cut(&self, array: &Array, data: &Content, depth: usize) -> Result<Option<(Array, Content, Self)>> {
        match data {
            Content::Deferred { make, .. } if depth < DEPTH => return self.cut(array, &make()?, depth + 1),
            Content::Slice(inner, range) if range.start == 0 && depth < DEPTH => {
                return self.cut(array, inner, depth + 1);
            }
            _ => {}
        }
        let Some(grid) = Tiles::grid(data, array).filter(|grid| grid.window.is_none()) else { return Ok(None) };
        let bounds = self.0.iter().map(|along| match *along {
            Along::At(at) => (at, 1),
            Along::Span { start, end } => (start, end.saturating_sub(start)),
        });
        let (start, shape): (Vec<u64>, Vec<u64>) = bounds.unzip();
        let all = self.0.iter().zip(&shape).map(|(along, &end)| match along {
            Along::At(_) => Along::At(0),
            Along::Span { .. } => Along::Span { start: 0, end },
        });
        let slice = Self(all.collect(), shape.clone());
        let window = Some(Window { start, shape: shape.clone() });
        let grid = Grid { window, ..Grid::clone(grid) };
        Ok(Some((Array { shape, ..array.clone() }, Content::Grid(Arc::new(grid)), slice)))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let along = |(along, &len): (&Along, &u64)| match *along {
            Along::At(at) => at.to_string(),
            Along::Span { start: 0, end } if end == len => ":".to_owned(),
            Along::Span { start, end } => format!("{start}:{end}"),
        };
        write!(f, "[{}]", self.0.iter().zip(&self.1).map(along).collect::<Vec<_>>().join(", "))
    }
}

/// An index, or the two ends of a span, as in NumPy: negative ones count from the end, and a span ends with the
/// dimension.
fn along(part: &str, len: u64) -> Option<Along> {
    let index = |text: &str| -> Option<u64> {
        match text.strip_prefix('-') {
            Some(back) => len.checked_sub(digits(back)?),
            None => digits(text),
        }
    };
    let Some((start, end)) = part.split_once(':') else { return index(part).filter(|&at| at < len).map(Along::At) };
    let start = if start.is_empty() { 0 } else { index(start)? };
    let end = if end.is_empty() { len } else { index(end)?.min(len) };
    (start < end).then_some(Along::Span { start, end })
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn wrong(part: &str, len: u64) -> String {
    format!(
        "{part} is not an index of a dimension of {len} elements, nor a span such as 0:{len}",
        part = text::escaped(part)
    )
}

fn usage(why: String) -> Error {
    Error::new(Kind::Usage(why.into()), "slice")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::Memory;

    fn array(shape: &[u64]) -> Array {
        Array { descr: "'<f4'".to_owned(), itemsize: 4, shape: shape.to_vec() }
    }

    #[test]
    fn a_slice_is_an_index_of_numpy() {
        for (text, want) in [
            ("12,:,:", "[12, :, :]"),
            ("[12, :, 3:7]", "[12, :, 3:7]"),
            ("-1,-2:,:-5", "[19, 28:30, 0:35]"),
            ("0,0,0", "[0, 0, 0]"),
            ("0,0:30,30:999", "[0, :, 30:40]"),
            ("", "[10, :, :]"),
        ] {
            assert_eq!(Slice::parse(text, &array(&[20, 30, 40])).unwrap().to_string(), want, "{text}");
        }
        assert_eq!(Slice::parse("", &array(&[])).unwrap().to_string(), "[]");
    }

    #[test]
    fn the_usual_slice_has_two_dimensions_that_are_not_components() {
        for (shape, want) in [
            (&[7][..], "[:]"),
            (&[1, 1], "[0, :]"),
            (&[1, 7, 1], "[0, :, 0]"),
            (&[2, 3], "[:, :]"),
            (&[5, 6, 4], "[:, :, 2]"),
            (&[4, 6, 4], "[2, :, :]"),
            (&[6, 4, 4], "[3, :, :]"),
            (&[5, 6, 5], "[2, :, :]"),
            (&[7, 8, 9, 3], "[3, :, :, 1]"),
            (&[7, 1, 8, 9], "[3, 0, :, :]"),
        ] {
            assert_eq!(Slice::at(&array(shape), |len| len / 2).unwrap().to_string(), want, "{shape:?}");
        }
        assert_eq!(Slice::at(&array(&[]), |len| len / 2), None);
    }

    #[test]
    fn an_array_in_blocks_is_cut_wherever_it_is_described() {
        let array = array(&[5, 4]);
        let grid = |window| {
            let (shape, chunk, block) = (vec![5, 4], vec![2, 2], vec![2, 2]);
            let blob = Memory::new(vec![0; 96], 16).blob().0;
            Content::Grid(Arc::new(Grid { blob, itemsize: 4, shape, chunk, block, window }))
        };
        let deferred = |content: Content| Content::Deferred { len: None, make: Arc::new(move || Ok(content.clone())) };
        let slice = Slice::parse("1:3,2", &array).unwrap();
        let cut = |content: &Content| {
            let (array, content, slice) = slice.cut(&array, content, 0).unwrap()?;
            let Content::Grid(grid) = content else { panic!("not a grid") };
            let window = grid.window.clone().unwrap();
            assert_eq!((&*window.start, &window.shape, &array.shape), (&[1, 2][..], &vec![2, 1], &vec![2, 1]));
            Some(slice.to_string())
        };
        let cut_to = Some("[:, 0]".to_owned());
        assert_eq!(cut(&grid(None)), cut_to);
        let nested = |depth, wrap: &dyn Fn(Content) -> Content| (0..depth).fold(grid(None), |inner, _| wrap(inner));
        for wrap in [&deferred as &dyn Fn(Content) -> Content, &|inner| Content::Slice(Arc::new(inner), 0..80)] {
            assert_eq!(
                [1, DEPTH, DEPTH + 1].map(|depth| cut(&nested(depth, wrap))),
                [cut_to.clone(), cut_to.clone(), None]
            );
        }
        // The elements are not at the start of these, or are a part already.
        assert_eq!(cut(&Content::Slice(Arc::new(grid(None)), 16..80)), None);
        assert_eq!(cut(&grid(Some(Window { start: vec![0, 0], shape: vec![5, 4] }))), None);
        assert_eq!(cut(&Content::Zeros(80)), None);
    }

    #[test]
    fn a_wrong_index_is_named_with_what_is_possible() {
        let said = Slice::parse("1,30,:", &array(&[20, 30, 40])).unwrap_err().to_string();
        assert!(said.contains("30 is not an index of a dimension of 30 elements, nor a span such as 0:30"), "{said}");
    }

    #[test]
    fn what_is_no_index_of_the_array_is_refused() {
        for text in [
            "1",
            "1,2",
            "1,2,3,4",
            "20,:,:",
            "-21,:,:",
            "a,:,:",
            "1.5,:,:",
            ",:,:",
            "+1,:,:",
            "1,::2,:",
            "1,5:5,:",
            "1,7:5,:",
            "1,:,99999999999999999999",
            "1,:,...",
            "0x1,:,:",
            "1,:,40:",
        ] {
            let error = Slice::parse(text, &array(&[20, 30, 40])).unwrap_err();
            assert!(matches!(error.kind(), Kind::Usage(_)), "{text}: {error}");
        }
        assert!(Slice::parse(":", &array(&[0])).is_err());
    }
}
