//! Real mounts for tests: always taken down again, every wait bounded in time.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[path = "../../support/skip.rs"]
mod skip;

pub(crate) use skip::skip;

/// When a wait is a hang, and the test fails. No test passes or fails by how much sooner something happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The same for a program that works, which may have a fraction of a processor.
const WORK: Duration = Duration::from_secs(900);

/// Whether mounts can be made here. Where not, says so in one line; with `FZMFS_REQUIRE_FUSE` set that is a failure.
pub(crate) fn can_mount() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let why = match device {
        Ok(_) if root => return true,
        Ok(_) => "not root".to_owned(),
        Err(e) => format!("/dev/fuse: {e}"),
    };
    assert!(
        std::env::var_os("FZMFS_REQUIRE_FUSE").is_none(),
        "FZMFS_REQUIRE_FUSE is set, and mounts cannot be made: {why}"
    );
    skip("mounts cannot be made", &why);
    false
}

/// Waits until a mount in the foreground, made with `-d`, says in `log` that it is one. It is seen in the kernel's list
/// before that, and is in use then: by the daemon, which looks whether it answers.
#[track_caller]
pub(crate) fn wait_for_mount(log: &Path) {
    wait_until("mounted", || std::fs::read_to_string(log).is_ok_and(|text| text.contains(": mounted on ")));
}

/// Calls `done` until it is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl FnMut() -> bool) {
    assert!(in_time(PATIENCE, done), "{what}: not after {PATIENCE:?}");
}

/// Calls `get` until it gives something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let mut got = None;
    wait_until(what, || {
        got = get();
        got.is_some()
    });
    got.unwrap()
}

/// Calls `look` again if the kernel was told to drop its caches meanwhile, as other tests and programs may tell it.
#[track_caller]
pub(crate) fn with_kernel_caches<T>(mut look: impl FnMut() -> T) -> T {
    let drops = || {
        let all = fs::read_to_string("/proc/vmstat").unwrap();
        all.lines().filter(|line| line.starts_with("drop_")).map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("nobody drops the kernel's caches", || {
        let before = drops();
        let seen = look();
        (drops() == before).then_some(seen)
    })
}

/// Whether `done` becomes true, before waiting for it is a hang.
fn in_time(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    while !done() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Runs to its end, or kills it after [`WORK`] and fails.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    // Taken by threads, so that a full pipe does not stop the program.
    let out = drain(child.stdout.take());
    let err = drain(child.stderr.take());
    let status = finish(&mut child).unwrap_or_else(|| panic!("{command:?}: not done after {WORK:?}"));
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.map(|mut s| s.read_to_end(&mut bytes));
        bytes
    })
}

/// Waits for a child; kills it and gives `None` after [`WORK`].
pub(crate) fn finish(child: &mut Child) -> Option<ExitStatus> {
    let mut status = None;
    if !in_time(WORK, || {
        status = child.try_wait().unwrap();
        status.is_some()
    }) {
        child.kill().ok();
        child.wait().ok();
    }
    status
}

/// Runs a shell line in `dir` that has to succeed; gives what it printed.
#[track_caller]
pub(crate) fn sh(dir: &Path, line: &str) -> String {
    let output = run(Command::new("bash").arg("-euc").arg(line).current_dir(dir));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}\n{}: {err}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The bytes of a file of a mount that is to be unmounted soon, read by a program of its own.
///
/// A descriptor of ours is copied into every program that another test starts at that moment, and stays open there
/// until that program has begun: on a busy machine that is long enough for the mount to be in use.
#[track_caller]
pub(crate) fn read_apart(path: &Path) -> Vec<u8> {
    let output = run(Command::new("cat").arg("--").arg(path));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Whether a program is installed; where not, says that the test is skipped.
pub(crate) fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        skip(program, "not installed");
    }
    found
}

/// A Python that has numpy: the system's belongs to the system's Python, which may not be the first one.
pub(crate) fn python_with_numpy() -> Option<&'static str> {
    let has = |python: &&str| {
        let mut import = Command::new(python);
        import.args(["-c", "import numpy"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has)
}

/// The program under test. Its index is not that of the user.
pub(crate) fn fzmfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fzmfs"));
    for (variable, name) in [("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state")] {
        command.env(variable, Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    }
    command
}

/// The program that mounts made containers; `cargo test` builds it beside this one.
pub(crate) fn made() -> Command {
    let here = std::env::current_exe().unwrap();
    let path = here.ancestors().nth(2).unwrap().join("examples/made");
    assert!(path.is_file(), "{} is missing: run cargo build --example made", path.display());
    Command::new(path)
}

/// A mount, and the directory that holds its mount point and whatever else a test wants to put there.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) dir: TempDir,
    pub(crate) point: PathBuf,
}

