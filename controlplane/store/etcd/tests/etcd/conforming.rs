//! The suite that every engine passes, with the faults that it must catch.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use coracle_store::conformance::{
    self, Fixture,
    mutants::{FAULTS, Fault, Mutant},
};

use super::*;

/// Stores in one etcd: a prefix of its own for each check; with `past`, revisions that go on from
/// there.
struct Fixtures {
    name: String,
    config: EtcdConfig,
    past: Option<Revision>,
    count: AtomicUsize,
}

impl Fixtures {
    fn of(etcd: &Etcd, name: &str, past: Option<Revision>) -> Self {
        Self {
            name: name.to_owned(),
            config: etcd.config(),
            past,
            count: AtomicUsize::new(0),
        }
    }

    async fn make(&self) -> Fixture {
        let mut config = self.config.clone();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        config.prefix = format!("/conformance/{}/{number}", self.name);
        let store = match self.past {
            Some(past) => EtcdBackend::begin_copy(&config, OWNER, past).await,
            None => EtcdBackend::open(&config, OWNER).await,
        };
        Fixture {
            store: Arc::new(store.unwrap()),
            guard: Box::new(()),
        }
    }

    async fn plant(&self, fault: Fault) -> Fixture {
        let Fixture { store, guard } = self.make().await;
        Fixture {
            store: Arc::new(Mutant::new(store, fault)),
            guard,
        }
    }
}

async fn conforms(etcd: &Etcd, past: Option<Revision>) {
    let fixtures = Fixtures::of(etcd, "good", past);
    conformance::run(&|| Box::pin(fixtures.make()))
        .await
        .assert_passed();
}

/// Which check finds it.
async fn caught_by(fault: Fault, etcd: &Etcd) -> Option<&'static str> {
    let fixtures = Fixtures::of(etcd, &format!("{fault:?}"), None);
    conformance::first_violation(&|| Box::pin(fixtures.plant(fault))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_conforms() {
    let Some(etcd) = Etcd::start(1) else { return };
    conforms(&etcd, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_conform_also_where_revisions_go_on_from_another_store() {
    let Some(etcd) = Etcd::start(3) else { return };
    conforms(&etcd, Some(Revision(1_000_000))).await;
}

/// One after another on one etcd: a fault is caught within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn every_planted_fault_is_caught() {
    let Some(etcd) = Etcd::start(1) else { return };
    let mut missed = Vec::new();
    for fault in FAULTS {
        match caught_by(*fault, &etcd).await {
            Some(check) => eprintln!("{fault:?} is caught by {check}"),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
