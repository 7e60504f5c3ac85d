//! What a YAML text may cost: looked at event by event, before anything is built of it.
//!
//! The reader that builds values scans each token past all flow collections that are open, so
//! nesting makes it quadratic, and an alias costs a stranger one byte for as much as its anchor
//! holds. It also keeps each event, a hundred times what a one-byte scalar takes. Here the text is
//! left at the first event that goes too deep, repeats too much or is one too many.
//!
//! Not here: what the text means.

use std::{borrow::Cow, collections::HashMap};

use libyaml_safer::{EventData, Parser};

use super::bounds::{MAX_NODES, too_many};

/// Deepest nesting of collections: what the readers of JSON and YAML take.
const MAX_DEPTH: usize = 127;
/// Most that aliases may add, in bytes; a node counts for one.
const MAX_ALIASED: usize = 1 << 20;

/// Whether the text may be given to the reader.
///
/// # Errors
/// Why not, in the words of Go's YAML reader.
pub(super) fn check(body: &[u8]) -> Result<(), String> {
    let body = in_bytes(body)?;
    let text = spelled_out(&body);
    let mut rest: &[u8] = &text;
    let mut parser = Parser::new();
    parser.set_input(&mut rest);
    let mut seen = Seen::default();
    loop {
        let event = parser
            .parse()
            .map_err(|error| malformed(&error, &body, text.len()))?;
        match event.data {
            EventData::StreamEnd => return Ok(()),
            EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
            EventData::DocumentEnd { .. } => seen.anchors.clear(),
            EventData::Alias { anchor } => seen.alias(&anchor)?,
            EventData::Scalar { anchor, value, .. } => seen.scalar(anchor, value.len())?,
            EventData::SequenceStart { anchor, .. } | EventData::MappingStart { anchor, .. } => {
                seen.open(anchor)?
            }
            EventData::SequenceEnd | EventData::MappingEnd => seen.close(),
        }
    }
}

