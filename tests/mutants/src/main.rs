//! Rewrites a copy of the source so that it holds each change that cargo-mutants lists, and one of them is active at a time:
//! `mutants MUTANTS.json FOLDER LEFT-OUT.json`. LEFT-OUT.json has the numbers of those that do not compile.
//! Prints, as JSON, the numbers of those in the copy.
//!
//! A change of an operator becomes a choice: `a < b` is `if on(7) { a <= b } else { a < b }`, with operands that are
//! computed once. A body that is replaced begins with `if on(8) { return REPLACEMENT; }`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use proc_macro2::{LineColumn, Span};
use serde_json::{Value, json};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, UnOp};

/// One mutant of the list.
struct Mutant {
    id: usize,
    /// Offset of the first byte that it changes.
    start: usize,
    genre: String,
    replacement: String,
}

/// A range of the source, and what stands in its place.
struct Edit {
    start: usize,
    end: usize,
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Source(usize, usize),
}

/// Collects the edits of one file.
struct Sites<'a> {
    source: &'a str,
    lines: Vec<usize>,
    /// By genre and offset.
    mutants: HashMap<(String, usize), Vec<&'a Mutant>>,
    edits: Vec<Edit>,
    placed: HashSet<usize>,
    /// Where only constants can be computed.
    constant: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let listed: Vec<Value> = serde_json::from_str(&read(&arguments[0])).expect("a list of mutants");
    let folder = Path::new(&arguments[1]);
    let left_out: HashSet<usize> = serde_json::from_str(&read(&arguments[2])).expect("a list of numbers");

    let mut files: BTreeMap<&str, Vec<(usize, &Value)>> = BTreeMap::new();
    for (id, mutant) in listed.iter().enumerate() {
        // 0 is none of them.
        // A function returns one type behind `impl`, and has no choice.
        let opaque = mutant["genre"] == "FnValue"
            && mutant["function"]["return_type"].as_str().is_some_and(|ty| ty.contains("impl "));
        if !opaque && !left_out.contains(&(id + 1)) {
            files.entry(mutant["file"].as_str().expect("a file")).or_default().push((id + 1, mutant));
        }
    }
    let mut placed = Vec::new();
    for (file, mutants) in files {
        let path = folder.join(file);
        let source = fs::read_to_string(&path).expect("a source");
        let (text, ids) = rewritten(&source, &mutants);
        fs::write(&path, text).expect("a file that can be written");
        placed.extend(ids);
    }
    placed.sort_unstable();
    println!("{}", json!(placed));
}

/// The source with the mutants that can be in it, and their numbers.
fn rewritten(source: &str, listed: &[(usize, &Value)]) -> (String, Vec<usize>) {
    let lines: Vec<usize> = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mutants: Vec<Mutant> = listed
        .iter()
        .map(|&(id, mutant)| {
            let start = &mutant["span"]["start"];
            let number = |name: &str| start[name].as_u64().expect("a number") as usize;
            Mutant {
                id,
                start: lines[number("line") - 1] + number("column") - 1,
                genre: mutant["genre"].as_str().expect("a genre").to_owned(),
                replacement: mutant["replacement"].as_str().expect("a replacement").to_owned(),
            }
        })
        .collect();
    let mut by_place: HashMap<(String, usize), Vec<&Mutant>> = HashMap::new();
    for mutant in &mutants {
        by_place.entry((mutant.genre.clone(), mutant.start)).or_default().push(mutant);
    }
    let mut sites =
        Sites { source, lines, mutants: by_place, edits: Vec::new(), placed: HashSet::new(), constant: false };
    sites.visit_file(&syn::parse_file(source).expect("Rust"));
    let Sites { mut edits, placed, .. } = sites;
    // The outer one of two comes first; of two of the same range, the one that was met first.
    edits.sort_by_key(|edit| (edit.start, usize::MAX - edit.end));
    let mut text = String::new();
    render(source, &edits, 0, source.len(), &mut text);
    (text, placed.into_iter().collect())
}

/// The source from `start` to `end` with those of the edits that lie in it.
fn render(source: &str, edits: &[Edit], start: usize, end: usize, text: &mut String) {
    let mut at = start;
    for (index, edit) in edits.iter().enumerate() {
        if edit.start < at || edit.end > end {
            continue;
        }
        text.push_str(&source[at..edit.start]);
        for part in &edit.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Source(start, end) => render(source, &edits[index + 1..], *start, *end, text),
            }
        }
        at = edit.end;
    }
    text.push_str(&source[at..end]);
}

