//! What an object's managers own (`metadata.managedFields[*].fieldsV1`), held apart from its text
//! and shared.
//!
//! It is a third and more of many an object, objects made from one template have the same of it,
//! and nobody inside the server reads it from the cache. So an entry's text has `{}` in its place,
//! a gap; whoever shows the object to a client fills the gaps again.

use std::{ops::Range, sync::Arc};

use super::pool::Pool;

/// What is shorter stays in the text: to share it would cost as much.
const WORTH_SHARING: usize = 256;
/// What stands in a gap.
const EMPTY: &[u8] = b"{}";

/// The places in a text where something was taken out, in order.
#[derive(Clone, Default)]
pub(super) struct Gaps(Box<[Gap]>);

#[derive(Clone)]
struct Gap {
    /// Where `{}` stands.
    at: u32,
    text: Arc<str>,
}

impl Gaps {
    /// Takes out of the JSON that begins at `start` in `text` what lies in `ranges` of it, in order
    /// and apart, where that is worth it.
    pub(super) fn cut(
        text: &mut Vec<u8>,
        start: usize,
        ranges: &[Range<usize>],
        pool: &Pool,
    ) -> Self {
        let (mut gaps, mut kept, mut copied) = (Vec::new(), Vec::new(), 0);
        for range in ranges.iter().filter(|range| range.len() >= WORTH_SHARING) {
            let range = start + range.start..start + range.end;
            let Ok(taken) = std::str::from_utf8(&text[range.clone()]) else {
                continue;
            };
            kept.extend_from_slice(&text[copied..range.start]);
            let Ok(at) = u32::try_from(kept.len() - start) else {
                return Self::default();
            };
            gaps.push(Gap {
                at,
                text: pool.share(taken),
            });
            kept.extend_from_slice(EMPTY);
            copied = range.end;
        }
        if !gaps.is_empty() {
            kept.extend_from_slice(&text[copied..]);
            kept.shrink_to_fit();
            *text = kept;
        }
        Self(gaps.into())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By how much a text grows when its gaps are filled.
    pub(super) fn growth(&self) -> usize {
        self.0.iter().map(|gap| gap.text.len() - EMPTY.len()).sum()
    }

    /// `text` with its gaps filled, part by part.
    pub(super) fn filled<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let after = |gap: &Gap| gap.at as usize + EMPTY.len();
        let starts = std::iter::once(0).chain(self.0.iter().map(after));
        let ends = self.0.iter().map(|gap| gap.at as usize);
        let between = starts
            .zip(ends.chain([text.len()]))
            .map(move |(start, end)| &text[start..end]);
        let taken = self.0.iter().map(|gap| gap.text.as_bytes());
        between
            .zip(taken.chain([&[][..]]))
            .flat_map(|(kept, taken)| [kept, taken])
    }

    /// The same gaps in a text whose beginning is longer or shorter: what was at `before` is now at
    /// `after`.
    pub(super) fn moved(&self, before: usize, after: usize) -> Self {
        let mut gaps = self.clone();
        for gap in &mut gaps.0 {
            gap.at = u32::try_from(gap.at as usize - before + after).unwrap_or(u32::MAX);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_with_what_was_cut() {
        let long = |letter: &str| format!(r#"{{"f:{}":{{}}}}"#, letter.repeat(WORTH_SHARING));
        let (a, b, short) = (long("a"), long("b"), r#"{"f:c":{}}"#);
        let whole = format!(r#"{{"one":{a},"two":{short},"three":{b},"four":{a}}}"#);
        let ranges: Vec<Range<usize>> = [(7, a.len()), (14 + a.len(), short.len())]
            .into_iter()
            .chain([
                (23 + a.len() + short.len(), b.len()),
                (31 + a.len() + short.len() + b.len(), a.len()),
            ])
            .map(|(start, length)| start..start + length)
            .collect();
        let pool = Pool::default();
        let before = b"before".as_slice();
        let mut text = [before, whole.as_bytes()].concat();
        let gaps = Gaps::cut(&mut text, before.len(), &ranges, &pool);
        assert!(text.starts_with(before));
        text.drain(..before.len());
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            r#"{"one":{},"two":{"f:c":{}},"three":{},"four":{}}"#
        );
        assert_eq!((pool.len(), text.len() + gaps.growth()), (2, whole.len()));
        let filled = gaps.filled(&text).collect::<Vec<_>>().concat();
        assert_eq!(std::str::from_utf8(&filled).unwrap(), whole);
        let longer = [b"{   ", &text[1..]].concat();
        let longer = gaps
            .moved(1, 4)
            .filled(&longer)
            .collect::<Vec<_>>()
            .concat();
        assert_eq!(longer[4..], whole.as_bytes()[1..]);
    }

    #[test]
    fn what_nobody_has_leaves_the_pool() {
        let pool = Pool::default();
        let kept = pool.share("kept");
        (0..1000).for_each(|number| drop(pool.share(&number.to_string())));
        assert!(pool.len() < 10, "{}", pool.len());
        assert!(Arc::ptr_eq(&kept, &pool.share("kept")));
    }
}
