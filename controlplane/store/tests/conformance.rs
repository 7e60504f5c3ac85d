//! Both engines keep the store's promises, and the suite that says so catches every planted fault.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::{future::ready, sync::Arc};

use coracle_store::conformance::{
    self, Fixture,
    mutants::{FAULTS, Mutant},
};

#[tokio::test(flavor = "multi_thread")]
async fn memory_engine_conforms() {
    conformance::run(&|| Box::pin(ready(Fixture::memory())))
        .await
        .assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_engine_conforms() {
    conformance::run(&|| Box::pin(ready(Fixture::sqlite())))
        .await
        .assert_passed();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_planted_fault_is_caught() {
    for fault in FAULTS {
        let plant = || {
            let Fixture { store, guard } = Fixture::memory();
            Fixture {
                store: Arc::new(Mutant::new(store, *fault)),
                guard,
            }
        };
        let caught_by = conformance::run(&|| Box::pin(ready(plant())))
            .await
            .failed();
        assert!(!caught_by.is_empty(), "{fault:?} was not caught");
        eprintln!("{fault:?} is caught by {}", caught_by.join(", "));
    }
}
