//! Connections by number, and how many come from where. Says nothing of who goes.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use tokio_util::sync::CancellationToken;

/// Connections, each with what somebody has to know of it to say who goes.
#[derive(Debug)]
pub struct Counted<T> {
    next: u64,
    /// In the order in which they came.
    open: BTreeMap<u64, Open<T>>,
    by_source: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Open<T> {
    source: IpAddr,
    leave: CancellationToken,
    what: T,
}

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self {
            next: 0,
            open: BTreeMap::new(),
            by_source: HashMap::new(),
        }
    }
}

impl<T> Counted<T> {
    /// One comes. It is told by the token when it has to go.
    pub fn add(&mut self, source: IpAddr, what: T) -> (u64, CancellationToken) {
        let number = self.next;
        self.next += 1;
        let leave = CancellationToken::new();
        let open = Open {
            source,
            leave: leave.clone(),
            what,
        };
        self.open.insert(number, open);
        *self.by_source.entry(source).or_default() += 1;
        (number, leave)
    }

    /// One goes, or does not count any more. Says whether it did until now.
    pub fn remove(&mut self, number: u64) -> bool {
        self.take(number).is_some()
    }

    /// Tells one to go.
    pub fn send_away(&mut self, number: u64) {
        if let Some(open) = self.take(number) {
            open.leave.cancel();
        }
    }

    /// What is known of one, unless it was sent away.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.open.get_mut(&number).map(|open| &mut open.what)
    }

    /// All of them, the oldest first: number, where it comes from, what is known of it.
    pub fn all(&self) -> impl Iterator<Item = (u64, IpAddr, &T)> {
        let all = self.open.iter();
        all.map(|(number, open)| (*number, open.source, &open.what))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// How many come from there.
    #[must_use]
    pub fn count_of(&self, source: IpAddr) -> usize {
        self.by_source.get(&source).copied().unwrap_or(0)
    }

    /// How many come from where most do.
    #[must_use]
    pub fn most(&self) -> usize {
        self.by_source.values().copied().max().unwrap_or(0)
    }

    fn take(&mut self, number: u64) -> Option<Open<T>> {
        let open = self.open.remove(&number)?;
        if let Some(count) = self.by_source.get_mut(&open.source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&open.source);
            }
        }
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_is_counted_no_more() {
        let mut all = Counted::default();
        let [a, b]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let (first, leave) = all.add(a, "first");
        let (second, _) = all.add(a, "second");
        let (third, stays) = all.add(b, "third");
        assert_eq!((all.count(), all.count_of(a), all.most()), (3, 2, 2));
        let order: Vec<&str> = all.all().map(|(_, _, what)| *what).collect();
        assert_eq!(order, ["first", "second", "third"]);
        all.send_away(first);
        assert!(leave.is_cancelled() && !stays.is_cancelled());
        assert!(all.get_mut(first).is_none() && !all.remove(first));
        assert!(all.remove(second) && all.remove(third));
        assert_eq!((all.count(), all.count_of(a), all.most()), (0, 0, 0));
        assert!(!stays.is_cancelled(), "it went by itself");
    }
}
