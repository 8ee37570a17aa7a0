//! Reads the elements of a plan and sums them up cell by cell.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::{Array, Fetch, Number, NumberKind};

use super::cells::{Cells, LABELS, NO_LABEL};
use super::element::{Element, Magnitude};
use super::plan::{PlanePlan, Strip, cell_of, edge, middle};
use super::plane::Plane;

/// A type of elements that pictures are made of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elements {
    Numbers(Number),
    /// A float with the exponent of a `float32`, in two bytes, which NumPy has not.
    Bfloat16,
}

impl Elements {
    /// The elements of `array`, whose container calls its type `name`.
    pub(super) fn of(array: &Array, name: Option<&str>) -> Option<Self> {
        match name {
            Some("bf16" | "bfloat16") if array.itemsize == 2 => Some(Self::Bfloat16),
            _ => Number::of(&array.descr).map(Self::Numbers),
        }
    }
}

/// Reads the elements of `plan`.
///
/// # Errors
/// As [`View::read`](crate::view::View::read).
pub(super) fn sample(plan: &PlanePlan<'_>, plane: &Plane, elements: Elements, fetch: &dyn Fetch) -> Result<Cells> {
    let number = match elements {
        Elements::Numbers(number) => number,
        Elements::Bfloat16 => return read::<half::bf16, false>(plan, plane, fetch),
    };
    match (number.kind, number.width) {
        (NumberKind::Bool, _) | (NumberKind::Uint, 1) => of::<u8>(plan, plane, number, fetch),
        (NumberKind::Int, 1) => of::<i8>(plan, plane, number, fetch),
        (NumberKind::Int, 2) => of::<i16>(plan, plane, number, fetch),
        (NumberKind::Uint, 2) => of::<u16>(plan, plane, number, fetch),
        (NumberKind::Int, 4) => of::<i32>(plan, plane, number, fetch),
        (NumberKind::Uint, 4) => of::<u32>(plan, plane, number, fetch),
        (NumberKind::Int, _) => of::<i64>(plan, plane, number, fetch),
        (NumberKind::Uint, _) => of::<u64>(plan, plane, number, fetch),
        (NumberKind::Float, 2) => of::<half::f16>(plan, plane, number, fetch),
        (NumberKind::Float, 4) => of::<f32>(plan, plane, number, fetch),
        (NumberKind::Float, _) => of::<f64>(plan, plane, number, fetch),
        (NumberKind::Complex, 8) => of::<Magnitude<f32>>(plan, plane, number, fetch),
        (NumberKind::Complex, _) => of::<Magnitude<f64>>(plan, plane, number, fetch),
    }
}

fn of<E: Element>(plan: &PlanePlan<'_>, plane: &Plane, number: Number, fetch: &dyn Fetch) -> Result<Cells> {
    if number.is_big_endian { read::<E, true>(plan, plane, fetch) } else { read::<E, false>(plan, plane, fetch) }
}

fn read<E: Element, const BIG: bool>(plan: &PlanePlan<'_>, plane: &Plane, fetch: &dyn Fetch) -> Result<Cells> {
    let mut sums = Sums::<E>::new(plan, plane);
    plan.read(fetch, &mut |strip, bytes| sums.add_strip::<BIG>(strip, bytes))?;
    Ok(sums.finish(plan.is_spread()))
}

/// Sum of the elements of a cell; `total` is that of the finite ones.
#[derive(Debug, Clone, Copy)]
struct Sum {
    total: f64,
    /// Number of finite elements.
    count: u64,
    low: f64,
    high: f64,
}

const NOTHING: Sum = Sum { total: 0.0, count: 0, low: f64::INFINITY, high: f64::NEG_INFINITY };

/// The sums of one row of cells, and the results of the rows before.
struct Sums<'a, E> {
    plan: &'a PlanePlan<'a>,
    plane: &'a Plane,
    row: Vec<Sum>,
    cell_row: u64,
    cells: Cells,
    is_read: Vec<bool>,
    /// The values seen so far in order of appearance, unless there are too many.
    values: Option<Vec<E>>,
    extremes: Option<(E, E)>,
}

impl<'a, E: Element> Sums<'a, E> {
    fn new(plan: &'a PlanePlan<'a>, plane: &'a Plane) -> Self {
        // At most 1024 each.
        let (rows, columns) = (plan.rows as usize, plan.columns as usize);
        let all = rows * columns;
        let values = E::IS_INTEGER.then(Vec::new);
        let each = |is_needed, value| vec![value; if is_needed { all } else { 0 }];
        let cells = Cells {
            rows,
            columns,
            mean: each(true, f64::NAN),
            low: each(plane.is_curve(), f64::NAN),
            high: each(plane.is_curve(), f64::NAN),
            labels: values.is_some().then(|| (Vec::new(), vec![NO_LABEL; all])),
            ..Cells::default()
        };
        let row = vec![NOTHING; columns];
        Self { plan, plane, row, cell_row: 0, cells, is_read: vec![false; all], values, extremes: None }
    }

