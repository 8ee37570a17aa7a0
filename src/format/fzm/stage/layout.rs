//! The layouts of configurations: a table of fields for each stage type, which covers every generation of it.
//!
//! Reference: section 5 (fields), section 6 (generations); the size of a configuration identifies its generation.
//!
//! Invariants: a [`ConfigLayout`] gives every byte of every size a meaning, which a test checks for all stages.
#![forbid(unsafe_code)]

/// The layout of a stage's configuration.
#[derive(Debug)]
pub struct ConfigLayout {
    /// The sizes that a writer gives it, in bytes. Empty if the stage itself checks the size.
    pub sizes: &'static [usize],
    /// The fields, in order.
    pub fields: &'static [Field],
}

/// A field of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in the reference.
    pub name: &'static str,
    /// Its offset.
    pub at: usize,
    /// Its type.
    pub kind: FieldKind,
    /// The smallest size of a configuration that contains it.
    pub since: usize,
    /// The largest size of a configuration that contains it.
    pub until: usize,
}

/// The type of a field; integers and floats are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Two's complement, 32 bits.
    I32,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 64 bits.
    F64,
    /// A byte; every value but 0 means on.
    Flag,
    /// A byte, 0 or 1.
    Boolean,
    /// The number of an element type.
    ElementType,
    /// The number of an error-bound mode.
    Mode,
    /// This many zero bytes.
    Zero(usize),
    /// This many bytes that writers leave undefined.
    Hole(usize),
}

/// Constructors of fields, by type.
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => {$(
        $(#[$doc])*
        pub(super) const fn $name(name: &'static str, at: usize) -> Self {
            Self { name, at, kind: FieldKind::$kind, since: 0, until: usize::MAX }
        }
    )*};
}

#[allow(dead_code, reason = "every type that the reference has")]
impl Field {
    fields! {
        /// See [`FieldKind::U8`].
        u8 U8;
        /// See [`FieldKind::U16`].
        u16 U16;
        /// See [`FieldKind::U32`].
        u32 U32;
        /// See [`FieldKind::U64`].
        u64 U64;
        /// See [`FieldKind::I32`].
        i32 I32;
        /// See [`FieldKind::F32`].
        f32 F32;
        /// See [`FieldKind::F64`].
        f64 F64;
        /// See [`FieldKind::Flag`].
        flag Flag;
        /// See [`FieldKind::Boolean`].
        boolean Boolean;
        /// See [`FieldKind::ElementType`].
        element_type ElementType;
        /// See [`FieldKind::Mode`].
        mode Mode;
    }

    /// `len` bytes at `at` that are zero in every file; another value has no known meaning.
    pub(super) const fn zero(at: usize, len: usize) -> Self {
        Self { name: "reserved", at, kind: FieldKind::Zero(len), since: 0, until: usize::MAX }
    }

    /// `len` bytes at `at` that writers did not clear; they mean nothing.
    pub(super) const fn hole(at: usize, len: usize) -> Self {
        Self { name: "undefined", at, kind: FieldKind::Hole(len), since: 0, until: usize::MAX }
    }

    /// Only in configurations of at least `size` bytes.
    pub(super) const fn since(self, size: usize) -> Self {
        Self { since: size, ..self }
    }

    /// Only in configurations of at most `size` bytes.
    pub(super) const fn until(self, size: usize) -> Self {
        Self { until: size, ..self }
    }

    /// Bytes of the field.
    pub const fn size(&self) -> usize {
        match self.kind {
            FieldKind::U8 | FieldKind::Flag | FieldKind::Boolean | FieldKind::ElementType | FieldKind::Mode => 1,
            FieldKind::U16 => 2,
            FieldKind::U32 | FieldKind::I32 | FieldKind::F32 => 4,
            FieldKind::U64 | FieldKind::F64 => 8,
            FieldKind::Zero(len) | FieldKind::Hole(len) => len,
        }
    }

    /// Whether a configuration of `len` bytes contains it.
    pub fn is_in(&self, len: usize) -> bool {
        (self.since..=self.until).contains(&len) && self.at.checked_add(self.size()).is_some_and(|end| end <= len)
    }

    /// Whether it says something: neither reserved nor undefined.
    pub(super) fn has_meaning(&self) -> bool {
        !matches!(self.kind, FieldKind::Zero(_) | FieldKind::Hole(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::STAGES;

    #[test]
    fn every_byte_of_every_configuration_has_a_meaning() {
        for stage in STAGES {
            for &len in stage.layout.sizes {
                let mut owners = vec![0; len];
                for field in stage.layout.fields.iter().filter(|field| field.is_in(len)) {
                    owners[field.at..field.at + field.size()].iter_mut().for_each(|owner| *owner += 1);
                }
                assert!(owners.iter().all(|&n| n == 1), "{} of {len} bytes: {owners:?}", stage.name);
            }
        }
    }
}
