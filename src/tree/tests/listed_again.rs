//! Listings that are dropped and made again: the same names, inode numbers and sizes, in bounded memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::format::{Directory, LazyFile};

/// Tensors `group/000`, ...: files that are created on access, and a directory of two files for each.
struct Lazy {
    count: u64,
    /// Files created so far.
    files: AtomicU64,
    /// Times that a small directory was listed.
    listed: Arc<AtomicU64>,
}

struct Small(u64, Arc<AtomicU64>);

fn lazy(number: u64, len: u64) -> Node {
    Node::LazyFile(LazyFile { number, len: Some(len), stored: 5, array: Some(len) })
}

impl Directory for Small {
    fn entries(&self) -> Result<Vec<Entry>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let unknown = LazyFile { number: 1, len: None, stored: 0, array: None };
        Ok(vec![Entry::named("data", ".bin", lazy(0, 1)), Entry::named("data", ".json", Node::LazyFile(unknown))])
    }

    fn file(&self, number: u64) -> Result<File> {
        let make = Arc::new(|_: &dyn Fetch| Ok(b"text".to_vec()));
        let unknown = Content::Computed { len: None, make };
        Ok(File::new(if number == 0 { Content::Zeros(1) } else { unknown }).attr("codec", self.0))
    }
}

impl Directory for Lazy {
    fn entries(&self) -> Result<Vec<Entry>> {
        let each = |n: u64| {
            let name = |stem: String, suffix, node| Entry { nested: true, ..Entry::named(stem, suffix, node) };
            let dir = Node::Dir(Arc::new(Small(n, Arc::clone(&self.listed))));
            [name(format!("group/{n:03}"), ".raw", lazy(n, n)), name(format!("small/{n:03}"), "", dir)]
        };
        Ok((0..self.count).flat_map(each).collect())
    }

    fn file(&self, number: u64) -> Result<File> {
        self.files.fetch_add(1, Ordering::Relaxed);
        let array = Array { descr: "'|u1'".into(), itemsize: 1, shape: vec![number] };
        Ok(File::new(Content::Zeros(number)).typed(Some(array)).attr("codec", "none"))
    }
}

#[test]
fn lazy_files_are_created_on_access_and_not_to_list_them() {
    let lazy = Arc::new(Lazy { count: 10, files: AtomicU64::new(0), listed: Arc::default() });
    let tree = tree(vec![Entry::own("all", Node::Dir(lazy.clone()))]);
    let group = tree.resolve("all/group").unwrap();
    let names: Vec<String> = tree.entries(group).map(|entry| entry.unwrap().name).collect();
    assert_eq!(names[..3], ["000.raw", "000.npy", "001.raw"]);
    let seven = tree.resolve("all/group/007.raw").unwrap();
    let attr = tree.known_attr(seven).unwrap();
    assert_eq!((attr.size, attr.blocks, lazy.files.load(Ordering::Relaxed)), (7, 1, 0));
    // The size of an array file needs the header, once.
    let npy = tree.resolve("all/group/007.npy").unwrap();
    for _ in 0..2 {
        assert_eq!(tree.cheap_attr(npy).unwrap().size, 128 + 7);
    }
    assert_eq!(lazy.files.load(Ordering::Relaxed), 1);
    assert_eq!(read(&tree, "all/group/007.npy")[128..], [0; 7]);
    assert!(tree.xattrs(seven).unwrap().contains(&("user.fzmfs.codec".into(), "none".into())));
}