    /// Adds the elements of a strip.
    fn add_strip<const BIG: bool>(&mut self, strip: &Strip, bytes: &[u8]) {
        if strip.cell_row != self.cell_row {
            self.end_row();
            self.cell_row = strip.cell_row;
        }
        let Self { plan, plane, .. } = *self;
        let (n, cells) = (plane.columns, plan.columns);
        let all = edge(plane.rows, plan.rows, strip.cell_row)..edge(plane.rows, plan.rows, strip.cell_row + 1);
        let middle_row = middle(&all, 1).start;
        let mut cell = cell_of(n, cells, strip.columns.start);
        while edge(n, cells, cell) < strip.columns.end {
            let own = edge(n, cells, cell)..edge(n, cells, cell + 1);
            let columns = own.start.max(strip.columns.start)..own.end.min(strip.columns.end);
            let center = middle(&own, 1).start;
            let is_labelled = self.values.is_some() && columns.contains(&center);
            for row in strip.rows.clone() {
                let start = (row - strip.rows.start) * plane.row_step;
                let at = |column: u64| (start + (column - strip.columns.start) * plane.step) as usize;
                let run = bytes.get(at(columns.start)..).unwrap_or_default();
                self.add_run::<BIG>(cell as usize, run, &columns);
                if is_labelled && row == middle_row {
                    self.label(cell as usize, E::read::<BIG>(bytes.get(at(center)..).unwrap_or_default()));
                }
            }
            cell += 1;
        }
    }

    /// Adds the elements `columns` at the start of `bytes` to a cell.
    fn add_run<const BIG: bool>(&mut self, cell: usize, bytes: &[u8], columns: &Range<u64>) {
        let count = (columns.end - columns.start) as usize;
        let step = self.plane.step as usize;
        let Some(sum) = self.row.get_mut(cell) else { return };
        let mut sums = (*sum, self.extremes);
        if step == E::SIZE {
            let run = bytes.get(..count * E::SIZE).unwrap_or_default();
            run.chunks_exact(E::SIZE).for_each(|bytes| add(&mut sums, &mut self.values, E::read::<BIG>(bytes)));
        } else {
            bytes.chunks(step).take(count).for_each(|bytes| add(&mut sums, &mut self.values, E::read::<BIG>(bytes)));
        }
        (*sum, self.extremes) = sums;
        self.cells.decoded += to_u64(count);
        let place = self.cell_row as usize * self.cells.columns + cell;
        self.is_read[place] = true;
    }

    /// Sets the label of a cell of the current row.
    fn label(&mut self, cell: usize, element: E) {
        let place = self.cell_row as usize * self.cells.columns + cell;
        if let (Some(values), Some((_, labels))) = (&self.values, &mut self.cells.labels) {
            labels[place] = values.iter().position(|value| *value == element).map_or(NO_LABEL, |label| label as u8);
        }
    }

    /// Writes the results of the current row.
    fn end_row(&mut self) {
        let start = self.cell_row as usize * self.cells.columns;
        for (cell, sum) in self.row.iter_mut().enumerate() {
            let Sum { total, count, low, high } = std::mem::replace(sum, NOTHING);
            if low <= high {
                // Both infinities have no mean.
                let infinite = if low.is_sign_positive() == high.is_sign_positive() { low } else { f64::NAN };
                self.cells.mean[start + cell] = if count > 0 { total / count as f64 } else { infinite };
                if self.plane.is_curve() {
                    (self.cells.low[start + cell], self.cells.high[start + cell]) = (low, high);
                }
            }
        }
    }

    fn finish(mut self, is_spread: bool) -> Cells {
        self.end_row();
        let Self { mut cells, values, extremes, is_read, .. } = self;
        let [minimum, maximum] = match extremes {
            Some((low, high)) => [low, high].map(E::text),
            None => ["NaN", "NaN"].map(str::to_owned),
        };
        (cells.minimum, cells.maximum) = (minimum, maximum);
        cells.labels =
            cells.labels.zip(values).filter(|(_, values)| values.len() > 2).map(|((_, mut labels), values)| {
                // From the order of appearance to that of the values.
                let mut sorted: Vec<usize> = (0..values.len()).collect();
                sorted.sort_by(|&a, &b| values[a].value().total_cmp(&values[b].value()));
                let mut rank = [NO_LABEL; 256];
                sorted.iter().enumerate().for_each(|(new, &old)| rank[old] = new as u8);
                for label in &mut labels {
                    *label = rank[usize::from(*label)];
                }
                (sorted.iter().map(|&i| values[i].text()).collect(), labels)
            });
        if is_spread {
            cells.spread(&is_read);
        }
        cells
    }
}

fn add<E: Element>((sum, extremes): &mut (Sum, Option<(E, E)>), values: &mut Option<Vec<E>>, element: E) {
    let value = element.value();
    if value.is_nan() {
        return;
    }
    if value.is_finite() {
        sum.total += value;
        sum.count += 1;
    }
    (sum.low, sum.high) = (sum.low.min(value), sum.high.max(value));
    match extremes {
        Some((low, high)) => {
            if element < *low {
                *low = element;
            }
            if element > *high {
                *high = element;
            }
        }
        None => *extremes = Some((element, element)),
    }
    if let Some(seen) = values
        && !seen.contains(&element)
    {
        if seen.len() < LABELS { seen.push(element) } else { *values = None }
    }
}
