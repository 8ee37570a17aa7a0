//! A server of HTTP for tests: serves objects by ranges, writes down what it was asked, and fails as it is told.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server on a port of its own, as long as this lives.
pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    objects: Mutex<HashMap<String, Object>>,
    log: Mutex<Vec<Logged>>,
    /// Faults of the next requests; the last one stays.
    faults: Mutex<Vec<Fault>>,
    /// Fault of each request for the end of an object.
    tails: Mutex<Option<Fault>>,
    delay: Mutex<Duration>,
    lets_go: AtomicBool,
    ended: AtomicBool,
}

/// An object, as it is served at one path.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
}

impl Object {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let modified = Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned());
        Self { bytes: Arc::new(bytes), etag: Some("\"v1\"".to_owned()), modified }
    }

    pub(crate) fn with_etag(self, etag: &str) -> Self {
        Self { etag: Some(etag.to_owned()), ..self }
    }
}

/// One request, and what was sent for it so far.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
    /// Bytes of the body that were sent, or are being.
    pub(crate) sent: u64,
    /// Whether it is being answered.
    pub(crate) lasts: bool,
}

/// A request in the log. It is there before its answer begins: who has got one finds it.
struct Logged {
    target: String,
    headers: HashMap<String, String>,
    answer: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Logged {
    fn now(&self) -> Request {
        let (sent, ended) = (self.answer.sent.load(Ordering::Relaxed), self.answer.ended.load(Ordering::Relaxed));
        Request { target: self.target.clone(), headers: self.headers.clone(), sent, lasts: !ended }
    }
}

/// How one request fails.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    None,
    /// Only this status.
    Status(u16),
    /// A status with headers and a body.
    Answer(u16, Vec<(String, String)>, String),
    /// This text is the whole answer, with its head.
    Raw(String),
    /// The body ends after this many bytes, and the connection with it.
    Cut(usize),
    /// The connection is closed without an answer.
    Close,
    /// No answer for this time, then the connection is closed.
    Silence(Duration),
    /// No answer until [`Server::let_go`], then the connection is closed.
    Held,
    /// The whole object, with 200.
    Whole,
    /// One byte, and again after this time, so often.
    Dribble(Duration, usize),
    /// The range begins this many bytes later than asked, and says so.
    Shifted(u64),
    /// At most this many bytes, correctly described.
    Short(u64),
    /// The size of the object is wrong by this.
    Size(i64),
    /// Another entity tag than that of the object.
    Tag(String),
    /// `Content-Range` is left out.
    Unsaid,
    /// The connection is reset without an answer.
    Reset,
    /// `Content-Length` is wrong by this; the body is as long as it says, or else broken off.
    Length(i64),
    /// These bytes are there from now on, under another entity tag.
    Replaced(Arc<Vec<u8>>),
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            log: Mutex::default(),
            faults: Mutex::default(),
            tails: Mutex::default(),
            delay: Mutex::default(),
            lets_go: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let server = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // As servers do: else the end of each answer waits 40 ms for the client's acknowledgement of its head.
                stream.set_nodelay(true).unwrap();
                if server.ended.load(Ordering::Relaxed) {
                    return;
                }
                let server = server.clone();
                std::thread::spawn(move || server.serve(&stream));
            }
        });
        Self { port, shared }
    }

    /// Serves `object` at `/name` from now on.
    pub(crate) fn put(&self, name: &str, object: Object) {
        self.shared.objects.lock().unwrap().insert(format!("/{name}"), object);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.shared.objects.lock().unwrap().remove(&format!("/{name}"));
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// The faults of the next requests; the last one stays.
    pub(crate) fn fail(&self, faults: impl Into<Vec<Fault>>) {
        *self.shared.faults.lock().unwrap() = faults.into();
    }

    /// Answers requests for the last bytes of an object from now on, with `fault`. Before, they are refused and neither
    /// count nor fail: they are made beside others, in any order.
    pub(crate) fn serve_tails(&self, fault: Fault) {
        *self.shared.tails.lock().unwrap() = Some(fault);
    }

    /// Closes the connections of requests that are held, now and from now on.
    pub(crate) fn let_go(&self) {
        self.shared.lets_go.store(true, Ordering::Relaxed);
    }

    /// How long each answer waits from now on.
    pub(crate) fn delay(&self, by: Duration) {
        *self.shared.delay.lock().unwrap() = by;
    }

    /// The requests since [`Server::take_log`].
    pub(crate) fn log(&self) -> Vec<Request> {
        self.shared.log.lock().unwrap().iter().map(Logged::now).collect()
    }

    /// The requests since the last call.
    pub(crate) fn take_log(&self) -> Vec<Request> {
        self.shared.log.lock().unwrap().drain(..).map(|request| request.now()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        TcpStream::connect(("127.0.0.1", self.port)).ok();
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((target, headers)) = head(&mut reader) {
            std::thread::sleep(*self.delay.lock().unwrap());
            let progress = Arc::new(Progress::default());
            let mut out = Answer { stream, progress: &progress };
            let fault = if headers.get("range").is_some_and(|range| range.starts_with("bytes=-")) {
                let Some(fault) = self.tails.lock().unwrap().clone() else {
                    out.head(501, &[], 0);
                    continue;
                };
                fault
            } else {
                let mut faults = self.faults.lock().unwrap();
                if faults.len() > 1 { faults.remove(0) } else { faults.first().cloned().unwrap_or(Fault::None) }
            };
            let request = Logged { target: target.clone(), headers: headers.clone(), answer: progress.clone() };
            self.log.lock().unwrap().push(request);
            let goes_on = self.answer(&target, &headers, &fault, &mut out);
            progress.ended.store(true, Ordering::Relaxed);
            if fault == Fault::Reset {
                #[cfg(unix)] // The library is tested elsewhere too, without this fault.
                rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
                return;
            }
            if goes_on.is_none() {
                stream.shutdown(Shutdown::Both).ok();
                return;
            }
        }
    }

    /// Does what `fault` says before the object is looked for. `Break`: the answer was given, as [`Self::answer`] says.
    fn fail_first(&self, fault: &Fault, out: &mut Answer<'_>) -> ControlFlow<Option<()>> {
        match fault {
            Fault::Close | Fault::Reset => return ControlFlow::Break(None),
            Fault::Silence(time) => {
                std::thread::sleep(*time);
                return ControlFlow::Break(None);
            }
            Fault::Held => {
                while !self.lets_go.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return ControlFlow::Break(None);
            }
            Fault::Status(status) => return ControlFlow::Break(out.head(*status, &[], 0)),
            Fault::Answer(status, headers, body) => {
                let head = out.head(*status, headers, body.len());
                return ControlFlow::Break(head.and_then(|()| out.body(body.as_bytes())));
            }
            Fault::Raw(text) => return ControlFlow::Break(out.body(text.as_bytes())),
            Fault::Replaced(bytes) => {
                let new = Object::new(bytes.to_vec()).with_etag("\"v2\"");
                self.objects.lock().unwrap().values_mut().for_each(|object| *object = new.clone());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// `None` if the connection ends.
    fn answer(
        &self,
        target: &str,
        headers: &HashMap<String, String>,
        fault: &Fault,
        out: &mut Answer<'_>,
    ) -> Option<()> {
        if let ControlFlow::Break(goes_on) = self.fail_first(fault, out) {
            return goes_on;
        }
        let path = target.split('?').next().unwrap_or_default();
        let Some(object) = self.objects.lock().unwrap().get(path).cloned() else { return out.head(404, &[], 0) };
        if headers.get("if-none-match").is_some_and(|known| Some(known) == object.etag.as_ref()) {
            return out.head(304, &[], 0);
        }
        let size = object.bytes.len() as u64;
        let mut said: Vec<(String, String)> = vec![
            ("Accept-Ranges".to_owned(), "bytes".to_owned()),
            ("Date".to_owned(), "Sun, 06 Nov 1994 09:00:00 GMT".to_owned()),
        ];
        let tag = if let Fault::Tag(tag) = fault { Some(tag.clone()) } else { object.etag.clone() };
        said.extend(tag.map(|tag| ("ETag".to_owned(), tag)));
        said.extend(object.modified.clone().map(|time| ("Last-Modified".to_owned(), time)));
        if headers.get("if-match").is_some_and(|wanted| Some(wanted) != object.etag.as_ref()) {
            return out.head(412, &[], 0);
        }
        let range = headers.get("range").and_then(|value| range(value, size)).filter(|_| *fault != Fault::Whole);
        let Some(range) = range else {
            out.head(200, &said, object.bytes.len())?;
            return out.body(&object.bytes);
        };
        let shift = if let Fault::Shifted(by) = fault { *by } else { 0 };
        let most = if let Fault::Short(most) = fault { *most } else { u64::MAX };
        let range = range.start + shift..range.end.min(size).min(range.start.saturating_add(most));
        if range.start >= size {
            return out.head(416, &[("Content-Range".to_owned(), format!("bytes */{size}"))], 0);
        }
        let total = if let Fault::Size(by) = fault { size.saturating_add_signed(*by) } else { size };
        if *fault != Fault::Unsaid {
            said.push(("Content-Range".to_owned(), format!("bytes {}-{}/{total}", range.start, range.end - 1)));
        }
        let bytes = &object.bytes[range.start as usize..range.end as usize];
        let wrong = if let Fault::Length(by) = fault { *by as isize } else { 0 };
        let len = bytes.len().saturating_add_signed(wrong);
        out.head(206, &said, len)?;
        send_part(fault, bytes, len, out)
    }
}

/// Sends `bytes`, of which `len` were promised, as `fault` says. `None` if the connection ends.
fn send_part(fault: &Fault, bytes: &[u8], len: usize, out: &mut Answer<'_>) -> Option<()> {
    match fault {
        Fault::Length(_) => {
            out.body(&bytes[..len.min(bytes.len())])?;
            (len <= bytes.len()).then_some(())
        }
        Fault::Cut(at) if *at < bytes.len() => {
            out.body(&bytes[..*at])?;
            None
        }
        Fault::Dribble(pause, times) => {
            for byte in bytes.chunks(1).take(*times) {
                out.body(byte)?;
                std::thread::sleep(*pause);
            }
            None
        }
        _ => out.body(bytes),
    }
}

struct Answer<'a> {
    stream: &'a TcpStream,
    progress: &'a Progress,
}

impl Answer<'_> {
    fn head(&mut self, status: u16, headers: &[(String, String)], len: usize) -> Option<()> {
        let mut text = format!("HTTP/1.1 {status} x\r\nContent-Length: {len}\r\n");
        for (name, value) in headers {
            write!(text, "{name}: {value}\r\n").ok()?;
        }
        text += "\r\n";
        self.stream.write_all(text.as_bytes()).ok()
    }

    fn body(&mut self, bytes: &[u8]) -> Option<()> {
        self.progress.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.stream.write_all(bytes).ok()
    }
}

/// The target and the headers of a request; names in lower case.
fn head(reader: &mut BufReader<&TcpStream>) -> Option<(String, HashMap<String, String>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&n| n > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Some((target, headers)) };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}

/// `bytes=0-9`, or `bytes=-9` for the end of an object of `size` bytes.
fn range(value: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return Some(size.saturating_sub(last.parse().ok()?)..size);
    }
    Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
}
