//! Token buckets by key, as many as are used lately: one that has been forgotten is full again.

use hashlink::LruCache;
use tokio::time::Instant;

/// As many are kept if nobody says.
const DEFAULT_SIZE: usize = 4096;

pub(crate) struct Buckets {
    qps: f64,
    burst: f64,
    by_key: LruCache<String, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Buckets {
    pub(crate) fn new(qps: u32, burst: u32, size: usize) -> Self {
        Self {
            qps: f64::from(qps),
            burst: f64::from(burst),
            by_key: LruCache::new(if size == 0 { DEFAULT_SIZE } else { size }),
        }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, key: &str, now: Instant) -> bool {
        let known = self.by_key.peek(key).copied();
        let bucket = known.unwrap_or(Bucket {
            tokens: self.burst,
            filled: now,
        });
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        let mut tokens = (bucket.tokens + passed * self.qps).min(self.burst);
        let has_one = tokens >= 1.0;
        if has_one {
            tokens -= 1.0;
        }
        let filled = now;
        self.by_key
            .insert(key.to_owned(), Bucket { tokens, filled });
        has_one
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
        assert_eq!(buckets.by_key.len(), 2);
    }
}
