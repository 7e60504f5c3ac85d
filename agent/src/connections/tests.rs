//! A table that is filled to its bound, in a namespace of its own.

use std::{
    convert::Infallible,
    fs::{self, File},
    io::{BufWriter, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::Arc,
};

use coracle_netns::NetNs;
use coracle_telemetry::Tasks;
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;

use super::*;
use crate::{network::PodNetworkRequest, runtime::types::SandboxId};

#[test]
fn a_table_is_full_when_it_drops_and_has_room_well_below() {
    let table = |count, dropped| Table {
        count,
        most: 100,
        dropped,
    };
    for (was_full, before, now, expected) in [
        (false, table(99, 7), table(99, 7), None),
        (false, table(99, 7), table(99, 8), Some(News::Full)),
        // Two packets that came at once.
        (false, table(50, 7), table(50, 8), None),
        (true, table(99, 7), table(99, 9), None),
        (true, table(99, 9), table(88, 9), None),
        (true, table(99, 9), table(40, 9), Some(News::Room)),
    ] {
        assert_eq!(judge(was_full, before, now), expected, "{before:?} {now:?}");
    }
}

#[test]
fn only_what_ends_where_nobody_is_goes() {
    let ip = |last| IpAddr::from([10, 1, 0, last]);
    let places = Places::default();
    places.add(&PodNetworkRequest::named("lives"), &[ip(5)]);
    let nowhere = Nowhere {
        left: [IpAddr::from([10, 9, 0, 9])].into(),
        range: "10.1.0.0/24".parse().ok(),
        held: places.held(),
        own: [ip(1)].into(),
    };
    let far = IpAddr::from([192, 0, 2, 7]);
    let flow = |from, answers| Flow::new((from, 4000), (far, 80), answers);
    for (from, answers, ends) in [
        (ip(5), far, false),
        (ip(6), far, true),
        (far, ip(6), true),
        // The node's own.
        (ip(1), ip(5), false),
        (far, IpAddr::from([10, 9, 0, 9]), true),
        (IpAddr::from([10, 9, 0, 8]), far, false),
    ] {
        assert_eq!(nowhere.ends(&flow(from, answers)), ends, "{from} {answers}");
    }
}

fn run(words: &[&str]) -> (bool, String) {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.expect("a program");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Established connections of these addresses, each with so many; what is beyond the bound is
/// refused.
fn fill(dir: &Path, of: &[(&str, usize)]) {
    const PORTS: usize = 60_000;
    let file = dir.join("connections");
    let mut lines = BufWriter::new(File::create(&file).expect("a file"));
    for (from, count) in of {
        for number in 0..*count {
            let (to, port) = (number / PORTS, 1 + number % PORTS);
            let line = format!(
                "-A -s {from} -d 10.9.0.{to} -p tcp --sport {port} --dport 80 --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 600"
            );
            writeln!(lines, "{line}").expect("written");
        }
    }
    lines.flush().expect("written");
    drop(lines);
    run(&["conntrack", "-R", file.to_str().expect("a path")]);
}

/// Takes in events.
fn server() -> (kube::Client, Arc<Mutex<String>>) {
    let sent: Arc<Mutex<String>> = Arc::default();
    let told = Arc::clone(&sent);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let told = Arc::clone(&told);
        async move {
            let text = request.into_body().collect().await.expect("a body");
            told.lock()
                .push_str(&String::from_utf8_lossy(&text.to_bytes()));
            Ok::<_, Infallible>(http::Response::new(Body::from(b"{}".to_vec())))
        }
    });
    (kube::Client::new(service, "default"), sent)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let limit = Duration::from_secs(150);
    let held = tokio::time::timeout(limit, async {
        while !holds().await {
            sleep(Duration::from_millis(100)).await;
        }
    });
    held.await
        .unwrap_or_else(|_| panic!("{what}: not within {limit:?}"));
}

/// Whether somebody gets through who was not there before.
fn connects(listener: &TcpListener) -> bool {
    let address = listener.local_addr().expect("an address");
    TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok()
}

async fn fills_and_is_healed(dir: &Path) {
    for line in [
        "ip link set lo up",
        "nft add table ip t",
        "nft add chain ip t o { type filter hook output priority 0 ; }",
        "nft add rule ip t o ct state new accept",
    ] {
        let (done, said) = run(&line.split(' ').collect::<Vec<_>>());
        assert!(done, "{line}: {said}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    assert!(connects(&listener));
    let most = conntrack::table().expect("a table").most;
    let most = usize::try_from(most).expect("a number");
    let (places, (client, sent)) = (Places::default(), server());
    places.add(&PodNetworkRequest::named("busy"), &[[10, 1, 0, 5].into()]);
    places.add(&PodNetworkRequest::named("gone"), &[[10, 1, 0, 6].into()]);
    let (events, writer) = EventRecorder::new(client, "own");
    let connections = Connections {
        interval: Duration::from_millis(100),
        ..Connections::new(places.clone(), None, events)
    };
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.add("connections", connections.run(stop.clone()));
    tasks.add("events", writer.run(stop.clone()));
    // Nothing of it may go: both pods live.
    let busy = most * 6 / 10;
    fill(dir, &[("10.1.0.5", busy), ("10.1.0.6", most - busy + 100)]);
    assert!(
        !connects(&listener),
        "there is room: {:?}",
        conntrack::table()
    );
    until("it is told", async || {
        connects(&listener);
        sent.lock().contains("ConnectionTableFull")
    })
    .await;
    let told = sent.lock().clone();
    for part in [
        "0 of them led to pods that are gone",
        "from 10.1.0.5 (pod ns/busy",
        "nf_conntrack_max",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // One of them goes, and others get through.
    places.remove(&SandboxId("gone".to_owned()));
    until("there is room", async || connects(&listener)).await;
    until("that is told", async || {
        sent.lock().contains("ConnectionTableHasRoom")
    })
    .await;
    let left = conntrack::table().expect("a table").count;
    let left = usize::try_from(left).expect("a number");
    assert!(left >= busy, "{left}: what lives stays");
    stop.cancel();
}

#[test]
fn a_full_table_is_told_and_healed() {
    if !coracle_ground::is_root_or_skip() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ns");
    let ns = NetNs::create(&path).expect("a namespace");
    // Open, it stays; and it is gone with this process, however that ends.
    coracle_netns::unpin(&path).expect("unpinned");
    let outcome = ns.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let work = fills_and_is_healed(directory.path());
        runtime.expect("a runtime").block_on(work);
    });
    outcome.expect("a run in the namespace");
    let _ = fs::remove_dir_all(directory.path().join("connections"));
}
