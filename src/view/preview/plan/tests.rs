//! Tests of plans: the strips that are read, and the part of a plane that fits.

use super::super::slice::Slice;
use super::super::tests::Huge;
use super::*;
use crate::bytes::FileOffset;
use crate::format::testing::Plain;
use crate::format::{Array, Content, FileExtent};
use crate::source::testing::far;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

fn plane(shape: &[u64], slice: &str) -> Plane {
    let array = Array { descr: "'|u1'".to_owned(), itemsize: 1, shape: shape.to_vec() };
    Plane::of(&array, &Slice::parse(slice, &array).unwrap(), 1024).unwrap()
}

fn view(layout: Layout, is_run: bool) -> View {
    View::new(&Content::Blob(BlobRef::new(Huge { layout, is_run })), &Plain).unwrap()
}

fn uniform(len: u64, piece: u64) -> View {
    view(Layout::Uniform { len, piece }, false)
}

#[test]
fn cells_divide_elements_and_the_middle_is_in_the_middle() {
    assert_eq!([0, 1, 2, 3].map(|cell| edge(10, 3, cell)), [0, 3, 6, 10]);
    assert_eq!(edge(u64::MAX, 1 << 40, 1 << 40), u64::MAX);
    assert_eq!(edge(0, 0, 0), 0);
    for n in 1..30 {
        for (cells, element) in (1..=n).flat_map(|cells| (0..n).map(move |element| (cells, element))) {
            let cell = cell_of(n, cells, element);
            assert!((edge(n, cells, cell)..edge(n, cells, cell + 1)).contains(&element), "{element} of {n} in {cells}");
        }
    }
    assert_eq!(cell_of(u64::MAX, 1 << 40, u64::MAX - 1), (1 << 40) - 1);
    assert_eq!(
        [0, 1, 2, 3, 10, 99].map(|most| middle(&(10..20), most)),
        [14..15, 14..15, 14..16, 13..16, 10..20, 10..20]
    );
}

/// A strip: the row of cells, rows, columns.
type Strips = Vec<(u64, Range<u64>, Range<u64>)>;

fn strips(shape: &[u64], slice: &str, cover: Cover, rows: u64, columns: u64) -> Strips {
    let (view, plane, account) = (uniform(1, 1), plane(shape, slice), Account::new(0, 0));
    let plan = PlanePlan { rows, columns, ..PlanePlan::none(&view, &plane, &account, cover) };
    let mut out = Vec::new();
    plan.strips(&mut |number, strip| {
        assert_eq!(number, to_u64(out.len()));
        out.push((strip.cell_row, strip.rows.clone(), strip.columns.clone()));
        Ok(true)
    })
    .unwrap();
    // Each strip may be the last.
    for last in 1..=to_u64(out.len()) {
        let mut count = 0;
        plan.strips(&mut |_, _| {
            count += 1;
            Ok(count < last)
        })
        .unwrap();
        assert_eq!(count, last);
    }
    out
}

#[test]
fn a_strip_has_whole_rows_of_one_row_of_cells_up_to_one_mib() {
    for cover in [Cover::All, Cover::Start] {
        let all = |shape: &[u64], slice, rows| strips(shape, slice, cover, rows, 3);
        assert_eq!(all(&[5, 10], ":,:", 3), [(0, 0..1, 0..10), (1, 1..3, 0..10), (2, 3..5, 0..10)]);
        let half = 512 * K;
        assert_eq!(all(&[5, half], ":,:", 1), [(0, 0..2, 0..half), (0, 2..4, 0..half), (0, 4..5, 0..half)]);
        // Other elements are between the rows.
        assert_eq!(all(&[3, 2, 8], ":,1,:", 2), [(0, 0..1, 0..8), (1, 1..2, 0..8), (1, 2..3, 0..8)]);
        // A row is longer than 1 MiB.
        let mut parts = vec![(0, 0..1, 0..M), (0, 0..1, M..2 * M), (0, 0..1, 2 * M..2 * M + half)];
        parts.extend(parts.clone().into_iter().map(|(_, _, columns)| (1, 1..2, columns)));
        assert_eq!(all(&[2, 2 * M + half], ":,:", 2), parts);
        assert_eq!(all(&[1500, K], ":,5", 1), [(0, 0..1, 0..K), (0, 0..1, K..1500)]);
        assert_eq!(all(&[3, 2 * M], ":,5", 1), [(0, 0..1, 0..1), (0, 0..1, 1..2), (0, 0..1, 2..3)]);
    }
}

