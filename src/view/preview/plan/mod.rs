//! Which elements of a plane are decoded for its picture, so that the pieces that they are in fit in the budget.
//!
//! All of them, if they fit. Otherwise whole lines of them at even distances; otherwise places at even distances. A
//! piece that continues the one before it costs all pieces before it: if only the start of such a stream fits, the
//! start of the first plane is shown. Fragments are decoded where whole pieces do not fit, or somebody waits.
//!
//! A plane of 1000 x 1000 cells is tried in this order, until the pieces fit: all elements; 1000 lines, 500, 250, 125,
//! 62, 31; places in 1000 x 1000 cells, single elements in these, and the same in 1000 x 500, 500 x 500, ..., 7 x 3;
//! the start, if there is one; 3 x 3, ..., and one element.
//!
//! Invariant: depends on the layout of the data only, never on what is cached, so that a picture is always the same.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::account::Account;
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::{BlobRef, Fetch, Layout, Piece, PieceKey};
use crate::limits::Charge;
use crate::view::{Extent, View};

use super::BUDGET;
use super::plane::Plane;

/// Maximum bytes of a strip, unless it is of one element.
const STRIP: u64 = 1 << 20;
/// Bytes that are read at a place, or of the rows of a line, as far as the cell has them.
const PLACE: u64 = 4 << 10;
/// Fewer lines, and fewer places, are worse than the start.
const LINES: u64 = 16;
const PLACES: u64 = 16;
/// Maximum number of visits of a plan to pieces.
const VISITS: u64 = 1 << 18;

/// The decoded part of each cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cover {
    All,
    Lines,
    Places,
    /// One element.
    Points,
    /// All, as far as it fits.
    Start,
}

/// Elements that are read together: some rows of one row of cells. Columns are all unless there is one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strip {
    pub(super) cell_row: u64,
    pub(super) rows: Range<u64>,
    pub(super) columns: Range<u64>,
}

/// The decoded part of a plane.
#[derive(Debug)]
pub(super) struct PlanePlan<'a> {
    view: &'a View,
    plane: &'a Plane,
    account: &'a Account,
    cover: Cover,
    /// Rows and columns of cells.
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// The strip that needs a piece last, for each.
    last: HashMap<PieceKey, u64>,
    /// The strips that are left out, and the first one beyond the budget.
    left_out: Vec<u64>,
    end: u64,
}

/// Element `cell * n / cells`: cell `i` has those from `edge(n, cells, i)` to the edge of the next.
pub(super) fn edge(n: u64, cells: u64, cell: u64) -> u64 {
    (u128::from(n) * u128::from(cell) / u128::from(cells.max(1))) as u64
}

/// The cell that has `element`.
pub(super) fn cell_of(n: u64, cells: u64, element: u64) -> u64 {
    // The smallest with an edge after it beyond the element: `n * (cell + 1) >= cells * (element + 1)`.
    (((u128::from(element) + 1) * u128::from(cells)).saturating_sub(1) / u128::from(n.max(1))) as u64
}

/// At most `most` of `range`, at least one, in its middle.
pub(super) fn middle(range: &Range<u64>, most: u64) -> Range<u64> {
    let len = (range.end - range.start).min(most.max(1));
    let start = range.start + (range.end - range.start - len) / 2;
    start..start + len
}

impl<'a> PlanePlan<'a> {
    /// Plans the decoding of `plane`, or else of `start`, if there is one; returns which of the two.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] if no part fits in the budget.
    pub(super) fn new(
        view: &'a View,
        plane: &'a Plane,
        start: Option<&'a Plane>,
        account: &'a Account,
    ) -> Result<(Self, &'a Plane)> {
        let fragments = view.fragments().map(|view| &**view);
        // A plane that somebody has asked for is decoded by fragments, which is quicker, if they are not far.
        let views = match start {
            None if !view.is_far() => [fragments, Some(view)],
            _ => [Some(view), fragments],
        };
        let with = |plane, cover, rows, columns| -> Result<Option<Self>> {
            for view in views.into_iter().flatten() {
                if let Some(plan) = Self::none(view, plane, account, cover).fitting(rows, columns)? {
                    return Ok(Some(plan));
                }
            }
            Ok(None)
        };
        let (rows, columns) = plane.cells();
        let mut tries = vec![(plane, Cover::All, rows, columns)];
        let mut lines = if plane.is_curve() { 0 } else { rows };
        while lines >= LINES.min(rows) && lines > 0 {
            tries.push((plane, Cover::Lines, lines, columns));
            lines /= 2;
        }
        let mut places = Vec::new();
        let (mut r, mut c) = (rows, columns);
        while r * c > 1 {
            places.extend([Cover::Places, Cover::Points].map(|cover| (plane, cover, r, c)));
            if r > c { r /= 2 } else { c /= 2 }
        }
        places.push((plane, Cover::Points, 1, 1));
        let few = places.partition_point(|&(_, _, r, c)| r * c >= PLACES);
        tries.extend(&places[..few]);
        tries.extend(start.map(|start| (start, Cover::Start, rows, columns)));
        tries.extend(&places[few..]);
        for (plane, cover, rows, columns) in tries {
            if let Some(plan) = with(plane, cover, rows, columns)? {
                return Ok((plan, plane));
            }
        }
        Err(Error::new(Kind::TooLarge { value: view.len(), limit: BUDGET }, "bytes decoded for a picture"))
    }

