//! How many pods what they use asks for: `TestReplicaCalc*`.

use k8s_openapi::jiff::Timestamp;

use super::{both, metrics, pods, seen};
use crate::{
    pod::Pod,
    pod_autoscaler::{
        replicas::{Proposal, Tolerances, by_average, by_utilization},
        usage,
    },
};

struct Case {
    what: &'static str,
    current: i32,
    pods: &'static str,
    /// Of each container; one core if nothing is said.
    requests: &'static [&'static str],
    levels: Vec<Vec<i64>>,
    container: Option<&'static str>,
    target: i32,
    /// Replicas, utilization and average.
    expect: (i32, i32, i64),
}

impl Case {
    fn new(
        what: &'static str,
        (current, pods): (i32, &'static str),
        levels: Vec<Vec<i64>>,
        target: i32,
        expect: (i32, i32, i64),
    ) -> Self {
        Self {
            what,
            current,
            pods,
            requests: &["1"; 10],
            levels,
            container: None,
            target,
            expect,
        }
    }

    fn of(self, container: &'static str) -> Self {
        Self {
            container: Some(container),
            ..self
        }
    }

    fn asking(self, requests: &'static [&'static str]) -> Self {
        Self { requests, ..self }
    }

    fn check(&self) {
        let now = Timestamp::now();
        let pods = pods(self.pods, self.requests, now);
        let samples = usage::samples(&metrics("cpu", &self.levels, now), "cpu", self.container);
        let seen = seen(&pods, self.current, "cpu", now);
        let proposal = by_utilization(&seen, samples, self.target, self.container);
        let (replicas, utilization, average) = self.expect;
        let expect = Proposal {
            replicas,
            utilization: Some(utilization),
            average,
        };
        assert_eq!(proposal, Ok(expect), "{}", self.what);
    }
}

#[test]
fn more_is_used_than_shall_be() {
    let two = "container2";
    let failed = vec![vec![1000, 500], vec![9000, 700], vec![1000], vec![9000]];
    let table = [
        Case::new(
            "all ready",
            (3, "rrr"),
            both(&[300, 500, 700]),
            30,
            (5, 50, 1000),
        ),
        Case::new(
            "a container",
            (3, "rrr"),
            vec![vec![1000, 300], vec![1000, 500], vec![1000, 700]],
            30,
            (5, 50, 500),
        )
        .of(two),
        Case::new(
            "one unready",
            (3, "urr"),
            both(&[300, 500, 700]),
            30,
            (4, 60, 1200),
        ),
        Case::new(
            "one hot",
            (3, "hrr"),
            both(&[300, 500, 700]),
            30,
            (4, 60, 1200),
        ),
        Case::new(
            "a container, hot",
            (3, "hrr"),
            vec![vec![0, 300], vec![0, 500], vec![0, 700]],
            30,
            (4, 60, 600),
        )
        .of(two),
        Case::new(
            "two unready",
            (3, "ruu"),
            both(&[400, 500, 700]),
            30,
            (3, 40, 800),
        ),
        Case::new(
            "two hot and unready",
            (3, "rHH"),
            both(&[400, 500, 700]),
            30,
            (3, 40, 800),
        ),
        Case::new(
            "failed pods",
            (2, "rrff"),
            both(&[500, 700]),
            30,
            (4, 60, 1200),
        ),
        Case::new(
            "a container of failed pods",
            (2, "rrff"),
            failed,
            30,
            (4, 60, 600),
        )
        .of(two),
        Case::new(
            "pods on their way out",
            (2, "rrdd"),
            both(&[500, 700]),
            30,
            (4, 60, 1200),
        ),
        Case::new(
            "more metrics than pods",
            (4, "rrrr"),
            both(&[4000, 9500, 3000, 7000, 3200, 2000]),
            100,
            (24, 587, 11_750),
        ),
        Case::new(
            "missing, unready",
            (3, "urr"),
            both(&[100, 2000]),
            50,
            (4, 200, 4000),
        ),
        Case::new(
            "missing, hot",
            (3, "Hrr"),
            both(&[100, 2000]),
            50,
            (4, 200, 4000),
        ),
    ];
    table.iter().for_each(Case::check);
}

