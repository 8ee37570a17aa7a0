//! Servers of others: nginx, and moto, which plays S3. Each on ports of its own, and ended with its value.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::mounts::{sh, skip, wait_for, wait_until};
use super::oracle::oracle;

/// nginx with the files of a directory, over HTTP and over TLS with an authority of its own.
pub(crate) struct Nginx {
    dir: TempDir,
    child: Child,
    port: u16,
    tls: u16,
    /// Lines of the log that were taken.
    taken: Cell<usize>,
}

/// A port that nobody listens on.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for_port(port: u16) {
    wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

impl Nginx {
    /// `None` where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
        let Some(program) = program else {
            skip("nginx", "not installed: apt-get install nginx");
            return None;
        };
        let (dir, port, tls) = (TempDir::new().unwrap(), port(), port());
        fs::create_dir(dir.path().join("root")).unwrap();
        sh(
            dir.path(),
            "key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
             echo subjectAltName=DNS:localhost,IP:127.0.0.1 >ext
             openssl req -x509 $key -keyout ca.key -out ca.pem -days 30 -subj /CN=authority 2>/dev/null
             openssl req $key -keyout key.pem -out csr -subj /CN=localhost 2>/dev/null
             openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 30 -extfile ext 2>/dev/null",
        );
        let root = std::os::unix::fs::MetadataExt::uid(&fs::metadata(dir.path()).unwrap()) == 0;
        let user = if root { "user root;" } else { "" };
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path tmp;"));
        let conf = format!(
            "{user} daemon off; master_process off; pid pid; error_log error.log; events {{}}
            http {{
                {temporary}
                log_format asked '$request_method $uri $status $body_bytes_sent';
                access_log access.log asked;
                root root;
                server {{ listen 127.0.0.1:{port}; }}
                server {{ listen 127.0.0.1:{tls} ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem; }}
            }}",
            temporary = temporary.concat()
        );
        fs::write(dir.path().join("conf"), conf).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(dir.path()).args(["-e", "error.log", "-c", "conf"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let nginx = Self { dir, child, port, tls, taken: Cell::new(0) };
        wait_for_port(port);
        wait_for_port(tls);
        Some(nginx)
    }

    /// The objects that are served.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The certificate of its authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    pub(crate) fn tls_url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.tls)
    }

    /// The bytes of the body of each request since the last call, as the server has logged them.
    pub(crate) fn take_log(&self) -> Vec<u64> {
        // It logs a request after its answer, and before it turns to the next one: to ours.
        let mark = format!("/mark-{}", self.taken.get());
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET {mark} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let lines = wait_for("the mark is logged", || {
            let text = fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
            let lines: Vec<String> = text.lines().skip(self.taken.get()).map(str::to_owned).collect();
            text.ends_with('\n').then_some(lines).filter(|lines| lines.iter().any(|line| line.contains(&mark)))
        });
        self.taken.set(self.taken.get() + lines.len());
        let asked = lines.iter().filter(|line| !line.contains("/mark-"));
        asked.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// S3, as moto plays it.
pub(crate) struct Moto {
    child: Child,
    port: u16,
}

/// The bucket that is there from the start.
pub(crate) const BUCKET: &str = "bucket";

impl Moto {
    /// `None` where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let python = oracle("moto")?;
        let port = port();
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moto = Self { child, port };
        wait_for_port(port);
        moto.put("", &[]);
        Some(moto)
    }

    /// Its address.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stores an object.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let reply = self.ask("PUT", key, bytes);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }

    /// Removes an object.
    pub(crate) fn remove(&self, key: &str) {
        let reply = self.ask("DELETE", key, &[]);
        assert!(reply.starts_with("HTTP/1.1 204"), "{reply}");
    }

    fn ask(&self, method: &str, key: &str, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // It takes any credentials.
        let head = format!(
            "{method} /{BUCKET}/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\nConnection: close\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, \
             Signature=x\r\n\r\n",
            bytes.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
