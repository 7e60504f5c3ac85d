//! The balancer between servers that speak TLS on loopback.

pub(crate) mod server;

use std::{collections::BTreeSet, convert::Infallible, net::SocketAddr};

use coracle_telemetry::Tasks;
use kube::{Client, client::Body};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use self::server::{Authority, Mode, Server};
use super::*;
use crate::informers::{Informers, Nodes};

/// Long enough for a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node before two servers.
struct Ground {
    authority: Authority,
    servers: [Server; 2],
    balancer: Balancer,
    client: Client,
    dir: tempfile::TempDir,
    tasks: JoinSet<()>,
    informers: Tasks,
}

impl Ground {
    async fn new() -> Self {
        let authority = Authority::new();
        let servers = [authority.server("a").await, authority.server("b").await];
        let given = servers.each_ref().map(Server::address);
        let balancer = Balancer::new("n", &given, Vec::new()).expect("given");
        let client = client(&balancer, &authority);
        Self {
            authority,
            servers,
            balancer,
            client,
            dir: tempfile::tempdir().expect("directory"),
            tasks: JoinSet::new(),
            informers: Tasks::new(CancellationToken::new()),
        }
    }

    /// With its keeper, which hears of no Endpoints.
    async fn kept() -> Self {
        let mut ground = Self::new().await;
        let nothing = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        ground.keep(&Client::new(nothing, "default"));
        ground
    }

    /// With a keeper that follows what `api` tells.
    fn keep(&mut self, api: &Client) {
        let mut informers = Informers::new(api, "n", Nodes::Own, &Default::default());
        let keeper = Keeper {
            balancer: self.balancer.clone(),
            tls: self.authority.tls(),
            endpoints: Endpoints::new(&mut informers),
            path: self.dir.path().join("servers.json"),
        };
        informers.spawn(&mut self.informers);
        let keep = keeper.run(CancellationToken::new());
        coracle_telemetry::spawn_in(&mut self.tasks, "keep", keep);
    }

    /// The server in use, and the other.
    fn in_use(&mut self) -> (&mut Server, &mut Server) {
        let current = self.balancer.next(|_| false).expect("one");
        let [a, b] = &mut self.servers;
        if a.address() == current {
            (a, b)
        } else {
            (b, a)
        }
    }

    /// What a watch is: a request without an end. Returns what ends it.
    async fn hang(&mut self) -> tokio::sync::oneshot::Receiver<()> {
        let (end, ended) = tokio::sync::oneshot::channel();
        let client = self.client.clone();
        coracle_telemetry::spawn_in(&mut self.tasks, "hang", async move {
            let request = http::Request::get("/hang")
                .body(Vec::new())
                .expect("request");
            let answer = client.request_text(request).await;
            answer.expect_err("it does not answer");
            let _ = end.send(());
        });
        until("it hangs", async || {
            let is_there = self.servers.iter().any(|server| server.hanging() > 0);
            is_there.then_some(())
        })
        .await;
        ended
    }
}

async fn cut(hanging: tokio::sync::oneshot::Receiver<()>) {
    let ended = tokio::time::timeout(PATIENCE, hanging).await;
    ended.expect("it is cut").expect("told");
}

fn client(balancer: &Balancer, authority: &Authority) -> Client {
    crate::join::connect(balancer, authority.tls(), None).expect("a client")
}

/// Who answers.
async fn who(client: &Client) -> Result<String, kube::Error> {
    let request = http::Request::get("/").body(Vec::new()).expect("request");
    client.request_text(request).await
}

async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what}: waited in vain"))
}

/// Who answers within a few tries: a request that was on its way is lost with its server.
async fn who_soon(client: &Client) -> String {
    until("an answer", async || who(client).await.ok()).await
}

#[tokio::test]
async fn all_requests_go_to_one_server_until_that_dies() {
    let mut ground = Ground::new().await;
    let client = ground.client.clone();
    let hanging = ground.hang().await;
    let (used, other) = ground.in_use();
    for _ in 0..3 {
        assert_eq!(who(&client).await.expect("an answer"), used.name);
    }
    assert_eq!(other.accepted(), 0);
    let next = other.name;
    used.kill().await;
    cut(hanging).await;
    assert_eq!(who_soon(&client).await, next);
    // And when the first one is back, there is no reason to leave.
    let (_, dead) = ground.in_use();
    dead.start().await;
    assert_eq!(who_soon(&client).await, next);
}

