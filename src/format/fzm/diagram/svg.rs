//! The diagram as SVG, drawn from the top down.
//!
//! Each leaf has its own column, and parents are centered above their children. The graph is a forest, so no two arrows
//! cross. An arrow leaves a stage at its port, turns twice, and is labeled in the column of its target.
#![forbid(unsafe_code)]

use std::fmt::Write;

use super::{Diagram, DiagramNode, Family, NodeShape};
use crate::text::markup;

/// Width of a box and of a column, in pixels.
const WIDTH: f64 = 184.0;
const COLUMN: f64 = 226.0;
const MARGIN: f64 = 24.0;
/// Height of the caption, a title and a line of text.
const CAPTION: f64 = 54.0;
const TITLE: f64 = 28.0;
const LINE: f64 = 16.0;
/// Distance between rows, with space for two label lines; and between the turns of adjacent arrows.
const GAP: f64 = 66.0;
const LANE: f64 = 7.0;
/// Maximum characters of a title, a line in a box, and a label.
const TITLE_CHARS: usize = 22;
const LINE_CHARS: usize = 28;
const LABEL_CHARS: usize = 32;

/// The whole document.
pub(super) fn draw(diagram: &Diagram) -> String {
    let mut rows = Vec::new();
    let mut columns = 0.0;
    let placed: Vec<Placed> = diagram.roots.iter().map(|root| place(root, 0, &mut columns, &mut rows)).collect();
    let mut top = MARGIN + CAPTION;
    for row in &mut rows {
        row.top = top;
        top += row.height + GAP + row.lanes * LANE;
    }
    let bottom = rows.last().map_or(top, |row| row.top + row.height) + MARGIN;
    let width = (MARGIN * 2.0 + columns * COLUMN).max(360.0);

    let mut out = Svg(String::new());
    out.put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{bottom}\" viewBox=\"0 0 {width} {bottom}\" \
         font-family=\"Helvetica, Arial, sans-serif\">"
    ));
    out.put(format_args!(
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0,0.5 L8,4 L0,7.5 Z\" fill=\"#556070\"/></marker></defs>"
    ));
    out.put(format_args!("<rect width=\"{width}\" height=\"{bottom}\" fill=\"#ffffff\"/>"));
    for (n, text) in diagram.caption.iter().enumerate() {
        let (y, style) = (MARGIN + 14.0 + n as f64 * 20.0, if n == 0 { BOLD } else { PLAIN });
        out.text(MARGIN, y, style, text, usize::MAX);
    }
    for root in &placed {
        arrows(&mut out, root, &rows);
    }
    for root in &placed {
        shapes(&mut out, root, &rows);
    }
    out.put(format_args!("</svg>"));
    out.0
}

const BOLD: &str = "font-size=\"13\" font-weight=\"bold\" fill=\"#20262e\"";
const PLAIN: &str = "font-size=\"11.5\" fill=\"#45505c\"";
const LABEL: &str = "font-size=\"11.5\" font-weight=\"bold\" fill=\"#45505c\"";

/// A node with its position: the center of its columns, and its row.
struct Placed<'a> {
    node: &'a DiagramNode,
    x: f64,
    row: usize,
    below: Vec<Placed<'a>>,
}

/// All nodes of one depth.
#[derive(Default)]
struct DepthRow {
    top: f64,
    height: f64,
    /// Lanes needed below it for arrows that turn.
    lanes: f64,
}

/// Assigns a column to every leaf, and centers parents above their children.
fn place<'a>(node: &'a DiagramNode, depth: usize, columns: &mut f64, rows: &mut Vec<DepthRow>) -> Placed<'a> {
    if rows.len() <= depth {
        rows.resize_with(depth + 1, DepthRow::default);
    }
    if let Some(row) = rows.get_mut(depth) {
        row.height = row.height.max(height(node));
        row.lanes = row.lanes.max((node.arrows.len() as f64 / 2.0).floor());
    }
    let below: Vec<Placed> = node.arrows.iter().map(|arrow| place(&arrow.to, depth + 1, columns, rows)).collect();
    let middle = below.first().zip(below.last()).map(|(first, last)| f64::midpoint(first.x, last.x));
    let x = middle.unwrap_or_else(|| {
        *columns += 1.0;
        MARGIN + (*columns - 0.5) * COLUMN
    });
    Placed { node, x, row: depth, below }
}

fn height(node: &DiagramNode) -> f64 {
    let text = TITLE + node.lines.len() as f64 * LINE;
    match node.shape {
        NodeShape::Source => text + 4.0,
        NodeShape::Stage(_) if node.lines.is_empty() => text,
        NodeShape::Stage(_) => text + 12.0,
        NodeShape::Segment => text + 18.0,
    }
}

/// Draws the arrows of the subtree of `from`.
fn arrows(out: &mut Svg, from: &Placed, rows: &[DepthRow]) {
    let (Some(row), ports) = (rows.get(from.row), from.node.arrows.last().map_or(1, |arrow| arrow.port + 1)) else {
        return;
    };
    let start = row.top + height(from.node);
    let turns = row.top + row.height + 12.0;
    let end = rows.get(from.row + 1).map_or(start, |below| below.top);
    let count = from.below.len();
    for (n, (arrow, to)) in from.node.arrows.iter().zip(&from.below).enumerate() {
        let port = from.x + WIDTH * ((arrow.port as f64 + 1.0) / (ports as f64 + 1.0) - 0.5);
        // The outermost arrows turn first, so that none crosses another.
        let lane = turns + n.min(count - 1 - n) as f64 * LANE;
        let dash = if to.node.spare { " stroke-dasharray=\"5 4\"" } else { "" };
        let path = route(port, start, lane, to.x, end - 1.0);
        out.put(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"#556070\" stroke-width=\"1.4\"{dash} marker-end=\"url(#tip)\"/>"
        ));
        out.text(to.x + 9.0, end - 28.0, LABEL, arrow.name, LABEL_CHARS);
        out.text(to.x + 9.0, end - 13.0, PLAIN, &arrow.what, LABEL_CHARS);
        arrows(out, to, rows);
    }
}

