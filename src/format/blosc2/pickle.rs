//! Pickled dictionaries, lists, texts and numbers, as `mlarray` writes its metadata; nothing is ever called.
//!
//! Reference: the opcodes of protocol 4 in `pickletools` of Python: the subset for plain values, and the two classes of
//! `mlarray` that wrap a list and a dictionary. Limits: at most [`NODES`] values in the document, and as many in the
//! result, where each use of a shared one counts.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::{Map, Value};

use crate::bytes::{Cursor, FileOffset, to_usize};
use crate::format::about::float;

/// Maximum number of values.
const NODES: usize = 1 << 16;
/// Maximum nesting depth.
const DEPTH: u32 = 64;
/// The module of the classes that are replaced by their argument.
const MODULE: &str = "mlarray.meta";
/// Name in error messages, which nobody sees.
const WHAT: &str = "pickle";

/// Converts the document in `bytes` to JSON; `None` unless it consists of plain values.
pub(super) fn to_json(bytes: &[u8]) -> Option<Value> {
    let mut machine = Machine::default();
    let mut cur = Cursor::new(bytes, FileOffset(0));
    while machine.step(cur.u8(WHAT).ok()?, &mut cur)? {}
    let root = machine.stack.pop()?;
    machine.json(root, DEPTH, &mut NODES.clone())
}

/// A value; others are referred to by their number, so that one that is shared can still grow.
enum PickleNode {
    Plain(Value),
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    /// A class, which a call replaces by its argument.
    Class,
}

/// The stack machine that a pickle is a program for.
#[derive(Default)]
struct Machine {
    nodes: Vec<PickleNode>,
    stack: Vec<usize>,
    marks: Vec<usize>,
    memo: Vec<usize>,
}

impl Machine {
    /// Performs `opcode`. `Some(false)` at the end; `None` if it is unknown or impossible.
    fn step(&mut self, opcode: u8, cur: &mut Cursor<'_>) -> Option<bool> {
        match opcode {
            b'.' => return Some(false),
            // The protocol, and frames, which only tell how much to read at a time.
            0x80 => drop(cur.u8(WHAT).ok()?),
            0x95 => drop(cur.u64_le(WHAT).ok()?),
            b'(' => self.marks.push(self.stack.len()),
            b'}' => self.push(PickleNode::Dict(Vec::new()))?,
            b']' | b')' => self.push(PickleNode::List(Vec::new()))?,
            0x94 => self.memo.push(*self.stack.last()?),
            b'h' => self.recall(cur.u8(WHAT).ok()?.into())?,
            b'j' => self.recall(cur.u32_le(WHAT).ok()?.into())?,
            b'a' => {
                let item = self.stack.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let value = self.stack.pop()?;
                let key = self.stack.pop()?;
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(&items)?;
            }
            0x85..=0x87 => {
                let count = usize::from(opcode.checked_sub(0x84)?);
                let items = self.stack.split_off(self.stack.len().checked_sub(count)?);
                self.push(PickleNode::List(items))?;
            }
            b't' => {
                let items = self.since_mark()?;
                self.push(PickleNode::List(items))?;
            }
            0x93 => self.class()?,
            b'R' => self.call()?,
            _ => {
                let value = plain(opcode, cur)?;
                self.push(PickleNode::Plain(value))?;
            }
        }
        Some(true)
    }

    fn push(&mut self, node: PickleNode) -> Option<()> {
        if self.nodes.len() >= NODES {
            return None;
        }
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        Some(())
    }

    fn recall(&mut self, number: u64) -> Option<()> {
        self.stack.push(*self.memo.get(to_usize(number, WHAT).ok()?)?);
        Some(())
    }

