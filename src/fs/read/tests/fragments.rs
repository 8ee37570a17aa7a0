//! Reads of fragments of pieces, and of files that share pieces.

use super::*;

/// A file of 10 pieces of 1000 bytes, each of 10 fragments.
fn in_fragments(memory: Memory) -> (Rig, Content, Arc<Memory>) {
    let (blob, counted) = Memory { fragment: Some(100), ..memory }.blob();
    (Rig::new(1 << 20, 1), Content::Blob(blob), counted)
}

#[test]
fn a_reader_that_jumps_decodes_fragments_once_and_one_in_order_pieces() {
    let want = noise(10_000);
    let (rig, content, counted) = in_fragments(Memory::new(want.clone(), PIECE));
    let file = rig.open(content.clone());
    let read = |offset: usize, size: usize| {
        assert_eq!(answer(&rig.read(&file, offset as u64, size as u32)).unwrap(), want[offset..offset + size]);
        let stats = rig.cache.stats();
        (stats.decodes, stats.decoded_bytes)
    };
    // Within a fragment, across two, in the two of them again, across two pieces.
    let reads = [(5010, 10), (7190, 20), (5090, 5), (7210, 5), (7180, 5), (2950, 100)];
    let decoded = reads.map(|(offset, size)| read(offset, size));
    assert_eq!(decoded, [(1, 100), (3, 300), (3, 300), (3, 300), (3, 300), (5, 500)]);
    assert_eq!(counted.decodes.load(Ordering::Relaxed), 0);
    // More than half of a piece.
    assert_eq!(read(8100, 510), (6, 1500));
    // A piece that is there is read, also by a reader that jumps.
    assert_eq!((read(8000, 10), read(4000, 10), read(8990, 10)), ((6, 1500), (7, 1600), (7, 1600)));
    // Another open of the file begins at its start: it reads pieces, and finds the fragments of others useless.
    let again = rig.open(content);
    assert_eq!(answer(&rig.read(&again, 0, 10)).unwrap(), want[..10]);
    assert_eq!(rig.cache.stats().decoded_bytes, 2600);
}

#[test]
fn a_broken_fragment_is_an_error_and_the_others_of_its_piece_are_read_in_any_order() {
    let want = noise(10_000);
    let broken_fragments = vec![(3, 500)];
    let (rig, content, _) = in_fragments(Memory { broken_fragments, ..Memory::new(want.clone(), PIECE) });
    let file = rig.open(content.clone());
    let read = |offset: u64, size: u32| answer(&rig.read(&file, offset, size));
    // A reader that jumps.
    assert_eq!(read(3550, 10), Err(libc::EIO));
    assert_eq!([read(3450, 10), read(3490, 20)], [Ok(want[3450..3460].to_vec()), Err(libc::EIO)]);
    // A sequential reader, from the start.
    let file = rig.open(content);
    for offset in (0..10_000).step_by(50) {
        let got = answer(&rig.read(&file, offset, 50));
        let is_broken = (3500..3600).contains(&offset);
        assert_eq!(got.ok(), (!is_broken).then(|| want[offset as usize..][..50].to_vec()), "{offset}");
    }
}

#[test]
fn a_fragment_waits_for_the_gate_of_its_piece_and_is_withheld_once_that_has_failed() {
    let (gate, go) = held_gate();
    let want = noise(10_000);
    let (rig, content, _) = in_fragments(Memory { gate: Some(gate), ..Memory::new(want.clone(), PIECE) });
    let file = rig.open(content);
    let waiting = [5010, 9990].map(|offset| rig.read(&file, offset, 10));
    assert!(waiting.iter().all(|rx| rx.try_recv().is_err()) && rig.cache.stats().decodes == 0);
    go.send(Ok(())).unwrap();
    assert_eq!(waiting.map(|rx| answer(&rx)), [Ok(want[5010..5020].to_vec()), Ok(want[9990..].to_vec())]);

    // In the background: only the last piece waits, and after the failure nothing is served, cached or not.
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let checks = BackgroundChecks::default();
    let gate = ChecksumGate::new(&Verify::Background(checks.clone()), 0, &Threads::default(), move || {
        wait.lock().unwrap().recv().unwrap();
        Err(Error::corrupt("no", "checksum"))
    });
    let (rig, content, _) = in_fragments(Memory { gate: Some(gate), ..Memory::new(want.clone(), PIECE) });
    let file = rig.open(content);
    assert_eq!(answer(&rig.read(&file, 5010, 10)).unwrap(), want[5010..5020]);
    let last = rig.read(&file, 9000, 10);
    assert!(last.try_recv().is_err());
    go.send(()).unwrap();
    assert_eq!(answer(&last), Err(libc::EIO));
    assert!(checks.join().is_err());
    assert_eq!([5010, 7010].map(|offset| answer(&rig.read(&file, offset, 10))), [Err(libc::EIO), Err(libc::EIO)]);
}

#[test]
fn one_fragment_is_decoded_once_for_all_who_wait_for_it() {
    let want = noise(10_000);
    let (rig, content, counted) = in_fragments(Memory::new(want.clone(), PIECE));
    let file = rig.open(content);
    let worker = rig.occupy();
    let waiting: Vec<_> = (0..20).map(|i| rig.read(&file, 5000 + i % 2 * 3000 + i, 10)).collect();
    drop(worker);
    for (rx, i) in waiting.iter().zip(0..) {
        assert_eq!(answer(rx).unwrap(), want[5000 + i % 2 * 3000 + i..][..10]);
    }
    assert_eq!((rig.cache.stats().decodes, counted.decodes.load(Ordering::Relaxed)), (2, 0));
}

#[test]
fn small_files_in_order_are_read_from_pieces_that_they_share_except_where_those_are_broken() {
    const FILE: usize = 250;
    let rig = Rig::new(1 << 20, 1);
    let bytes = noise(20 * PIECE as usize);
    let (whole, shared) = Memory { broken: vec![3], ..Memory::new(bytes.clone(), PIECE) }.blob();
    let mut alone = Vec::new();
    let files: Vec<_> = (0_u64..)
        .zip(bytes.chunks(FILE))
        .map(|(i, own)| {
            let (blob, counted) = Memory::new(own.to_vec(), FILE as u64).blob();
            alone.push(counted);
            let part = i * FILE as u64..(i + 1) * FILE as u64;
            File::new(Content::Blob(blob)).part_of(Content::Blob(whole.clone()).slice(part))
        })
        .collect();
    // A file elsewhere decodes no piece.
    assert_eq!(
        answer(&rig.read(&rig.open_file(files[70].clone()), 0, FILE as u32)).unwrap(),
        bytes[70 * FILE..][..FILE]
    );
    assert_eq!(shared.decodes.load(Ordering::Relaxed), 0);
    for (file, want) in files.into_iter().zip(bytes.chunks(FILE)) {
        assert_eq!(answer(&rig.read(&rig.open_file(file), 0, FILE as u32)).unwrap(), want);
    }
    assert_eq!(shared.decodes.load(Ordering::Relaxed), 20, "each piece once");
    let own: Vec<_> = (0..).zip(&alone).filter(|(_, file)| file.decodes.load(Ordering::Relaxed) > 0).collect();
    let own: Vec<usize> = own.into_iter().map(|(i, _)| i).collect();
    assert_eq!(own, [0, 1, 12, 13, 14, 15, 70], "the first ones, those of the broken piece, the one elsewhere");
}
