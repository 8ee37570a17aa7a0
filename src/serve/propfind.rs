//! Parses a PROPFIND request (RFC 4918): its depth, and the properties it names.
#![forbid(unsafe_code)]

use hyper::header::HeaderMap;
use quick_xml::NsReader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};

/// Properties that one request may name.
const PROPERTIES: usize = 256;
/// The namespace of WebDAV.
pub(super) const DAV: &str = "DAV:";

/// Which properties are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PropfindRequest {
    /// All.
    All,
    /// The names of all.
    Names,
    /// These.
    These(Vec<Name>),
}

/// The name of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) namespace: String,
    pub(super) local: String,
}

/// The header Depth of `headers`: whether entries of a directory are asked for too; `None` for all below it.
pub(super) fn with_entries(headers: &HeaderMap) -> Option<bool> {
    match headers.get("depth")?.as_bytes() {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// Parses the body of a request; `None` if it is not what RFC 4918 describes.
pub(super) fn parse(body: &[u8]) -> Option<PropfindRequest> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Some(PropfindRequest::All);
    }
    let mut reader = NsReader::from_reader(body);
    // The names of the elements that are open.
    let mut open: Vec<Name> = Vec::new();
    let (mut asked, mut is_whole) = (None, false);
    loop {
        let (namespace, event) = reader.read_resolved_event().ok()?;
        match event {
            Event::Start(start) => {
                let name = name(&namespace, &start)?;
                note(&open, &name, &mut asked)?;
                open.push(name);
            }
            Event::Empty(start) => note(&open, &name(&namespace, &start)?, &mut asked)?,
            Event::End(_) => {
                open.pop()?;
                is_whole = open.is_empty();
            }
            Event::Eof if is_whole => return asked,
            Event::DocType(_) | Event::Eof => return None,
            _ => {}
        }
    }
}

/// Notes the element `name` inside those that are `open`.
fn note(open: &[Name], name: &Name, asked: &mut Option<PropfindRequest>) -> Option<()> {
    let is_dav = |name: &Name, local: &str| name.namespace == DAV && name.local == local;
    match open {
        [] => return is_dav(name, "propfind").then_some(()),
        [_] if is_dav(name, "allprop") => *asked = Some(PropfindRequest::All),
        [_] if is_dav(name, "propname") => *asked = Some(PropfindRequest::Names),
        [_] if is_dav(name, "prop") => *asked = Some(PropfindRequest::These(Vec::new())),
        [_, prop] if is_dav(prop, "prop") => {
            if let Some(PropfindRequest::These(names)) = asked {
                names.push(name.clone());
                return (names.len() <= PROPERTIES).then_some(());
            }
        }
        // Elements that are not known are to be ignored.
        _ => {}
    }
    Some(())
}

/// The name of an element. `None` if its prefix has no namespace, or it is not a name.
fn name(namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Option<Name> {
    let qualified = start.name();
    let namespace = match namespace {
        ResolveResult::Bound(Namespace(raw)) if !raw.is_empty() => std::str::from_utf8(raw).ok()?,
        ResolveResult::Bound(_) | ResolveResult::Unbound if qualified.prefix().is_none() => "",
        _ => return None,
    };
    let local = std::str::from_utf8(qualified.local_name().into_inner()).ok()?;
    let is_name = |c: char| c.is_alphanumeric() || "-._".contains(c);
    let valid = local.starts_with(|c: char| c.is_alphabetic() || c == '_') && local.chars().all(is_name);
    let namespace = unescape(namespace).ok()?.into_owned();
    valid.then(|| Name { namespace, local: local.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_properties_or_all() {
        let these = |names: &[(&str, &str)]| {
            let name = |&(namespace, local): &(&str, &str)| Name { namespace: namespace.into(), local: local.into() };
            Some(PropfindRequest::These(names.iter().map(name).collect()))
        };
        for (body, want) in [
            ("", Some(PropfindRequest::All)),
            (" \r\n", Some(PropfindRequest::All)),
            ("<?xml version='1.0'?><D:propfind xmlns:D='DAV:'><D:allprop/></D:propfind>", Some(PropfindRequest::All)),
            ("<propfind xmlns='DAV:'><propname/></propfind>", Some(PropfindRequest::Names)),
            ("<propfind xmlns='DAV:'><allprop/><include><x/></include></propfind>", Some(PropfindRequest::All)),
            (
                "<propfind xmlns='DAV:'><prop><getetag/><a:b xmlns:a='urn:c'>t</a:b><d xmlns=''/></prop></propfind>",
                these(&[(DAV, "getetag"), ("urn:c", "b"), ("", "d")]),
            ),
            ("<propfind xmlns='DAV:'><prop/></propfind>", these(&[])),
            ("<propfind xmlns='DAV:'></propfind>", None),
            ("<propfind xmlns='DAV:'/>", None),
            ("<propfind><allprop/></propfind>", None),
            ("<D:propfind><D:allprop/></D:propfind>", None),
            ("<D:propfind xmlns:D='DAV:'><D:prop><b:f xmlns:b=''/></D:prop></D:propfind>", None),
            ("<D:propfind xmlns:D='DAV:'><D:allprop/>", None),
            ("<D:propfind xmlns:D='DAV:'><D:allprop></D:propfind>", None),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><propfind xmlns='DAV:'><allprop/></propfind>", None),
            ("<propfind xmlns='DAV:'><prop><a\"b/></prop></propfind>", None),
            ("hello", None),
            ("<", None),
        ] {
            assert_eq!(parse(body.as_bytes()), want, "{body}");
        }
        let many = format!("<propfind xmlns='DAV:'><prop>{}</prop></propfind>", "<a/>".repeat(PROPERTIES + 1));
        assert_eq!(parse(many.as_bytes()), None);
        assert_eq!(parse(&"<a>".repeat(20_000).into_bytes()), None);
    }
}