    fn since_mark(&mut self) -> Option<Vec<usize>> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len())?;
        Some(self.stack.split_off(mark))
    }

    fn append(&mut self, items: Vec<usize>) -> Option<()> {
        let PickleNode::List(list) = self.nodes.get_mut(*self.stack.last()?)? else { return None };
        list.extend(items);
        Some(())
    }

    fn set(&mut self, items: &[usize]) -> Option<()> {
        let PickleNode::Dict(dict) = self.nodes.get_mut(*self.stack.last()?)? else { return None };
        for pair in items.chunks(2) {
            let &[key, value] = pair else { return None };
            dict.push((key, value));
        }
        Some(())
    }

    fn class(&mut self) -> Option<()> {
        self.stack.pop()?;
        let module = self.stack.pop()?;
        matches!(self.nodes.get(module)?, PickleNode::Plain(name) if name == MODULE).then_some(())?;
        self.push(PickleNode::Class)
    }

    fn call(&mut self) -> Option<()> {
        let (arguments, class) = (self.stack.pop()?, self.stack.pop()?);
        let (PickleNode::List(arguments), PickleNode::Class) = (self.nodes.get(arguments)?, self.nodes.get(class)?)
        else {
            return None;
        };
        let &[argument] = arguments.as_slice() else { return None };
        self.stack.push(argument);
        Some(())
    }

    fn json(&self, node: usize, depth: u32, left: &mut usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        *left = left.checked_sub(1)?;
        match self.nodes.get(node)? {
            PickleNode::Plain(value) => Some(value.clone()),
            PickleNode::List(items) => items.iter().map(|&item| self.json(item, depth, left)).collect(),
            PickleNode::Dict(pairs) => {
                let mut map = Map::new();
                for &(key, value) in pairs {
                    let key = match self.json(key, depth, left)? {
                        Value::String(text) => text,
                        other => other.to_string(),
                    };
                    map.insert(key, self.json(value, depth, left)?);
                }
                Some(map.into())
            }
            PickleNode::Class => None,
        }
    }
}

/// The value that `opcode` brings itself.
fn plain(opcode: u8, cur: &mut Cursor<'_>) -> Option<Value> {
    Some(match opcode {
        b'N' => Value::Null,
        0x88 => true.into(),
        0x89 => false.into(),
        b'K' => cur.u8(WHAT).ok()?.into(),
        b'M' => cur.u16_le(WHAT).ok()?.into(),
        b'J' => i32::from_le_bytes(cur.array(WHAT).ok()?).into(),
        0x8a => {
            let len = cur.u8(WHAT).ok()?;
            let bytes = cur.take(len.into(), WHAT).ok()?;
            let sign = bytes.last().map_or(0, |&last| if last < 0x80 { 0 } else { 0xff });
            let mut whole = [sign; 8];
            whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
            i64::from_le_bytes(whole).into()
        }
        b'G' => float(f64::from_be_bytes(cur.array(WHAT).ok()?)),
        0x8c => {
            let len = cur.u8(WHAT).ok()?;
            text(cur, len.into())?
        }
        b'X' => {
            let len = cur.u32_le(WHAT).ok()?;
            text(cur, len.into())?
        }
        _ => return None,
    })
}

fn text(cur: &mut Cursor<'_>, len: u64) -> Option<Value> {
    let bytes = cur.take(to_usize(len, WHAT).ok()?, WHAT).ok()?;
    Some(std::str::from_utf8(bytes).ok()?.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_values_are_read_and_nothing_is_called() {
        // pickle.dumps of each, protocol 4 or 5.
        let rows: [(&[u8], Option<Value>); 7] = [
            (b"\x80\x04N.", Some(json!(null))),
            (b"\x80\x04J\xfe\xff\xff\xff.", Some(json!(-2))),
            (b"\x80\x04\x8a\x05\x00\x00\x00\x00\x01.", Some(json!(1_u64 << 32))),
            (b"\x80\x04G\x7f\xf8\x00\x00\x00\x00\x00\x00.", Some(json!("NaN"))),
            (
                b"\x80\x04}\x94(\x8c\x01a\x94]\x94(K\x01\x88e\x8c\x01b\x94h\x02u.",
                Some(json!({"a": [1, true], "b": [1, true]})),
            ),
            (b"\x80\x04\x8c\x0cmlarray.meta\x94\x8c\x05_List\x94\x93\x94]\x94K\x07a\x85\x94R\x94.", Some(json!([7]))),
            (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02ls\x94\x85\x94R\x94.", None),
        ];
        for (bytes, want) in rows {
            assert_eq!(to_json(bytes), want, "{bytes:?}");
            for end in 0..bytes.len() {
                assert_eq!(to_json(&bytes[..end]), None);
            }
        }
    }

    #[test]
    fn lists_in_themselves_and_lists_of_lists_of_lists_end() {
        let in_itself = b"\x80\x04]\x94h\x00a.";
        assert_eq!(to_json(in_itself), None);
        // Each list has the one before it a hundred times.
        let mut laughs = b"\x80\x04]\x94".to_vec();
        for level in 0..9 {
            laughs.extend(b"]\x94(");
            laughs.extend([b'h', level].repeat(100));
            laughs.push(b'e');
        }
        laughs.push(b'.');
        assert_eq!(to_json(&laughs), None);
    }
}
