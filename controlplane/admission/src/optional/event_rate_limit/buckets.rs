//! Token buckets by key, as many as are used lately: one that has been forgotten is full again.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

/// As many are kept if nobody says.
const DEFAULT_SIZE: usize = 4096;

pub(crate) struct Buckets {
    qps: f64,
    burst: f64,
    size: usize,
    by_key: HashMap<String, Bucket>,
    /// The other way round, by the turn of the last use.
    by_turn: BTreeMap<u64, String>,
    turns: u64,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
    turn: u64,
}

impl Buckets {
    pub(crate) fn new(qps: u32, burst: u32, size: usize) -> Self {
        Self {
            qps: f64::from(qps),
            burst: f64::from(burst),
            size: if size == 0 { DEFAULT_SIZE } else { size },
            by_key: HashMap::new(),
            by_turn: BTreeMap::new(),
            turns: 0,
        }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, key: &str, now: Instant) -> bool {
        self.turns += 1;
        let (burst, turn) = (self.burst, self.turns);
        if !self.by_key.contains_key(key) && self.by_key.len() >= self.size {
            self.forget_oldest();
        }
        let bucket = self.by_key.entry(key.to_owned()).or_insert(Bucket {
            tokens: burst,
            filled: now,
            turn,
        });
        self.by_turn.remove(&bucket.turn);
        self.by_turn.insert(turn, key.to_owned());
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * self.qps).min(burst);
        (bucket.filled, bucket.turn) = (now, turn);
        let has_one = bucket.tokens >= 1.0;
        if has_one {
            bucket.tokens -= 1.0;
        }
        has_one
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.by_turn.pop_first() {
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_that_was_used_longest_ago_is_forgotten() {
        let (mut buckets, now) = (Buckets::new(1, 1, 2), Instant::now());
        let mut take = |key: &str| buckets.take(key, now);
        assert!(take("a") && take("b"));
        assert!(!take("a") && !take("b") && !take("a"));
        assert!(take("c"), "b goes");
        assert!(!take("a"), "it was used after b");
        assert!(take("b"), "full again; c goes");
        assert_eq!((buckets.by_key.len(), buckets.by_turn.len()), (2, 2));
    }
}
