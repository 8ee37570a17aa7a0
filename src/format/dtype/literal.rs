//! Parses the Python literals that element types use: strings, integers, tuples, lists, dicts, words.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// A literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Int(i64),
    /// `True`, `False`, `None`.
    Word(String),
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

/// Maximum nesting depth.
const DEPTH: u32 = 32;

impl Literal {
    /// Parses `text`, which must be one literal and nothing else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text };
        let literal = parser.literal(DEPTH)?;
        parser.space();
        parser.rest.is_empty().then_some(literal)
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Consumes `token` if it comes next.
    fn token(&mut self, token: char) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn literal(&mut self, depth: u32) -> Option<Literal> {
        let depth = depth.checked_sub(1)?;
        self.space();
        match self.rest.chars().next()? {
            '(' => {
                let (items, comma) = self.items('(', ')', |p| p.literal(depth))?;
                // (x) is x, (x,) is a tuple.
                match <[Literal; 1]>::try_from(items) {
                    Ok([item]) if !comma => Some(item),
                    Ok(item) => Some(Literal::Tuple(item.into())),
                    Err(items) => Some(Literal::Tuple(items)),
                }
            }
            '[' => self.items('[', ']', |p| p.literal(depth)).map(|(items, _)| Literal::List(items)),
            '{' => {
                let pair = |p: &mut Self| {
                    let key = p.literal(depth)?;
                    p.token(':').then_some(())?;
                    Some((key, p.literal(depth)?))
                };
                self.items('{', '}', pair).map(|(pairs, _)| Literal::Dict(pairs))
            }
            quote @ ('\'' | '"') => self.text(quote).map(Literal::Text),
            c if c == '-' || c.is_ascii_digit() => {
                let end = self.rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(self.rest.len());
                let (number, rest) = self.rest.split_at_checked(end)?;
                self.rest = rest;
                number.parse().ok().map(Literal::Int)
            }
            c if c.is_ascii_alphabetic() => {
                let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at_checked(end)?;
                self.rest = rest;
                Some(Literal::Word(word.into()))
            }
            _ => None,
        }
    }

    /// Parses items between brackets. Also returns whether a comma follows the last one.
    fn items<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<(Vec<T>, bool)> {
        self.token(open).then_some(())?;
        let mut items = Vec::new();
        let mut comma = false;
        while !self.token(close) {
            if !(items.is_empty() || comma) {
                return None;
            }
            items.push(item(self)?);
            comma = self.token(',');
        }
        Some((items, comma))
    }

    fn text(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest.strip_prefix(quote)?.chars();
        loop {
            match chars.next()? {
                c if c == quote => break,
                // The only escapes that field names need: quotes and the backslash.
                '\\' => match chars.next()? {
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    _ => return None,
                },
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_to_their_end_or_not_at_all() {
        let text = |t: &str| Literal::Text(t.into());
        let rows = [
            ("'a'", Some(text("a"))),
            ("(1)", Some(Literal::Int(1))),
            ("( 1 , )", Some(Literal::Tuple(vec![Literal::Int(1)]))),
            ("()", Some(Literal::Tuple(vec![]))),
            ("['a', \"b\\'\"]", Some(Literal::List(vec![text("a"), text("b'")]))),
            ("{'a': True}", Some(Literal::Dict(vec![(text("a"), Literal::Word("True".into()))]))),
            ("[1 2]", None),
            ("[,]", None),
            ("'a", None),
            ("1x", None),
            ("9999999999999999999999", None),
        ];
        for (src, want) in rows {
            assert_eq!(Literal::parse(src), want, "{src}");
        }
        assert_eq!(Literal::parse(&"[".repeat(100_000)), None);
    }
}
