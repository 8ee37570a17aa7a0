//! Tests of options: what they are set to, and what an archive gets of them.

use super::*;
use crate::checksum::Verify as Mode;
use crate::index::places;
use crate::source::Source;

#[test]
fn a_device_is_parsed_from_its_option() {
    for (word, want) in [("auto", Device::Auto), ("cpu", Device::Cpu), ("cuda", Device::Cuda(0))] {
        assert_eq!(word.parse(), Ok(want));
    }
    assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
    for word in ["", "gpu", "cuda:", "cuda:-1", "CPU"] {
        assert!(word.parse::<Device>().is_err(), "{word}");
    }
}

#[test]
fn a_sequential_reader_keeps_no_pieces_and_a_small_cache() {
    let options = Options::new().threads(1).device(Device::Cpu);
    let gpu = options.gpu();
    assert!(options.cache_for(Access::Sequential, &gpu) <= 4 * STREAMED);
    assert_eq!(options.cache_for(Access::Random, &gpu), memory::default_cache());
    assert_eq!(options.clone().cache(7).cache_for(Access::Sequential, &gpu), 7);
    assert_eq!(Options::new().threads(0).thread_count(), 1);
}

#[test]
fn what_is_read_once_has_a_cache_for_each_thread_and_for_the_batches_of_a_gpu() {
    const MIB: u64 = 1 << 20;
    for (threads, has_gpu, want) in
        [(1, false, 48), (4, false, 48), (5, false, 60), (1, true, 512), (42, true, 512), (43, true, 516)]
    {
        assert_eq!(streamed(threads, has_gpu), want * MIB, "{threads} {has_gpu}");
    }
}

/// Each option as no other one is, and as none is by default.
fn all() -> Options {
    Options::new()
        .verify(Verify::Off)
        .cache(1)
        .spill(2)
        .threads(3)
        .device(Device::Cpu)
        .gpu_memory(4)
        .format("zstd")
        .dict("one")
        .dict("two")
        .dtype("<f4")
        .shape([5, 6])
        .spacing("1x2".parse().unwrap())
        .units("um".parse().unwrap())
        .window(7)
        .timeout(Duration::from_secs(8))
        .expect("tag")
        .unpinned(true)
        .remote_cache("/remote", 9)
        .index("/index")
        .index_size(10)
}

#[test]
fn each_option_is_kept() {
    // With its drive, where there are drives.
    let absolute = |path: &str| std::path::absolute(path).unwrap();
    let want = Options {
        verify: Verify::Off,
        cache: Some(1),
        spill: Some(2),
        threads: Some(3),
        device: Device::Cpu,
        gpu_memory: Some(4),
        format: Some("zstd".into()),
        dicts: vec!["one".into(), "two".into()],
        dtype: Some("<f4".into()),
        shape: Some(vec![5, 6]),
        spacing: "1x2".parse().ok(),
        units: "um".parse().ok(),
        window: 7,
        remote: RemoteOptions {
            timeout: Duration::from_secs(8),
            expect: Some("tag".into()),
            unpinned: true,
            cache: Some(CacheDir::new(absolute("/remote"), Some(9))),
        },
        index: Some(absolute("/index")),
        index_size: Some(10),
    };
    assert_eq!(all(), want);
    let relative = Options::new().index("x").remote_cache("y", None);
    assert!(relative.index.unwrap().is_absolute() && relative.remote.cache.unwrap().dir.is_absolute());
    let counts = [0, 1, 1024, 1025].map(|threads| Options::new().threads(threads).thread_count());
    assert_eq!(counts, [1, 1, 1024, 1024]);
}

#[test]
fn a_format_gets_the_options_and_what_its_archive_shares() {
    let (options, account, gpu) = (all(), Account::new(123, 45), Options::new().gpu());
    for access in [Access::Random, Access::Sequential] {
        let context = options.context(access, gpu.clone(), account.clone());
        assert!(matches!(context.verify, Mode::Off) && Arc::ptr_eq(&context.gpu, &gpu));
        assert_eq!((context.threads.most(), context.window, &context.dicts), (3, 7, &options.dicts));
        assert_eq!((&context.dtype, &context.shape), (&options.dtype, &options.shape));
        assert_eq!((&context.space.spacing, &context.space.units), (&options.spacing, &options.units));
        assert_eq!(context.account.memory().total(), 123);
        assert_eq!((context.pieces.is_on(), context.pieces.reads_once()), (true, access == Access::Sequential));
        let source = Source::from_bytes(vec![0; 1 << 20]);
        // It needs a directory of the user.
        assert_eq!(context.index.of(&source).is_some(), places::state().is_some());
        assert!(Options::new().context(access, gpu.clone(), account.clone()).index.of(&source).is_none());
    }
    assert_eq!(Options::new().context(Access::Random, gpu, account).window, 128 << 20);
}

#[test]
fn checksums_are_verified_when_the_option_says() {
    for (when, want) in
        [(Verify::Auto, "Auto"), (Verify::First, "First"), (Verify::Background, "Background"), (Verify::Off, "Off")]
    {
        assert_eq!(format!("{:?}", Mode::from(when)).split('(').next(), Some(want));
    }
}

#[test]
fn structure_gets_what_the_cache_leaves_and_never_nothing() {
    let sizes = |options: Options| (options.account().memory().total(), options.account().disk().total());
    let (memory, disk) = sizes(Options::new().cache(16 << 20));
    // At most half of what is free.
    assert!(memory == 12 << 20 && (1..=4 << 30).contains(&disk), "{memory} {disk}");
    assert_eq!(sizes(Options::new().cache(1000).spill(5)), (1 << 20, 5));
    assert_eq!((Options::new().cache(9).cache_size(), Options::new().cache_size()), (9, memory::default_cache()));
}

#[test]
fn expensive_pieces_are_kept_for_random_access_or_on_disk_space_that_was_granted() {
    for (spill, random, once) in [(None, true, false), (Some(0), true, false), (Some(1), true, true)] {
        let options = Options { spill, ..Options::new() };
        assert_eq!((options.keeps(Access::Random), options.keeps(Access::Sequential)), (random, once), "{spill:?}");
    }
}

#[test]
fn a_gpu_is_used_as_the_device_says() {
    let gpu = |device| Options::new().device(device).gpu();
    assert!(!gpu(Device::Cpu).is_possible() && !gpu(Device::Auto).is_required());
    assert!(gpu(Device::Cuda(1)).is_possible() && gpu(Device::Cuda(1)).is_required());
}
