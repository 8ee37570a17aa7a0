//! The error type of the crate: the fault, the field, and the byte offset.
//!
//! Code branches only on `kind`; `what` is the field's name in the format reference; `at` is an offset in the
//! container file. Printed as `runs overflow the block (rle block, at byte 0x20)`.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::offset::FileOffset;
use crate::platform::{self, os_error};

/// This version, for messages about unknown parts.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// The result type of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault, the field of the format, and the byte of the container.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    what: Cow<'static, str>,
    at: Option<FileOffset>,
}

/// The category of an error: who must act, and which errno a reader gets.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Kind {
    /// The file, or a part of it, ends before the field does.
    Truncated {
        /// Size of the field in bytes.
        need: u64,
        /// Bytes left.
        have: u64,
    },
    /// The bytes are present but invalid; the text says why.
    Corrupt(Cow<'static, str>),
    /// A stored checksum differs from the one computed over the bytes that it covers.
    Checksum {
        /// The stored value.
        stored: u64,
        /// The computed value.
        computed: u64,
    },
    /// Well formed, but of a version, codec or feature that is not supported; the text names it.
    Unsupported(Cow<'static, str>),
    /// A part of the container that this version does not know (a codec, a stage, a configuration of another
    /// generation); the text names it. Everything that does not need the part can still be read.
    Unknown(Cow<'static, str>),
    /// A value exceeds its limit; nothing was allocated.
    TooLarge {
        /// The value.
        value: u64,
        /// The largest allowed.
        limit: u64,
    },
    /// Needs more memory and temporary disk space than the user allows; nothing was allocated.
    NoRoom {
        /// Bytes needed.
        need: u64,
        /// Bytes of memory left.
        memory: u64,
        /// Bytes of disk space left.
        disk: u64,
    },
    /// The container was modified or truncated while in use: bytes read before are no longer valid.
    Changed,
    /// A user option does not fit this container; the text says why.
    Usage(Cow<'static, str>),
    /// No such entry in the virtual tree.
    NotFound,
    /// The operating system reported an error.
    Io(Arc<io::Error>),
}

impl Kind {
    /// The word for it, which JSON and Python have: `corrupt`, `too_large`. One that is unknown is `unsupported`; a part
    /// of a container that its server or directory does not have is `missing`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::Corrupt(_) => "corrupt",
            Self::Checksum { .. } => "checksum",
            Self::Unsupported(_) | Self::Unknown(_) => "unsupported",
            Self::TooLarge { .. } => "too_large",
            Self::NoRoom { .. } => "no_room",
            Self::Changed => "changed",
            Self::Usage(_) => "usage",
            Self::NotFound => "not_found",
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound && error.raw_os_error().is_none() => "missing",
            Self::Io(_) => "io",
        }
    }
}

/// Errors of the operating system are equal if they have the same number.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Truncated { need, have }, Self::Truncated { need: n, have: h }) => (need, have) == (n, h),
            (Self::Checksum { stored, computed }, Self::Checksum { stored: s, computed: c }) => {
                (stored, computed) == (s, c)
            }
            (Self::TooLarge { value, limit }, Self::TooLarge { value: v, limit: l }) => (value, limit) == (v, l),
            (Self::NoRoom { need, memory, disk }, Self::NoRoom { need: n, memory: m, disk: d }) => {
                (need, memory, disk) == (n, m, d)
            }
            (Self::Corrupt(why), Self::Corrupt(other))
            | (Self::Unsupported(why), Self::Unsupported(other))
            | (Self::Unknown(why), Self::Unknown(other))
            | (Self::Usage(why), Self::Usage(other)) => why == other,
            (Self::Changed, Self::Changed) | (Self::NotFound, Self::NotFound) => true,
            (Self::Io(e), Self::Io(other)) => (e.kind(), platform::errno(e)) == (other.kind(), platform::errno(other)),
            _ => false,
        }
    }
}

