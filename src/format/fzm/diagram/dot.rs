//! The diagram as Graphviz DOT.
#![forbid(unsafe_code)]

use std::fmt::Write;

use super::{Diagram, DiagramNode, Family, NodeShape};
use crate::text::is_plain;

/// The whole document.
pub(super) fn write(diagram: &Diagram) -> String {
    let mut out = String::from("digraph pipeline {\n");
    out.push_str("  rankdir=TB;\n  node [fontname=\"Helvetica\", fontsize=11, style=filled];\n");
    out.push_str("  edge [fontname=\"Helvetica\", fontsize=10];\n");
    line(&mut out, format_args!("  label={}; labelloc=t;", quoted(&diagram.caption.join("\n"))));
    let mut next = 0;
    for root in &diagram.roots {
        node(&mut out, root, &mut next);
    }
    out.push_str("}\n");
    out
}

/// Writes `node` and its subtree; returns its number.
fn node(out: &mut String, node: &DiagramNode, next: &mut usize) -> usize {
    let own = *next;
    *next += 1;
    let text = std::iter::once(&node.title).chain(&node.lines).map(String::as_str).collect::<Vec<_>>().join("\n");
    let (shape, fill) = match node.shape {
        NodeShape::Source => ("oval", "#dbe7f5"),
        NodeShape::Segment => ("cylinder", "#eeeae2"),
        NodeShape::Stage(Family::Quantizer) => ("box", "#fbe3d6"),
        NodeShape::Stage(Family::Predictor) => ("box", "#faf0cf"),
        NodeShape::Stage(Family::Shuffler) => ("box", "#e6e0f2"),
        NodeShape::Stage(Family::Coder) => ("box", "#dcefdf"),
    };
    let style = if node.spare { ", style=\"filled,dashed\"" } else { "" };
    line(out, format_args!("  n{own} [shape={shape}, fillcolor=\"{fill}\"{style}, label={}];", quoted(&text)));
    for arrow in &node.arrows {
        let to = self::node(out, &arrow.to, next);
        let label = quoted(&format!("{}\n{}", arrow.name, arrow.what));
        let style = if arrow.to.spare { ", style=dashed" } else { "" };
        line(out, format_args!("  n{own} -> n{to} [label={label}{style}];"));
    }
    own
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// A quoted string. Newlines become `\n`; unprintable characters that were not escaped before are replaced.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if !is_plain(c) => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"b\\c\nd\u{1}"), "\"a\\\"b\\\\c\\nd\u{FFFD}\"");
    }
}
