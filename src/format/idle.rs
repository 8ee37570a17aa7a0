//! Decoders that are not in use: the contexts and buffers that the containers of a mount or an archive take from each
//! other.
//!
//! Invariant: of a kind there are never more than were in use at the same time.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The decoders that are not in use, by their types.
#[derive(Default)]
pub struct IdleDecoders(Mutex<HashMap<TypeId, Vec<Box<dyn Any + Send>>>>);

impl IdleDecoders {
    /// Runs `work` with a decoder that was used before, or a new one; `work` charges what it leaves in it.
    pub fn with<D: Default + Send + 'static, T>(&self, work: impl FnOnce(&mut D) -> T) -> T {
        let idle = self.lock().get_mut(&TypeId::of::<D>()).and_then(Vec::pop);
        let mut decoder = idle.and_then(|decoder| decoder.downcast::<D>().ok()).unwrap_or_default();
        let result = work(&mut decoder);
        self.lock().entry(TypeId::of::<D>()).or_default().push(decoder);
        result
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TypeId, Vec<Box<dyn Any + Send>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for IdleDecoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdleDecoders")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_is_used_again_by_the_next_one_of_its_kind_and_by_nobody_else_meanwhile() {
        let idle = IdleDecoders::default();
        idle.with(|one: &mut Vec<u8>| {
            one.push(1);
            idle.with(|other: &mut Vec<u8>| assert!(other.is_empty()));
        });
        idle.with(|other: &mut Vec<u16>| assert!(other.is_empty()));
        idle.with(|one: &mut Vec<u8>| assert_eq!(*one, [1]));
        let kept = idle.lock().values().map(Vec::len).sum::<usize>();
        assert_eq!(kept, 3);
    }
}