impl Error {
    /// Creates an error of `kind` in the field `what`.
    pub fn new(kind: Kind, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, what: what.into(), at: None }
    }

    /// The field `what` is invalid: `why`.
    pub fn corrupt(why: impl Into<Cow<'static, str>>, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Corrupt(why.into()), what)
    }

    /// The field `what` requires a feature that is not supported: `which`.
    pub fn unsupported(which: impl Into<Cow<'static, str>>, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported(which.into()), what)
    }

    /// The field `what` selects `part`, which this version does not know: `codec 45`.
    pub fn unknown(part: impl Into<Cow<'static, str>>, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unknown(part.into()), what)
    }

    /// The operating system reported `error` for `what`.
    pub fn io(error: io::Error, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Io(Arc::new(error)), what)
    }

    /// The system has no memory for `what`.
    pub fn no_memory(what: impl Into<Cow<'static, str>>) -> Self {
        Self::io(os_error(libc::ENOMEM), what)
    }

    /// Adds the offset in the container file; an offset that was set before is kept, because it is more precise.
    #[must_use]
    pub fn at(mut self, at: FileOffset) -> Self {
        self.at.get_or_insert(at);
        self
    }

    /// Prepends `context` to the field's name: `chunk 3: block size`.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.what = Cow::Owned(format!("{context}: {}", self.what));
        self
    }

    /// The category, on which code may branch.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The field's name in the format reference.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The offset in the container file, if known.
    pub fn offset(&self) -> Option<FileOffset> {
        self.at
    }

    /// Whether the bytes may be good, but need a part that this version does not know.
    pub fn is_unknown(&self) -> bool {
        matches!(self.kind, Kind::Unknown(_))
    }

    /// Whether the error is a property of the container's bytes, which always give it again. Other errors depend on the
    /// system and the moment; they are not cached, and the next reader tries again.
    pub fn is_lasting(&self) -> bool {
        match &self.kind {
            Kind::Truncated { .. }
            | Kind::Corrupt(_)
            | Kind::Checksum { .. }
            | Kind::Unsupported(_)
            | Kind::Unknown(_)
            | Kind::TooLarge { .. }
            | Kind::Usage(_)
            | Kind::NotFound => true,
            Kind::Changed | Kind::NoRoom { .. } | Kind::Io(_) => false,
        }
    }

    /// The message, followed by advice if there is any.
    pub fn explain(&self) -> String {
        let advice = match &self.kind {
            Kind::Changed => "; open it again",
            Kind::Truncated { .. } => "; truncated: is the file complete?",
            Kind::Io(error) => os_advice(error),
            _ => "",
        };
        format!("{self}{advice}")
    }

    /// The errno of a failed read. The match lists every kind, so that a new kind must choose its errno here.
    pub fn errno(&self) -> i32 {
        match &self.kind {
            Kind::Truncated { .. }
            | Kind::Corrupt(_)
            | Kind::Checksum { .. }
            | Kind::Unsupported(_)
            | Kind::Unknown(_)
            | Kind::Changed => libc::EIO,
            Kind::TooLarge { .. } => libc::EFBIG,
            Kind::NoRoom { .. } => libc::ENOMEM,
            Kind::Usage(_) => libc::EINVAL,
            Kind::NotFound => libc::ENOENT,
            Kind::Io(e) => platform::errno(e).unwrap_or(libc::EIO),
        }
    }

    /// As [`Error::errno`], of an entry that exists: no errno that says that it does not. A missing part of the
    /// container would otherwise look like a missing file, which readers of Zarr take for zeros.
    pub fn errno_of_existing(&self) -> i32 {
        match self.errno() {
            libc::ENOENT | libc::ENOTDIR => libc::EIO,
            errno => errno,
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
            Kind::Unknown(part) => write!(f, "{part} is unknown to fzmfs {VERSION}; a newer library wrote it")?,
            Kind::TooLarge { value, limit } => write!(f, "{value} is over the limit of {limit}")?,
            Kind::NoRoom { need, memory, disk } => {
                write!(f, "needs {need} bytes; cache= leaves {memory} and spill= leaves {disk}: raise either")?;
            }
            Kind::Changed => f.write_str("the file changed while it was in use")?,
            Kind::NotFound => f.write_str("no such entry")?,
            Kind::Io(e) => f.write_str(&os_message(e))?,
        }
        match (self.at, &self.kind) {
            (Some(at), _) => write!(f, " ({}, at byte {:#x})", self.what, at.0),
            // The message names it already.
            (None, Kind::Io(_)) if matches!(&*self.what, "file" | "directory") => Ok(()),
            (None, _) => write!(f, " ({})", self.what),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    /// Keeps the error; the kind is that of its [`errno`](Error::errno), but never one after which readers try again.
    fn from(error: Error) -> Self {
        match os_error(error.errno()).kind() {
            io::ErrorKind::Interrupted => Self::other(error),
            kind => Self::new(kind, error),
        }
    }
}

/// Collects errors about unknown parts, so that the rest of the container is checked too.
#[derive(Debug, Default)]
pub struct UnknownParts(Option<Error>);

impl UnknownParts {
    /// Keeps the first error of an unknown part.
    ///
    /// # Errors
    /// Every other error.
    pub fn keep(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if error.is_unknown() => {
                self.0.get_or_insert(error);
                Ok(())
            }
            result => result,
        }
    }

    /// The result of all checks together.
    ///
    /// # Errors
    /// The error that was kept.
    pub fn result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The operating system's message, without the number that the standard library appends.
pub fn os_message(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.find(" (os error ") {
        text.truncate(at);
    }
    text
}

/// As [`os_message`], followed by advice if there is any.
pub fn os_explain(error: &io::Error) -> String {
    os_message(error) + os_advice(error)
}

/// The limit that made a system call fail.
fn os_advice(error: &io::Error) -> &'static str {
    platform::errno(error).map_or("", platform::advice)
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
    fn an_unknown_part_is_named_with_the_version_that_does_not_know_it() {
        let e = Error::unknown("codec 45", "codec id").at(FileOffset(0x20)).within("chunk 3");
        let said = format!("codec 45 is unknown to fzmfs {VERSION}; a newer library wrote it");
        assert_eq!(e.to_string(), format!("{said} (chunk 3: codec id, at byte 0x20)"));
        assert!(env!("CARGO_PKG_VERSION").starts_with(VERSION) && VERSION.split('.').count() == 2, "{VERSION}");
    }

    #[test]
    fn a_file_that_ends_early_is_asked_after() {
        let e = Error::new(Kind::Truncated { need: 8, have: 3 }, "header");
        assert_eq!(e.explain(), "needs 8 bytes, 3 left (header); truncated: is the file complete?");
        assert_eq!(Error::corrupt("no", "header").explain(), "no (header)");
    }

    #[test]
    fn what_the_system_says_is_printed_in_its_words() {
        let e = Error::io(os_error(libc::ENOENT), "file");
        assert_eq!(e.to_string(), "No such file or directory");
    }

    #[test]
    fn each_kind_of_error_gives_readers_the_errno_of_the_manual_page() {
        for (kind, errno) in [
            (Kind::Truncated { need: 1, have: 0 }, libc::EIO),
            (Kind::Corrupt("".into()), libc::EIO),
            (Kind::Checksum { stored: 1, computed: 2 }, libc::EIO),
            (Kind::Changed, libc::EIO),
            (Kind::Unsupported("".into()), libc::EIO),
            (Kind::Unknown("".into()), libc::EIO),
            (Kind::NoRoom { need: 1, memory: 0, disk: 0 }, libc::ENOMEM),
            (Kind::TooLarge { value: 2, limit: 1 }, libc::EFBIG),
        ] {
            assert_eq!(Error::new(kind.clone(), "x").errno(), errno, "{kind:?}");
        }
    }

    #[test]
    fn kinds_can_be_compared() {
        let io = |number| Error::io(os_error(number), "file");
        assert_eq!(io(libc::ENOENT).kind(), io(libc::ENOENT).kind());
        assert_ne!(io(libc::ENOENT).kind(), io(libc::EACCES).kind());
        assert_eq!(Error::corrupt("no", "a").kind(), &Kind::Corrupt("no".into()));
        assert_ne!(Kind::Corrupt("no".into()), Kind::Usage("no".into()));
        assert_ne!(Kind::TooLarge { value: 2, limit: 1 }, Kind::TooLarge { value: 3, limit: 1 });
    }

    #[test]
    fn an_error_is_small_enough_for_every_result() {
        assert!(size_of::<Error>() <= 72, "{}", size_of::<Error>());
    }
}
