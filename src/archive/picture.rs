//! Pictures of arrays.
#![forbid(unsafe_code)]

use super::{Array, contained};
use crate::error::Result;
use crate::format::Content;
use crate::view::preview::{self, Curve, Drawing};

impl Array {
    /// A PNG of one or two dimensions of the array.
    ///
    /// # Errors
    /// [`crate::error::Kind::Usage`] if there is no such picture, [`crate::error::Kind::TooLarge`] if more had to be decoded
    /// for it than for any preview; otherwise as [`super::File::read_at`].
    pub(crate) fn picture(&self, drawing: &Drawing) -> Result<Vec<u8>> {
        self.drawn(|data| {
            preview::picture(
                self.described(),
                data,
                drawing,
                &self.archive().0.context.account,
                &**self.archive().cache(),
            )
        })
    }

    /// The numbers of a curve along one dimension, or one element.
    ///
    /// # Errors
    /// As [`Array::picture`].
    pub(crate) fn curve(&self, drawing: &Drawing) -> Result<Curve> {
        self.drawn(|data| {
            preview::curve(
                self.described(),
                data,
                drawing,
                &self.archive().0.context.account,
                &**self.archive().cache(),
            )
        })
    }

    fn drawn<T>(&self, draw: impl FnOnce(&Content) -> Result<T>) -> Result<T> {
        let drawn = contained("picture", || draw(&self.elements()))?;
        self.archive().confirm_shared()?;
        Ok(drawn)
    }
}
