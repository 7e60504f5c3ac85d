//! The queue between change events and a controller: keys in, one reconcile per key at a time.
//!
//! A key added while it waits is kept once; a key added while it is being worked on runs again
//! afterwards. Failed keys come back after a back-off that doubles up to a cap; keys can be added
//! for later. The queue owns no task and does no I/O.
//!
//! Bound: a key is held at most once, so the length is at most the number of live objects of the
//! kind.
//!
//! Source: `k8s.io/client-go/util/workqueue` at v1.37.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
    time::{Duration, SystemTime},
};

use coracle_telemetry::{
    ExponentialBackoff,
    metrics::{Counter, Gauge, Histogram, MetricsRegistry},
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// First delay after a failure.
const BACKOFF_BASE: Duration = Duration::from_millis(5);
/// Longest delay after repeated failures.
const BACKOFF_CAP: Duration = Duration::from_secs(60);
/// How long a worker sleeps at most while something is delayed, and what difference of the clocks
/// it does not mind.
const CLOCK_PERIOD: Duration = Duration::from_secs(30);
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// Notices that the wall clock has gone another way than the one that sleeps: the machine was
/// suspended, or its clock was set. Delays are mostly times left until a moment of the wall clock
/// and are wrong then.
#[derive(Debug)]
struct Clocks {
    began: std::time::Instant,
    /// What the wall clock was ahead of the time since `began`.
    ahead: Option<Duration>,
}

impl Clocks {
    fn new() -> Self {
        Self {
            began: std::time::Instant::now(),
            ahead: None,
        }
    }

    fn have_parted(&mut self) -> bool {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.have_parted_at(wall, self.began.elapsed())
    }

    /// Whether the difference is another one than last time.
    fn have_parted_at(&mut self, wall: Duration, slept: Duration) -> bool {
        let ahead = wall.saturating_sub(slept);
        let before = *self.ahead.get_or_insert(ahead);
        let parted = before.abs_diff(ahead) > CLOCK_TOLERANCE;
        if parted {
            self.ahead = Some(ahead);
        }
        parted
    }
}

/// A deduplicating queue with delays.
#[derive(Debug)]
pub struct WorkQueue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

/// What `/metrics` tells of a queue.
#[derive(Debug)]
struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    waits: Histogram,
    work: Histogram,
}

