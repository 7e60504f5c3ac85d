//! What the API is told about pods that have no node: the condition when it changes, an Event now
//! and then.
//!
//! A pod that waits is tried over and over and mostly for the same reason; each of these attempts
//! writes nothing. Owned by the scheduler's one task; conditions are written beside it, so many at
//! once, the others wait here. At most one entry a waiting pod. Events go to the recorder, which
//! writes them when it comes to it.
//!
//! Source: `pkg/scheduler/schedule_one.go` (handleSchedulingFailure, updatePod),
//! `k8s.io/client-go/tools/events` (an Event that repeats is counted every six minutes) at v1.37.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_client::event_recorder::{EventRecorder, EventType, Note};
use kube::Client;
use tokio::task::JoinSet;

use crate::{
    condition::{self, Told},
    pod_info::{PodInfo, PodUid},
    unscheduled::{Reason, Unscheduled},
};

/// Reports on their way at once, and how many of them while many pods are on their way to be bound:
/// thousands that fit nowhere hold up nobody who does.
const IN_FLIGHT: usize = 32;
const IN_FLIGHT_BESIDE: usize = 2;
/// How often an Event that repeats is counted.
const COUNT_PERIOD: Duration = Duration::from_secs(360);
/// How long an Event with one message keeps away the next with another: numbers of nodes change all
/// the time.
const MESSAGE_PERIOD: Duration = Duration::from_secs(30);

/// Conditions that wait to be written, and when each pod's was told last.
pub(crate) struct Reports {
    client: Client,
    recorder: EventRecorder,
    pods: HashMap<PodUid, Entry>,
    waiting: VecDeque<PodUid>,
    sending: JoinSet<Report>,
}

#[derive(Debug)]
struct Entry {
    /// As last seen.
    pod: Arc<PodInfo>,
    /// Why it has no node, as found last.
    why: Unscheduled,
    /// Where room is made for it.
    nominated: Option<Box<str>>,
    event: Option<Recorded>,
    /// Attempts that no Event has counted yet.
    uncounted: i32,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Idle,
    Waiting,
    Sending,
}

/// The Event that was recorded last.
#[derive(Debug)]
struct Recorded {
    message: String,
    at: Instant,
}

/// What is told of a pod, and about which version of it.
#[derive(Debug)]
struct Report {
    pod: Arc<PodInfo>,
    why: Unscheduled,
    nominated: Option<Box<str>>,
    /// What came of it; `None` if it has written nothing.
    told: Option<Told>,
}

/// What one report tells.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tells {
    condition: bool,
    /// How many attempts the Event counts.
    event: Option<i32>,
}

impl Reports {
    pub(crate) fn new(client: Client, recorder: EventRecorder) -> Self {
        let (pods, waiting, sending) = (HashMap::new(), VecDeque::new(), JoinSet::new());
        Self {
            client,
            recorder,
            pods,
            waiting,
            sending,
        }
    }

    /// A pod has found its node.
    pub(crate) fn scheduled(&mut self, pod: &PodInfo, node: &str) {
        self.forget(&pod.uid);
        let message = format!("Successfully assigned {} to {node}", pod.key());
        self.record(pod, (EventType::Normal, "Scheduled"), message, 1);
    }

    /// A pod fits nowhere because of `message`.
    pub(crate) fn unschedulable(&mut self, pod: Arc<PodInfo>, message: String, now: Instant) {
        self.unscheduled(pod, Unscheduled::new(Reason::Unschedulable, message), now);
    }

    /// An attempt has failed, or the binding that followed it.
    pub(crate) fn failed(&mut self, pod: Arc<PodInfo>, message: String, now: Instant) {
        self.unscheduled(pod, Unscheduled::new(Reason::SchedulerError, message), now);
    }

    fn unscheduled(&mut self, pod: Arc<PodInfo>, why: Unscheduled, now: Instant) {
        let uid = pod.uid.clone();
        let entry = self.pods.entry(uid.clone()).or_insert_with(|| Entry {
            nominated: pod.nominated_node.clone(),
            pod,
            why: why.clone(),
            event: None,
            uncounted: 0,
            progress: Progress::Idle,
        });
        entry.why = why;
        entry.uncounted = entry.uncounted.saturating_add(1);
        self.enqueue_if_needed(&uid, now);
    }