#[test]
fn less_is_used_than_shall_be() {
    let two = "container2";
    let levels = [100, 300, 500, 250, 250];
    let ones = |levels: &[i64]| {
        levels
            .iter()
            .map(|level| vec![1000, *level])
            .collect::<Vec<_>>()
    };
    let hot = [100, 300, 500, 1000, 1000];
    let table = [
        Case::new("all ready", (5, "rrrrr"), both(&levels), 50, (3, 28, 560)),
        Case::new("a container", (5, "rrrrr"), ones(&levels), 50, (3, 28, 280)).of(two),
        Case::new("two unready", (5, "rrruu"), both(&levels), 50, (2, 30, 600)),
        Case::new(
            "a container, unready",
            (5, "rrruu"),
            ones(&levels),
            50,
            (2, 30, 300),
        )
        .of(two),
        Case::new("unscheduled", (5, "rpppp"), both(&[100]), 50, (1, 10, 200)),
        Case::new(
            "a container, unscheduled",
            (5, "rpppp"),
            ones(&levels),
            50,
            (1, 10, 100),
        )
        .of(two),
        Case::new("two hot", (5, "rrrhh"), both(&levels), 50, (2, 30, 600)),
        Case::new(
            "a container, hot",
            (5, "rrrhh"),
            ones(&hot),
            50,
            (2, 30, 300),
        )
        .of(two),
        Case::new(
            "failed pods",
            (5, "rrrrrff"),
            both(&levels),
            50,
            (3, 28, 560),
        ),
        Case::new(
            "pods on their way out",
            (5, "rrrrrdd"),
            both(&levels),
            50,
            (3, 28, 560),
        ),
        Case::new("missing", (4, "rrrr"), both(&[400, 95]), 100, (3, 24, 495)),
        Case::new(
            "missing, unready",
            (4, "urrr"),
            both(&[100, 100, 100]),
            50,
            (3, 10, 200),
        ),
        Case::new(
            "missing, over 100 %",
            (4, "urrr"),
            both(&[200, 100, 100]),
            300,
            (2, 6, 200),
        )
        .asking(&["1", "1", "2", "2"]),
    ];
    table.iter().for_each(Case::check);
}

#[test]
fn what_may_be_due_to_the_unknown_changes_nothing() {
    let table = [
        Case::new(
            "within tolerance",
            (3, "rrr"),
            both(&[1010, 1030, 1020]),
            100,
            (3, 102, 2040),
        )
        .asking(&["900m", "1", "1100m"]),
        Case::new(
            "missing, equal",
            (2, "rr"),
            both(&[1000]),
            100,
            (2, 100, 2000),
        ),
        Case::new(
            "missing, more",
            (2, "rr"),
            both(&[1900]),
            100,
            (2, 190, 3800),
        ),
        Case::new("missing, less", (2, "rr"), both(&[600]), 100, (2, 60, 1200)),
        Case::new(
            "missing, unready",
            (3, "urr"),
            both(&[100, 450]),
            50,
            (3, 45, 900),
        ),
        Case::new(
            "missing, hot",
            (3, "hrr"),
            both(&[100, 450]),
            50,
            (3, 45, 900),
        ),
        Case::new(
            "a rolling update",
            (2, "rrr"),
            both(&[100, 100]),
            50,
            (2, 10, 200),
        ),
    ];
    table.iter().for_each(Case::check);
}