impl Mounted {
    /// Mounts a made container with the given `name=value` words.
    #[track_caller]
    pub(crate) fn made(words: &[&str]) -> Self {
        let mounted = Self::nothing();
        let output = mounted.mount_made(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        mounted
    }

    /// Mounts a made container whose `held.raw` and the like wait as long as the hold lives.
    #[track_caller]
    pub(crate) fn held(words: &[&str]) -> (Self, Hold) {
        let mounted = Self::nothing();
        let hold = Hold(mounted.dir.path().join("hold"));
        let word = format!("hold={}", hold.0.display());
        let output = mounted.mount_made(&[&[&*word], words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Now the root is listed.
        sh(mounted.dir.path(), "ls mnt");
        fs::write(&hold.0, b"").unwrap();
        (mounted, hold)
    }

    /// Mounts a file with the program itself.
    #[track_caller]
    pub(crate) fn of(file: &Path) -> Self {
        let mounted = Self::nothing();
        let output = run(fzmfs().arg("mount").arg(file).arg(&mounted.point));
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
        mounted
    }

    /// A mount point with nothing on it yet.
    pub(crate) fn nothing() -> Self {
        let dir = TempDir::new().unwrap();
        let point = dir.path().join("mnt");
        std::fs::create_dir(&point).unwrap();
        Self { dir, point }
    }

    /// Mounts a made container once more on the same point.
    pub(crate) fn mount_made(&self, words: &[&str]) -> Output {
        let log = format!("log={}", self.log().display());
        run(made().arg(&self.point).args(words).arg(log))
    }

    /// A file or directory of the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// The daemon's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What the daemon has logged.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// What `fzmfs list` counts, as the daemon says it; asking is not counted.
    #[track_caller]
    pub(crate) fn stats(&self) -> serde_json::Value {
        let line = "getfattr --only-values --absolute-names -n user.fzmfs.stats mnt";
        serde_json::from_str(&sh(self.dir.path(), line)).unwrap()
    }

    /// How often a piece of `slow.raw` was begun to be decoded; piece `only` if one is given.
    pub(crate) fn decodes(&self, only: Option<u64>) -> usize {
        let which = only.map_or(String::new(), |piece| format!("{piece};"));
        self.logged().matches(&format!("decoding slow piece {which}")).count()
    }

    /// Waits until a piece of `slow.raw` is being decoded.
    #[track_caller]
    pub(crate) fn wait_for_decode(&self) {
        wait_until("a slow piece is decoded", || self.decodes(None) > 0);
    }

    /// The daemon's process id.
    #[track_caller]
    pub(crate) fn daemon(&self) -> u32 {
        let line = "getfattr --only-values --absolute-names -n user.fzmfs.daemon.pid mnt";
        sh(self.dir.path(), line).trim().parse().unwrap()
    }

    /// Sends a signal to the daemon.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str) -> u32 {
        let pid = self.daemon();
        send(pid, name);
        pid
    }

    /// Whether something is mounted on the point.
    pub(crate) fn is_mounted(&self) -> bool {
        is_mounted(&self.point)
    }
}

/// Sends a signal to a process; with `STOP`, returns when all of its threads are stopped.
#[track_caller]
pub(crate) fn send(pid: u32, name: &str) {
    sh(Path::new("/"), &format!("kill -{name} {pid}"));
    // A thread that was waiting may answer once more.
    let stopped = |stat: String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"));
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let are_stopped = || threads().all(|t| fs::read_to_string(t.path().join("stat")).is_ok_and(stopped));
    if name == "STOP" {
        wait_until("all threads are stopped", are_stopped);
    }
}

/// Holds up the files of a made container that wait.
pub(crate) struct Hold(PathBuf);

impl Hold {
    /// Waits until something waits, which is named in `tests/made/container.rs`.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str) {
        wait_until(what, || self.0.with_extension(what).exists());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        while is_mounted(&self.point) {
            let done = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
            if !done.is_ok_and(|s| s.success()) {
                break;
            }
        }
    }
}

/// Whether something is mounted on `point`: the kernel's own list, which asks no daemon.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == point.to_str())
}

/// How many descriptors of a process lead to `path`.
pub(crate) fn opened(pid: u32, path: &Path) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path)).count()
}

/// Whether a process exists, as more than an entry that nobody has waited for.
///
/// Such an entry may have threads that have yet to end, and until then its files are open.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    // From the state, which is field 3, to the number of threads, which is field 20.
    !rest.starts_with('Z') || rest.split(' ').nth(17).is_some_and(|threads| threads != "1" && threads != "0")
}
