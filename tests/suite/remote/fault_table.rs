//! Each fault with a container of each format, through the program: the right bytes, or in time an error that names the
//! URL and no secret. `cargo test --test suite fault_table -- --nocapture` prints what came out.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::noise;
use crate::support::mounts::{fzmfs, run};
use crate::support::opened::data;
use crate::support::server::{Fault, Object, Server};
use crate::ztensor_files::{text, version_01};

/// What must come out.
#[derive(Debug, Clone, Copy)]
enum Want {
    Right,
    /// An error with these words.
    Says(&'static str),
    /// The same, when the time that the user gives is over.
    InTime(&'static str),
    /// One or the other: it depends on which bytes the format needs.
    Either(&'static str),
}

use Want::{Either, InTime, Right, Says};

/// When the fault happens.
const WHEN: [&str; 4] = ["always", "always but first", "once, at first", "once, later"];

const CHANGED: Want = Says("changed while it was in use");

/// A fault, and what must come out of it for each time in [`WHEN`].
type Row = (&'static str, Fault, [Want; 4]);

fn answer(status: u16, name: &str, value: &str) -> Fault {
    Fault::Answer(status, vec![(name.to_owned(), value.to_owned())], String::new())
}

fn rows(other: &Arc<Vec<u8>>) -> Vec<Row> {
    // What the server did last is said too; on a busy machine, that may be nothing.
    let late = InTime("no answer within 1 s: ");
    let passes = [late, late, Right, Right];
    let lasts = |says| [Says(says); 4];
    let once_more = Fault::Dribble(Duration::from_millis(20), usize::MAX);
    vec![
        ("none", Fault::None, [Right; 4]),
        ("body cut", Fault::Cut(100), passes),
        ("500", Fault::Status(500), passes),
        ("503", Fault::Status(503), passes),
        ("429", answer(429, "Retry-After", "1"), passes),
        ("416", Fault::Status(416), [Says("the server refuses the request (HTTP 416"), CHANGED, Right, CHANGED]),
        ("404", Fault::Status(404), [Says("no such object (HTTP 404)"), CHANGED, Says("no such object"), CHANGED]),
        ("403", Fault::Status(403), lasts("no permission to read it (HTTP 403)")),
        ("Content-Length too large", Fault::Length(100), [Right; 4]),
        ("Content-Length too small", Fault::Length(-100), passes),
        ("Content-Range elsewhere", Fault::Shifted(1), lasts("the server sent bytes ")),
        ("Content-Range of another size", Fault::Size(1), [Either("changed while"), CHANGED, CHANGED, CHANGED]),
        ("no Content-Range", Fault::Unsaid, lasts("the server does not say which bytes it sends")),
        ("no ranges", Fault::Whole, lasts("does not serve parts of the object (HTTP ranges)")),
        ("another ETag", Fault::Tag("\"v2\"".to_owned()), [CHANGED; 4]),
        (
            "replaced",
            Fault::Replaced(other.clone()),
            [Says("unrecognized format"), CHANGED, Says("unrecognized"), CHANGED],
        ),
        ("a byte every 20 ms", once_more, passes),
        ("stalled", Fault::Silence(Duration::from_secs(2)), passes),
        ("closed", Fault::Close, passes),
        ("reset", Fault::Reset, passes),
        (
            "redirected to itself",
            answer(302, "Location", "/x"),
            [Says("too many redirections"), Says("too many redirections"), Right, Right],
        ),
        ("headers of 1 MiB", answer(206, "X", &"x".repeat(1 << 20)), passes),
    ]
}

/// A container, the file in it that is read, and its bytes.
struct Case {
    name: &'static str,
    path: &'static str,
    stored: Vec<u8>,
    other: Arc<Vec<u8>>,
    want: Vec<u8>,
}

/// A container of each format, none of which is there with the first request.
fn cases() -> Vec<Case> {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, path: &str, stored: &[u8]| {
        let file = dir.path().join(name);
        std::fs::write(&file, stored).unwrap();
        let output = run(fzmfs().arg("cat").arg(&file).arg(path));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let bytes = noise(300_000);
    let frame = std::fs::read(data("blosc2/f01_blosclz_l1_nofilter_ts1.b2frame")).unwrap();
    let fzm = std::fs::read(data("fzm/preset_pfpl.fzm")).unwrap();
    let zxc = zxc::compress(&bytes, zxc::Level::Default, Some(true)).unwrap();
    let tensor = version_01(&bytes, &[bytes.len() as u64], [("dtype", text("uint8"))]);
    [
        ("x.fzm", "data.raw", fzm),
        ("x.b2frame", "data.raw", frame),
        ("x.zxc", "data.raw", zxc),
        ("x.zt", "tensors/t.raw", tensor),
        ("x.zst", "data.raw", super::mounted::frames(&bytes)),
    ]
    .into_iter()
    .map(|(name, path, stored)| {
        assert!(stored.len() > 40_000, "{name}: {}", stored.len());
        let want = read(name, path, &stored);
        Case { name, path, other: Arc::new(stored.iter().rev().copied().collect()), stored, want }
    })
    .collect()
}

/// What came out of `fault` at the time number `when`; or why it may not.
fn outcome(case: &Case, (what, fault, wants): &Row, when: usize) -> Result<String, String> {
    let server = Server::start();
    server.put(case.name, Object::new(case.stored.clone()));
    if *what == "redirected to itself" {
        server.put("x", Object::new(case.stored.clone()));
    }
    server.fail(match when {
        0 => vec![fault.clone()],
        1 => vec![Fault::None, fault.clone()],
        2 => vec![fault.clone(), Fault::None],
        _ => vec![Fault::None, fault.clone(), Fault::None],
    });
    let want = wants[when];
    // A third of it is waited for a body that hardly comes; for all others a busy machine has as much time as it needs.
    let limit = match (want, fault) {
        (InTime(_), _) => 1,
        (_, Fault::Dribble(..)) => 30,
        _ => 600,
    };
    let shown = server.url(case.name);
    let secret = format!("{}?X-Amz-Signature=SECRET", shown.replace("://", "://me:SECRET@"));
    let mut command: Command = fzmfs();
    command.args(["cat", &secret, case.path, "-o", &format!("timeout={limit}")]);
    let output = run(command.env("NO_PROXY", "127.0.0.1").env("FZMFS_LOG", "debug"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let at = format!("{what}, {}, {}", WHEN[when], case.name);
    let check = |is_right: bool, what: &str| if is_right { Ok(()) } else { Err(format!("{at}: {what}: {said}")) };
    check(!said.contains("SECRET"), "a secret is shown")?;
    check(case.want.starts_with(&output.stdout), "wrong bytes")?;
    let is_right = output.status.success() && output.stdout == case.want;
    match want {
        Right => check(is_right, "not all of the bytes").map(|()| "the right bytes".to_owned()),
        Either(_) if is_right => Ok("the right bytes".to_owned()),
        Says(words) | InTime(words) | Either(words) => {
            let message = said.lines().find(|line| line.starts_with("fzmfs: ")).unwrap_or_default();
            check(output.status.code() == Some(1), "no error")?;
            check(message.contains(words) && message.contains(&shown), "another message")?;
            Ok(message.replace(&shown, "URL").trim_start_matches("fzmfs: ").to_owned())
        }
    }
}

#[test]
fn every_fault_with_every_format_is_the_right_bytes_or_an_error_that_names_the_url() {
    let cases = cases();
    let rows: Vec<Row> = rows(&Arc::default());
    let all: Vec<_> = (0..rows.len() * WHEN.len()).flat_map(|i| (0..cases.len()).map(move |case| (i, case))).collect();
    let (next, table) = (Mutex::new(all.into_iter()), Mutex::new(BTreeMap::<_, Vec<&str>>::new()));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let Some((i, case)) = next.lock().unwrap().next() else { return };
                    let (case, when) = (&cases[case], i % WHEN.len());
                    let (what, fault, wants) = &rows[i / WHEN.len()];
                    let fault = match fault {
                        Fault::Replaced(_) => Fault::Replaced(case.other.clone()),
                        other => other.clone(),
                    };
                    let format = case.name.trim_start_matches("x.");
                    match outcome(case, &(*what, fault, *wants), when) {
                        Ok(found) => table.lock().unwrap().entry((i, found)).or_default().push(format),
                        Err(why) => failed.lock().unwrap().push(why),
                    }
                }
            });
        }
    });
    println!("| fault | when | format | what came out |\n| --- | --- | --- | --- |");
    for ((i, found), formats) in &*table.lock().unwrap() {
        let formats = if formats.len() == cases.len() { "all".to_owned() } else { formats.join(", ") };
        println!("| {} | {} | {formats} | {found} |", rows[i / WHEN.len()].0, WHEN[i % WHEN.len()]);
    }
    let failed = failed.lock().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
