//! Regular expressions, as Go reads them. Like Go's, those of the `regex` crate take time that is
//! linear in the text.

use std::collections::VecDeque;

use coracle_structural::pattern::translate;
use regex::{Regex, RegexBuilder};

/// Bytes that a compiled expression may take: the least of these that it fits into is what it
/// counts for.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, LARGEST];
pub(crate) const LARGEST: usize = 1 << 20;
/// Bytes after which a program gets no more of them.
pub(crate) const MOST: usize = 4 << 20;
/// An expression that was compiled, and what it counts for.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) regex: Regex,
    pub(crate) size: usize,
}

/// Compiles an expression.
pub(crate) fn compile(pattern: &str) -> Result<Compiled, String> {
    let mut builder = RegexBuilder::new(&translate(pattern)?);
    builder.dfa_size_limit(LARGEST);
    let mut refused = String::new();
    for size in SIZES {
        match builder.size_limit(size).build() {
            Ok(regex) => return Ok(Compiled { regex, size }),
            Err(error) => refused = error.to_string(),
        }
    }
    Err(refused)
}

/// Expressions that were compiled lately, and those that are none.
#[derive(Default)]
pub(crate) struct Patterns(VecDeque<(String, Result<Compiled, String>)>);

impl Patterns {
    /// More are forgotten, the oldest first.
    const MOST: usize = 8;

    pub(crate) fn find(&self, pattern: &str) -> Option<Result<Compiled, String>> {
        let mut all = self.0.iter();
        let found = all.find(|(text, _)| text == pattern);
        found.map(|(_, made)| made.clone())
    }

    pub(crate) fn keep(
        &mut self,
        pattern: &str,
        made: Result<Compiled, String>,
    ) -> Result<Compiled, String> {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back((pattern.to_owned(), made.clone()));
        made
    }
}
