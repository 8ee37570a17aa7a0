//! Outliers are sorted, bounded and found.

use super::super::testing::{Memory, Random, context};
use super::*;

fn sorted(values: &[f32], indices: &[u32], count: &[u8], budget: u64) -> Result<Vec<(u64, f32)>> {
    let values = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let indices = indices.iter().flat_map(|v| v.to_le_bytes()).collect();
    let [values, indices, count] =
        [values, indices, count.to_vec()].map(|b| Arc::new(Memory(b)) as Arc<dyn ByteStream>);
    let names = PortNames { values: "outlier_errors", indices: "outlier_indices" };
    let cx = Context { account: Account::new(budget, 0), ..context() };
    let outliers = Outliers::new([values, indices], Count::Port(count), names, 10, &cx)?;
    let mut found = Vec::new();
    outliers.sorted()?.between(0, 10, |at, value| found.push((at, value)))?;
    Ok(found)
}

#[test]
fn outliers_are_sorted_by_position() {
    let all = [(1, 10.0), (4, 40.0), (9, 90.0)];
    assert_eq!(sorted(&[40.0, 90.0, 10.0], &[4, 9, 1], &[3, 0, 0, 0], 1000).unwrap(), all);
    assert_eq!(sorted(&[10.0, 40.0, 90.0], &[1, 4, 9], &[9, 0, 0, 0], 24).unwrap(), all);
    assert_eq!(sorted(&[5.0, 40.0, 10.0, 6.0], &[1, 4, 1], &[3, 0, 0, 0], 1000).unwrap(), all[..2]);
}

#[test]
fn the_shortest_port_limits_the_outliers() {
    assert_eq!(sorted(&[1.0, 2.0], &[3, 4], &[1, 0, 0, 0], 100).unwrap(), [(3, 1.0)]);
    assert_eq!(sorted(&[1.0, 2.0], &[3], &[2, 0, 0, 0], 100).unwrap(), [(3, 1.0)]);
    assert_eq!(sorted(&[1.0], &[3, 77], &[2, 0, 0, 0], 100).unwrap(), [(3, 1.0)]);
    assert_eq!(sorted(&[], &[3], &[], 0).unwrap(), []);
}

#[test]
fn a_configured_count_is_of_entries_that_both_ports_have() {
    let outliers = |count| {
        let values = [1.0_f32, 2.0, 3.0].map(f32::to_le_bytes).concat();
        let indices = [5_u32, 3].map(u32::to_le_bytes).concat();
        let ports = [values, indices].map(|b| Arc::new(Memory(b)) as Arc<dyn ByteStream>);
        let names = PortNames { values: "outlier_errors", indices: "outlier_indices" };
        Outliers::<f32>::new(ports, Count::Config(count), names, 10, &context())
    };
    for (count, want) in [(0, &[][..]), (1, &[(5, 1.0)]), (2, &[(3, 2.0), (5, 1.0)])] {
        let (mut found, outliers) = (Vec::new(), outliers(count).unwrap());
        outliers.sorted().unwrap().between(0, 10, |at, value| found.push((at, value))).unwrap();
        assert_eq!(found, want);
        assert_eq!(outliers.setup() == Setup::None, count == 0);
    }
    let e = outliers(3).err().unwrap();
    assert_eq!(e.to_string(), "3 outliers, but the ports have 2 (outlier_count)");
}

#[test]
fn positions_outside_the_array_and_outliers_over_the_budget_are_refused() {
    let error = |values: &[f32], indices: &[u32], count: &[u8], budget| {
        sorted(values, indices, count, budget).unwrap_err().to_string()
    };
    assert_eq!(
        error(&[1.0], &[10], &[1, 0, 0, 0], 100),
        "position 10 is outside the array of 10 elements (outlier_indices)"
    );
    assert_eq!(error(&[1.0], &[1], &[1, 0], 100), "needs 4 bytes, 2 left (outlier_count)");
    let no_room = "needs 8 bytes; cache= leaves 7 and spill= leaves 0: raise either (outlier_errors)";
    assert_eq!(error(&[1.0], &[1], &[1, 0, 0, 0], 7), no_room);
}

#[test]
fn another_decoder_gets_a_limited_number_of_outliers() {
    let n = LISTED + 1;
    let indices = (0..n as u32).flat_map(u32::to_le_bytes).collect();
    let ports = [vec![0; 4 * n as usize], indices].map(|bytes| Arc::new(Memory(bytes)) as Arc<dyn ByteStream>);
    let names = PortNames { values: "outlier_vals", indices: "outlier_idxs" };
    let outliers: Outliers<u32> = Outliers::new(ports, Count::Config(n), names, n, &context()).unwrap();
    let sorted = outliers.sorted().unwrap();
    let (positions, values) = sorted.bytes(1..n).unwrap();
    assert!(positions.iter().copied().eq(1..n as u32) && values.len() == 4 * positions.len());
    assert!(matches!(sorted.bytes(0..n).unwrap_err().kind(), Kind::TooLarge { .. }));
}

#[test]
fn more_outliers_than_memory_are_sorted_in_a_file() {
    let mut random = Random(5);
    let (len, n) = (3_000_000, 700_000);
    // Some positions occur twice; the value stored last wins.
    let indices: Vec<u32> = (0..n).map(|_| random.below(len) as u32).collect();
    let mut want = std::collections::BTreeMap::new();
    for (value, &at) in indices.iter().enumerate() {
        want.insert(u64::from(at), value as u64);
    }
    let ports = || {
        let values = (0..n).flat_map(u64::to_le_bytes).collect();
        let indices = indices.iter().flat_map(|at| at.to_le_bytes()).collect();
        [values, indices].map(|bytes| Arc::new(Memory(bytes)) as Arc<dyn ByteStream>)
    };
    let names = PortNames { values: "outlier_vals", indices: "outlier_idxs" };
    for (memory, spill) in [(64 << 20, 0), (1 << 20, 64 << 20)] {
        let cx = Context { account: Account::new(memory, spill), ..context() };
        let outliers: Outliers<u64> = Outliers::new(ports(), Count::Config(n), names, len, &cx).unwrap();
        let sorted = outliers.sorted().unwrap();
        let mut found = Vec::new();
        sorted.between(0, len, |at, value| found.push((at, value))).unwrap();
        assert!(found.iter().copied().eq(want.iter().map(|(&at, &value)| (at, value))), "{memory}");
        for _ in 0..1000 {
            let from = random.below(len);
            let to = from + random.below(3000);
            let mut found = Vec::new();
            sorted.between(from, to, |at, value| found.push((at, value))).unwrap();
            assert!(found.into_iter().eq(want.range(from..to).map(|(&at, &value)| (at, value))));
        }
        assert!(cx.account.peaks().memory <= memory && cx.account.peaks().disk <= spill);
        assert_eq!(cx.account.peaks().disk > 0, spill > 0);
    }
}