#[test]
fn small_directories_are_listed_again_when_needed_and_keep_their_inode_numbers_and_sizes() {
    let lazy = Arc::new(Lazy { count: 1000, files: AtomicU64::new(0), listed: Arc::default() });
    let tree = tree(vec![Entry::own("all", Node::Dir(lazy.clone()))]);
    tree.kept().small_limit = 100_000;
    let dirs: Vec<DirEntry> = tree.entries(tree.resolve("all/small").unwrap()).map(Result::unwrap).collect();
    let list = || -> Vec<DirEntry> {
        let all = dirs.iter().flat_map(|dir| tree.entries(dir.ino).map(Result::unwrap));
        all.collect()
    };
    let first = list();
    assert_eq!((first.len(), lazy.listed.load(Ordering::Relaxed)), (2000, 1000));
    // The first ones are not kept any more.
    assert!(
        tree.known_dir(dirs[0].ino).is_none()
            && tree.is_visited(dirs[0].ino)
            && tree.known_dir(dirs[999].ino).is_some()
    );
    let json = first[1].ino;
    assert_eq!(tree.attr(json, &Plain).unwrap().size, 4);
    assert_eq!(lazy.listed.load(Ordering::Relaxed), 1001);
    assert_eq!(list(), first);
    assert_eq!(lazy.listed.load(Ordering::Relaxed), 2000);
    let decoded = tree.known_attr(json).unwrap();
    assert_eq!((decoded.size, decoded.kind), (4, Kind::File));
    assert_eq!(tree.parent(json), dirs[0].ino);
    assert_eq!(read(&tree, "all/small/000/data.json"), b"text");
    assert_eq!(tree.lookup(dirs[0].ino, b"data.bin").unwrap(), Some(Ino(json.0 - 1)));
}

/// A directory with files, and a directory of one file, which it makes again on demand; counts live files.
struct Frame(u64, Arc<()>);

impl Directory for Frame {
    fn is_made_again(&self) -> bool {
        true
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let (alive, number) = (self.1.clone(), self.0);
        let make = Arc::new(move |_: &dyn Fetch| {
            let _ = &alive;
            Ok(number.to_le_bytes().to_vec())
        });
        let computed = File::new(Content::Computed { len: Some(8), make });
        let inner = Node::dir(Attrs::new(), vec![Entry::own("part", Node::from(computed.clone()))]);
        Ok(vec![Entry::own("data", Node::from(computed)), Entry::own("parts", inner)])
    }
}

#[test]
fn directories_that_are_made_again_are_not_all_kept_nor_what_is_below_them() {
    let alive = Arc::new(());
    let frame = |n: u64| Entry::named(format!("{n:04}"), "", Node::Dir(Arc::new(Frame(n, alive.clone()))));
    let tree = tree((0..1000).map(frame).collect());
    tree.kept().small_limit = 100_000;
    let idle = Arc::strong_count(&alive);
    let parts: Vec<Ino> = (0..1000).map(|n| tree.resolve(&format!("{n:04}/parts/part")).unwrap()).collect();
    let kept = Arc::strong_count(&alive) - idle;
    assert!(kept < 400, "{kept} files of 2000");
    for n in [0, 500, 999] {
        assert_eq!(read(&tree, &format!("{n:04}/parts/part")), (n as u64).to_le_bytes());
        assert_eq!(tree.resolve(&format!("{n:04}/parts/part")).unwrap(), parts[n]);
    }
}

/// Tensors of the names `names`, each with three entries; can be made again one by one.
pub(super) struct Again {
    pub(super) names: Vec<String>,
    /// Items made again so far.
    pub(super) made: AtomicU64,
}

impl Directory for Again {
    fn entries(&self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        for number in 0..self.names.len() {
            self.item(number as u32, &mut |entry| {
                all.push(entry);
                Ok(())
            })?;
        }
        self.made.store(0, Ordering::Relaxed);
        Ok(all)
    }

    fn item(&self, number: u32, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let stem = &self.names[number as usize];
        let small = Node::dir(Attrs::new(), vec![file("part", ".bin")]);
        for (suffix, node) in [(".raw", lazy(number.into(), 4)), (".json", lazy(0, 1)), ("", small)] {
            each(Entry { nested: true, item: Some(number), ..Entry::named(stem.clone(), suffix, node) })?;
        }
        Ok(())
    }

    fn file(&self, number: u64) -> Result<File> {
        let array = Array { descr: "'|u1'".into(), itemsize: 1, shape: vec![4] };
        Ok(File::new(Content::Zeros(4)).typed(Some(array)).attr("codec", number))
    }
}

/// The same entries without item numbers.
struct Entries(Vec<Entry>, Arc<Again>);

