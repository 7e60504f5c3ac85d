//! CronJobs over days in which clocks are set, controllers end amid a round and Jobs end: no minute
//! gets two Jobs, and none is lost beyond what upstream loses.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// So many minutes pass, looked at when the controller has asked for it.
    Pass(i64),
    /// The clock is set an hour forth or back, and the controller looks.
    Set(i64),
    /// The controller makes what is due and ends before it writes the status.
    Crash,
    /// All Jobs end.
    End,
}

/// A cluster with one CronJob.
struct World {
    cron_job: CronJob,
    jobs: BTreeMap<String, Arc<Job>>,
    now: Timestamp,
    /// Every Job that was ever made, by name.
    made: BTreeMap<String, usize>,
    /// When the controller looks again by itself.
    again: Option<Timestamp>,
}

impl World {
    fn new(schedule: &str, policy: &str) -> Self {
        let spec = json!({"schedule": schedule, "concurrencyPolicy": policy,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1});
        Self {
            cron_job: cron_job(spec, json!({})),
            jobs: BTreeMap::new(),
            now: at(HOUR),
            made: BTreeMap::new(),
            again: None,
        }
    }

    fn plan(&self) -> Plan {
        let jobs: Vec<_> = self.jobs.values().cloned().collect();
        let missing = unseen(&self.cron_job, &jobs).filter_map(|active| active.uid.clone());
        let seen = Seen {
            jobs: &jobs,
            missing: &missing.collect(),
            now: self.now,
            local: &TimeZone::UTC,
        };
        plan(&self.cron_job, &seen)
    }

    /// A round of the controller, as `reconcile` goes through it.
    fn look(&mut self, ends_before_the_status: bool) {
        let mut plan = self.plan();
        for old in &plan.remove {
            self.jobs.remove(&old.name_any());
        }
        if let Some(start) = plan.start.take() {
            for replaced in &plan.replace {
                self.jobs.remove(replaced.name.as_deref().unwrap());
            }
            let name = start.job.name_any();
            if !self.jobs.contains_key(&name) {
                *self.made.entry(name.clone()).or_default() += 1;
                let mut job = Job::clone(&job(&name, None));
                job.status.as_mut().unwrap().start_time = Some(Time(self.now));
                self.jobs.insert(name.clone(), Arc::new(job));
            }
            let active: Vec<ObjectReference> = serde_json::from_value(active(&name)).unwrap();
            plan.status.active.get_or_insert_default().extend(active);
            plan.status.last_schedule_time = Some(start.time);
        }
        if ends_before_the_status {
            self.again = None;
            return;
        }
        self.cron_job.status = Some(plan.status);
        self.again = plan.again.map(|wait| self.now + wait);
    }

    fn end_jobs(&mut self) {
        let now = Time(self.now);
        for (name, running) in &mut self.jobs {
            let mut ended = Job::clone(&job(name, Some("Complete")));
            let status = ended.status.as_mut().unwrap();
            status.start_time = running.status.as_ref().unwrap().start_time.clone();
            status.completion_time = Some(now.clone());
            *running = Arc::new(ended);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Pass(minutes) => {
                let end = self.now + SignedDuration::from_mins(minutes);
                while let Some(again) = self.again.filter(|again| *again <= end) {
                    self.now = self.now.max(again);
                    self.look(false);
                }
                self.now = end;
            }
            // The queue notices, and every key that waits is looked at.
            Step::Set(hours) => {
                self.now += SignedDuration::from_hours(hours);
                self.look(false);
            }
            // The next controller looks at everything.
            Step::Crash => {
                self.look(true);
                self.look(false);
            }
            Step::End => {
                self.end_jobs();
                self.look(false);
            }
        }
    }
}

fn run(schedule: &str, policy: &str, steps: &[Step]) -> World {
    let mut world = World::new(schedule, policy);
    world.look(false);
    steps.iter().for_each(|step| world.take(*step));
    world
}

/// The minutes of the Jobs that were made, counted from the hour.
fn minutes(world: &World) -> Vec<i64> {
    let hour = at(HOUR).as_second() / 60;
    let number = |name: &String| name.rsplit_once('-').unwrap().1.parse::<i64>().unwrap();
    world.made.keys().map(|name| number(name) - hour).collect()
}

#[test]
fn a_clock_that_is_set_makes_no_job_twice_and_loses_what_upstream_loses() {
    let every_ten = "*/10 * * * *";
    // An hour forth: of the times in between the last is made, as after an hour without a
    // controller.
    let forth = run(
        every_ten,
        "Allow",
        &[Step::Pass(15), Step::Set(1), Step::Pass(10)],
    );
    assert_eq!(minutes(&forth), [0, 10, 70, 80]);
    // And an hour back: what was made already is not made again, and then it goes on.
    let back = run(
        every_ten,
        "Allow",
        &[
            Step::Pass(15),
            Step::Set(-1),
            Step::Pass(70),
            Step::Pass(20),
        ],
    );
    assert_eq!(minutes(&back), [0, 10, 20, 30, 40]);
    let both = [Step::Pass(15), Step::Set(1), Step::Set(-1), Step::Pass(70)];
    assert_eq!(minutes(&run(every_ten, "Allow", &both)), [0, 10, 70, 80]);
    for world in [forth, back] {
        assert!(world.made.values().all(|count| *count == 1));
    }
}

#[test]
fn where_one_at_a_time_may_run_the_next_starts_when_that_has_ended() {
    let steps = [Step::Pass(25), Step::End, Step::Pass(10)];
    assert_eq!(minutes(&run("*/10 * * * *", "Forbid", &steps)), [0, 20]);
    let replaced = run("*/10 * * * *", "Replace", &steps);
    assert_eq!(
        (minutes(&replaced), replaced.jobs.len()),
        (vec![0, 10, 20, 30], 2)
    );
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..200_i64).prop_map(Step::Pass),
        1 => prop_oneof![Just(-1_i64), Just(1)].prop_map(Step::Set),
        2 => Just(Step::Crash),
        2 => Just(Step::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_time_gets_two_jobs_whatever_happens(
        steps in prop::collection::vec(step(), 1..30),
        schedule in prop_oneof![Just("*/7 * * * *"), Just("0 * * * *"), Just("30 6-16/4 * * 1-5"), Just("@every 25m")],
        policy in prop_oneof![Just("Allow"), Just("Forbid"), Just("Replace")],
    ) {
        let world = run(schedule, policy, &steps);
        prop_assert!(world.made.values().all(|count| *count == 1), "{:?}", world.made);
        // What it counts as active is what runs.
        let status = status_of(&world.cron_job);
        for active in status.active.iter().flatten() {
            prop_assert!(world.jobs.contains_key(active.name.as_deref().unwrap()));
        }
    }

    #[test]
    fn without_faults_no_time_is_left_out(passes in prop::collection::vec(1..200_i64, 1..20)) {
        let steps: Vec<Step> = passes.iter().flat_map(|minutes| [Step::Pass(*minutes), Step::End]).collect();
        let world = run("*/7 * * * *", "Allow", &steps);
        let end = (world.now.as_second() - at(HOUR).as_second()) / 60;
        let due = (0..=end).filter(|minute| minute % 60 % 7 == 0);
        // The last may be due within the tenth of a second that is waited for clocks.
        let expect: Vec<i64> = due.filter(|minute| *minute < end).collect();
        let made: Vec<i64> = minutes(&world).into_iter().filter(|minute| *minute < end).collect();
        prop_assert_eq!(made, expect);
    }
}
