//! Whom the log has named as the one who has the first address of the range, which is the
//! `kubernetes` Service's: named once, and not at each look.

use parking_lot::Mutex;

/// Who was told to have it, last.
#[derive(Debug, Default)]
pub(crate) struct FirstAddress(Mutex<Option<String>>);

impl FirstAddress {
    /// Whether this was not told before. `None` is for nobody, and no news.
    pub(crate) fn is_news(&self, holder: Option<&str>) -> bool {
        let mut told = self.0.lock();
        let is_news = holder.is_some() && told.as_deref() != holder;
        *told = holder.map(str::to_owned);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_once() {
        let told = FirstAddress::default();
        for (holder, expected) in [
            (None, false),
            (Some("a/b"), true),
            (Some("a/b"), false),
            (Some("a/c"), true),
            (None, false),
            (Some("a/c"), true),
        ] {
            assert_eq!(told.is_news(holder), expected, "{holder:?}");
        }
    }
}