impl QueueMetrics {
    fn new(metrics: &MetricsRegistry, name: &str) -> Self {
        let labels = [("name", name)];
        let wait = "How long in seconds an item stays in workqueue before being requested";
        let work = "How long in seconds processing an item from workqueue takes";
        Self {
            depth: metrics.gauge("workqueue_depth", "Current depth of workqueue", &labels),
            adds: metrics.counter(
                "workqueue_adds",
                "Total number of adds handled by workqueue",
                &labels,
            ),
            retries: metrics.counter(
                "workqueue_retries",
                "Total number of retries handled by workqueue",
                &labels,
            ),
            waits: metrics.histogram("workqueue_queue_duration_seconds", wait, &labels),
            work: metrics.histogram("workqueue_work_duration_seconds", work, &labels),
        }
    }
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, and keys to run again once their present run ends, with the time of their
    /// first add.
    dirty: HashMap<K, Instant>,
    /// With the time at which the run began.
    processing: HashMap<K, Instant>,
    /// By due time; the number keeps equal times apart.
    delayed: BTreeMap<(Instant, u64), K>,
    due: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    sequence: u64,
    closed: bool,
    clocks: Clocks,
    metrics: QueueMetrics,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// A queue that counts in `metrics`.
    pub fn named(metrics: &MetricsRegistry, name: &str) -> Self {
        let metrics = QueueMetrics::new(metrics, name);
        metrics.depth.set(0);
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashMap::new(),
                processing: HashMap::new(),
                delayed: BTreeMap::new(),
                due: HashMap::new(),
                failures: HashMap::new(),
                sequence: 0,
                closed: false,
                clocks: Clocks::new(),
                metrics,
            }),
            wake: Notify::new(),
        }
    }

    /// Asks for one run of `key`, as soon as a worker is free.
    pub fn add(&self, key: K) {
        if self.state.lock().add(key) {
            self.wake.notify_one();
        }
    }

    /// Asks for a run of `key` once `delay` has passed. An earlier wish for the same key stands.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state.lock();
        state.metrics.retries.inc();
        let at = Instant::now() + delay;
        if let Some(&(earlier, _)) = state.due.get(&key)
            && earlier <= at
        {
            return;
        }
        if let Some(slot) = state.due.remove(&key) {
            state.delayed.remove(&slot);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.due.insert(key.clone(), slot);
        state.delayed.insert(slot, key);
        drop(state);
        // A worker that sleeps until a later time has to look again.
        self.wake.notify_one();
    }

    /// Asks for another run after a failure: 5 ms at first, doubling up to a minute. Returns how
    /// often `key` has failed, this time included.
    pub fn add_rate_limited(&self, key: K) -> u32 {
        let (delay, failures) = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(key.clone()).or_insert(0);
            let delay = ExponentialBackoff::new(BACKOFF_BASE, BACKOFF_CAP).after(*failures);
            *failures = failures.saturating_add(1);
            (delay, *failures)
        };
        self.add_after(key, delay);
        failures
    }

    /// Forgets the failures of `key`.
    pub fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// The next key to work on, or `None` once the queue is closed. The caller ends with
    /// [`WorkQueue::done`]. Cancel-safe: a key is taken only by the poll that returns it.
    pub async fn next(&self) -> Option<K> {
        loop {
            // Registered before the look, so that a wake in between is not lost.
            let woken = self.wake.notified();
            let next_due = {
                let mut state = self.state.lock();
                if state.closed {
                    self.wake.notify_one();
                    return None;
                }
                let now = Instant::now();
                let parted = !state.delayed.is_empty() && state.clocks.have_parted();
                state.ripen(now, parted);
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(key);
                }
                state
                    .delayed
                    .keys()
                    .next()
                    .map(|(at, _)| (*at).min(now + CLOCK_PERIOD))
            };
            match next_due {
                Some(at) => tokio::select! {
                    () = woken => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => woken.await,
            }
        }
    }

    /// Ends the run of `key`; it runs again at once if it was added meanwhile.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        if let Some(began) = state.processing.remove(key) {
            state.metrics.work.observe(began.elapsed().as_secs_f64());
        }
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            state.metrics.depth.inc();
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Ends the queue: workers get `None`.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Whether a worker has something new to do.
    fn add(&mut self, key: K) -> bool {
        if self.dirty.contains_key(&key) {
            return false;
        }
        self.dirty.insert(key.clone(), Instant::now());
        self.metrics.adds.inc();
        if self.processing.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        self.metrics.depth.inc();
        true
    }

    /// Takes in the delayed keys that are due; `all` of them if nobody knows when they are.
    fn ripen(&mut self, now: Instant, all: bool) {
        while let Some((&slot, _)) = self.delayed.iter().next()
            && (all || slot.0 <= now)
        {
            if let Some(key) = self.delayed.remove(&slot) {
                self.due.remove(&key);
                self.add(key);
            }
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        if let Some(added) = self.dirty.remove(&key) {
            self.metrics.waits.observe(added.elapsed().as_secs_f64());
        }
        self.metrics.depth.dec();
        self.processing.insert(key.clone(), Instant::now());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::named(&MetricsRegistry::default(), "test")
    }

    async fn next_now(queue: &WorkQueue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_millis(1), queue.next())
            .await
            .ok()
            .flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn key_added_twice_is_handed_out_once() {
        let queue = queue();
        queue.add("a");
        queue.add("a");
        assert_eq!(next_now(&queue).await, Some("a"));
        queue.done(&"a");
        assert_eq!(next_now(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn key_added_during_its_run_runs_again_after_it() {
        let queue = queue();
        queue.add("a");
        assert_eq!(next_now(&queue).await, Some("a"));
        queue.add("a");
        assert_eq!(next_now(&queue).await, None, "not beside itself");
        queue.done(&"a");
        assert_eq!(next_now(&queue).await, Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_key_comes_at_its_time_and_the_earliest_wish_wins() {
        let queue = queue();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(20));
        let start = Instant::now();
        assert_eq!(queue.next().await, Some("a"));
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        assert_eq!(next_now(&queue).await, None);
    }

    #[test]
    fn a_suspended_machine_and_a_clock_that_was_set_are_noticed() {
        let seconds = Duration::from_secs;
        let mut clocks = Clocks::new();
        // (wall clock, slept, noticed)
        let table = [
            (1_000, 0, false),
            (1_030, 30, false),
            (1_061, 60, false),
            (8_290, 90, true),
            (8_320, 120, false),
            (5_000, 150, true),
            (5_030, 180, false),
        ];
        for (wall, slept, noticed) in table {
            assert_eq!(
                clocks.have_parted_at(seconds(wall), seconds(slept)),
                noticed,
                "{wall} {slept}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delays_mean_nothing_once_the_clocks_have_parted() {
        let queue = queue();
        queue.add_after("a", Duration::from_secs(3600));
        assert_eq!(next_now(&queue).await, None);
        queue.state.lock().clocks.ahead = Some(Duration::ZERO);
        let start = Instant::now();
        assert_eq!(queue.next().await, Some("a"));
        assert!(start.elapsed() <= CLOCK_PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_doubles_up_to_its_cap_and_starts_over_when_forgotten() {
        let queue = queue();
        let mut delays = Vec::new();
        for _ in 0..20 {
            let start = Instant::now();
            queue.add_rate_limited("a");
            queue.next().await;
            queue.done(&"a");
            delays.push(start.elapsed());
        }
        assert!(delays[0] < Duration::from_millis(10), "{:?}", delays[0]);
        assert!(delays[3] > delays[1]);
        assert_eq!(delays[19].as_secs(), BACKOFF_CAP.as_secs());
        queue.forget(&"a");
        let start = Instant::now();
        queue.add_rate_limited("a");
        queue.next().await;
        assert!(start.elapsed() < Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn closed_queue_ends_every_worker() {
        let queue = std::sync::Arc::new(queue());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                coracle_telemetry::spawn("task of a test", async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in waiting {
            assert_eq!(worker.await.unwrap(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_counted_under_upstreams_names() {
        let metrics = MetricsRegistry::default();
        let queue = WorkQueue::named(&metrics, "deployment");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(next_now(&queue).await, Some("a"));
        queue.done(&"a");
        queue.add_rate_limited("a");
        let text = metrics.text();
        for line in [
            "workqueue_depth{name=\"deployment\"} 1",
            "workqueue_adds_total{name=\"deployment\"} 2",
            "workqueue_retries_total{name=\"deployment\"} 1",
            "workqueue_work_duration_seconds_count{name=\"deployment\"} 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