    /// A plan without cells.
    fn none(view: &'a View, plane: &'a Plane, account: &'a Account, cover: Cover) -> Self {
        let (last, left_out) = (HashMap::new(), Vec::new());
        Self { view, plane, account, cover, rows: 0, columns: 0, last, left_out, end: u64::MAX }
    }

    /// The plan with these cells, if it fits.
    fn fitting(mut self, rows: u64, columns: u64) -> Result<Option<Self>> {
        let Self { view, plane, account, cover, .. } = self;
        (self.rows, self.columns) = (rows, columns);
        let lines = match cover {
            Cover::All => plane.rows,
            Cover::Lines => rows,
            Cover::Places | Cover::Points | Cover::Start => 0,
        };
        if lines.saturating_mul(plane.columns * plane.itemsize) > BUDGET {
            return Ok(None);
        }
        // Pieces near the end of a stream are served only after a long verification of most of it: sparse samples leave
        // it out.
        let avoids_end = cover != Cover::All;
        if !self.count(avoids_end)? {
            return Ok(None);
        }
        if self.last.is_empty() && !self.left_out.is_empty() {
            let mut plan = Self { rows, columns, ..Self::none(view, plane, account, cover) };
            return Ok(plan.count(false)?.then_some(plan));
        }
        Ok(Some(self))
    }

    /// Counts the pieces; returns whether they fit.
    fn count(&mut self, avoids_end: bool) -> Result<bool> {
        let mut last: HashMap<PieceKey, u64> = HashMap::new();
        let (mut cost, mut visits, mut left_out, mut end) = (0_u64, 0_u64, Vec::new(), u64::MAX);
        let cover = self.cover;
        self.strips(&mut |number, strip| {
            let (mut new, mut more, mut is_end) = (HashSet::new(), 0_u64, false);
            let mut piece = |blob: &BlobRef, piece: u64, size: u64| {
                visits += 1;
                let key = (blob.id(), piece);
                if let Some(last) = last.get_mut(&key) {
                    *last = number;
                } else if new.insert(key) {
                    is_end = is_end || (avoids_end && is_last(blob, piece));
                    more = more.saturating_add(size).saturating_add(before(blob, piece, &last, &mut new));
                }
                visits < VISITS && cost.saturating_add(more) <= BUDGET
            };
            let mut stored = 0_u64;
            self.view.extents(self.plane.bytes(&strip.rows, &strip.columns), &mut |extent| {
                match extent {
                    Extent::Piece { blob, piece: number, size, .. } => _ = piece(blob, number, size),
                    Extent::Grid { grid, at, len } => _ = grid.pieces(at, len, &mut piece)?,
                    Extent::FileExtent { len, .. } | Extent::Computed { len, .. } => stored += len,
                    Extent::Bytes(_) | Extent::Zeros(_) => {}
                }
                Ok(())
            })?;
            if is_end {
                left_out.push(number);
                return Ok(true);
            }
            let sum = cost.saturating_add(more).saturating_add(stored);
            if visits >= VISITS || sum > BUDGET {
                end = number;
                return Ok(false);
            }
            cost = sum;
            last.extend(new.into_iter().map(|key| (key, number)));
            Ok(true)
        })?;
        (self.last, self.left_out, self.end) = (last, left_out, end);
        Ok(end == u64::MAX || (cover == Cover::Start && end > 0))
    }