#[tokio::test]
async fn a_server_that_is_stopped_is_left_with_all_that_hangs_on_it() {
    let mut ground = Ground::kept().await;
    let client = ground.client.clone();
    let hanging = ground.hang().await;
    let (used, other) = ground.in_use();
    let next = other.name;
    used.set(Mode::Stopped);
    cut(hanging).await;
    assert_eq!(who_soon(&client).await, next);
    let (_, stopped) = ground.in_use();
    stopped.set(Mode::Ready);
    assert_eq!(who_soon(&client).await, next);
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_left() {
    let mut ground = Ground::kept().await;
    let client = ground.client.clone();
    let hanging = ground.hang().await;
    let (used, other) = ground.in_use();
    let next = other.name;
    used.set(Mode::NotReady);
    cut(hanging).await;
    assert_eq!(who(&client).await.expect("an answer"), next);
}

#[tokio::test]
async fn one_that_left_the_endpoints_is_left_for_one_that_is_well() {
    let mut ground = Ground::new().await;
    let hanging = ground.hang().await;
    let (used, other) = ground.in_use();
    let (gone, stays, next) = (used.address(), other.address(), other.name);
    // As told half a minute ago.
    let before = Instant::now() - Duration::from_secs(31);
    let stay = std::slice::from_ref(&stays);
    {
        let mut state = ground.balancer.0.state.lock();
        state.servers.set_listed(stay, before);
    }
    ground.balancer.tick();
    assert_eq!(ground.balancer.next(|_| false), Some(gone.clone()));
    ground.balancer.answered(&stays, Answer::Ready);
    cut(hanging).await;
    assert_eq!(who(&ground.client).await.expect("an answer"), next);
    assert!(ground.balancer.known().contains(&gone), "it was given");
}

#[tokio::test]
async fn when_all_have_died_the_first_that_is_back_is_used() {
    let mut ground = Ground::kept().await;
    let client = ground.client.clone();
    let names: BTreeSet<_> = ground.servers.iter().map(|server| server.name).collect();
    assert!(names.contains(&*who(&client).await.expect("an answer")));
    for server in &mut ground.servers {
        server.kill().await;
    }
    let told = until("an error that says so", async || {
        let error = who(&client).await.err()?;
        let told = coracle_telemetry::ErrorChain(&error).to_string();
        told.contains("no API server").then_some(told)
    })
    .await;
    for server in &ground.servers {
        assert!(told.contains(server.address().as_str()), "{told}");
    }
    for at in [1, 0] {
        ground.servers[at].start().await;
        assert_eq!(who_soon(&client).await, ground.servers[at].name);
        ground.servers[at].kill().await;
    }
}

#[tokio::test]
async fn what_is_none_of_the_clusters_servers_is_not_used() {
    let mut ground = Ground::kept().await;
    let stranger = Authority::new().server("stranger").await;
    ground.balancer.set_listed(&[stranger.address()]);
    until("it is asked", async || {
        (stranger.accepted() > 0).then_some(())
    })
    .await;
    let (used, other) = ground.in_use();
    let next = other.name;
    used.kill().await;
    assert_eq!(who_soon(&ground.client).await, next);
}

#[tokio::test]
async fn a_node_that_starts_while_its_server_is_down_finds_the_others() {
    let mut ground = Ground::kept().await;
    let path = ground.dir.path().join("servers.json");
    let written = until("the list is written", async || {
        Some(load_known(&path)).filter(|known| known.len() == 2)
    })
    .await;
    let first = ground.servers[0].address();
    ground.servers[0].kill().await;
    let again = Balancer::new("n", &[first], written).expect("given");
    let client = client(&again, &ground.authority);
    assert_eq!(who(&client).await.expect("an answer"), "b");
}

/// An API that has these slices, and nothing else.
fn api(slices: Vec<Value>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let line =
            |kind: &str, object: &Value| json!({"type": kind, "object": object}).to_string() + "\n";
        let metadata =
            json!({"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}});
        let mark = json!({"kind": "x", "apiVersion": "v1", "metadata": metadata});
        let slices = slices
            .iter()
            .filter(|_| request.uri().path().ends_with("slices"));
        let mut body: String = slices.map(|slice| line("ADDED", slice)).collect();
        body.push_str(&line("BOOKMARK", &mark));
        async move { Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes()))) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn the_endpoints_tell_of_other_servers_and_nobody_else_does() {
    let mut ground = Ground::new().await;
    let more = [
        ground.authority.server("c").await,
        ground.authority.server("d").await,
    ];
    let slice = |name: &str, server: &Server| {
        json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"name": name, "namespace": "default", "resourceVersion": "1",
                "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4", "endpoints": [{"addresses": [server.at.ip()]}],
            "ports": [{"name": "https", "protocol": "TCP", "port": server.at.port()}]})
    };
    let slices = vec![slice("another", &more[1]), slice("kubernetes", &more[0])];
    ground.keep(&api(slices));
    let path = ground.dir.path().join("servers.json");
    let written = until("the list is written", async || {
        Some(load_known(&path)).filter(|known| known.len() == 3)
    })
    .await;
    assert!(written.contains(&more[0].address()));
    for server in &mut ground.servers {
        server.kill().await;
    }
    assert_eq!(who_soon(&ground.client).await, "c");
    assert_eq!(more[1].accepted(), 0);
}

/// A request over the port, as any other client on the node has it.
async fn fetch(port: SocketAddr, tls: rustls::ClientConfig) -> std::io::Result<String> {
    let stream = TcpStream::connect(port).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
    let name = ServerName::IpAddress(SERVER_NAME.into());
    let mut stream = connector.connect(name, stream).await?;
    let request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_flood_of_the_port_keeps_nobody_out() {
    let mut ground = Ground::new().await;
    let port = Port::open(None).await.expect("a port");
    let at = port.address();
    let serve = port.serve(ground.balancer.clone(), CancellationToken::new());
    coracle_telemetry::spawn_in(&mut ground.tasks, "serve the port", serve);
    let mut silent = Vec::new();
    for _ in 0..500 {
        silent.push(TcpStream::connect(at).await.expect("connect"));
    }
    let answer = fetch(at, ground.authority.tls()).await.expect("an answer");
    let (used, other) = ground.in_use();
    assert!(answer.ends_with(used.name), "{answer}");
    assert_eq!(
        used.accepted() + other.accepted(),
        1,
        "silence costs no server"
    );
    let name = used.name;
    assert_eq!(who(&ground.client).await.expect("an answer"), name);
    let mut gone = 0;
    for one in &mut silent {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(1), one.read(&mut byte));
        gone += usize::from(matches!(read.await, Ok(Ok(0) | Err(_))));
    }
    assert!(gone >= 100, "{gone} of 500 had to go");
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_or_another_is_found() {
    let first = Port::open(None).await.expect("a port");
    let taken = first.address().port();
    let error = Port::open(Some(taken)).await.expect_err("taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let second = Port::open(None).await.expect("another");
    assert_ne!(second.address(), first.address());
}
