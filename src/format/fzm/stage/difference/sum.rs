//! The orders in which differences are added: sequentially, or in the tiles of the reference library.
#![forbid(unsafe_code)]

use std::marker::PhantomData;

use crate::format::fzm::stage::kogge_stone::inclusive_scan;
use crate::format::fzm::stage::types::{Element, Float, Unsigned};

/// An order of additions.
pub(super) trait Sum: 'static {
    /// Whether the elements are floats: their sums depend on the order.
    const FLOAT: bool;
    /// The element type.
    type Element: Element;
    /// Replaces each element in `bytes`, which start at a tile boundary, by the sum up to it plus `before`. Returns the
    /// last sum.
    fn add(before: Self::Element, bytes: &mut [u8]) -> Self::Element;
}

/// Sequentially, modulo the width.
pub(super) struct SequentialScan<U>(PhantomData<U>);

impl<U: Unsigned> Sum for SequentialScan<U> {
    const FLOAT: bool = false;

    type Element = U;

    fn add(before: U, bytes: &mut [u8]) -> U {
        let mut sum = before;
        for own in bytes.chunks_exact_mut(U::SIZE) {
            sum = sum.plus(U::get(own));
            sum.put(own);
        }
        sum
    }
}

/// The reference library's order for floats (section 5.4).
pub(super) struct TiledScan<T>(PhantomData<T>);

impl<T: Float> Sum for TiledScan<T> {
    const FLOAT: bool = true;

    type Element = T;

    fn add(before: T, bytes: &mut [u8]) -> T {
        let mut carry = before;
        for own in bytes.chunks_mut(512 * T::SIZE) {
            let mut tile = [[T::default(); 16]; 32];
            for (x, own) in tile.as_flattened_mut().iter_mut().zip(own.chunks_exact(T::SIZE)) {
                *x = T::get(own);
            }
            let mut ends = tile.map(|[first, rest @ ..]| rest.into_iter().fold(first, |sum, x| sum + x));
            inclusive_scan(&mut ends, 0, 1, 32);
            for (j, row) in tile.iter_mut().enumerate() {
                if let Some(&before) = j.checked_sub(1).and_then(|j| ends.get(j)) {
                    row[0] = before + row[0];
                }
                for i in 1..16 {
                    row[i] = row[i - 1] + row[i];
                }
            }
            for (&x, own) in tile.as_flattened().iter().zip(own.chunks_exact_mut(T::SIZE)) {
                (x + carry).canonical().put(own);
            }
            carry = carry + ends[31];
        }
        carry
    }
}
