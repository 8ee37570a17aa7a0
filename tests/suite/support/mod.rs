//! What several test modules need.

pub(crate) mod made;
pub(crate) mod mounts;
