//! Tests of `top`.

use super::*;
use crate::platform::testing::symlink;

fn by_walking(top: &Top, path: &Path) -> Result<Below> {
    match &top.root {
        Root::Local { fd, device } => walk(fd, *device, path, |_| Ok(())).map(Below::Local),
        Root::Far(_) => unreachable!(),
    }
}

#[test]
fn a_path_longer_than_a_call_takes_is_resolved_in_few_calls() {
    let dir = tempfile::tempdir().unwrap();
    let top = Top::open(dir.path()).unwrap();
    let (mut deep, mut dir) = (PathBuf::new(), top.below(Path::new("")).unwrap());
    for _ in 0..60 {
        let name = "d".repeat(200);
        platform::mkdirat(dir.fd().unwrap(), &name, platform::Mode::RWXU).unwrap();
        (dir, deep) = (dir.below(OsStr::new(&name)).unwrap(), deep.join(name));
    }
    let itself = |below: Below| below.stat_itself().unwrap().identity();
    for ways in [Top::below as fn(&Top, &Path) -> Result<Below>, by_walking] {
        assert_eq!(itself(ways(&top, &deep).unwrap()), dir.stat_itself().unwrap().identity());
        for out in [deep.join("none"), deep.join("../d"), PathBuf::from("/")] {
            assert!(ways(&top, &out).is_err(), "{}", out.display());
        }
    }
    let (mut rest, mut calls) = (deep.as_os_str().as_bytes(), 0);
    while !rest.is_empty() {
        let (part, more) = one_call(rest);
        assert!(part.len() <= LONGEST && !part.is_empty());
        (rest, calls) = (more, calls + 1);
    }
    assert_eq!(calls, 3);
    // As long as one call takes.
    let longest = [&b"d/".repeat(LONGEST / 2)[..], b"d"].concat();
    assert_eq!((longest.len(), one_call(&longest)), (LONGEST, (&longest[..], &b""[..])));
}

#[test]
fn a_path_is_resolved_again_while_a_directory_on_it_is_renamed_and_not_for_ever() {
    for (busy, calls) in [(0, 1), (3, 4), (u32::MAX, ATTEMPTS)] {
        let called = std::cell::Cell::new(0);
        let found = resolved(|| {
            called.set(called.get() + 1);
            if called.get() > busy { Ok(()) } else { Err(Errno::AGAIN) }
        });
        assert_eq!((called.get(), found.is_ok()), (calls, busy < ATTEMPTS));
    }
    let called = std::cell::Cell::new(0);
    let missing = || {
        called.set(called.get() + 1);
        Err::<(), _>(Errno::NOENT)
    };
    assert_eq!((resolved(missing), called.get()), (Err(Errno::NOENT), 1));
}

#[test]
fn another_file_system_below_is_not_entered() {
    if !Path::new("/proc/self").exists() {
        return;
    }
    let top = Top::open(Path::new("/")).unwrap();
    for ways in [Top::below as fn(&Top, &Path) -> Result<Below>, by_walking] {
        assert_eq!(ways(&top, Path::new("proc")).unwrap_err().errno(), libc::EXDEV);
    }
}

#[test]
fn a_directory_of_this_machine_has_the_space_of_its_file_system_and_tells_files_apart_by_their_place() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::write(dir.path().join(name), b"text").unwrap();
    }
    let top = Top::open(dir.path()).unwrap();
    let (space, disk) = (top.space().unwrap(), platform::fstatvfs(Dir::open(dir.path()).unwrap().fd()).unwrap());
    // Some change their size.
    assert_eq!((space.block, space.blocks == 0), (disk.f_frsize, disk.f_blocks == 0));
    let below = top.below(Path::new("")).unwrap();
    assert!(!below.is_far());
    let place = |name: &str| below.identity(OsStr::new(name)).unwrap();
    assert_eq!(place("a"), below.stat(OsStr::new("a")).unwrap().identity());
    assert_ne!(place("a"), place("b"));
    std::fs::write(dir.path().join("a"), b"longer text").unwrap();
    assert_eq!(place("a"), below.stat(OsStr::new("a")).unwrap().identity());
}

#[test]
fn a_path_leads_to_what_is_below_and_nowhere_else() {
    let outer = tempfile::tempdir().unwrap();
    let inside = outer.path().join("in");
    std::fs::create_dir_all(inside.join("a/b")).unwrap();
    std::fs::write(inside.join("a/b/file"), b"inside").unwrap();
    std::fs::write(outer.path().join("secret"), b"secret").unwrap();
    symlink("..", inside.join("up")).unwrap();
    symlink("a", inside.join("link")).unwrap();
    symlink("../secret", inside.join("leak")).unwrap();
    let top = Top::open(&inside).unwrap();
    for ways in [Top::below as fn(&Top, &Path) -> Result<Below>, by_walking] {
        let below = ways(&top, Path::new("a/b")).unwrap();
        assert_eq!(below.stat(OsStr::new("file")).unwrap().size, 6);
        assert!(ways(&top, Path::new("")).unwrap().identified(OsStr::new("leak")).is_err());
        for out in ["up", "..", "a/../..", "/", "link", "link/b", "a/b/file", "up/in", "none"] {
            assert!(ways(&top, Path::new(out)).is_err(), "{out}");
        }
    }
    // It is the directory that was opened, even after a rename.
    std::fs::rename(&inside, outer.path().join("moved")).unwrap();
    let (below, name) = top.around(Path::new("a/b/file")).unwrap();
    assert!(below.identified(name).is_ok());
    let mut names = Vec::new();
    top.below(Path::new("")).unwrap().names(|name, _| names.push(name.to_vec())).unwrap();
    names.sort();
    assert_eq!(names, [&b"a"[..], b"leak", b"link", b"up"]);
}