fn on(mutant: &Mutant) -> String {
    format!("crate::mutants::on({})", mutant.id)
}

impl Sites<'_> {
    fn offset(&self, LineColumn { line, column }: LineColumn) -> usize {
        self.lines[line - 1] + column
    }

    fn range(&self, span: Span) -> (usize, usize) {
        (self.offset(span.start()), self.offset(span.end()))
    }

    fn take(&mut self, genre: &str, start: usize) -> Vec<(usize, String, String)> {
        if self.constant {
            return Vec::new();
        }
        self.mutants
            .get(&(genre.to_owned(), start))
            .into_iter()
            .flatten()
            .map(|mutant| (mutant.id, on(mutant), mutant.replacement.clone()))
            .collect()
    }

    fn place(&mut self, (start, end): (usize, usize), parts: Vec<Part>, ids: impl IntoIterator<Item = usize>) {
        self.edits.push(Edit { start, end, parts });
        self.placed.extend(ids);
    }

    /// The body of a function, which `block` is.
    fn body(&mut self, block: &syn::Block) {
        let open = self.offset(block.brace_token.span.open().end());
        let first = block.stmts.first().map_or(open, |statement| self.range(statement.span()).0);
        // cargo-mutants names the inside of the braces, which may begin at the first token or before it.
        let mut starts = vec![open - 1, open, first];
        starts.dedup();
        let mut text = String::new();
        let mut ids = Vec::new();
        for start in starts {
            for (id, on, replacement) in self.take("FnValue", start) {
                text += &format!(" if {on} {{ return {replacement}; }}");
                ids.push(id);
            }
        }
        if !ids.is_empty() {
            self.place((open, open), vec![Part::Text(text)], ids);
        }
    }

    fn within(&mut self, constant: bool, visit: impl FnOnce(&mut Self)) {
        let before = self.constant;
        self.constant |= constant;
        visit(self);
        self.constant = before;
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        let (left, right) = (self.range(binary.left.span()), self.range(binary.right.span()));
        let (start, end) = self.range(binary.op.span());
        let operator = self.source[start..end].to_owned();
        let mutants = self.take("BinaryOperator", start);
        let whole = (left.0, right.1);
        if mutants.is_empty() || has_let(&binary.left) || has_let(&binary.right) {
            return;
        }
        let ids: Vec<usize> = mutants.iter().map(|mutant| mutant.0).collect();
        let choice = |make: &dyn Fn(&str) -> String| {
            let mut text = String::new();
            for (_, on, replacement) in &mutants {
                text += &format!("if {on} {{ {} }} else ", make(replacement));
            }
            format!("{text}{{ {} }}", make(&operator))
        };
        use Part::{Source, Text};
        let parts = match binary.op {
            BinOp::And(_) | BinOp::Or(_) => {
                let [(_, on, replacement)] = &mutants[..] else { return };
                if !matches!(replacement.as_str(), "&&" | "||") {
                    return;
                }
                let right_if = if matches!(binary.op, BinOp::And(_)) { "!=" } else { "==" };
                vec![
                    Text("({ let mutant_l: bool = ".into()),
                    Source(left.0, left.1),
                    Text(format!("; if mutant_l {right_if} {on} {{ ")),
                    Source(right.0, right.1),
                    Text(" } else { mutant_l } })".into()),
                ]
            }
            BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => vec![
                Text("(match (&(".into()),
                Source(left.0, left.1),
                Text("), &(".into()),
                Source(right.0, right.1),
                Text(format!(
                    ")) {{ (mutant_l, mutant_r) => {} }})",
                    choice(&|operator| format!("*mutant_l {operator} *mutant_r"))
                )),
            ],
            _ if operator.ends_with('=') => {
                // The place is named once for each choice.
                let mut parts = vec![Text("(".into())];
                for (_, on, replacement) in &mutants {
                    parts.extend([
                        Text(format!("if {on} {{ ")),
                        Source(left.0, left.1),
                        Text(format!(" {replacement} ")),
                        Source(right.0, right.1),
                        Text(" } else ".into()),
                    ]);
                }
                parts.extend([
                    Text("{ ".into()),
                    Source(left.0, left.1),
                    Text(format!(" {operator} ")),
                    Source(right.0, right.1),
                    Text(" })".into()),
                ]);
                parts
            }
            _ => vec![
                Text("(match (".into()),
                Source(left.0, left.1),
                Text(", ".into()),
                Source(right.0, right.1),
                Text(format!(
                    ") {{ (mutant_l, mutant_r) => {} }})",
                    choice(&|operator| format!("mutant_l {operator} mutant_r"))
                )),
            ],
        };
        self.place(whole, parts, ids);
    }

    fn unary(&mut self, unary: &syn::ExprUnary) {
        let operator = self.range(unary.op.span());
        let operand = self.range(unary.expr.span());
        // `-128_i8` is not an operation on 128.
        if matches!((&unary.op, &*unary.expr), (UnOp::Neg(_), Expr::Lit(_))) {
            return;
        }
        let mutants = self.take("UnaryOperator", operator.0);
        let [(id, on, _)] = &mutants[..] else { return };
        let sign = &self.source[operator.0..operator.1];
        let parts = vec![
            Part::Text("(match (".into()),
            Part::Source(operand.0, operand.1),
            Part::Text(format!(") {{ mutant_l => if {on} {{ mutant_l }} else {{ {sign}mutant_l }} }})")),
        ];
        self.place((operator.0, operand.1), parts, [*id]);
    }

    /// The fields of a structure that its base has too.
    fn fields(&mut self, structure: &syn::ExprStruct) {
        let Some(base) = &structure.rest else { return };
        let base = self.range(base.span());
        for field in &structure.fields {
            let range = self.range(field.span());
            let [(id, on, _)] = &self.take("StructField", range.0)[..] else { continue };
            let (name, value) = (self.range(field.member.span()), self.range(field.expr.span()));
            let name = &self.source[name.0..name.1];
            let parts = vec![
                Part::Text(format!("{name}: if {on} {{ (")),
                Part::Source(base.0, base.1),
                Part::Text(format!(").{name} }} else {{ ")),
                Part::Source(value.0, value.1),
                Part::Text(" }".into()),
            ];
            self.place(range, parts, [*id]);
        }
    }

    fn arm(&mut self, arm: &syn::Arm) {
        let pattern = self.range(arm.pat.span());
        let mut text = String::new();
        let mut ids = Vec::new();
        for (id, on, _) in self.take("MatchArm", pattern.0) {
            text += &format!("!{on} && ");
            ids.push(id);
        }
        let Some((_, guard)) = &arm.guard else {
            if !ids.is_empty() {
                let text = format!(" if {}", text.trim_end_matches(" && "));
                self.place((pattern.1, pattern.1), vec![Part::Text(text)], ids);
            }
            return;
        };
        let range = self.range(guard.span());
        if has_let(guard) {
            return;
        }
        let mut end = String::new();
        for (id, on, replacement) in self.take("MatchArmGuard", range.0) {
            if replacement == "true" {
                end += &format!(" || {on}");
            } else {
                text += &format!("!{on} && ");
            }
            ids.push(id);
        }
        if !ids.is_empty() {
            let parts =
                vec![Part::Text(format!("{text}((")), Part::Source(range.0, range.1), Part::Text(format!("){end})"))];
            self.place(range, parts, ids);
        }
    }
}

