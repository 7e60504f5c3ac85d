//! What the webhook has said lately, by what it was asked. Those that were used longest ago make
//! room for others.

use hashlink::LruCache;
use tokio::time::Instant;

use super::review::Verdict;

/// As many answers are kept, as upstream.
const MOST: usize = 1024;
/// Longer questions and answers are not kept: together no more than 8 MiB are.
const LONGEST: usize = 4096;

pub(super) struct Remembered {
    by_spec: LruCache<String, Entry>,
}

struct Entry {
    verdict: Verdict,
    until: Instant,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            by_spec: LruCache::new(MOST),
        }
    }
}

impl Remembered {
    pub(super) fn find(&mut self, spec: &str, now: Instant) -> Option<Verdict> {
        let entry = self.by_spec.get(spec)?;
        if entry.until <= now {
            self.by_spec.remove(spec);
            return None;
        }
        Some(entry.verdict.clone())
    }

    pub(super) fn keep(&mut self, spec: &str, verdict: &Verdict, until: Instant, now: Instant) {
        if until <= now || spec.len() > LONGEST || size(verdict) > LONGEST {
            return;
        }
        let verdict = verdict.clone();
        self.by_spec
            .insert(spec.to_owned(), Entry { verdict, until });
    }
}

fn size(verdict: &Verdict) -> usize {
    let audit = verdict.audit.iter();
    let audit: usize = audit.map(|(key, value)| key.len() + value.len()).sum();
    verdict.reason.len() + audit
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_are_kept_for_their_time() {
        let (mut kept, now) = (Remembered::default(), Instant::now());
        let (yes, later) = (Verdict::default(), now + Duration::from_secs(2));
        kept.keep("a", &yes, later, now);
        kept.keep("b", &yes, now, now);
        assert!(kept.find("a", now).is_some() && kept.find("b", now).is_none());
        assert!(kept.find("a", later).is_none());
        assert!(kept.by_spec.is_empty());
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let (mut kept, now) = (Remembered::default(), Instant::now());
        let (yes, later) = (Verdict::default(), now + Duration::from_secs(1));
        let key = |number: usize| number.to_string();
        (0..MOST).for_each(|number| kept.keep(&key(number), &yes, later, now));
        assert!(kept.find("0", now).is_some());
        kept.keep("more", &yes, later, now);
        kept.keep("more", &yes, later, now);
        assert!(kept.find("0", now).is_some() && kept.find("1", now).is_none());
        assert_eq!(kept.by_spec.len(), MOST);
        let long = "x".repeat(LONGEST + 1);
        kept.keep(&long, &yes, later, now);
        let wordy = Verdict {
            reason: long.clone(),
            ..yes
        };
        kept.keep("wordy", &wordy, later, now);
        assert!(kept.find(&long, now).is_none() && kept.find("wordy", now).is_none());
    }
}