#[test]
fn of_lines_and_places_the_middle_of_each_cell_is_read_up_to_four_kib() {
    let lines = |columns, rows| strips(&[10, columns], ":,:", Cover::Lines, rows, 3);
    assert_eq!(lines(40, 2), [(0, 0..5, 0..40), (1, 5..10, 0..40)]);
    assert_eq!(lines(2 * K, 2), [(0, 1..3, 0..2 * K), (1, 6..8, 0..2 * K)]);
    assert_eq!(lines(4 * K, 2), [(0, 2..3, 0..4 * K), (1, 7..8, 0..4 * K)]);
    assert_eq!(lines(8 * K, 1), [(0, 4..5, 0..8 * K)]);
    let sparse = |cover| strips(&[10, 10_000], ":,:", cover, 2, 2);
    let of = |columns: [Range<u64>; 2]| -> Strips {
        [(0, 2..3), (1, 7..8)]
            .into_iter()
            .flat_map(|(row, rows)| columns.clone().map(|columns| (row, rows.clone(), columns)))
            .collect()
    };
    assert_eq!(sparse(Cover::Places), of([452..4548, 5452..9548]));
    assert_eq!(sparse(Cover::Points), of([2499..2500, 7499..7500]));
    // Elements 1 KiB apart.
    assert_eq!(strips(&[100, K], ":,5", Cover::Places, 1, 2), [(0, 0..1, 23..27), (0, 0..1, 73..77)]);
}

/// The plan of an array of 16384 x 8192 bytes, and whether it shows the start.
fn planned(view: &View, has_start: bool) -> (Cover, u64, u64, bool) {
    let (plane, start) = (plane(&[16 * K, 8 * K], ":,:"), plane(&[16 * K, 8 * K], ":,:"));
    let account = Account::new(0, 0);
    let (plan, shown) = PlanePlan::new(view, &plane, has_start.then_some(&start), &account).unwrap();
    assert_eq!(plan.is_spread(), plan.cover != Cover::Start);
    (plan.cover, plan.rows, plan.columns, std::ptr::eq(shown, &raw const start))
}

#[test]
fn as_much_is_decoded_as_fits_in_64_mib() {
    for (piece, want) in [
        // Two pieces of a line; one of 64 lines; one of 8 places.
        (4 * K, (Cover::Lines, 1024, 512, false)),
        (M, (Cover::Lines, 64, 512, false)),
        (8 * M, (Cover::Places, 8, 8, false)),
        (32 * M, (Cover::Places, 2, 2, false)),
    ] {
        assert_eq!(planned(&uniform(128 * M, piece), false), want, "{piece}");
    }
    // The start is better than four places.
    assert_eq!(planned(&uniform(128 * M, 8 * M), true), (Cover::Places, 8, 8, false));
    assert_eq!(planned(&uniform(128 * M, 32 * M), true), (Cover::Start, 1024, 512, true));
    // One piece needs all that are before it.
    let run = view(Layout::Uniform { len: 128 * M, piece: M }, true);
    assert_eq!(planned(&run, true), (Cover::Start, 1024, 512, true));
    assert_eq!(planned(&run, false), (Cover::Points, 1, 1, false));
}

