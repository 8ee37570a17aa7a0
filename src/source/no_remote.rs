//! What stands for objects on servers in a build without them.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::{RemoteOptions, Source};
use crate::account::Account;
use crate::error::{Error, Result};

/// Objects under one prefix; there are none.
#[derive(Debug)]
pub enum Objects {}

impl Objects {
    /// Refuses.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`].
    pub fn beside(_: &str, _: &RemoteOptions, _: &Account) -> Result<(Arc<Source>, Arc<Self>)> {
        Err(Error::unsupported("objects on servers: this build is without the feature remote", "URL"))
    }

    /// As [`Objects::beside`].
    ///
    /// # Errors
    /// As [`Objects::beside`].
    pub fn below(url: &str, options: &RemoteOptions, account: &Account) -> Result<Arc<Self>> {
        Self::beside(url, options, account).map(|(_, objects)| objects)
    }

    /// The URL of the prefix.
    pub fn path(&self) -> &Path {
        match *self {}
    }

    /// An object.
    ///
    /// # Errors
    /// None: there is no value of this type.
    pub fn source(&self, _: &str) -> Result<Arc<Source>> {
        match *self {}
    }
}
