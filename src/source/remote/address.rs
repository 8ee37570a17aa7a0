//! The address of an object: an `http` or `https` URL, or a bucket and a key of S3.
//!
//! A request to S3 is a plain one to a URL that is signed for it, so both are fetched in the same way. Credentials come
//! from the environment, as for AWS tools: variables, web identity, containers, instances; no profiles.
//!
//! Invariant: neither URLs nor errors of other crates are printed here; only [`Address::shown`] is.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpClient, HttpConnector};
use object_store::signer::{Method, SignedUrlOptions, Signer};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use reqwest::Url;

use crate::error::{Error, Kind, Result};
use crate::source::location;

use super::client;

/// How long a signed URL is valid: longer than any request waits.
const VALID: Duration = Duration::from_secs(3600);
/// How long credentials may take to be found.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// Where an object is.
#[derive(Clone)]
pub(super) struct Address {
    shown: PathBuf,
    target: StoreTarget,
}

/// The clients of a request.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) client: reqwest::Client,
    /// For objects in S3.
    s3: Option<Arc<AmazonS3>>,
    /// Whether requests to S3 are not signed.
    is_anonymous: bool,
}

#[derive(Clone)]
enum StoreTarget {
    Http(Url),
    S3 { bucket: String, key: object_store::path::Path },
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it is none.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let shown = location::shown(Path::new(url)).into_owned();
        let invalid = |why: String| Error::new(Kind::Usage(why.into()), "URL");
        let target = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("s3") => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() || key.is_empty() {
                    return Err(invalid("not of the form s3://BUCKET/KEY".to_owned()));
                }
                let key = object_store::path::Path::parse(key.strip_suffix('/').unwrap_or(key))
                    .map_err(|e| invalid(format!("not a key: {e}")))?;
                StoreTarget::S3 { bucket: bucket.to_owned(), key }
            }
            _ => StoreTarget::Http(Url::parse(url).map_err(|e| invalid(format!("not a URL: {e}")))?),
        };
        Ok(Self { shown, target })
    }

    /// Parses the URL of a prefix of S3, or of a whole bucket.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it is none; [`Kind::Unsupported`] for other servers, which have no lists.
    pub(super) fn prefix(url: &str) -> Result<Self> {
        let invalid = |why: String| Error::new(Kind::Usage(why.into()), "URL");
        let s3 = url.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("s3"));
        let (_, rest) = s3.ok_or_else(no_lists)?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(invalid("not of the form s3://BUCKET/PREFIX/".to_owned()));
        }
        let key = object_store::path::Path::parse(key).map_err(|e| invalid(format!("not a prefix: {e}")))?;
        let shown = PathBuf::from(url.trim_end_matches('/'));
        Ok(Self { shown, target: StoreTarget::S3 { bucket: bucket.to_owned(), key } })
    }

    /// Fails if its server has no lists.
    ///
    /// # Errors
    /// [`Kind::Unsupported`].
    pub(super) fn has_lists(&self) -> Result<()> {
        if matches!(self.target, StoreTarget::S3 { .. }) { Ok(()) } else { Err(no_lists()) }
    }

    /// Common prefix of the keys below a prefix.
    pub(super) fn base(&self) -> String {
        match &self.target {
            StoreTarget::S3 { key, .. } if !key.as_ref().is_empty() => format!("{key}/"),
            _ => String::new(),
        }
    }

    /// The address of `name` below this one, if that is a prefix, or next to it, if that is an object.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it is not the name of a file.
    pub(super) fn with(&self, name: &str, below: bool) -> Result<Self> {
        let none = || Error::new(Kind::NotFound, "file");
        if name.is_empty() || name.contains('/') || matches!(name, "." | "..") {
            return Err(none());
        }
        let target = match &self.target {
            StoreTarget::Http(url) => {
                let mut url = url.clone();
                let mut segments = url.path_segments_mut().map_err(|()| none())?;
                segments.pop_if_empty();
                if !below {
                    segments.pop();
                }
                segments.push(name);
                drop(segments);
                StoreTarget::Http(url)
            }
            StoreTarget::S3 { bucket, key } => {
                let key = key.as_ref();
                let front = if below { Some(key) } else { key.rsplit_once('/').map(|(front, _)| front) };
                let front = front.filter(|front| !front.is_empty()).map_or(String::new(), |front| format!("{front}/"));
                let key = object_store::path::Path::parse(format!("{front}{name}")).map_err(|_| none())?;
                StoreTarget::S3 { bucket: bucket.clone(), key }
            }
        };
        let shown = if below { self.shown.join(name) } else { self.shown.with_file_name(name) };
        Ok(Self { shown, target })
    }

    /// The address of `path` below this prefix.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it is not the path of a file.
    pub(super) fn below(&self, path: &str) -> Result<Self> {
        path.split('/').try_fold(self.clone(), |address, name| address.with(name, true))
    }

    /// Identity of the object on its server: the URL without the parts that vary between signatures.
    pub(super) fn identity(&self) -> String {
        match &self.target {
            StoreTarget::Http(url) => {
                let mut same = url.clone();
                same.set_fragment(None);
                let is_same = |(name, _): &(Cow<'_, str>, Cow<'_, str>)| !name.starts_with("X-Amz-");
                let pairs: Vec<_> = url.query_pairs().filter(is_same).collect();
                same.set_query(None);
                if !pairs.is_empty() {
                    same.query_pairs_mut().extend_pairs(pairs);
                }
                same.into()
            }
            StoreTarget::S3 { bucket, key } => {
                let endpoint = settings().get_config_value(&AmazonS3ConfigKey::Endpoint);
                format!("s3 {} {bucket}/{key}", endpoint.unwrap_or_default())
            }
        }
    }

    /// The address for messages, without secrets.
    pub(super) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Prepares requests. Makes none.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the settings of S3 in the environment are not valid; [`Kind::Io`] if TLS is not possible.
    pub(super) fn clients(&self) -> Result<Clients> {
        let client = client::new().map_err(|why| Error::io(io::Error::other(why), "TLS"))?;
        let (s3, is_anonymous) = self.s3(&client)?.unzip();
        Ok(Clients { client, s3: s3.map(Arc::new), is_anonymous: is_anonymous.unwrap_or(false) })
    }

    /// The bucket, if there is one, with the settings of the environment; also whether they say that it is public.
    ///
    /// # Errors
    /// [`Kind::Usage`] if they are not valid.
    fn s3(&self, client: &reqwest::Client) -> Result<Option<(AmazonS3, bool)>> {
        let StoreTarget::S3 { bucket, .. } = &self.target else { return Ok(None) };
        let retry = RetryConfig { backoff: BackoffConfig::default(), max_retries: 3, retry_timeout: CREDENTIALS };
        let mut builder = settings();
        let is_anonymous = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature).is_some_and(|it| it == "true");
        if is_anonymous {
            // No search for credentials: the request is not signed.
            builder = builder.with_access_key_id("anonymous").with_secret_access_key("anonymous");
        }
        let connector = Connector(client.clone());
        let built = builder.with_bucket_name(bucket).with_retry(retry).with_http_connector(connector).build();
        // The message may quote a value of the environment.
        let why = "the AWS_ variables of the environment are not valid or not complete";
        built.map(|s3| Some((s3, is_anonymous))).map_err(|_| Error::new(Kind::Usage(why.into()), "credentials"))
    }

    /// The URL for one request for a list of the bucket.
    ///
    /// # Errors
    /// In words, if there are no credentials.
    pub(super) async fn list_url(
        &self,
        clients: &Clients,
        query: &[(&str, String)],
    ) -> std::result::Result<Url, String> {
        let Some(s3) = &clients.s3 else { return Err(missing()) };
        let options = SignedUrlOptions::default().with_query(query.iter().map(|(name, value)| (*name, value.as_str())));
        let bucket = object_store::path::Path::default();
        let url = s3.signed_url_opts(Method::GET, &bucket, VALID, &options).await;
        let mut url = url.map_err(|_| missing())?;
        if clients.is_anonymous {
            url.query_pairs_mut().clear().extend_pairs(query);
        }
        Ok(url)
    }

    /// The URL for one request.
    ///
    /// # Errors
    /// In words, if there are no credentials.
    pub(super) async fn url(&self, clients: &Clients) -> std::result::Result<Url, String> {
        match (&self.target, &clients.s3) {
            (StoreTarget::Http(url), _) => Ok(url.clone()),
            (StoreTarget::S3 { key, .. }, Some(s3)) => {
                let mut url = s3.signed_url(Method::GET, key, VALID).await.map_err(|_| missing())?;
                if clients.is_anonymous {
                    // Without the signature, the URL of a public object.
                    url.set_query(None);
                }
                Ok(url)
            }
            (StoreTarget::S3 { .. }, None) => Err(missing()),
        }
    }
}

