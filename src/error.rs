//! The one error of the product: what went wrong, in which field, at which byte.
//!
//! `kind` is the only thing that code branches on; `what` is the field's name in the format
//! reference; `at` is a position in the container file. Printed as
//! `runs overflow the block (rle block, at byte 0x20)`.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::bytes::FileOffset;

/// The result of everything that touches a container.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in which field of the format, at which byte of the container.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    what: Cow<'static, str>,
    at: Option<FileOffset>,
}

/// The sort of an error: who must act, and which errno a reader sees.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Kind {
    /// The file ends, or a part of it, before the field does.
    Truncated {
        /// Bytes the field takes.
        need: u64,
        /// Bytes that are left.
        have: u64,
    },
    /// The bytes are there and say something that cannot be; the text says what.
    Corrupt(Cow<'static, str>),
    /// A stored checksum differs from the one computed over the bytes that it covers.
    Checksum {
        /// The value in the file.
        stored: u64,
        /// The value computed.
        computed: u64,
    },
    /// Well formed, but of a version, codec or feature that is not decoded here; the text names it.
    Unsupported(Cow<'static, str>),
    /// A value from the file is beyond what is allowed; nothing was allocated.
    TooLarge {
        /// The value.
        value: u64,
        /// The largest allowed.
        limit: u64,
    },
    /// It would take more memory and temporary disk space than the user gives; nothing was allocated.
    NoRoom {
        /// Bytes needed.
        need: u64,
        /// Bytes of memory that are left.
        memory: u64,
        /// Bytes of disk space that are left.
        disk: u64,
    },
    /// The container was changed or cut while in use: what was read before no longer counts.
    Changed,
    /// An option of the user does not fit this container; the text says why.
    Usage(Cow<'static, str>),
    /// There is no such entry in the virtual tree.
    NotFound,
    /// The operating system refused.
    Io(Arc<io::Error>),
}

impl Error {
    /// An error of `kind` in the field `what`.
    pub fn new(kind: Kind, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, what: what.into(), at: None }
    }

    /// The field `what` holds something that cannot be: `why`.
    pub fn corrupt(why: impl Into<Cow<'static, str>>, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Corrupt(why.into()), what)
    }

    /// The field `what` asks for something that is not decoded here: `which`.
    pub fn unsupported(which: impl Into<Cow<'static, str>>, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported(which.into()), what)
    }

    /// The operating system refused `what`.
    pub fn io(error: io::Error, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Io(Arc::new(error)), what)
    }

    /// Says where in the container file; the innermost place given stays.
    #[must_use]
    pub fn at(mut self, at: FileOffset) -> Self {
        self.at.get_or_insert(at);
        self
    }

    /// Puts `context` in front of the field's name: `chunk 3: block size`.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.what = Cow::Owned(format!("{context}: {}", self.what));
        self
    }

    /// What code may branch on.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The field's name in the format reference.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Where in the container file, if that is known.
    pub fn offset(&self) -> Option<FileOffset> {
        self.at
    }

    /// Whether the error is about the bytes of the container, so that the same bytes always give it. Others come from
    /// the system and the moment; they are not remembered, and the next reader tries again.
    pub fn is_lasting(&self) -> bool {
        match &self.kind {
            Kind::Truncated { .. }
            | Kind::Corrupt(_)
            | Kind::Checksum { .. }
            | Kind::Unsupported(_)
            | Kind::TooLarge { .. }
            | Kind::Usage(_)
            | Kind::NotFound => true,
            Kind::Changed | Kind::NoRoom { .. } | Kind::Io(_) => false,
        }
    }

    /// The error in words, with what to do about it where that helps.
    pub fn explain(&self) -> String {
        let advice = match &self.kind {
            Kind::Changed => "; open it again",
            Kind::Truncated { .. } => "; is the file complete?",
            _ => "",
        };
        format!("{self}{advice}")
    }

    /// The errno that a failed read shows. Every kind is listed: a new kind must decide here.
    pub fn errno(&self) -> i32 {
        match &self.kind {
            Kind::Truncated { .. } | Kind::Corrupt(_) | Kind::Checksum { .. } | Kind::Changed => libc::EIO,
            Kind::Unsupported(_) => libc::EOPNOTSUPP,
            Kind::TooLarge { .. } => libc::EFBIG,
            Kind::NoRoom { .. } => libc::ENOMEM,
            Kind::Usage(_) => libc::EINVAL,
            Kind::NotFound => libc::ENOENT,
            Kind::Io(e) => e.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Truncated { need, have } => write!(f, "needs {need} bytes, {have} left")?,
            Kind::Corrupt(why) | Kind::Usage(why) => f.write_str(why)?,
            Kind::Checksum { stored, computed } => {
                write!(f, "checksum mismatch: stored {stored:#010x}, computed {computed:#010x}")?;
            }
            Kind::Unsupported(which) => write!(f, "not supported: {which}")?,
            Kind::TooLarge { value, limit } => write!(f, "{value} is over the limit of {limit}")?,
            Kind::NoRoom { need, memory, disk } => {
                write!(f, "needs {need} bytes; cache= leaves {memory} and spill= leaves {disk}: raise either")?;
            }
            Kind::Changed => f.write_str("the file changed while it was in use")?,
            Kind::NotFound => f.write_str("no such entry")?,
            Kind::Io(e) => f.write_str(&os_message(e))?,
        }
        match self.at {
            Some(at) => write!(f, " ({}, at byte {:#x})", self.what, at.0),
            None => write!(f, " ({})", self.what),
        }
    }
}

impl std::error::Error for Error {}

/// What the operating system says, without the number that the standard library puts behind it.
pub fn os_message(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.find(" (os error ") {
        text.truncate(at);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_the_problem_the_field_and_the_innermost_place() {
        let e = Error::corrupt("must be a power of two", "chunk size").at(FileOffset(0x20)).at(FileOffset(0));
        assert_eq!(e.to_string(), "must be a power of two (chunk size, at byte 0x20)");
        assert_eq!(e.within("chunk 3").what(), "chunk 3: chunk size");
    }

    #[test]
    fn a_file_that_ends_early_is_asked_after() {
        let e = Error::new(Kind::Truncated { need: 8, have: 3 }, "header");
        assert_eq!(e.explain(), "needs 8 bytes, 3 left (header); is the file complete?");
        assert_eq!(Error::corrupt("no", "header").explain(), "no (header)");
    }

    #[test]
    fn what_the_system_says_is_printed_in_its_words() {
        let e = Error::io(io::Error::from_raw_os_error(libc::ENOENT), "file");
        assert_eq!(e.to_string(), "No such file or directory (file)");
    }

    #[test]
    fn an_error_is_small_enough_for_every_result() {
        assert!(size_of::<Error>() <= 72, "{}", size_of::<Error>());
    }
}
