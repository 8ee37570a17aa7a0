//! The page of a directory, as it is without its script.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::super::tree::ServedEntry;
use super::super::url_path::encoded;
use super::{OWN, Page, VIEWER};
use crate::archive::EntryKind;
use crate::text::{escaped, markup};

/// Most entries on a page.
const ROWS: usize = 100_000;

impl Page {
    /// The page of the directory at `path`, of these entries.
    pub(in crate::serve) fn html(&self, path: &str, entries: &[ServedEntry]) -> String {
        let depth = if path.is_empty() { 0 } else { path.split('/').count() };
        let root = "../".repeat(depth);
        let title = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&self.name);
        let viewer = match self.viewer {
            Some(_) => format!(" data-viewer=\"{root}{OWN}{VIEWER}\""),
            None => String::new(),
        };
        let (home, name, title) = (if depth == 0 { "./" } else { &root }, shown(&self.name), shown(title));
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\"><title>{title} - fzmfs</title>\n\
             <link rel=\"icon\" href=\"{root}{OWN}icon.svg\"><link rel=\"stylesheet\" href=\"{root}{OWN}page.css\">\n\
             <script type=\"module\" src=\"{root}{OWN}page.js\"></script></head>\n<body{viewer}>\n\
             <header><nav aria-label=\"Path\"><ol><li><a href=\"{home}\">{name}</a></li>"
        );
        for (i, name) in path.split('/').filter(|name| !name.is_empty()).enumerate() {
            let up = "../".repeat(depth - 1 - i);
            let (href, current) = if up.is_empty() { ("./", " aria-current=\"page\"") } else { (&*up, "") };
            let _ = write!(out, "<li><a href=\"{href}\"{current}>{}</a></li>", shown(name));
        }
        let n = entries.len();
        let _ = write!(
            out,
            "</ol></nav></header>\n<main>\n<h1>{title}</h1>\n<section id=\"files\" aria-labelledby=\"files-title\">\
             <h2 id=\"files-title\">Files <small>{n}</small></h2>\n<ul id=\"list\">\n",
        );
        if depth > 0 {
            out.push_str("<li class=\"up\"><a href=\"../\">..</a></li>\n");
        }
        for entry in entries.iter().take(ROWS) {
            row(&mut out, entry);
        }
        out.push_str("</ul>");
        if n > ROWS {
            let _ = write!(out, "<p class=\"note\">{} more, which JSON has.</p>", n - ROWS);
        }
        out.push_str("</section>\n</main>\n</body></html>\n");
        out
    }
}

/// One entry: a link, what it is, and its size.
fn row(out: &mut String, ServedEntry { name, kind, size, attributes }: &ServedEntry) {
    let attribute = |key: &str| attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let slash = if *kind == EntryKind::Directory { "/" } else { "" };
    let (class, what) = match (kind, attribute("dtype"), attribute("shape")) {
        (EntryKind::Directory, ..) if attribute("container").is_some() => ("container", "container".to_owned()),
        (EntryKind::Directory, ..) => ("dir", "folder".to_owned()),
        (EntryKind::Link, ..) => ("link", "link".to_owned()),
        (EntryKind::File, Some(dtype), Some(shape)) => {
            let shape = shape.replace('x', " \u{d7} ");
            let class = if name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == "npy") { "array" } else { "file" };
            (class, [dtype_word(dtype), shape].join(" "))
        }
        (EntryKind::File, ..) => ("file", String::new()),
    };
    let _ = write!(out, "<li class=\"{class}\"");
    for key in ["dtype", "shape"] {
        if let (Some(value), "array") = (attribute(key), class) {
            let _ = write!(out, " data-{key}=\"{}\"", shown(value));
        }
    }
    let _ = write!(out, "><a href=\"{}{slash}\">{}</a>", encoded(name), shown(name));
    let _ = write!(out, "<span>{}</span>", shown(&what));
    let size = size.or_else(|| attribute("stored_size")?.parse().ok().filter(|_| class == "container"));
    if let Some(size) = size {
        let _ = write!(out, "<data value=\"{size}\">{}</data>", size_text(size));
    }
    out.push_str("</li>\n");
}

/// The name of an element type for people: `float32` for `<f4`.
fn dtype_word(dtype: &str) -> String {
    let numpy = dtype.strip_prefix(['<', '>', '|']).and_then(|rest| Some((rest.chars().next()?, rest.get(1..)?)));
    let numpy = numpy.and_then(|(kind, bytes)| Some((kind, bytes.parse::<u32>().ok()?)));
    let Some((kind, bytes)) = numpy else { return dtype.to_owned() };
    let word = match kind {
        'f' => "float",
        'i' => "int",
        'u' => "uint",
        'c' => "complex",
        'b' if bytes == 1 => return "bool".to_owned(),
        _ => return dtype.to_owned(),
    };
    let big = if dtype.starts_with('>') && bytes > 1 { ", big-endian" } else { "" };
    format!("{word}{}{big}", bytes.saturating_mul(8))
}

/// A size with about three digits.
fn size_text(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    let digits = usize::from(unit > 0 && value < 100.0);
    format!("{value:.digits$} {}", units[unit])
}

/// Text of a container as text of a page; characters that change how others are shown are visible.
fn shown(text: &str) -> String {
    markup(&escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, kind: EntryKind, attributes: &[(&str, &str)]) -> ServedEntry {
        let attributes = attributes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        ServedEntry { name: name.to_owned(), kind, size: Some(3), attributes }
    }

    #[test]
    fn names_of_a_container_are_never_markup() {
        let name = "<script>alert(\"1\")</script>'&\u{202e}";
        let dtype = "\"><img src=x onerror=alert(1)>";
        let entries = [listed(&format!("{name}.npy"), EntryKind::File, &[("dtype", dtype), ("shape", "3x4")])];
        let page = Page::default().html(name, &entries);
        let scripts = page.matches("<script").count();
        assert!(scripts == 1 && !page.contains("<img") && !page.contains('\u{202e}'), "{page}");
        assert!(page.contains("href=\"%3Cscript%3E") && page.contains("&lt;script&gt;"), "{page}");
        assert!(page.contains("\\u{202e}"), "{page}");
    }

    #[test]
    fn a_row_says_what_an_entry_is() {
        let mut out = String::new();
        row(&mut out, &listed("data.npy", EntryKind::File, &[("dtype", "<f4"), ("shape", "45x37")]));
        row(&mut out, &listed("data.raw", EntryKind::File, &[("dtype", ">i2"), ("shape", "45x37")]));
        row(&mut out, &listed("chunks", EntryKind::Directory, &[]));
        let want = "<li class=\"array\" data-dtype=\"&lt;f4\" data-shape=\"45x37\"><a href=\"data.npy\">data.npy</a>\
                    <span>float32 45 \u{d7} 37</span><data value=\"3\">3 B</data></li>\n\
                    <li class=\"file\"><a href=\"data.raw\">data.raw</a><span>int16, big-endian 45 \u{d7} 37</span>\
                    <data value=\"3\">3 B</data></li>\n\
                    <li class=\"dir\"><a href=\"chunks/\">chunks</a><span>folder</span><data value=\"3\">3 B</data></li>\n";
        assert_eq!(out, want);
        let sizes: Vec<_> = [0, 1023, 1024, 1536, 700 << 20, u64::MAX].map(size_text).into();
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "700 MiB", "16.0 EiB"]);
    }
}
