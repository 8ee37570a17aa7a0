//! Which requests are answered: those for a name of this server, under its secret path.
//!
//! A page of another site can make a browser send requests here, under a name that it made resolve to this machine (DNS
//! rebinding): such a name is refused. It cannot read replies, by the same-origin policy, and cannot guess the path.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Bytes of the capability.
const SECRET: usize = 16;

/// Which requests are answered.
pub struct Admission {
    /// The first segment of each path; `None` if everybody who can connect may read.
    capability: Option<String>,
    /// Names of this server besides its addresses and `localhost`.
    hosts: Vec<String>,
}

impl std::fmt::Debug for Admission {
    /// Without the capability.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Admission {
    /// Admits requests under the path `capability`, or, if that is `None`, all that can connect. `hosts`: names of this
    /// server besides its addresses and `localhost`.
    pub fn new(capability: Option<String>, hosts: Vec<String>) -> Self {
        Self { capability, hosts }
    }

    /// A random capability of 128 bits.
    ///
    /// # Errors
    /// From getrandom(2).
    pub fn random_capability() -> io::Result<String> {
        let mut bytes = [0; SECRET];
        crate::platform::random(&mut bytes)?;
        let mut out = String::new();
        for byte in bytes {
            let _ = write!(out, "{byte:02x}");
        }
        Ok(out)
    }

    /// Whether `text` can be a capability: as long as 128 random bits in base64 at least, and the same in every URL.
    pub fn is_capability(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (22..=256).contains(&text.len()) && text.bytes().all(is_plain)
    }

    /// The name of this server, which listens at `address`: "all addresses" is not one.
    pub(super) fn shown(&self, address: SocketAddr) -> String {
        match self.hosts.first() {
            Some(host) if address.ip().is_unspecified() => format!("{host}:{}", address.port()),
            _ => address.to_string(),
        }
    }

    /// The path that all others start with.
    pub(super) fn prefix(&self) -> String {
        self.capability.as_ref().map_or("/".to_owned(), |capability| format!("/{capability}/"))
    }

    /// Whether `host`, of a header `Host`, is this server.
    pub(super) fn is_own(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// The path below the capability, percent-encoded as it is; `None` if `path` lacks the capability.
    pub(super) fn below<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix('/')?;
        let Some(capability) = &self.capability else { return Some(rest) };
        let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
        equal(first.as_bytes(), capability.as_bytes()).then_some(rest)
    }
}

/// Compares in a time that depends on the lengths alone.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_server_are_its_own() {
        let admission = Admission::new(None, vec!["data.example.org".to_owned()]);
        for host in
            ["127.0.0.1:8700", "127.0.0.1", "[::1]:8700", "[::1]", "localhost:1", "LOCALHOST", "data.example.org:80"]
        {
            assert!(admission.is_own(host), "{host}");
        }
        for host in ["", "evil.example:8700", "localhost.evil.example", "127.0.0.1.evil.example:8700", ":8700", "[::1"]
        {
            assert!(!admission.is_own(host), "{host}");
        }
    }

    #[test]
    fn a_path_without_the_capability_is_not_below_it() {
        let capability = Admission::random_capability().unwrap();
        assert!(Admission::is_capability(&capability));
        let admission = Admission::new(Some(capability), Vec::new());
        let prefix = admission.prefix();
        assert_eq!(prefix.len(), 2 * SECRET + 2);
        assert_eq!(admission.below(&format!("{prefix}a/b")), Some("a/b"));
        assert_eq!(admission.below(prefix.trim_end_matches('/')), Some(""));
        for path in [
            "/",
            "/a",
            "",
            "/0/a",
            &format!("/{prefix}"),
            &prefix.to_uppercase().replace(|c: char| c.is_numeric(), "A"),
        ] {
            assert_eq!(admission.below(path), None, "{path}");
        }
        assert_eq!(Admission::new(None, Vec::new()).below("/a/b"), Some("a/b"));
        assert!(!format!("{admission:?}").contains(prefix.trim_matches('/')));
    }
}
