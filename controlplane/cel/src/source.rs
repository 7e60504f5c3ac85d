//! The text of an expression, and how a message points into it.
//!
//! Offsets count code points, as upstream's columns do.

use std::fmt;

/// The longest expression, in code points.
const MAX_CODE_POINTS: usize = 100_000;

/// The most reasons that are told, as upstream's.
const MAX_ISSUES: usize = 100;

/// The longest line that a message quotes, in bytes, as upstream's.
const MAX_QUOTED: usize = 16_384;

/// A text with the offsets at which its lines begin.
#[derive(Debug, Clone)]
pub struct Source {
    text: Box<str>,
    chars: Box<[char]>,
    lines: Box<[u32]>,
}

/// A line, from 1 on, and a column, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// From 1 on; 0 is nowhere in the text.
    pub line: u32,
    /// From 0 on.
    pub column: u32,
}

/// One reason for which an expression does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Where, in code points; `None` is the whole expression.
    pub offset: Option<u32>,
    /// What is wrong, in upstream's words.
    pub message: String,
}

/// All reasons for which an expression does not compile, in the order of the text.
#[derive(Debug, Clone)]
pub struct Issues {
    source: Source,
    issues: Vec<Issue>,
    more: usize,
}

/// Reasons as they are found: the first hundred, and how many there are beyond.
#[derive(Debug, Default)]
pub(crate) struct Found {
    issues: Vec<Issue>,
    more: usize,
}

impl Found {
    /// Takes a reason; one that is there already counts once.
    pub(crate) fn push(&mut self, issue: Issue) {
        if self.issues.contains(&issue) {
            return;
        }
        if self.issues.len() < MAX_ISSUES {
            self.issues.push(issue);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.issues.is_empty()
    }
}

impl Source {
    /// Takes a text.
    ///
    /// # Errors
    /// [`Issues`] when it is longer than upstream's 100,000 code points.
    pub fn new(text: &str) -> Result<Self, Issues> {
        let size = text.chars().count();
        let long = size > MAX_CODE_POINTS;
        let text = if long { "" } else { text };
        let chars: Box<[char]> = text.chars().collect();
        let ends = chars.iter().zip(1u32..).filter(|(c, _)| **c == '\n');
        let lines = std::iter::once(0).chain(ends.map(|(_, next)| next));
        let source = Self {
            text: text.into(),
            lines: lines.collect(),
            chars,
        };
        if !long {
            return Ok(source);
        }
        let message = format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
        );
        let issue = Issue {
            offset: None,
            message,
        };
        Err(Issues::one(source, issue))
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn chars(&self) -> &[char] {
        &self.chars
    }

    /// Where an offset is.
    pub fn location(&self, offset: u32) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset);
        Location {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: offset - self.lines[line - 1],
        }
    }

    fn line(&self, line: u32) -> String {
        let at = line as usize - 1;
        let start = self.lines[at] as usize;
        let end = self
            .lines
            .get(at + 1)
            .map_or(self.chars.len(), |next| *next as usize - 1);
        self.chars[start..end].iter().collect()
    }
}

impl Issues {
    pub(crate) fn new(source: Source, found: Found) -> Self {
        let Found { mut issues, more } = found;
        issues.sort_by_key(|issue| issue.offset);
        Self {
            source,
            issues,
            more,
        }
    }

    pub(crate) fn one(source: Source, issue: Issue) -> Self {
        let mut found = Found::default();
        found.push(issue);
        Self::new(source, found)
    }

    /// Each reason.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter()
    }
}

impl std::error::Error for Issues {}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, issue) in self.issues.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            let Some(offset) = issue.offset else {
                write!(f, "ERROR: <input>:-1:0: {}", issue.message)?;
                continue;
            };
            let Location { line, column } = self.source.location(offset);
            write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
            let line = self.source.line(line);
            if line.len() <= MAX_QUOTED {
                pointer(f, &line, column as usize)?;
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n{more} more errors were truncated"),
        }
    }
}

/// The line, and beneath it what points at a column: wide where the text is, so that both align.
fn pointer(f: &mut fmt::Formatter<'_>, line: &str, column: usize) -> fmt::Result {
    let line = line.replace('\t', " ");
    write!(f, "\n | {line}\n | ")?;
    let mut chars = line.chars();
    for _ in 0..column {
        let wide = chars.next().is_some_and(|c| c.len_utf8() > 1);
        f.write_str(if wide { "．" } else { "." })?;
    }
    let wide = chars.next().is_some_and(|c| c.len_utf8() > 1);
    f.write_str(if wide { "＾" } else { "^" })
}
