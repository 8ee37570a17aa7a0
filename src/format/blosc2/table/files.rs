//! The files and arrays of a table.
#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use crate::bytes::to_usize;
use crate::error::Result;
use crate::format::{Array, BlobRef, Content, Entry, File, Node, npy};
use crate::once::Once;

use super::super::entries::failing;
use super::Table;
use super::arrow::ArrowFile;
use super::column::{Column, Data};
use super::derived::{ColumnRows, Shown};
use super::schema::ColumnKind;

/// A table, and the contents that were made for it.
pub(super) struct TableFiles {
    pub(super) table: Arc<Table>,
    columns: Vec<Contents>,
    arrow: Once<BlobRef>,
}

/// The files of a column.
#[derive(Default)]
struct Contents {
    values: OnceLock<BlobRef>,
    marks: OnceLock<BlobRef>,
    /// With the characters of an element.
    texts: Once<(u64, BlobRef)>,
}

impl TableFiles {
    pub(super) fn new(table: Table) -> Self {
        let columns = table.columns.iter().map(|_| Contents::default()).collect();
        Self { table: Arc::new(table), columns, arrow: Once::new() }
    }

    fn blob(&self, column: usize, shown: Shown, row_len: u64) -> BlobRef {
        BlobRef::new(ColumnRows::new(&self.table, column, shown, row_len))
    }

    /// The values of a column with elements of one size; `None` for others. They have the attributes `about`.
    fn values(&self, index: usize, column: &Column, name: &str) -> Result<Option<File>> {
        let (rows, array) = match &column.data {
            Data::Fixed(rows, array) => (rows, array.clone()),
            Data::Switches(rows) => (rows, Array { descr: "'|b1'".into(), itemsize: 1, shape: vec![rows.count()] }),
            _ => return Ok(None),
        };
        let shape = std::iter::once(self.table.rows).chain(array.shape.iter().skip(1).copied()).collect();
        let array = Array { shape, ..array };
        let is_plain = matches!(column.data, Data::Fixed(..)) && self.table.rows == self.table.marks.count();
        let content = match (array.byte_len(), rows.frame.data()?.content) {
            (Some(0), _) => Content::bytes([]),
            (Some(len), all) if is_plain && rows.count() >= self.table.rows => all.slice(0..len),
            _ => {
                let blob = || self.blob(index, Shown::Value, rows.row_len);
                Content::Blob(self.columns[index].values.get_or_init(blob).clone())
            }
        };
        let about = column.about(column.has_nulls().then(|| format!("{name}.notnull")));
        let file = File::new(content).stored(Table::stored(column)).typed(Some(array));
        Ok(Some(file.about(move || Ok(about.clone()))))
    }

    /// The marks of a column that may have missing values.
    fn marks(&self, index: usize, column: &Column) -> Option<File> {
        let array = Array { descr: "'|b1'".into(), itemsize: 1, shape: vec![self.table.rows] };
        let blob = || self.blob(index, Shown::NotNull, 1);
        let blob = || self.columns[index].marks.get_or_init(blob).clone();
        column.has_nulls().then(|| File::new(Content::Blob(blob())).typed(Some(array)))
    }

    /// The `.npy` file of a column of text of any length: it is as wide as the longest one, which is found first.
    fn texts(self: &Arc<Self>, index: usize, column: &Column) -> Option<File> {
        let is_shown = column.is_text() && !matches!(column.data, Data::Fixed(..));
        let this = Arc::clone(self);
        let make = move || {
            let Contents { texts, .. } = &this.columns[index];
            let (account, work) = (&this.table.leaves.options.account, this.table.leaves.work());
            let (width, blob) = texts.build(account, work, || {
                let width = this.table.longest(this.table.column(index)?)?;
                Ok((width, this.blob(index, Shown::Text(width), width * 4)))
            })?;
            let array = Array { descr: format!("'<U{width}'"), itemsize: width * 4, shape: vec![this.table.rows] };
            Ok(Content::Join([Content::bytes(npy::header(&array)), Content::Blob(blob.clone())].into()))
        };
        let content = Content::Deferred { len: None, make: Arc::new(make) };
        is_shown.then(|| File::new(content).stored(Table::stored(column)))
    }

    /// The Arrow file.
    pub(super) fn arrow(&self) -> Result<Content> {
        let (account, work) = (&self.table.leaves.options.account, self.table.leaves.work());
        let blob = self.arrow.build(account, work, || Ok(BlobRef::new(ArrowFile::new(&self.table)?)))?;
        Ok(Content::Blob(blob.clone()))
    }

    /// The values of a column, or the marks of missing ones, as array `number`; `prefix` comes before its name.
    pub(super) fn array(&self, number: u64, prefix: &[u8]) -> Result<Option<(Vec<u8>, File)>> {
        let index = to_usize(number / 2, "column")?;
        let named = |path: &str, suffix| [prefix, path.as_bytes(), suffix].concat();
        let broken = |why: String| File::new(Content::bytes([])).attr("error", why);
        Ok(match (self.table.columns.get(index), number % 2) {
            (Some(Ok(column)), 0) => {
                let why = || broken(why_no_array(&column.spec.kind).to_owned());
                let values = self.values(index, column, &column.spec.name)?;
                Some((named(&column.spec.path, b""), values.unwrap_or_else(why)))
            }
            (Some(Ok(column)), _) => {
                self.marks(index, column).map(|marks| (named(&column.spec.path, b".notnull"), marks))
            }
            (Some(Err((_, path, error))), 0) => Some((named(path, b""), broken(error.to_string()))),
            _ => None,
        })
    }

    /// The files of `columns/`.
    pub(super) fn entries(self: &Arc<Self>) -> Result<Vec<Entry>> {
        let named =
            |path: &str, suffix, file: File| Entry { nested: true, ..Entry::named(path, suffix, Node::from(file)) };
        let mut entries = Vec::new();
        for (index, column) in self.table.columns.iter().enumerate() {
            match column {
                Ok(column) => {
                    let path = &column.spec.path;
                    let values = self.values(index, column, &column.spec.name)?;
                    entries.extend(values.map(|file| named(path, ".raw", file)));
                    entries.extend(self.texts(index, column).map(|file| named(path, ".npy", file)));
                    let marks = self.marks(index, column);
                    entries.extend(marks.map(|file| named(&format!("{path}.notnull"), ".raw", file)));
                }
                Err((_, path, error)) => entries.push(named(path, ".raw", File::new(failing(error.clone())?))),
            }
        }
        Ok(entries)
    }
}

/// Why a column of this kind is not an array.
fn why_no_array(kind: &ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Utf8 | ColumnKind::Text | ColumnKind::Dictionary { .. } => {
            "text of any length: see columns/ and table.arrow"
        }
        ColumnKind::Bytes => "bytes of any length: see table.arrow",
        ColumnKind::Nested(_) => "lists, structures, or objects: see table.arrow",
        _ => "values of no fixed type: see stored/",
    }
}
