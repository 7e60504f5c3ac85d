//! What the tests of backups keep in stores: objects that say which of how many writes they are.

use std::{
    io::{Seek as _, Write as _},
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use coracle_store::{
    Backend, Op, RangeRequest, Revision, StoreError, Txn, TxnOutcome, sqlite::SqliteBackend,
};

pub(crate) async fn put(store: &SqliteBackend, name: usize, value: &str) -> Revision {
    let op = Op::Put {
        key: format!("/registry/pods/ns/{name:05}").into(),
        value: format!("{value} {}", "x".repeat(2000)).into(),
    };
    let txn = Txn {
        ops: vec![op],
        ..Txn::default()
    };
    match store.txn(txn).await.unwrap() {
        TxnOutcome::Committed(revision) => revision,
        TxnOutcome::Conflict(_) => panic!("nothing was compared"),
    }
}

/// The first word of every object, by name.
pub(crate) async fn values(store: &SqliteBackend) -> Vec<String> {
    let range = RangeRequest {
        prefix: "/".to_owned(),
        ..RangeRequest::default()
    };
    let word = |value: &[u8]| {
        let text = std::str::from_utf8(value).unwrap();
        text.split(' ').next().unwrap().to_owned()
    };
    let found = store.range(range).await.unwrap();
    found.items.iter().map(|kv| word(&kv.value)).collect()
}

/// A store in `dir` with so many objects of one value; it is closed again.
pub(crate) async fn filled(dir: &Path, objects: usize, value: &str) -> Revision {
    let store = SqliteBackend::open(dir).unwrap();
    for name in 0..objects {
        put(&store, name, value).await;
    }
    store.current_revision().await.unwrap()
}

/// The value of all objects of the store in `dir`, which is opened for it.
pub(crate) async fn value_of_all(dir: &Path, objects: usize) -> String {
    let values = values(&SqliteBackend::open(dir).unwrap()).await;
    assert_eq!(values.len(), objects);
    assert!(values.iter().all(|value| *value == values[0]), "a mixture");
    values[0].clone()
}

/// Writes over some bytes in the middle of a file.
pub(crate) fn scribble(file: &Path) {
    let length = std::fs::metadata(file).unwrap().len();
    let mut file = std::fs::File::options().write(true).open(file).unwrap();
    let page = length / 4096 / 2;
    file.seek(std::io::SeekFrom::Start(page * 4096)).unwrap();
    file.write_all(&[0xA5; 4096]).unwrap();
}

/// Starts this test program again with a directory to work in.
pub(crate) fn start_child(variable: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(variable, dir)
        .spawn()
        .unwrap()
}

/// Kills it after a while that a call may end at any moment of its work.
pub(crate) fn kill_after(mut child: Child, alive: Duration) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < alive {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the child ended by itself: {status}");
        }
        std::thread::park_timeout(
            alive
                .saturating_sub(begun.elapsed())
                .min(Duration::from_millis(5)),
        );
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The name of an error's variant.
pub(crate) fn kind(error: &StoreError) -> String {
    eprintln!("{error}");
    let text = format!("{error:?}");
    text.split([' ', '{']).next().unwrap().to_owned()
}
