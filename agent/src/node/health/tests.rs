use super::*;
use crate::{
    eviction::{Shortage, Signal, Supply},
    psi::Stall,
};

fn examiner() -> Examiner {
    let config = AgentConfig::new("n1", "127.0.0.1".parse().expect("address"));
    Examiner::new(&config, ClockView::default())
}

fn signs(met: &[Signal]) -> Signs {
    let shortage = |&signal| Shortage {
        supply: Supply {
            signal,
            available: 1,
            capacity: 100,
        },
        threshold: 2,
    };
    let met = met.iter().map(shortage).collect();
    Signs {
        met,
        memory: None,
        disk: None,
        address_loss: None,
        swaps_volumes: false,
    }
}

fn condition<'a>(told: &'a [Told], kind: &str) -> Option<(bool, &'a str)> {
    told.iter()
        .find(|(name, ..)| *name == kind)
        .map(|(_, is, reason, _)| (*is, *reason))
}

#[test]
fn pressure_lasts_until_the_transition_period_is_over() {
    let (mut examiner, start) = (examiner(), Instant::now());
    let at = |secs| start + Duration::from_secs(secs);
    let met = signs(&[Signal::ImagefsAvailable, Signal::MemoryAvailable]);
    assert_eq!(
        examiner.judge(&met, at(0)).pressures,
        [Pressure::Memory, Pressure::Disk]
    );
    assert_eq!(
        examiner
            .judge(&signs(&[Signal::NodefsInodesFree]), at(200))
            .pressures,
        [Pressure::Memory, Pressure::Disk]
    );
    assert_eq!(
        examiner.judge(&signs(&[]), at(301)).pressures,
        [Pressure::Disk]
    );
    assert_eq!(examiner.judge(&signs(&[]), at(501)).pressures, []);
}

#[test]
fn without_a_transition_period_pressure_is_still_seen() {
    let mut examiner = Examiner {
        transition: Duration::ZERO,
        ..examiner()
    };
    let now = Instant::now();
    assert_eq!(
        examiner
            .judge(&signs(&[Signal::PidAvailable]), now)
            .pressures,
        [Pressure::Pid]
    );
    assert_eq!(
        examiner
            .judge(&signs(&[]), now + Duration::from_millis(1))
            .pressures,
        []
    );
}

#[test]
fn changes_are_told_once() {
    let ill = Health {
        pressures: vec![Pressure::Disk],
        clock_ahead_secs: 4000,
        ..Health::default()
    };
    let reasons = |before: &Health, now: &Health| -> Vec<&str> {
        events("n1", before, now)
            .iter()
            .map(|(_, reason, _)| *reason)
            .collect()
    };
    assert_eq!(
        reasons(&Health::default(), &ill),
        ["NodeHasDiskPressure", "ClockSkew"]
    );
    assert!(reasons(&ill, &ill).is_empty());
    assert_eq!(
        reasons(&ill, &Health::default()),
        ["NodeHasNoDiskPressure", "ClockAgrees"]
    );
}

#[test]
fn an_address_is_lost_only_when_it_stays_away() {
    let (mut examiner, start) = (examiner(), Instant::now());
    let lost = Signs {
        address_loss: Some(Loss { instead: None }),
        ..signs(&[])
    };
    let cases = [
        (0, true, false),
        (4, true, false),
        (5, true, true),
        (6, false, false),
        (7, true, false),
    ];
    for (secs, is_gone, expected) in cases {
        let seen = if is_gone { &lost } else { &signs(&[]) };
        let health = examiner.judge(seen, start + Duration::from_secs(secs));
        assert_eq!(health.address_loss.is_some(), expected, "after {secs} s");
    }
}

#[test]
fn conditions_of_pressure_are_upstreams() {
    let health = Health {
        pressures: vec![Pressure::Disk],
        ..Health::default()
    };
    let told = health.pressure_conditions();
    assert_eq!(
        condition(&told, "MemoryPressure"),
        Some((false, "KubeletHasSufficientMemory"))
    );
    assert_eq!(
        condition(&told, "DiskPressure"),
        Some((true, "KubeletHasDiskPressure"))
    );
    assert_eq!(
        condition(&told, "PIDPressure"),
        Some((false, "KubeletHasSufficientPID"))
    );
    assert_eq!(told[1].3, "kubelet has disk pressure");
}

#[test]
fn stalls_are_told_when_they_last_and_forgotten_when_they_are_over() {
    let psi = |avg10, avg60| Psi {
        full: Stall {
            avg10,
            avg60,
            ..Stall::default()
        },
        ..Psi::default()
    };
    let cases = [
        (90.0, 5.0, false),
        (10.0, 25.0, false),
        (30.0, 25.0, true),
        (1.0, 25.0, true),
        (1.0, 19.0, false),
    ];
    let mut before = false;
    for (avg10, avg60, expected) in cases {
        before = contended(&psi(avg10, avg60), before);
        assert_eq!(before, expected, "{avg10} {avg60}");
    }
    let health = Health {
        memory_contention: Some(true),
        ..Health::default()
    };
    let told = health.more_conditions(None);
    assert_eq!(
        condition(&told, "SystemMemoryContentionPressure"),
        Some((true, "PressureStall"))
    );
    assert_eq!(condition(&told, "SystemDiskContentionPressure"), None);
}

#[test]
fn skew_and_lost_addresses_are_told_until_they_are_mended() {
    let loss = Loss {
        instead: "192.0.2.9".parse().ok(),
    };
    let ill = Health {
        clock_ahead_secs: -125,
        address_loss: Some(loss),
        ..Health::default()
    };
    let told = ill.more_conditions(None);
    assert_eq!(condition(&told, "ClockSkew"), Some((true, "ClockDiffers")));
    assert_eq!(
        condition(&told, "NetworkUnavailable"),
        Some((true, ADDRESS_GONE))
    );
    assert_eq!(
        ill.skew_message(),
        "the clock is about 2 min behind the API server's"
    );

    let as_conditions = |told: &[Told]| NodeStatus {
        conditions: Some(
            told.iter()
                .map(|(kind, is, reason, _)| NodeCondition {
                    type_: (*kind).to_owned(),
                    status: if *is { "True" } else { "False" }.to_owned(),
                    reason: Some((*reason).to_owned()),
                    ..NodeCondition::default()
                })
                .collect(),
        ),
        ..NodeStatus::default()
    };
    let told = Health::default().more_conditions(Some(&as_conditions(&told)));
    assert_eq!(condition(&told, "ClockSkew"), Some((false, "ClockAgrees")));
    assert_eq!(
        condition(&told, "NetworkUnavailable"),
        Some((false, ADDRESS_PRESENT))
    );
    assert!(Health::default().more_conditions(None).is_empty());
    let of_an_add_on =
        as_conditions(&[("NetworkUnavailable", false, "FlannelIsUp", String::new())]);
    assert!(
        Health::default()
            .more_conditions(Some(&of_an_add_on))
            .is_empty()
    );
}

#[test]
fn secrets_that_may_reach_the_disk_are_told_of_once() {
    let (well, ill) = (
        Health::default(),
        examiner().judge(
            &Signs {
                swaps_volumes: true,
                ..signs(&[])
            },
            Instant::now(),
        ),
    );
    let told = events("n1", &well, &ill);
    assert!(
        matches!(
            &told[..],
            [(EventType::Warning, "PossibleMemoryBackedVolumesOnDisk", _)]
        ),
        "{told:?}"
    );
    assert!(events("n1", &ill, &ill).is_empty() && events("n1", &ill, &well).is_empty());
}