    /// Room is made for a pod there, of which something was told before, or nowhere.
    pub(crate) fn nominated(&mut self, uid: &PodUid, node: Option<&str>, now: Instant) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.nominated = node.map(Box::from);
            self.enqueue_if_needed(uid, now);
        }
    }

    /// A waiting pod has changed. What was told about an older version of it may have to be told
    /// again.
    pub(crate) fn changed(&mut self, pod: &Arc<PodInfo>, now: Instant) {
        let Some(entry) = self.pods.get_mut(&pod.uid) else {
            return;
        };
        entry.pod = pod.clone();
        self.enqueue_if_needed(&pod.uid, now);
    }

    /// The pod has found a node, or is gone: there is nothing to tell any more.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    /// Tells what waits, as far as it may beside bindings.
    pub(crate) fn send(&mut self, now: Instant, are_many_bound: bool) {
        let at_once = match are_many_bound {
            true => IN_FLIGHT_BESIDE,
            false => IN_FLIGHT,
        };
        while let Some((mut report, tells)) = self.next_to_tell(now, at_once) {
            if let Some(times) = tells.event {
                self.record(
                    &report.pod,
                    (EventType::Warning, "FailedScheduling"),
                    report.why.message.clone(),
                    times,
                );
            }
            let client = self.client.clone();
            coracle_telemetry::spawn_in(&mut self.sending, "tell of a pod", async move {
                if tells.condition {
                    let Report {
                        pod,
                        why,
                        nominated,
                        ..
                    } = &report;
                    let told = condition::tell(&client, pod, why, nominated.as_deref()).await;
                    report.told = Some(told);
                }
                report
            });
        }
    }

    fn next_to_tell(&mut self, now: Instant, at_once: usize) -> Option<(Report, Tells)> {
        while self.sending.len() < at_once {
            let uid = self.waiting.pop_front()?;
            // Forgotten meanwhile; perhaps it is back, and then it waits twice.
            let Some(entry) = self
                .pods
                .get_mut(&uid)
                .filter(|entry| entry.progress == Progress::Waiting)
            else {
                continue;
            };
            entry.progress = Progress::Sending;
            let tells = entry.tells(now);
            if tells.event.is_some() {
                entry.event = Some(Recorded {
                    message: entry.why.message.clone(),
                    at: now,
                });
                entry.uncounted = 0;
            }
            let report = Report {
                pod: entry.pod.clone(),
                why: entry.why.clone(),
                nominated: entry.nominated.clone(),
                told: None,
            };
            return Some((report, tells));
        }
        None
    }

    fn record(
        &self,
        pod: &PodInfo,
        (kind, reason): (EventType, &'static str),
        message: String,
        times: i32,
    ) {
        let component = pod.scheduler_name.to_string().into();
        self.recorder.note(Note {
            component,
            about: pod.reference(),
            kind,
            reason: reason.into(),
            message,
            times,
        });
    }

    /// Waits for the end of one report; `None` if none is on its way.
    ///
    /// # Errors
    /// The report panicked.
    pub(crate) async fn next(&mut self) -> Option<Result<(), tokio::task::JoinError>> {
        match self.sending.join_next().await? {
            Ok(sent) => {
                self.ended(&sent, Instant::now());
                Some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn ended(&mut self, sent: &Report, now: Instant) {
        let entry = self
            .pods
            .get_mut(&sent.pod.uid)
            .filter(|entry| entry.progress == Progress::Sending);
        let Some(entry) = entry else { return };
        entry.progress = Progress::Idle;
        let is_newest = entry.pod.resource_version == sent.pod.resource_version;
        match sent.told {
            Some(Told::Yes) if is_newest => {
                // The watch will say so too; until then the next attempt need not.
                let unscheduled = Some(sent.why.clone());
                entry.pod = Arc::new(PodInfo {
                    unscheduled,
                    nominated_node: sent.nominated.clone(),
                    ..PodInfo::clone(&entry.pod)
                });
            }
            // The version that was quicker is on its way, and `changed` with it.
            Some(Told::Changed) if is_newest => return,
            // The next attempt tells it.
            Some(Told::Failed | Told::Gone) => return,
            _ => {}
        }
        self.enqueue_if_needed(&sent.pod.uid, now);
    }

    fn enqueue_if_needed(&mut self, uid: &PodUid, now: Instant) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if entry.progress == Progress::Idle && entry.tells(now) != Tells::default() {
            entry.progress = Progress::Waiting;
            self.waiting.push_back(uid.clone());
        }
    }
}

impl Entry {
    fn tells(&self, now: Instant) -> Tells {
        Tells {
            condition: self.pod.unscheduled.as_ref() != Some(&self.why)
                || self.pod.nominated_node != self.nominated,
            event: self.next_event(now),
        }
    }

    fn next_event(&self, now: Instant) -> Option<i32> {
        let Some(last) = &self.event else {
            return Some(1);
        };
        let age = now.saturating_duration_since(last.at);
        if last.message != self.why.message {
            return (age >= MESSAGE_PERIOD).then_some(1);
        }
        (age >= COUNT_PERIOD && self.uncounted > 0).then_some(self.uncounted)
    }
}

#[cfg(test)]
mod tests {
    use coracle_client::event_recorder;
    use kube::client::Body;

    use super::*;
    use crate::testing::pod;

    const WHY: &str = "0/1 nodes are available: 1 Insufficient cpu.";

    fn version(version: &str, told: Option<&str>) -> Arc<PodInfo> {
        let unscheduled = told.map(|message| Unscheduled::new(Reason::Unschedulable, message));
        Arc::new(PodInfo {
            resource_version: version.to_owned(),
            unscheduled,
            ..pod("p", "64")
        })
    }

    fn reports() -> Reports {
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>("not asked")
        });
        let client = Client::new(nobody, "default");
        let (recorder, _) = event_recorder::channel(client.clone(), None, Duration::ZERO);
        Reports::new(client, recorder)
    }

    /// What would be told now; it is taken as told.
    fn taken(reports: &mut Reports, now: Instant) -> Option<(bool, Option<i32>)> {
        reports
            .next_to_tell(now, IN_FLIGHT)
            .map(|(_, tells)| (tells.condition, tells.event))
    }

    fn sent(
        reports: &mut Reports,
        pod: &Arc<PodInfo>,
        message: &str,
        told: Option<Told>,
        now: Instant,
    ) {
        reports.ended(
            &Report {
                pod: pod.clone(),
                why: Unscheduled::new(Reason::Unschedulable, message),
                nominated: None,
                told,
            },
            now,
        );
    }

    #[tokio::test]
    async fn an_attempt_that_finds_nothing_new_writes_nothing() {
        let (mut reports, start) = (reports(), Instant::now());
        let first = version("1", None);
        reports.unschedulable(first.clone(), WHY.to_owned(), start);
        assert_eq!(taken(&mut reports, start), Some((true, Some(1))));
        sent(&mut reports, &first, WHY, Some(Told::Yes), start);
        for seconds in 1..36 {
            reports.unschedulable(
                first.clone(),
                WHY.to_owned(),
                start + Duration::from_secs(10 * seconds),
            );
            assert_eq!(
                taken(&mut reports, start + Duration::from_secs(10 * seconds)),
                None,
                "{seconds}"
            );
        }
        reports.unschedulable(first.clone(), WHY.to_owned(), start + COUNT_PERIOD);
        assert_eq!(
            taken(&mut reports, start + COUNT_PERIOD),
            Some((false, Some(36))),
            "all attempts are counted"
        );
    }

    #[tokio::test]
    async fn a_new_scheduler_knows_what_was_told() {
        let (mut reports, now) = (reports(), Instant::now());
        reports.unschedulable(version("1", Some(WHY)), WHY.to_owned(), now);
        assert_eq!(taken(&mut reports, now), Some((false, Some(1))));
    }

    #[tokio::test]
    async fn another_reason_is_told_at_once_and_its_event_in_time() {
        let (mut reports, start) = (reports(), Instant::now());
        let pod = version("1", Some(WHY));
        reports.unschedulable(pod.clone(), WHY.to_owned(), start);
        assert_eq!(taken(&mut reports, start), Some((false, Some(1))));
        sent(&mut reports, &pod, WHY, None, start);
        for (seconds, expected) in [(1, (true, None)), (31, (true, Some(1)))] {
            let now = start + Duration::from_secs(seconds);
            reports.unschedulable(pod.clone(), format!("{seconds}"), now);
            assert_eq!(taken(&mut reports, now), Some(expected), "{seconds}");
            sent(
                &mut reports,
                &pod,
                &format!("{seconds}"),
                Some(Told::Yes),
                now,
            );
        }
    }

    #[tokio::test]
    async fn a_pod_that_changed_meanwhile_is_told_of_again_when_the_change_is_seen() {
        let (mut reports, now) = (reports(), Instant::now());
        let (old, new) = (version("1", None), version("2", None));
        reports.unschedulable(old.clone(), WHY.to_owned(), now);
        assert!(taken(&mut reports, now).is_some());
        sent(&mut reports, &old, WHY, Some(Told::Changed), now);
        assert_eq!(
            taken(&mut reports, now),
            None,
            "the same version would be refused again"
        );
        reports.changed(&new, now);
        assert_eq!(taken(&mut reports, now), Some((true, None)));
        // The change may be seen before the refusal.
        let newest = version("3", None);
        reports.changed(&newest, now);
        sent(&mut reports, &new, WHY, Some(Told::Changed), now);
        assert_eq!(taken(&mut reports, now), Some((true, None)));
        sent(&mut reports, &newest, WHY, Some(Told::Yes), now);
        reports.changed(&version("4", Some(WHY)), now);
        assert_eq!(taken(&mut reports, now), None);
    }

    #[tokio::test]
    async fn a_reason_that_changes_while_it_is_told_is_told_again() {
        let (mut reports, now) = (reports(), Instant::now());
        let pod = version("1", None);
        reports.unschedulable(pod.clone(), "first".to_owned(), now);
        assert!(taken(&mut reports, now).is_some());
        reports.unschedulable(pod.clone(), "second".to_owned(), now);
        assert_eq!(taken(&mut reports, now), None, "one report a pod at a time");
        sent(&mut reports, &pod, "first", Some(Told::Yes), now);
        assert_eq!(taken(&mut reports, now), Some((true, None)));
    }

    #[tokio::test]
    async fn nothing_is_told_of_a_pod_that_has_found_its_node() {
        let (mut reports, now) = (reports(), Instant::now());
        reports.unschedulable(version("1", None), WHY.to_owned(), now);
        reports.forget(&version("1", None).uid);
        assert_eq!(taken(&mut reports, now), None);
    }

    #[tokio::test]
    async fn an_attempt_that_failed_is_told_as_such() {
        let (mut reports, now) = (reports(), Instant::now());
        reports.failed(version("1", Some(WHY)), WHY.to_owned(), now);
        let (report, tells) = reports.next_to_tell(now, IN_FLIGHT).unwrap();
        assert_eq!(report.why, Unscheduled::new(Reason::SchedulerError, WHY));
        assert!(tells.condition, "the same words for another reason");
    }

    #[tokio::test]
    async fn few_are_told_beside_bindings() {
        let (mut reports, now) = (reports(), Instant::now());
        for uid in 0..IN_FLIGHT * 2 {
            let pod = Arc::new(PodInfo {
                uid: PodUid(uid.to_string().into()),
                ..(*version("1", None)).clone()
            });
            reports.unschedulable(pod, WHY.to_owned(), now);
        }
        reports.send(now, true);
        assert_eq!(reports.sending.len(), IN_FLIGHT_BESIDE);
        reports.send(now, false);
        assert_eq!(reports.sending.len(), IN_FLIGHT);
    }
}
