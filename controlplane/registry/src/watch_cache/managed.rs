//! What an object's managers own (`metadata.managedFields[*].fieldsV1`), held apart from its text
//! and shared.
//!
//! It is a third and more of many an object, objects made from one template have the same of it,
//! and nobody inside the server reads it from the cache. So an entry's text has `{}` in its place,
//! a gap; whoever shows the object to a client fills the gaps again. An address that names a member
//! of a list is nobody else's: what stands before it and after it is shared.

use std::{ops::Range, sync::Arc};

use super::pool::Pool;

/// What is shorter stays in the text: to share it would cost as much.
const WORTH_SHARING: usize = 256;
/// What stands in a gap.
const EMPTY: &[u8] = b"{}";
/// Before an address that names a member of a list, as `f:podIPs` has it:
/// `"k:{\"ip\":\"10.0.0.1\"}"`.
const ADDRESS: &str = r#"\"ip\":\""#;

/// The places in a text where something was taken out, in order.
#[derive(Clone, Default)]
pub(super) struct Gaps(Box<[Gap]>);

#[derive(Clone)]
struct Gap {
    /// Where `{}` stands.
    at: u32,
    text: Taken,
}

/// What was taken out.
#[derive(Clone)]
enum Taken {
    /// Others have it, too.
    Shared(Arc<str>),
    /// What others have, with an address after each part but the last.
    Around(Box<[(Arc<str>, Box<str>)]>),
}

impl Taken {
    fn of(text: &str, pool: &Pool) -> Self {
        if !text.contains(ADDRESS) {
            return Self::Shared(pool.share(text));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(found) = rest.find(ADDRESS) {
            let (before, after) = rest.split_at(found + ADDRESS.len());
            let (address, after) = after.split_at(after.find('\\').unwrap_or(after.len()));
            parts.push((pool.share(before), address.into()));
            rest = after;
        }
        parts.push((pool.share(rest), Box::default()));
        Self::Around(parts.into())
    }

    fn len(&self) -> usize {
        match self {
            Self::Shared(text) => text.len(),
            Self::Around(parts) => parts.iter().map(|(text, own)| text.len() + own.len()).sum(),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (shared, around) = match self {
            Self::Shared(text) => (text.as_bytes(), &[][..]),
            Self::Around(parts) => (&[][..], &**parts),
        };
        let around = around.iter();
        std::iter::once(shared)
            .chain(around.flat_map(|(text, own)| [text.as_bytes(), own.as_bytes()]))
    }
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
                text: Taken::of(taken, pool),
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
        let taken = self.0.iter().map(|gap| Some(&gap.text));
        between.zip(taken.chain([None])).flat_map(|(kept, taken)| {
            std::iter::once(kept).chain(taken.into_iter().flat_map(Taken::parts))
        })
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
    fn addresses_are_not_shared_and_what_is_around_them_is() {
        let pool = Pool::default();
        let owned = |addresses: &[&str]| {
            let keys = addresses
                .iter()
                .map(|ip| format!(r#""k:{{\"ip\":\"{ip}\"}}":{{".":{{}},"f:ip":{{}}}}"#));
            let keys = keys.collect::<Vec<_>>().join(",");
            let rest = "x".repeat(WORTH_SHARING);
            format!(r#"{{"f:podIPs":{{".":{{}},{keys}}},"f:{rest}":{{}}}}"#)
        };
        for (addresses, shared) in [
            (&["10.0.0.1"][..], 2),
            (&["10.0.0.2"], 2),
            (&["10.0.0.3", "fd00::3"], 3),
            (&["10.0.0.4", "fd00::4"], 3),
        ] {
            let whole = owned(addresses);
            let mut text = whole.clone().into_bytes();
            let all = std::iter::once(0..whole.len()).collect::<Vec<_>>();
            let gaps = Gaps::cut(&mut text, 0, &all, &pool);
            assert_eq!(text, EMPTY);
            let filled = gaps.filled(&text).collect::<Vec<_>>().concat();
            assert_eq!(std::str::from_utf8(&filled).unwrap(), whole);
            assert_eq!(text.len() + gaps.growth(), whole.len());
            assert!(pool.len() <= shared, "{addresses:?}: {}", pool.len());
        }
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
