//! What several test modules need.

pub(crate) mod made;
pub(crate) mod mounts;
pub(crate) mod opened;
pub(crate) mod oracle;
#[cfg(feature = "remote")]
pub(crate) mod server;
#[cfg(feature = "remote")]
pub(crate) mod services;