#[test]
fn tolerance_is_the_edge_of_a_change() {
    const ASKED: &[&str] = &[
        "400m", "200m", "310m", "290m", "302m", "298m", "301m", "299m", "300m", "300m",
    ];
    // Half of what is asked for is used; the target is the half, a tenth and a bit more.
    let levels = || both(&[150; 10]);
    Case::new("beyond", (10, "rrrrrrrrrr"), levels(), 56, (9, 50, 300))
        .asking(ASKED)
        .check();
    Case::new("within", (10, "rrrrrrrrrr"), levels(), 55, (10, 50, 300))
        .asking(ASKED)
        .check();
    let now = Timestamp::now();
    let pods = pods("rrrrrrrrrr", ASKED, now);
    let mut seen = seen(&pods, 10, "cpu", now);
    let at = |seen: &super::Seen<'_>, target| {
        let samples = usage::samples(&metrics("cpu", &levels(), now), "cpu", None);
        by_utilization(seen, samples, target, None)
            .unwrap()
            .replicas
    };
    // Of one direction alone.
    seen.tolerances = Tolerances { down: 0.5, up: 0.0 };
    assert_eq!((at(&seen, 90), at(&seen, 49)), (10, 11));
}

#[test]
fn an_amount_a_pod_is_a_target_too() {
    // Current, pods, levels, target, and what is expected: replicas and average.
    type Case = (i32, &'static str, &'static [i64], i64, (i32, i64));
    let table: [Case; 9] = [
        (3, "rrr", &[20_000, 10_000, 30_000], 15_000, (4, 20_000)),
        // Only CPU tells of a start.
        (3, "rrH", &[50_000, 10_000, 30_000], 15_000, (6, 30_000)),
        (3, "HrH", &[50_000, 15_000, 30_000], 15_000, (7, 31_666)),
        (5, "rrrrr", &[12_000; 5], 20_000, (3, 12_000)),
        (3, "rrr", &[20_000, 21_000, 21_000], 20_000, (3, 20_666)),
        (5, "rrrrr", &[20_000, 19_000, 21_000], 20_000, (5, 20_000)),
        (2, "rrr", &[10_000, 10_000], 17_000, (2, 10_000)),
        (1, "r", &[8_600], 4_400, (2, 8_600)),
        (2, "rr", &[8_600, 8_600, 8_600], 4_300, (4, 8_600)),
    ];
    for (current, letters, levels, target, (replicas, average)) in table {
        let now = Timestamp::now();
        let pods = pods(letters, &[], now);
        let levels: Vec<_> = levels.iter().map(|level| vec![*level]).collect();
        let samples = usage::samples(&metrics("memory", &levels, now), "memory", None);
        let seen = seen(&pods, current, "memory", now);
        let expect = Proposal {
            replicas,
            utilization: None,
            average,
        };
        assert_eq!(
            by_average(&seen, samples, target),
            Ok(expect),
            "{letters} {levels:?}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_as_upstream_says_it() {
    let now = Timestamp::now();
    let check = |letters: &str, requests: &[&str], levels: &[i64], container, why: &str| {
        let pods = pods(letters, requests, now);
        let samples = usage::samples(&metrics("cpu", &both(levels), now), "cpu", container);
        let seen = seen(&pods, 1, "cpu", now);
        let told = by_utilization(&seen, samples, 100, container);
        assert_eq!(told, Err(why.to_owned()));
    };
    let none = "no pods returned by selector while calculating replica count";
    check("", &[], &[100], None, none);
    let unready = "did not receive metrics for targeted pods (pods might be unready)";
    check("u", &["1"], &[100], None, unready);
    let request = "missing request for cpu in container container1 of Pod test-pod-0";
    check("r", &[], &[200], None, request);
    let container = "container other not found in Pod test-pod-0";
    let (pods, levels) = (pods("r", &["1"], now), both(&[200]));
    let samples = || usage::samples(&metrics("cpu", &levels, now), "cpu", None);
    let one = seen(&pods, 1, "cpu", now);
    let told = by_utilization(&one, samples(), 100, Some("other"));
    assert_eq!(told, Err(container.to_owned()));
    // The metrics are of a pod that the cache does not have.
    let mut renamed = Pod::clone(&pods[0]);
    renamed.metadata.name = Some("an-older-pod-name".into());
    let renamed = [renamed.into()];
    let other = seen(&renamed, 1, "cpu", now);
    let told = by_utilization(&other, samples(), 100, None);
    assert_eq!(
        told,
        Err("no metrics returned matched known pods".to_owned())
    );
}