/// Whether a condition binds names, which it can only where it stands.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(paren) => has_let(&paren.expr),
        _ => false,
    }
}

/// Nodes within which only constants can be computed.
macro_rules! constants {
    ($($visit:ident $node:ident),*) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            self.within(true, |sites| visit::$visit(sites, node));
        })*
    };
}

/// Functions, which may be constant.
macro_rules! functions {
    ($($visit:ident $node:ident),*) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            self.within(node.sig.constness.is_some(), |sites| {
                sites.body(&node.block);
                visit::$visit(sites, node);
            });
        })*
    };
}

impl<'ast> Visit<'ast> for Sites<'_> {
    functions!(visit_item_fn ItemFn, visit_impl_item_fn ImplItemFn);

    constants!(
        visit_item_const ItemConst, visit_impl_item_const ImplItemConst, visit_trait_item_const TraitItemConst,
        visit_item_static ItemStatic, visit_item_enum ItemEnum, visit_expr_const ExprConst, visit_type Type, visit_pat Pat
    );

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
        self.within(true, |sites| sites.visit_expr(&repeat.len));
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        self.binary(binary);
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.unary(unary);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, fields: &'ast syn::ExprStruct) {
        self.fields(fields);
        visit::visit_expr_struct(self, fields);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.arm(arm);
        visit::visit_arm(self, arm);
    }
}