    /// Passes the strips to `each` in order, with their numbers; it returns whether to continue.
    fn strips(&self, each: &mut dyn FnMut(u64, &Strip) -> Result<bool>) -> Result<()> {
        let Self { plane, cover, .. } = self;
        let mut number = 0;
        let mut pass = |strip: Strip| {
            number += 1;
            each(number - 1, &strip)
        };
        for cell_row in 0..self.rows {
            let all = edge(plane.rows, self.rows, cell_row)..edge(plane.rows, self.rows, cell_row + 1);
            let rows = match cover {
                Cover::All | Cover::Start => all,
                Cover::Lines => middle(&all, PLACE / plane.row_step),
                Cover::Places | Cover::Points => middle(&all, 1),
            };
            if matches!(cover, Cover::Places | Cover::Points) {
                let most = if *cover == Cover::Places { PLACE / plane.step } else { 1 };
                for cell in 0..self.columns {
                    let all = edge(plane.columns, self.columns, cell)..edge(plane.columns, self.columns, cell + 1);
                    let columns = middle(&all, most);
                    if !pass(Strip { cell_row, rows: rows.clone(), columns })? {
                        return Ok(());
                    }
                }
                continue;
            }
            let (high, wide) = match STRIP / plane.row_step {
                high if high == 0 || plane.has_gaps() => (1, (STRIP / plane.step).max(1)),
                high => (high, plane.columns),
            };
            let mut row = rows.start;
            while row < rows.end {
                let rows = row..rows.end.min(row.saturating_add(high));
                let mut column = 0;
                while column < plane.columns {
                    let columns = column..plane.columns.min(column.saturating_add(wide));
                    column = columns.end;
                    if !pass(Strip { cell_row, rows: rows.clone(), columns })? {
                        return Ok(());
                    }
                }
                row = rows.end;
            }
        }
        Ok(())
    }

    /// Whether cells without any element read look like their neighbours.
    pub(super) fn is_spread(&self) -> bool {
        self.cover != Cover::Start
    }

    /// Reads the planned strips, and passes them to `each`.
    ///
    /// # Errors
    /// As [`View::read`].
    pub(super) fn read(&self, fetch: &dyn Fetch, each: &mut dyn FnMut(&Strip, &[u8])) -> Result<()> {
        let held = HeldPieces { plan: self, fetch, pieces: RefCell::default() };
        let mut buffer = Vec::new();
        self.strips(&mut |number, strip| {
            if number >= self.end {
                return Ok(false);
            }
            if self.left_out.binary_search(&number).is_err() {
                let range = self.plane.bytes(&strip.rows, &strip.columns);
                // A strip has at most [`STRIP`] bytes, or one element.
                buffer.resize((range.end - range.start) as usize, 0);
                self.view.read(range.start, &mut buffer, &held)?;
                each(strip, &buffer);
                held.release(number);
            }
            Ok(true)
        })
    }
}

/// Whether `piece` is the last one of `blob`, or a fragment of that.
fn is_last(blob: &BlobRef, piece: u64) -> bool {
    let Ok(layout) = blob.layout() else { return false };
    let end = match &layout {
        Layout::Uniform { len, piece } | Layout::Fragments { len, piece, .. } => len.saturating_sub(1) / piece * piece,
        Layout::Ends(_) => layout.range(layout.count().saturating_sub(1)).start,
    };
    layout.range(piece).start >= end
}

/// Bytes of the pieces before `piece` that must be decoded for it; adds them to `new`.
fn before(blob: &BlobRef, piece: u64, last: &HashMap<PieceKey, u64>, new: &mut HashSet<PieceKey>) -> u64 {
    let (mut piece, mut sum) = (piece, 0_u64);
    let Ok(layout) = blob.layout() else { return 0 };
    while sum <= BUDGET && blob.is_run(piece) {
        let Some(previous) = piece.checked_sub(1) else { break };
        let key = (blob.id(), previous);
        if last.contains_key(&key) || !new.insert(key) {
            break;
        }
        let range = layout.range(previous);
        sum = sum.saturating_add(range.end - range.start);
        piece = previous;
    }
    sum
}

/// Pieces that are needed again, so that each is fetched once.
struct HeldPieces<'a> {
    plan: &'a PlanePlan<'a>,
    fetch: &'a dyn Fetch,
    pieces: RefCell<HashMap<PieceKey, HeldPiece>>,
}

struct HeldPiece {
    bytes: Piece,
    /// The last strip that needs it.
    last: u64,
    /// None if there was no room: it is held anyway, as the budget of a picture bounds the total.
    _charge: Option<Charge>,
}

impl HeldPieces<'_> {
    /// Releases the pieces that no strip after `number` needs.
    fn release(&self, number: u64) {
        self.pieces.borrow_mut().retain(|_, held| held.last > number);
    }
}

impl Fetch for HeldPieces<'_> {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        let key = (blob.id(), piece);
        if let Some(held) = self.pieces.borrow().get(&key) {
            return Ok(held.bytes.clone());
        }
        let bytes = self.fetch.piece(blob, piece)?;
        let last = self.plan.last.get(&key).copied().unwrap_or(0);
        let charge = self.plan.account.charge_spare(to_u64(bytes.len()), "picture");
        self.pieces.borrow_mut().insert(key, HeldPiece { bytes: bytes.clone(), last, _charge: charge });
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
