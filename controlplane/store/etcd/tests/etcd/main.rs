//! The engine against a real etcd: the store's promises, and what happens when etcd fails.
//! Skips visibly where there is no etcd, fails if `REQUIRE_ROOT` is set.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod conforming;
mod copying;
mod failing;
mod opening;
mod sharing;
mod tls;

use std::time::Duration;

use coracle_store::{Backend, Op, Revision, StoreError, Txn, TxnOutcome};
use coracle_store_etcd::{EtcdBackend, EtcdConfig, testing::Etcd};
use coracle_telemetry::ErrorChain;

/// Whose data the tests' is.
const OWNER: &str = "sha256:test";
/// For what comes soon.
const SOON: Duration = Duration::from_secs(20);

async fn open(etcd: &Etcd) -> EtcdBackend {
    match EtcdBackend::open(&etcd.config(), OWNER).await {
        Ok(store) => store,
        Err(error) => panic!("{}: {}", ErrorChain(&error), etcd.log(0)),
    }
}

async fn refused(config: &EtcdConfig) -> String {
    match EtcdBackend::open(config, OWNER).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => ErrorChain(&error).to_string(),
    }
}

fn put_op(name: &str, value: &str) -> Op {
    Op::Put {
        key: format!("/registry/pods/ns/{name}").into(),
        value: value.to_owned().into(),
    }
}

async fn put(store: &dyn Backend, name: &str, value: &str) -> Result<Revision, StoreError> {
    let txn = Txn {
        ops: vec![put_op(name, value)],
        ..Txn::default()
    };
    match store.txn(txn).await? {
        TxnOutcome::Committed(revision) => Ok(revision),
        TxnOutcome::Conflict(_) => panic!("nothing was compared"),
    }
}

async fn value(store: &dyn Backend, name: &str) -> Option<String> {
    let kv = store.get(&format!("/registry/pods/ns/{name}")).await;
    kv.unwrap()
        .map(|kv| String::from_utf8_lossy(&kv.value).into_owned())
}

/// Past the engine.
async fn client(etcd: &Etcd) -> etcd_client::Client {
    etcd_client::Client::connect(etcd.urls(), None)
        .await
        .unwrap()
}
