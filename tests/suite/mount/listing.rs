//! Names and attributes: what `ls`, `find`, `stat`, `du` and `getfattr` see, and that nothing can be changed.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::mounts::{Mounted, can_mount, has, sh, wait_until};

#[test]
fn files_and_directories_have_the_modes_links_and_times_of_the_contract() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["entries=3", "uid=1234", "gid=4321"]);
    let file = mounted.path("data.raw").metadata().unwrap();
    assert_eq!((file.mode(), file.nlink(), file.uid(), file.gid()), (0o100_444, 1, 1234, 4321));
    assert_eq!(file.blocks() * 512, file.len() / 4);
    let root = mounted.point.metadata().unwrap();
    // Two of itself, one for each directory in it.
    assert_eq!((root.mode(), root.nlink()), (0o040_555, 4));
    let link = mounted.path("link").symlink_metadata().unwrap();
    assert!(link.is_symlink() && link.len() == 8, "{link:?}");
    assert_eq!(std::fs::read_link(mounted.path("link")).unwrap(), Path::new("data.raw"));
    assert_eq!(file.mtime(), root.mtime());
}

#[test]
fn nothing_is_decoded_before_it_is_read() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    sh(mounted.dir.path(), "ls -lR mnt >all && find mnt -type f -exec sh -c ': <\"$1\"' - {} \\;");
    assert_eq!(mounted.decodes(None), 0);
}

#[test]
fn umask_takes_bits_away() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["umask=027"]);
    assert_eq!(mounted.path("data.raw").metadata().unwrap().mode() & 0o777, 0o440);
    assert_eq!(mounted.point.metadata().unwrap().mode() & 0o777, 0o550);
}

#[test]
fn inodes_are_the_same_in_every_listing_and_in_stat() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["entries=300"]);
    let listed = || sh(mounted.dir.path(), "find mnt -printf '%i %p\\n' | sort -n");
    let first = listed();
    sh(mounted.dir.path(), "echo 2 > /proc/sys/vm/drop_caches");
    assert_eq!(first, listed());
    assert_eq!(first, sh(mounted.dir.path(), "find mnt | xargs stat -c '%i %n' | sort -n"));
    let inodes: HashSet<&str> = first.lines().map(|l| l.split(' ').next().unwrap()).collect();
    assert_eq!(inodes.len(), first.lines().count());
}

#[test]
fn five_thousand_entries_are_listed_once_each_and_positions_can_be_gone_back_to() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Mounted::made(&["entries=5000"]);
    for dir in ["many", "names"] {
        assert_eq!(sh(mounted.dir.path(), &format!("ls -U mnt/{dir} | sort -u | wc -l")).trim(), "5000");
        assert_eq!(sh(mounted.dir.path(), &format!("ls -lU mnt/{dir} | grep -c 'r--r--r--.* 100 '")).trim(), "5000");
    }
    // seekdir and telldir of the C library, which no shell command calls.
    let program = r#"
import ctypes, random, sys
libc = ctypes.CDLL(None, use_errno=True)
class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16), ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.readdir.argtypes = libc.telldir.argtypes = libc.rewinddir.argtypes = libc.closedir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
d = libc.opendir(sys.argv[1].encode())
seen = []
while True:
    at = libc.telldir(d)
    e = libc.readdir(d)
    if not e: break
    seen.append((at, e.contents.name, e.contents.ino, e.contents.type))
assert [s[1] for s in seen[:2]] == [b".", b".."], seen[:2]
assert len(seen) == 5002 and len({s[0] for s in seen}) == 5002
assert all(s[3] == 8 for s in seen[2:])
random.seed(1)
for _ in range(2000):
    at, name, ino, _ = random.choice(seen)
    libc.seekdir(d, at)
    e = libc.readdir(d)
    assert (e.contents.name, e.contents.ino) == (name, ino), (name, e.contents.name)
libc.rewinddir(d)
assert libc.readdir(d).contents.name == b"."
libc.closedir(d)
"#;
    std::fs::write(mounted.dir.path().join("program.py"), program).unwrap();
    sh(mounted.dir.path(), "python3 program.py mnt/many && python3 program.py mnt/names");
}

