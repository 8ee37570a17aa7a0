//! Reading: every program gets the bytes that the container says, at whatever offset it asks.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::support::made::{DATA, MANY, SMALL, bytes};
use crate::support::mounts::{Mounted, can_mount, python_with_numpy, sh, skip, with_kernel_caches};

/// Not a multiple of anything.
const SIZE: u64 = (5 << 20) + 12_345;

fn mounted() -> Mounted {
    let mounted = Mounted::made(&[&format!("size={SIZE}"), "entries=20", "piece=300000"]);
    std::fs::write(mounted.dir.path().join("want"), bytes(DATA, 0, SIZE)).unwrap();
    mounted
}

#[test]
fn programs_read_what_the_container_says() {
    if !can_mount() {
        return;
    }
    let mounted = mounted();
    for line in [
        "cat mnt/data.raw | cmp - want",
        "cmp mnt/data.raw want",
        "cmp mnt/link want",
        "cp mnt/data.raw copy && cmp copy want",
        "cp --reflink=auto --sparse=always mnt/data.raw copy && cmp copy want",
        "dd if=mnt/data.raw bs=1 skip=299990 count=33 status=none | cmp - <(tail -c +299991 want | head -c 33)",
        "dd if=mnt/data.raw bs=4097 skip=77 count=100 status=none | cmp - <(tail -c +$((77*4097+1)) want | head -c $((100*4097)))",
        "dd if=mnt/data.raw bs=1M iflag=direct status=none | cmp - want",
        "dd if=mnt/data.raw bs=123457 iflag=direct status=none | cmp - want",
        "tail -c 1000 mnt/data.raw | cmp - <(tail -c 1000 want)",
        "tail -c +5000001 mnt/data.raw | cmp - <(tail -c +5000001 want)",
        "head -c 100 mnt/data.raw | cmp - <(head -c 100 want)",
        "tar -cf - -C mnt data.raw | tar -xOf - | cmp - want",
        "grep -c . mnt/info.json >/dev/null",
        "[ $(stat -c %s mnt/data.raw) = $(stat -c %s want) ]",
        "[ $(wc -c <mnt/data.raw) = $(wc -c <want) ]",
    ] {
        sh(mounted.dir.path(), line);
    }
}

#[test]
fn a_tree_is_copied_whole() {
    if !can_mount() {
        return;
    }
    let mounted = mounted();
    sh(mounted.dir.path(), "mkdir out && cp -r mnt/many mnt/names mnt/data.raw mnt/link mnt/info.json out");
    sh(mounted.dir.path(), "diff -r mnt/many out/many && diff -r mnt/names out/names && cmp out/data.raw want");
    let copy = std::fs::read(mounted.dir.path().join("out/many/000019.raw")).unwrap();
    assert_eq!(copy, bytes(MANY + 19, 0, SMALL));
}

#[test]
fn numpy_maps_a_file() {
    if !can_mount() {
        return;
    }
    let Some(python) = python_with_numpy() else { return skip("numpy", "not installed") };
    let mounted = mounted();
    let program = "
import numpy as n
want = n.fromfile('want', dtype='u1')
got = n.memmap('mnt/data.raw', dtype='u1', mode='r')
assert got.shape == want.shape and (got == want).all()
assert (n.memmap('mnt/data.raw', dtype='u1', mode='r', offset=3_000_001)[::4099] == want[3_000_001::4099]).all()
";
    std::fs::write(mounted.dir.path().join("program.py"), program).unwrap();
    sh(mounted.dir.path(), &format!("{python} program.py"));
}

#[test]
fn sixty_four_readers_at_random_offsets_get_the_right_bytes() {
    if !can_mount() {
        return;
    }
    // A cache of a few pieces, so that pieces come and go under the readers.
    let mounted = Mounted::made(&["size=20000000", "piece=262144", "cache=2000000"]);
    let path = mounted.path("data.raw");
    std::thread::scope(|scope| {
        for reader in 0..64_u64 {
            let path = &path;
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut state = reader + 1;
                let mut random = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    state >> 20
                };
                for _ in 0..40 {
                    let offset = random() % 20_000_000;
                    let len = (random() % 100_000).min(20_000_000 - offset);
                    let mut got = vec![0; len as usize];
                    file.read_exact_at(&mut got, offset).unwrap();
                    assert!(got == bytes(DATA, offset, len), "reader {reader} at {offset}, {len} bytes");
                }
            });
        }
    });
}

#[test]
fn a_file_read_again_comes_from_the_page_cache() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::made(&["size=3000000"]);
    let pieces = || {
        let stats = mounted.stats();
        ["hits", "misses", "decodes"].map(|name| stats[name].as_u64().unwrap())
    };
    let (before, after) = with_kernel_caches(|| {
        let first = std::fs::read(mounted.path("data.raw")).unwrap();
        let before = pieces();
        for _ in 0..5 {
            assert!(std::fs::read(mounted.path("data.raw")).unwrap() == first);
        }
        (before, pieces())
    });
    assert_eq!(before, after, "the daemon is asked for pieces");
}

#[test]
fn stored_bytes_are_the_container_s_own() {
    if !can_mount() {
        return;
    }
    let source = tempfile::NamedTempFile::new().unwrap();
    let want = bytes(7, 0, 3_000_001);
    std::fs::write(source.path(), &want).unwrap();
    let mounted = Mounted::made(&[&format!("source={}", source.path().display())]);
    assert!(std::fs::read(mounted.path("stored.bin")).unwrap() == want);
    let file = File::open(mounted.path("stored.bin")).unwrap();
    let mut part = [0; 1000];
    file.read_exact_at(&mut part, 2_999_001).unwrap();
    assert_eq!(part, want[2_999_001..]);
}