/// The text in UTF-8, whatever its byte order mark says.
fn in_bytes(body: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let wide = |of: fn([u8; 2]) -> u16| {
        let units = body
            .chunks(2)
            .map(|unit| of([unit[0], unit.get(1).copied().unwrap_or(0)]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.map(|text| Cow::Owned(text.into_bytes()))
            .map_err(|_| "incomplete UTF-16 surrogate pair".to_owned())
    };
    match body {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        _ => Ok(Cow::Borrowed(body)),
    }
}

/// With a blank between a tag and the comma after it, as in `[!a,b]`, and with an end of the last
/// line, as after a block scalar: both mean the same, and without them the parser panics (0.3.0,
/// `scan_tag` and `read_line_break`). Elsewhere they are one more byte of a text that is only
/// counted.
fn spelled_out(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 1);
    let mut is_tag = false;
    for byte in text {
        match byte {
            b'!' => is_tag = true,
            b',' if is_tag => out.push(b' '),
            _ => {}
        }
        is_tag &= !matches!(
            byte,
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b'[' | b']' | b'{' | b'}'
        );
        out.push(*byte);
    }
    if !text.ends_with(b"\n") {
        out.push(b'\n');
    }
    out
}

/// `end` is where the text that was parsed ends: on the last line of `body`, and not behind it, if
/// that has no end.
fn malformed(error: &libyaml_safer::Error, body: &[u8], end: usize) -> String {
    let problem = error.problem();
    let line = |mark: &libyaml_safer::Mark| {
        let is_behind =
            usize::try_from(mark.index).is_ok_and(|at| at >= end) && !body.ends_with(b"\n");
        mark.line + u64::from(!is_behind)
    };
    match error.problem_mark().as_ref().map(line) {
        Some(line) if line > 1 => format!("line {line}: {problem}"),
        _ => problem.to_owned(),
    }
}

/// What an anchor stands for.
#[derive(Clone, Copy)]
enum Anchored {
    /// It is still being read: an alias would contain itself.
    Open,
    Held(Amount),
}

/// How much of a text.
#[derive(Clone, Copy, Default)]
struct Amount {
    /// One more for each node.
    bytes: usize,
    nodes: usize,
}

#[derive(Default)]
struct Seen {
    /// So far, aliases spelled out.
    all: Amount,
    /// The bytes of it that aliases stand for.
    aliased: usize,
    /// Of each open collection: its anchor, and `all` where it began.
    open: Vec<(Option<String>, Amount)>,
    anchors: HashMap<String, Anchored>,
}

impl Seen {
    fn scalar(&mut self, anchor: Option<String>, length: usize) -> Result<(), String> {
        let held = Amount {
            bytes: length + 1,
            nodes: 1,
        };
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, Anchored::Held(held));
        }
        self.add(held)
    }

    fn add(&mut self, held: Amount) -> Result<(), String> {
        self.all.bytes = self.all.bytes.saturating_add(held.bytes);
        self.all.nodes = self.all.nodes.saturating_add(held.nodes);
        if self.all.nodes > MAX_NODES {
            return Err(too_many());
        }
        Ok(())
    }

    fn open(&mut self, anchor: Option<String>) -> Result<(), String> {
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("exceeded max depth of {MAX_DEPTH}"));
        }
        if let Some(anchor) = &anchor {
            self.anchors.insert(anchor.clone(), Anchored::Open);
        }
        self.open.push((anchor, self.all));
        self.add(Amount { bytes: 1, nodes: 1 })
    }

    fn close(&mut self) {
        if let Some((Some(anchor), start)) = self.open.pop() {
            let held = Amount {
                bytes: self.all.bytes - start.bytes,
                nodes: self.all.nodes - start.nodes,
            };
            self.anchors.insert(anchor, Anchored::Held(held));
        }
    }

    fn alias(&mut self, anchor: &str) -> Result<(), String> {
        match self.anchors.get(anchor) {
            None => Err(format!("unknown anchor '{anchor}' referenced")),
            Some(Anchored::Open) => Err(format!("anchor '{anchor}' value contains itself")),
            Some(&Anchored::Held(held)) => {
                self.aliased = self.aliased.saturating_add(held.bytes);
                if self.aliased > MAX_ALIASED {
                    return Err("document contains excessive aliasing".to_owned());
                }
                self.add(held)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn ordinary_texts_pass() {
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        let script = format!(
            "data:\n  run: |\n{}",
            "    echo -e \"\\033[0;31m [[ { $x\"\n".repeat(500)
        );
        for text in [
            "",
            "a: 1",
            "a: &x {b: [1, 2]}\nc: *x\nd: *x\n",
            "\"[[[\": '{{{' # [[[",
            r#"{"a": ["[", "{"], "b": {}}"#,
            "---\na: b\n...\n",
            &deep,
            &script,
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_tag_may_stand_before_a_comma() {
        for text in [
            "a: [!c,*b,d]\nb: &b 1\n",
            "b: &b 1\na: [!c,*b,!!str,!h!s,{!x,y: 1}]\n",
            "a: \"wow!,\"\n",
            "[!,!,!]",
        ] {
            let wide: Vec<u8> = [0xfeff]
                .into_iter()
                .chain(text.encode_utf16())
                .flat_map(u16::to_le_bytes)
                .collect();
            for body in [text.as_bytes(), &wide] {
                // It is said, or taken; nothing panics.
                let told = check(body);
                assert!(
                    told.is_ok() || !text.starts_with('b') || told.unwrap_err().contains("tag"),
                    "{text}"
                );
            }
        }
        assert_eq!(spelled_out(b"[!a,b, !c ,d]"), b"[!a ,b, !c ,d]\n");
    }

    #[test]
    fn a_block_scalar_may_end_with_the_text() {
        for text in [
            "a: |\n b",
            "a: >-\n b\n c",
            "- |+\n  b\r",
            "a: |\n  b\u{2028}  c",
            "a: |",
            "|2\n  b",
        ] {
            let wide: Vec<u8> = [0xfeff]
                .into_iter()
                .chain(text.encode_utf16())
                .flat_map(u16::to_be_bytes)
                .collect();
            for body in [text.as_bytes(), &wide] {
                assert_eq!(check(body), Ok(()), "{text:?}");
            }
        }
    }

    #[test]
    fn nesting_is_bounded_however_it_is_written() {
        for open in ["[", "{a: ", "- ", "? ", "[{a: ", "\"]\": [", "{? "] {
            let why = check(open.repeat((3 << 20) / open.len()).as_bytes()).expect_err(open);
            assert_eq!(why, "exceeded max depth of 127", "{open}");
        }
        let mut steps = String::new();
        for depth in 0..1000 {
            let _ = writeln!(steps, "{}a:", " ".repeat(depth));
        }
        assert_eq!(
            check(steps.as_bytes()),
            Err("exceeded max depth of 127".to_owned())
        );
    }

    #[test]
    fn aliases_are_bounded_by_what_they_stand_for() {
        let scalar = format!(
            "a: &a \"{}\"\nb:\n{}",
            "x".repeat(100_000),
            "- *a\n".repeat(11)
        );
        assert_eq!(
            check(scalar.as_bytes()),
            Err("document contains excessive aliasing".to_owned())
        );
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            let _ = writeln!(bomb, "a{level}: &a{level} [{aliases}]");
        }
        assert_eq!(
            check(bomb.as_bytes()),
            Err("document contains more than 200000 nodes".to_owned())
        );
        assert_eq!(
            check(b"a: &a [*a, *a]"),
            Err("anchor 'a' value contains itself".to_owned())
        );
        assert_eq!(
            check(b"a: *b"),
            Err("unknown anchor 'b' referenced".to_owned())
        );
    }

    #[test]
    fn nodes_are_counted_with_what_aliases_stand_for() {
        let many = |nodes: usize| format!("[{}]", "a,".repeat(nodes - 1));
        assert_eq!(check(many(MAX_NODES).as_bytes()), Ok(()));
        let aliases = format!(
            "- &a [{}]\n{}",
            "x,".repeat(999),
            "- *a\n".repeat(MAX_NODES / 1000)
        );
        for text in [
            many(MAX_NODES + 1),
            aliases,
            "a:\n".repeat(MAX_NODES),
            "- \n".repeat(MAX_NODES),
        ] {
            let why = check(text.as_bytes()).unwrap_err();
            assert_eq!(
                why,
                "document contains more than 200000 nodes",
                "{}",
                &text[..40]
            );
        }
    }

    #[test]
    fn what_is_no_yaml_is_said_with_its_line() {
        let told = |line| Err(format!("line {line}: did not find expected ',' or '}}'"));
        assert_eq!(check(b"a: b\nc: {d\n"), told(3));
        assert_eq!(check(b"a: b\nc: {d"), told(2));
        assert_eq!(
            check(b"{d"),
            Err("did not find expected ',' or '}'".to_owned())
        );
    }
}