#[test]
fn du_shows_stored_and_apparent_sizes_and_df_the_mount() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["size=8388608", "fsname=a,b c"]);
    assert_eq!(sh(mounted.dir.path(), "du -B1 mnt/data.raw | cut -f1").trim(), "2097152");
    assert_eq!(sh(mounted.dir.path(), "du -B1 --apparent-size mnt/data.raw | cut -f1").trim(), "8388608");
    let df = sh(mounted.dir.path(), "df --output=source,fstype,target mnt | tail -1");
    assert!(df.starts_with("a,b c") && df.contains("fuse.fzmfs"), "{df}");
    assert!(sh(mounted.dir.path(), "df mnt").contains("mnt"));
}

#[test]
fn extended_attributes_are_listed_and_unknown_ones_are_absent() {
    if !can_mount() || !has("getfattr") {
        return;
    }
    let mounted = Mounted::made(&[]);
    let all = sh(mounted.dir.path(), "getfattr -d mnt/data.raw");
    assert!(all.contains("user.fzmfs.codec=\"made\""), "{all}");
    let absent = sh(mounted.dir.path(), "getfattr -n user.nothing mnt/data.raw 2>&1 || true");
    assert!(absent.contains("No such attribute"), "{absent}");
    // The daemon's number is for those who know to ask.
    assert!(!sh(mounted.dir.path(), "getfattr -d mnt").contains("daemon"));
    assert!(mounted.daemon() > 1);
}

#[test]
fn names_that_do_not_exist_are_looked_up_once() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&[]);
    let requests = || mounted.stats()["requests"].as_u64().unwrap();
    // That there is no such name is kept for a while, which may be over on a busy machine.
    wait_until("it is looked up once", || {
        assert!(!mounted.path("missing").exists());
        let before = requests();
        for _ in 0..100 {
            assert!(!mounted.path("missing").exists());
        }
        requests() == before
    });
    assert_eq!(std::fs::metadata(mounted.path(&"x".repeat(300))).unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
    assert_eq!(std::fs::metadata(mounted.path("data.raw/x")).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
}

#[test]
fn everything_that_would_write_fails_with_read_only() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mounted = Mounted::made(&["entries=3"]);
    let program = r#"
import os, errno
calls = {
    "create": lambda: os.open("mnt/new", os.O_CREAT | os.O_WRONLY),
    "write": lambda: os.open("mnt/data.raw", os.O_WRONLY),
    "read and write": lambda: os.open("mnt/data.raw", os.O_RDWR),
    "open and truncate": lambda: os.open("mnt/data.raw", os.O_RDWR | os.O_TRUNC),
    "truncate": lambda: os.truncate("mnt/data.raw", 0),
    "mkdir": lambda: os.mkdir("mnt/new"),
    "rmdir": lambda: os.rmdir("mnt/many"),
    "unlink": lambda: os.unlink("mnt/data.raw"),
    "rename": lambda: os.rename("mnt/data.raw", "mnt/new"),
    "link": lambda: os.link("mnt/data.raw", "mnt/new"),
    "symlink": lambda: os.symlink("x", "mnt/new"),
    "chmod": lambda: os.chmod("mnt/data.raw", 0o777),
    "chown": lambda: os.chown("mnt/data.raw", 0, 0),
    "utime": lambda: os.utime("mnt/data.raw"),
    "mkfifo": lambda: os.mkfifo("mnt/new"),
    "mknod": lambda: os.mknod("mnt/new"),
    "setxattr": lambda: os.setxattr("mnt/data.raw", "user.x", b"y"),
    "removexattr": lambda: os.removexattr("mnt/data.raw", "user.fzmfs.codec"),
}
for name, call in calls.items():
    try:
        call()
        raise SystemExit(name + " succeeded")
    except OSError as e:
        assert e.errno == errno.EROFS, (name, e)
"#;
    std::fs::write(mounted.dir.path().join("program.py"), program).unwrap();
    sh(mounted.dir.path(), "python3 program.py");
}
