//! The file around the segments: core header, tables, gaps, checksums (section 1).

use std::io::{self, Write};

use crate::Random;
use crate::pipeline::{Run, Segment, Step};

/// Which writer a file is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Segments follow each other, and no stage is marked as the primary source unless the pipeline says so.
    Packed,
    /// As written since August 2026: each segment in a slot of whole 16 bytes, filled with zeros, and the primary
    /// source marked.
    Slots,
}

/// How a file is laid out.
#[derive(Debug, Clone)]
pub struct Form {
    /// The version field: 0x0301, 0x0300, or the plain 3 of old files.
    pub version: u16,
    /// Whether the checksum of the payload is there (never before 3.1).
    pub data_crc: bool,
    /// Whether the checksum of the header is there (never before 3.1).
    pub header_crc: bool,
    /// Segments and table rows in an order from this seed, and gaps before and between the segments.
    pub scatter: Option<u64>,
    /// The layout of the payload.
    pub generation: Generation,
}

impl Default for Form {
    fn default() -> Self {
        Self { version: 0x0301, data_crc: true, header_crc: true, scatter: None, generation: Generation::Packed }
    }
}

/// A file, its segments still where they were made.
#[derive(Debug)]
pub struct Image<'a> {
    /// Everything before the payload: core, tables, gap.
    head: Vec<u8>,
    payload: Vec<Part<'a>>,
}

#[derive(Debug)]
enum Part<'a> {
    Segment(&'a [u8]),
    Gap(Vec<u8>),
}

impl Part<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Segment(bytes) => bytes,
            Self::Gap(bytes) => bytes,
        }
    }
}

/// Writes `bytes` at `at`.
fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The row of a stage.
fn stage_row(step: &Step, is_primary: bool) -> [u8; 256] {
    let mut row = [0; 256];
    put(&mut row, 0, &step.kind.to_le_bytes());
    put(&mut row, 2, &1_u16.to_le_bytes());
    row[4] = step.inputs.len() as u8;
    row[5] = step.outputs.len() as u8;
    row[6] = u8::from(is_primary);
    row[8..40].fill(0xFF);
    for (k, input) in step.inputs.iter().enumerate() {
        put(&mut row, 8 + 2 * k, &input.to_le_bytes());
    }
    for (k, output) in step.outputs.iter().enumerate() {
        put(&mut row, 24 + 2 * k, &output.0.to_le_bytes());
    }
    put(&mut row, 40, &step.config);
    put(&mut row, 168, &(step.config.len() as u32).to_le_bytes());
    row
}

/// The row of a segment that `step` has written, at `offset`.
fn segment_row(segment: &Segment<'_>, step: &Step, offset: usize) -> [u8; 256] {
    let (_, name, dtype) = step.outputs[segment.port];
    let len = (segment.bytes.len() as u64).to_le_bytes();
    let mut row = [0; 256];
    put(&mut row, 0, &step.kind.to_le_bytes());
    put(&mut row, 2, &1_u16.to_le_bytes());
    put(&mut row, 4, &[dtype.code(), segment.port as u8]);
    put(&mut row, 6, &segment.id.to_le_bytes());
    put(&mut row, 8, name.as_bytes());
    put(&mut row, 72, &len);
    put(&mut row, 80, &(segment.allocated as u64).to_le_bytes());
    put(&mut row, 88, &len);
    put(&mut row, 96, &(offset as u64).to_le_bytes());
    put(&mut row, 104, &step.config);
    put(&mut row, 232, &(step.config.len() as u32).to_le_bytes());
    row
}

/// Puts the checksums that `form` asks for.
fn put_checksums(head: &mut [u8], payload: &[Part<'_>], form: &Form) {
    let flags = u16::from(form.data_crc) | u16::from(form.header_crc) << 1;
    put(head, 38, &flags.to_le_bytes());
    if form.data_crc {
        let mut crc = crc32fast::Hasher::new();
        for part in payload {
            crc.update(part.bytes());
        }
        put(head, 72, &crc.finalize().to_le_bytes());
    }
    if form.header_crc {
        let crc = crc32fast::hash(head);
        put(head, 76, &crc.to_le_bytes());
    }
}

impl<'a> Image<'a> {
    pub(crate) fn new(run: &'a Run<'_>, form: &Form) -> Self {
        let (steps, mut segments) = (run.steps(), run.segments());
        let mut random = form.scatter.map(Random::new);
        let gap = |random: &mut Option<Random>, most: usize| {
            random.as_mut().map_or(Vec::new(), |r| (0..r.below(most)).map(|_| r.bits() as u8).collect())
        };
        if let Some(r) = &mut random {
            r.shuffle(&mut segments);
        }
        let mut rows: Vec<usize> = (0..segments.len()).collect();
        if let Some(r) = &mut random {
            r.shuffle(&mut rows);
        }
        let slots = form.generation == Generation::Slots;
        let fill = |end: usize| if slots { end.next_multiple_of(16) - end } else { 0 };
        let header_gap = gap(&mut random, 300);
        let (mut payload, mut offsets, mut end) = (Vec::new(), Vec::new(), 0);
        for segment in &segments {
            let mut before = gap(&mut random, 40);
            before.resize(before.len() + fill(end + before.len()), 0);
            end += before.len();
            offsets.push(end);
            end += segment.bytes.len();
            payload.push(Part::Gap(before));
            payload.push(Part::Segment(segment.bytes));
        }
        payload.push(Part::Gap(vec![0; fill(end)]));
        end += fill(end);

        // The version of old files is a plain number, and then the minor one is 0.
        let old = form.version <= 0xFF || form.version.is_multiple_of(0x100);
        let core_len = if old { 72 } else { 80 };
        let tables = core_len + 256 * (steps.len() + segments.len());
        let mut head = vec![0; core_len];
        put(&mut head, 0, b"2ZMF");
        put(&mut head, 4, &form.version.to_le_bytes());
        put(&mut head, 6, &(segments.len() as u16).to_le_bytes());
        put(&mut head, 8, &(run.array_bytes() as u64).to_le_bytes());
        put(&mut head, 16, &(end as u64).to_le_bytes());
        put(&mut head, 24, &((tables + header_gap.len()) as u64).to_le_bytes());
        put(&mut head, 32, &(steps.len() as u32).to_le_bytes());
        put(&mut head, 36, &(run.source_sizes().len() as u16).to_le_bytes());
        for (k, &size) in run.source_sizes().iter().enumerate() {
            put(&mut head, 40 + 8 * k, &(size as u64).to_le_bytes());
        }
        // The first stage reads an array, and is the primary source by default.
        let primary = steps.iter().position(|step| step.primary).or(slots.then_some(0));
        for (place, step) in steps.iter().enumerate() {
            head.extend(stage_row(step, primary == Some(place)));
        }
        for k in rows {
            head.extend(segment_row(&segments[k], &steps[segments[k].step], offsets[k]));
        }
        if !old {
            put_checksums(&mut head, &payload, form);
        }
        head.extend(header_gap);
        Self { head, payload }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.head)?;
        self.payload.iter().try_for_each(|part| out.write_all(part.bytes()))
    }

    /// The file in memory.
    pub fn to_vec(&self) -> Vec<u8> {
        let parts: Vec<&[u8]> = self.payload.iter().map(Part::bytes).collect();
        [&self.head[..], &parts.concat()].concat()
    }
}
