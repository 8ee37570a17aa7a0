//! WebDAV, read-only: the reply to a PROPFIND, which lists a directory for Finder, Explorer, rclone, davfs2 and cadaver.
//!
//! Of the crate dav-server, only its PROPFIND would be used, since files have stronger promises than its GET keeps; and that
//! sends no Content-Length, lists without end for `Depth: infinity`, and offers locks, which make a client write.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use hyper::StatusCode;

use super::body::ReplyBody;
use super::file::{content_type, http_date};
use super::propfind::{DAV, Name, PropfindRequest};
use super::reply::{Reply, failed_at, refused, reply};
use super::tree::{Resource, Served, ServedEntry, ServedTree};
use super::url_path::{decoded, encoded};
use crate::archive::EntryKind;
use crate::error::{Error, Result};
use crate::text::markup;

/// Most entries in one reply.
const ENTRIES: usize = 100_000;
const TYPE: &str = "application/xml; charset=utf-8";
/// The properties that entries have.
const KNOWN: [&str; 7] = [
    "resourcetype",
    "displayname",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "supportedlock",
];

/// An entry and its properties.
enum DavEntry {
    /// A directory: its name, and its time of modification.
    Directory(String, i64),
    File(Box<Served>),
}

/// A reply in the making.
struct Multistatus<'a> {
    tree: &'a ServedTree,
    asked: &'a PropfindRequest,
    out: String,
}

/// The refusal to list everything below a directory.
pub(super) fn too_deep() -> Reply {
    let why =
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";
    reply(StatusCode::FORBIDDEN, TYPE, ReplyBody::of(why))
}

/// The properties of the entry at `sent`, a path as sent, in `tree`, which is called `name` and served at `prefix`; with those of its
/// entries, if it is a directory and `with_entries`. A path that ends with a slash is that of a directory.
pub(super) fn answer(
    tree: &ServedTree,
    (name, prefix): (&str, &str),
    sent: &str,
    with_entries: bool,
    asked: &PropfindRequest,
) -> Reply {
    let Some(path) = &decoded(sent) else {
        return refused(StatusCode::NOT_FOUND, "no entry can have this path");
    };
    let is_directory = sent.ends_with('/');
    let found = match tree.resolve(path) {
        Ok(found) => found,
        Err(e) => return failed_at(path, &e),
    };
    let out = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n".to_owned();
    let mut status = Multistatus { tree, asked, out };
    let encoded = path.split('/').map(encoded).collect::<Vec<_>>().join("/");
    match found {
        Resource::File(file) if is_directory => {
            return refused(StatusCode::NOT_FOUND, &format!("{} is not a directory", file.name));
        }
        Resource::File(file) => status.entry(&format!("{prefix}{encoded}"), Ok(DavEntry::File(Box::new(file)))),
        Resource::Directory(entries) => {
            let slash = if path.is_empty() { "" } else { "/" };
            let href = format!("{prefix}{encoded}{slash}");
            let last = path.rsplit('/').next().filter(|last| !last.is_empty());
            status.entry(&href, directory(tree, path, last.unwrap_or(name)));
            if with_entries && entries.len() > ENTRIES {
                let why = format!("more than {ENTRIES} entries; GET lists them");
                return refused(StatusCode::INSUFFICIENT_STORAGE, &why);
            }
            for entry in entries.iter().filter(|_| with_entries) {
                status.child(&href, &format!("{path}{slash}"), entry);
            }
        }
    }
    status.out.push_str("</D:multistatus>\n");
    reply(StatusCode::MULTI_STATUS, TYPE, ReplyBody::of(status.out))
}

/// The directory at `path`, called `name`.
fn directory(tree: &ServedTree, path: &str, name: &str) -> Result<DavEntry> {
    Ok(DavEntry::Directory(name.to_owned(), tree.mtime(path)?))
}

impl Multistatus<'_> {
    /// An entry of the directory at `href`, whose path is `above`.
    fn child(&mut self, href: &str, above: &str, ServedEntry { name, kind, .. }: &ServedEntry) {
        let path = format!("{above}{name}");
        let found = match kind {
            EntryKind::Directory => directory(self.tree, &path, name),
            EntryKind::File | EntryKind::Link => match self.tree.resolve(&path) {
                Ok(Resource::File(file)) => Ok(DavEntry::File(Box::new(file))),
                Ok(Resource::Directory(_)) => directory(self.tree, &path, name),
                // A link that leads nowhere, or a device.
                Err(_) if *kind == EntryKind::Link => return,
                Err(e) => Err(e),
            },
        };
        let slash = if matches!(found, Ok(DavEntry::Directory(..))) { "/" } else { "" };
        self.entry(&format!("{href}{}{slash}", encoded(name)), found);
    }

    fn entry(&mut self, href: &str, found: Result<DavEntry>) {
        let _ = write!(self.out, "<D:response><D:href>{href}</D:href>");
        match found {
            Ok(found) => self.properties(&found),
            Err(e) => self.error(&e),
        }
        self.out.push_str("</D:response>\n");
    }

    /// The reply for an entry that is broken: its neighbours are listed.
    fn error(&mut self, error: &Error) {
        let _ = write!(self.out, "<D:status>HTTP/1.1 500 Internal Server Error</D:status>");
        let why = markup(&error.explain());
        let _ = write!(self.out, "<D:responsedescription>{why}</D:responsedescription>");
    }

    fn properties(&mut self, found: &DavEntry) {
        let all = || KNOWN.iter().map(|local| Name { namespace: DAV.to_owned(), local: (*local).to_owned() }).collect();
        let names: Vec<Name> = if let PropfindRequest::These(names) = self.asked { names.clone() } else { all() };
        let (mut have, mut missing) = (String::new(), String::new());
        for name in &names {
            match value(name, found) {
                Some(_) if *self.asked == PropfindRequest::Names => _ = write!(have, "<D:{}/>", name.local),
                Some(value) => _ = write!(have, "<D:{0}>{value}</D:{0}>", name.local),
                None if !matches!(self.asked, PropfindRequest::These(_)) => {}
                None if name.namespace == DAV => _ = write!(missing, "<D:{}/>", name.local),
                None => _ = write!(missing, "<{} xmlns=\"{}\"/>", name.local, markup(&name.namespace)),
            }
        }
        for (properties, status) in [(have, "200 OK"), (missing, "404 Not Found")] {
            if !properties.is_empty() {
                let _ = write!(
                    self.out,
                    "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
                );
            }
        }
    }
}

/// The value of a property, as XML.
fn value(Name { namespace, local }: &Name, found: &DavEntry) -> Option<String> {
    if namespace != DAV {
        return None;
    }
    match (local.as_str(), found) {
        ("resourcetype", DavEntry::Directory(..)) => Some("<D:collection/>".to_owned()),
        ("resourcetype" | "supportedlock", _) => Some(String::new()),
        ("displayname", DavEntry::Directory(name, _)) => Some(markup(name)),
        ("displayname", DavEntry::File(file)) => Some(markup(&file.name)),
        ("getlastmodified", DavEntry::Directory(_, mtime)) => Some(http_date(*mtime)),
        ("getlastmodified", DavEntry::File(file)) => Some(http_date(file.mtime)),
        ("getcontentlength", DavEntry::File(file)) => Some(file.len.to_string()),
        ("getcontenttype", DavEntry::File(file)) => Some(content_type(&file.name).to_owned()),
        ("getetag", DavEntry::File(file)) => Some(file.etag().replace('"', "&quot;")),
        _ => None,
    }
}
