//! What several test modules need.

pub(crate) mod made;
pub(crate) mod mounts;
pub(crate) mod opened;
pub(crate) mod oracle;