#[test]
fn all_is_decoded_if_it_fits() {
    for (shape, piece, want) in [
        ([8 * K, 8 * K], M, (Cover::All, 1024, 1024)),
        ([8 * K, 8 * K + 1], M, (Cover::Lines, 1023, 1024)),
        // So many pieces are too many: 64 rows of cells have fewer in their middle; without the last line they are less.
        ([1024, 300], 1, (Cover::Lines, 64, 300)),
        ([512, 512], 1, (Cover::Lines, 512, 512)),
    ] {
        let (view, account) = (uniform(shape[0] * shape[1], piece), Account::new(0, 0));
        let plane = plane(&shape, ":,:");
        let (plan, _) = PlanePlan::new(&view, &plane, None, &account).unwrap();
        assert_eq!((plan.cover, plan.rows, plan.columns), want, "{shape:?}");
    }
}

#[test]
fn what_is_not_stored_is_not_read_beyond_64_mib_either() {
    let array = Array { descr: "'<f4'".to_owned(), itemsize: 4, shape: vec![8 * K, 4 * K] };
    let (view, account) = (View::new(&Content::Zeros(128 * M), &Plain).unwrap(), Account::new(0, 0));
    let plane = Plane::middle(&array).unwrap();
    let (plan, _) = PlanePlan::new(&view, &plane, None, &account).unwrap();
    assert_eq!((plan.cover, plan.rows, plan.columns), (Cover::Lines, 1024, 512));
}

#[test]
fn bytes_of_the_file_count_as_pieces_do() {
    // Every 1024th byte of 128 MiB, four at a place; all that is between them would be read with them.
    let (source, _) = far(128 * M, 0..0);
    let extent = FileExtent { source, at: FileOffset(0), len: 128 * M, gate: None };
    let (view, account) = (View::new(&Content::FileExtent(extent), &Plain).unwrap(), Account::new(0, 0));
    let plane = plane(&[128 * K, K], ":,5");
    let (plan, _) = PlanePlan::new(&view, &plane, None, &account).unwrap();
    assert_eq!((plan.cover, plan.rows, plan.columns), (Cover::Places, 1, 1024));
}

#[test]
fn the_last_piece_is_left_out_unless_everything_is_in_it() {
    let account = Account::new(0, 0);
    let ends = |ends: &[u64]| view(Layout::Ends(ends.into()), false);
    let (all, shape) = (ends(&[60 * M, 128 * M]), plane(&[16 * K, 8 * K], ":,:"));
    let (plan, _) = PlanePlan::new(&all, &shape, None, &account).unwrap();
    assert_eq!((plan.cover, plan.rows, plan.left_out), (Cover::Lines, 1024, (480..1024).collect()));
    // No line is in the first row.
    let (all, shape) = (ends(&[8 * K, 64 * M + 8 * K]), plane(&[8 * K + 1, 8 * K], ":,:"));
    let (plan, _) = PlanePlan::new(&all, &shape, None, &account).unwrap();
    let want = (Cover::Lines, 1024, 1023, Vec::new());
    assert_eq!((plan.cover, plan.rows, plan.columns, plan.left_out), want);
}

#[test]
fn a_plan_knows_the_last_strip_of_each_piece_and_the_first_beyond_its_budget() {
    let account = Account::new(0, 0);
    let (small, shape) = (uniform(100, 30), plane(&[10, 10], ":,:"));
    let (plan, _) = PlanePlan::new(&small, &shape, None, &account).unwrap();
    let mut last: Vec<_> = plan.last.iter().map(|(&(_, piece), &strip)| (piece, strip)).collect();
    last.sort_unstable();
    assert_eq!((last, plan.end), (vec![(0, 2), (1, 5), (2, 8), (3, 9)], u64::MAX));
    // Strips of 128 KiB.
    let (run, shape) = (view(Layout::Uniform { len: 128 * M, piece: M }, true), plane(&[16 * K, 8 * K], ":,:"));
    let (plan, _) = PlanePlan::new(&run, &shape, Some(&shape), &account).unwrap();
    assert_eq!((plan.cover, plan.end), (Cover::Start, 512));
}
