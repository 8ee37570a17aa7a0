//! The files beside the principal array of a directory: headers for programs that do not read `.npy`, and a picture.
#![forbid(unsafe_code)]

use crate::account::Account;
use crate::format::{Content, Entry, File, Node};
use crate::view::nrrd::{self, NrrdElements};
use crate::view::{self, meta_image, preview};

/// The headers beside `<stem>.raw`, with their suffixes; none unless `file` is a principal array that they can
/// describe.
pub(super) fn headers(file: &File, stem: &str) -> Vec<(&'static str, File)> {
    let Some(array) = file.array.as_ref().filter(|_| file.is_principal) else { return Vec::new() };
    let space = file.space.as_ref().filter(|space| space.spacing.len() == array.shape.len());
    let (raw, npy) = (format!("{stem}.raw"), format!("{stem}.npy"));
    let is_padded = view::known_len(&file.content) != array.byte_len();
    let elements = if is_padded { NrrdElements::AtEnd(&npy) } else { NrrdElements::All(&raw) };
    let headers = [(".nhdr", nrrd::header(array, space, elements)), (".mhd", meta_image::header(array, space, &raw))];
    let file = |text: String| File::new(Content::bytes(text.into_bytes()));
    headers.into_iter().filter_map(|(suffix, text)| Some((suffix, file(text?)))).collect()
}

/// The picture of `file`, if that is a principal array that can have one; making it is charged to `account`.
pub(super) fn picture(file: &File, account: &Account) -> Option<Entry> {
    let array = file.array.as_ref().filter(|_| file.is_principal)?;
    let content = preview::content(array, &file.content, account)?;
    Some(Entry::own("preview.png", Node::from(File::new(content))))
}