fn no_lists() -> Error {
    Error::unsupported("a directory on an HTTP server, which cannot be listed; s3://BUCKET/PREFIX/ can be", "URL")
}

fn missing() -> String {
    "no credentials for S3 in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (from a profile: eval \
     \"$(aws configure export-credentials --format env)\"), or AWS_SKIP_SIGNATURE=true for a public bucket"
        .to_owned()
}

/// The settings of S3: those of the environment.
fn settings() -> AmazonS3Builder {
    #[cfg(test)]
    if let Some(settings) = super::testing::settings() {
        return settings;
    }
    AmazonS3Builder::from_env()
}

/// Gives `object_store` our client, for the requests by which it obtains credentials.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shown.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::remote::testing::S3;

    #[test]
    fn an_object_is_the_same_however_its_url_is_signed() {
        let identity = |url: &str| Address::parse(url).unwrap().identity();
        for (url, want) in [
            ("http://h/x?X-Amz-Signature=1&a=b&X-Amz-Date=2#f", "http://h/x?a=b"),
            ("http://h/x?X-Amz-Signature=1", "http://h/x"),
            ("http://h/x", "http://h/x"),
        ] {
            assert_eq!(identity(url), want);
        }
        let of_s3 = |endpoint: &str| {
            let _s3 = S3::at(endpoint, false);
            identity("s3://b/k")
        };
        assert_eq!((of_s3("http://h"), of_s3("http://i")), ("s3 http://h b/k".into(), "s3 http://i b/k".into()));
    }

    #[test]
    fn an_object_of_s3_has_a_bucket_and_a_key_and_only_s3_has_lists() {
        for url in ["s3://bucket", "s3://bucket/", "s3:///key"] {
            assert!(matches!(Address::parse(url).unwrap_err().kind(), Kind::Usage(_)), "{url}");
        }
        Address::parse("s3://b/k").unwrap().has_lists().unwrap();
        let none = Address::parse("http://h/x").unwrap().has_lists().unwrap_err();
        assert!(matches!(none.kind(), Kind::Unsupported(_)), "{none}");
    }

    #[test]
    fn the_keys_below_a_prefix_begin_with_it_and_those_of_a_bucket_with_anything() {
        let base = |url: &str| Address::prefix(url).unwrap().base();
        assert_eq!([base("s3://b/p/q/"), base("s3://b/p"), base("s3://b/"), base("s3://b")], ["p/q/", "p/", "", ""]);
    }

    #[test]
    fn a_request_is_signed_unless_the_bucket_is_public() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = Address::parse("s3://b/k").unwrap();
        let query = [("prefix", "p/".to_owned())];
        for (is_public, is_signed) in [(false, true), (true, false)] {
            let _s3 = S3::at("http://h", is_public);
            let clients = address.clients().unwrap();
            let url = runtime.block_on(address.url(&clients)).unwrap();
            assert_eq!((url.as_str().split('?').next(), url.query().is_some()), (Some("http://h/b/k"), is_signed));
            let list = runtime.block_on(address.list_url(&clients, &query)).unwrap();
            let has = |name: &str| list.query_pairs().any(|(found, _)| found == name);
            assert_eq!((has("prefix"), has("X-Amz-Signature")), (true, is_signed));
        }
        // As without credentials.
        let clients = Address::parse("http://h/x").unwrap().clients().unwrap();
        let object = runtime.block_on(address.url(&clients)).unwrap_err();
        let list = runtime.block_on(address.list_url(&clients, &query)).unwrap_err();
        assert!(object == list && list.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{list}");
    }

    #[test]
    fn what_is_shown_names_the_host_of_the_request_and_none_of_its_secrets() {
        for url in [
            "http://user:SECRET@host/x",
            "http:///user:SECRET@host/x",
            "http://\\user:SECRET@host\\x",
            "http://\t/\n/us\ter:SEC\nRET@host/x",
            "http://user:SECRET@SECRET@host/x",
            "http://user:SECRET@host?SECRET",
            "http://user:SECRET@host#SECRET/x",
            "HTTP:////user@host:80/x?y",
        ] {
            let address = Address::parse(url).unwrap();
            let StoreTarget::Http(parsed) = &address.target else { panic!("{url}") };
            let shown = address.shown().to_str().unwrap();
            assert!(!shown.contains("SECRET") && !shown.contains("user"), "{url}: {shown}");
            assert_eq!(Url::parse(shown).unwrap().host_str(), parsed.host_str(), "{url}: {shown}");
        }
    }
}