/// A path from (`x0`, `y0`) down, across at `lane`, and down to (`x1`, `y1`), with rounded corners.
fn route(x0: f64, y0: f64, lane: f64, x1: f64, y1: f64) -> String {
    let across = x1 - x0;
    if across.abs() < 0.5 {
        return format!("M{x0:.1},{y0:.1} V{y1:.1}");
    }
    let r = (across.abs() / 2.0).min(6.0);
    let side = r * across.signum();
    format!(
        "M{x0:.1},{y0:.1} V{:.1} Q{x0:.1},{lane:.1} {:.1},{lane:.1} H{:.1} Q{x1:.1},{lane:.1} {x1:.1},{:.1} V{y1:.1}",
        lane - r,
        x0 + side,
        x1 - side,
        lane + r,
    )
}

/// Draws the shapes of the subtree of `placed`.
fn shapes(out: &mut Svg, placed: &Placed, rows: &[DepthRow]) {
    let Some(row) = rows.get(placed.row) else { return };
    let (node, left, top) = (placed.node, placed.x - WIDTH / 2.0, row.top);
    let height = height(node);
    out.put(format_args!("<g{}>", if node.spare { " opacity=\"0.6\"" } else { "" }));
    out.put(format_args!("<title>{}</title>", markup(&node.title)));
    let text = match node.shape {
        NodeShape::Source => {
            out.put(format_args!(
                "<rect x=\"{left}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"{}\" fill=\"#dbe7f5\" \
                 stroke=\"#4a76a8\" stroke-width=\"1.4\"/>",
                height / 2.0
            ));
            top + 2.0
        }
        NodeShape::Segment => {
            let (right, bottom, bulge) = (left + WIDTH, top + height - 8.0, 8.0);
            out.put(format_args!(
                "<path d=\"M{left},{0} A{1},{bulge} 0 0 1 {right},{0} V{bottom} A{1},{bulge} 0 0 1 {left},{bottom} Z\" \
                 fill=\"#f3efe6\" stroke=\"#8d8371\" stroke-width=\"1.4\"/>\
                 <path d=\"M{left},{0} A{1},{bulge} 0 0 0 {right},{0}\" fill=\"none\" stroke=\"#8d8371\" stroke-width=\"1.4\"/>",
                top + bulge,
                WIDTH / 2.0,
            ));
            top + 13.0
        }
        NodeShape::Stage(family) => {
            let (fill, line) = match family {
                Family::Quantizer => ("#fbe3d6", "#c2683a"),
                Family::Predictor => ("#faf0cf", "#a98a1e"),
                Family::Shuffler => ("#e6e0f2", "#7b62ab"),
                Family::Coder => ("#dcefdf", "#4b8f5a"),
            };
            let dash = if node.spare { " stroke-dasharray=\"5 4\"" } else { "" };
            out.put(format_args!(
                "<rect x=\"{left}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"7\" fill=\"#ffffff\"/>\
                 <path d=\"M{left},{0} v-{1} a7,7 0 0 1 7,-7 h{2} a7,7 0 0 1 7,7 v{1} Z\" fill=\"{fill}\"/>\
                 <rect x=\"{left}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"7\" fill=\"none\" stroke=\"{line}\" \
                 stroke-width=\"1.4\"{dash}/>",
                top + TITLE,
                TITLE - 7.0,
                WIDTH - 14.0,
            ));
            top
        }
    };
    out.text(placed.x, text + 19.0, &format!("{BOLD} text-anchor=\"middle\""), &node.title, TITLE_CHARS);
    let first = text + TITLE + if matches!(node.shape, NodeShape::Stage(_)) { 17.0 } else { 8.0 };
    for (n, line) in node.lines.iter().enumerate() {
        let style = format!("{PLAIN} text-anchor=\"middle\"");
        out.text(placed.x, first + n as f64 * LINE, &style, line, LINE_CHARS);
    }
    out.put(format_args!("</g>"));
    for below in &placed.below {
        shapes(out, below, rows);
    }
}

struct Svg(String);

impl Svg {
    fn put(&mut self, element: std::fmt::Arguments) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{element}");
    }

    fn text(&mut self, x: f64, y: f64, style: &str, text: &str, chars: usize) {
        self.put(format_args!("<text x=\"{x}\" y=\"{y}\" {style}>{}</text>", markup(&clipped(text, chars))));
    }
}

/// Truncates to at most `chars` characters.
fn clipped(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars.saturating_sub(3)).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut() {
        assert_eq!(clipped(&"x".repeat(70), 10), "xxxxxxx...");
    }

    #[test]
    fn a_straight_arrow_has_no_turns() {
        assert_eq!(route(5.0, 1.0, 3.0, 5.0, 9.0), "M5.0,1.0 V9.0");
        assert!(route(5.0, 1.0, 20.0, 50.0, 60.0).contains(" H44.0 "));
    }
}