impl Directory for Entries {
    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.0.clone())
    }

    fn file(&self, number: u64) -> Result<File> {
        self.1.file(number)
    }
}

#[test]
fn groups_are_listed_again_when_needed_with_the_same_names_and_inode_numbers() {
    let names = (0..500).flat_map(|n| [format!("model/layers/{n:03}/mlp/weight"), format!("model/layers/{}/a", n / 2)]);
    let more = ["model", "model/layers", "x", "model/layers/000/mlp", "/", "model//a", "model/layers/001/mlp/weight"];
    let names: Vec<String> = names.chain(more.map(str::to_owned)).collect();
    // The same entries without item numbers are kept for ever.
    let again = Arc::new(Again { names, made: AtomicU64::new(0) });
    let plain: Vec<_> = again.entries().unwrap().into_iter().map(|entry| Entry { item: None, ..entry }).collect();
    let kept = tree(vec![Entry::own("all", Node::Dir(Arc::new(Entries(plain, again.clone()))))]);
    let tree = tree(vec![Entry::own("all", Node::Dir(again.clone()))]);
    let want = walk(&kept, ROOT, "");
    tree.kept().small_limit = 50_000;
    let list = || {
        let (mut all, mut left) = (Vec::new(), vec![ROOT]);
        while let Some(dir) = left.pop() {
            for entry in tree.entries(dir).map(Result::unwrap) {
                if entry.kind == Kind::Dir {
                    left.push(entry.ino);
                }
                all.push((dir, entry));
            }
        }
        all
    };
    let first = list();
    assert_eq!(first.len(), want.len());
    let dir = tree.resolve("all/model/layers/007/mlp").unwrap();
    let weight = tree.resolve("all/model/layers/007/mlp/weight.npy").unwrap();
    assert_eq!(list(), first);
    assert!(tree.known_dir(dir).is_none() && tree.is_visited(dir) && tree.known_attr(weight).is_none(), "evicted");
    assert_eq!((tree.parent(weight), tree.attr(weight, &Plain).unwrap().size), (dir, 128 + 4));
    assert_eq!(tree.resolve("all/model/layers/007/mlp/weight.npy").unwrap(), weight);
    let before = again.made.load(Ordering::Relaxed);
    assert_eq!(walk(&tree, ROOT, ""), want);
    assert!(again.made.load(Ordering::Relaxed) > before);
    assert_eq!(list(), first);
}

#[test]
fn inode_numbers_are_charged_to_the_account_and_listings_are_bounded() {
    let names = (0..100_000).map(|n| format!("{n}/x")).collect();
    let again = Arc::new(Again { names, made: AtomicU64::new(0) });
    let account = Account::new(100 << 20, 0);
    let entries = vec![Entry::own("all", Node::Dir(again))];
    let tree = Tree::charging(Arc::new(Computed(entries)), OsStr::new("x"), &account).unwrap();
    let all = tree.resolve("all").unwrap();
    let dirs = tree.entries(all).map(Result::unwrap);
    let listed = dirs.filter(|dir| tree.entry(dir.ino, 0).unwrap().is_some()).count();
    assert_eq!(listed, 100_000);
    // A slot for each directory, a range for each, a slot for each child of each; and the listing with their names.
    let used = account.memory().used();
    assert!((11 << 20..15 << 20).contains(&used), "{used}");
    let kept = tree.kept();
    assert!(kept.small.weight() <= kept.small_limit, "{:?}", kept.small);
}

#[test]
fn a_lazy_file_of_unknown_length_is_known_to_need_decoding() {
    let tree = tree(vec![Entry::own("small", Node::Dir(Arc::new(Small(0, Arc::default()))))]);
    let dir = tree.resolve("small").unwrap();
    let open = tree.open_dir(dir).unwrap();
    let known = |name: &[u8]| tree.known_entry_attr(&open, tree.lookup(dir, name).unwrap().unwrap());
    assert!(matches!(known(b"data.bin"), Some(KnownAttr::All(attr)) if attr.size == 1));
    assert_eq!(known(b"data.json"), Some(KnownAttr::NoSize));
}
