//! Stand-ins for objects on servers, in a build without them.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::seen::{Seen, Version, Versions};
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

/// Objects that were listed; there are none.
#[derive(Debug)]
pub enum ListedObjects {}

impl ListedObjects {
    /// Pins them.
    ///
    /// # Errors
    /// None: there are no objects.
    pub fn pin(objects: &Objects, _: &Account) -> Result<Arc<Self>> {
        match *objects {}
    }

    /// Their number.
    pub fn len(&self) -> usize {
        match *self {}
    }

    /// A version.
    pub(super) fn version(&self, _: usize) -> Version {
        match *self {}
    }

    /// A path.
    pub fn name(&self, _: usize) -> &str {
        match *self {}
    }

    /// An object.
    ///
    /// # Errors
    /// As [`Objects::source`].
    pub fn source(&self, _: &str) -> Result<Arc<Source>> {
        match *self {}
    }
}

/// A prefix of a server; there is none.
#[derive(Debug)]
pub enum Prefix {}

impl Prefix {
    /// Refuses.
    ///
    /// # Errors
    /// As [`Objects::beside`].
    pub fn open(url: &str, options: &RemoteOptions, account: &Account) -> Result<Arc<Self>> {
        Objects::beside(url, options, account).map(|(_, objects)| match *objects {})
    }

    /// The URL.
    pub fn path(&self) -> &Path {
        match *self {}
    }

    /// The account.
    pub fn account(&self) -> &Account {
        match *self {}
    }

    /// A page of a directory.
    ///
    /// # Errors
    /// None: there is no value of this type.
    pub fn page(&self, _: &str, _: Option<&str>, _: impl FnMut(&str, Seen) -> Result<()>) -> Result<Option<String>> {
        match *self {}
    }

    /// An entry.
    ///
    /// # Errors
    /// As [`Prefix::page`].
    pub fn stat(&self, _: &str) -> Result<Seen> {
        match *self {}
    }

    /// The versions of objects.
    ///
    /// # Errors
    /// As [`Prefix::page`].
    pub(super) fn versions_below(&self, _: &str) -> Result<Versions> {
        match *self {}
    }

    /// Forgets an entry.
    pub fn forget(&self, _: &str) {
        match *self {}
    }

    /// An object and its siblings.
    ///
    /// # Errors
    /// As [`Prefix::page`].
    pub fn source(&self, _: &str, _: &Seen) -> Result<(Arc<Source>, Arc<Objects>)> {
        match *self {}
    }

    /// The objects in a directory.
    ///
    /// # Errors
    /// As [`Prefix::page`].
    pub fn objects(&self, _: &str) -> Result<Arc<Objects>> {
        match *self {}
    }
}
