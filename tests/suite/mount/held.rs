//! Files that users keep open in a mounted directory are counted, shared and limited.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use rustix::io::Errno;

use super::directories::{cat, data, tree};
use crate::support::mounts::{can_mount, opened, skip, wait_until};

#[test]
fn a_user_takes_one_descriptor_for_a_file_however_often_it_is_open() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    let path = tree.path("text.txt");
    let descriptors = |name: &str| opened(tree.mounted.daemon(), &tree.source.join(name));
    let open: Vec<_> = (0..100).map(|_| fs::File::open(&path).unwrap()).collect();
    assert_eq!(descriptors("text.txt"), 1);
    fs::rename(tree.source.join("broken.fzm"), tree.source.join("text.txt")).unwrap();
    wait_until("another file is there", || fs::read_to_string(&path).is_ok_and(|text| text.starts_with("this")));
    let mut text = String::new();
    (&open[99]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "some text\n", "of the version that was opened");
    assert_eq!(descriptors("text.txt (deleted)"), 1);
    drop(open);
    wait_until("the descriptor is closed", || descriptors("text.txt (deleted)") == 0);
}

#[test]
fn containers_that_are_kept_open_are_limited_and_the_mount_goes_on() {
    if !can_mount() {
        return;
    }
    let tree = tree(&["-o", "cache=1M"]);
    let paths: Vec<_> = (0..200).map(|i| tree.source.join(format!("{i:03}.b2nd"))).collect();
    for path in &paths {
        fs::hard_link(tree.source.join("sub/deep/n11.b2nd"), path).unwrap();
    }
    let open = |path: &PathBuf| fs::File::open(tree.path(path.file_name().unwrap().to_str().unwrap()).join("data.raw"));
    let (mut files, mut refused) = (Vec::new(), None);
    for path in &paths {
        match open(path) {
            Ok(file) => files.push(file),
            Err(e) => _ = refused.get_or_insert(e.raw_os_error()),
        }
    }
    assert_eq!(refused, Some(Some(Errno::NOMEM.raw_os_error())), "{} of 200 are open", files.len());
    assert!(files.len() >= 100, "{} of 200", files.len());
    let want = cat(&data("blosc2/n11_complex.b2nd"), "data.raw");
    for mut file in files {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == want);
    }
    // They are closed now.
    wait_until("there is room again", || paths.iter().all(|path| open(path).is_ok()));
    assert!(tree.is_alive() && tree.mounted.logged().is_empty());
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_mount_of_a_directory_sleeps_while_no_container_is_in_use() {
    if !can_mount() {
        return;
    }
    let tree = tree(&[]);
    let threads =
        fs::read_dir(format!("/proc/{}/task", tree.mounted.daemon())).unwrap().map(|task| task.unwrap().path());
    let mut watching = threads.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "watch\n"));
    let watching = watching.next().unwrap();
    // poll(2), with its third argument.
    let waits = |time: &str| {
        let call = fs::read_to_string(watching.join("syscall")).unwrap_or_default();
        let words: Vec<_> = call.split(' ').collect();
        words.first() == Some(&"7") && words.get(3).is_some_and(|word| word.ends_with(time))
    };
    if fs::read_to_string(watching.join("syscall")).is_err() {
        return skip("the system call of a thread", "/proc does not say it");
    }
    wait_until("it sleeps until it is woken", || waits("ffffffff"));
    let file = fs::File::open(tree.path("sub/deep/n11.b2nd/data.raw")).unwrap();
    wait_until("it looks each half second", || waits("0x1f4"));
    drop(file);
    wait_until("it sleeps again", || waits("ffffffff"));
}
