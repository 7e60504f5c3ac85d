//! Debian's docker-registry behind a proxy that loses connections.

use std::{
    collections::VecDeque,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use coracle_ground::Ground;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    super::*,
    registry::{Image, Lab, digest},
};

/// A registry on loopback with one image, `a/b:1`.
struct Registry {
    process: Child,
    address: String,
    layer: Vec<u8>,
    _storage: Ground,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

impl Registry {
    async fn start() -> Self {
        let storage = Ground::new();
        let free = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = free.local_addr().expect("address").to_string();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n",
            storage.path().display()
        );
        let file = storage.path().join("config.yml");
        std::fs::write(&file, config).expect("configuration");
        drop(free);
        let log = std::fs::File::create(storage.path().join("log")).expect("log");
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("docker-registry");
        let mut registry = Self {
            process,
            address,
            layer: Vec::new(),
            _storage: storage,
        };
        let answers = async {
            while TcpStream::connect(&registry.address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), answers)
            .await
            .expect("the registry answers");
        registry.fill().await;
        registry
    }

    /// A layer that takes many reads, and that nothing makes smaller.
    async fn fill(&mut self) {
        let mut state = 1_u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let content: Vec<u8> = noise.take(2 << 20).collect();
        let image = Image::of(&content);
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().tls_certs_only([]).build();
        let http = http.expect("a client");
        let base = format!("http://{}/v2/a/b", self.address);
        for blob in [&image.layer, &image.config] {
            let begun = http.post(format!("{base}/blobs/uploads/")).send().await;
            let begun = begun.expect("upload");
            let location = begun.headers()["location"].to_str().expect("text");
            let to = format!("{location}&digest={}", digest(blob));
            let put = http.put(to).body(blob.clone()).send().await.expect("blob");
            assert_eq!(put.status().as_u16(), 201);
        }
        let put = http
            .put(format!("{base}/manifests/1"))
            .header("content-type", "application/vnd.oci.image.manifest.v1+json")
            .body(image.manifest)
            .send()
            .await
            .expect("manifest");
        assert_eq!(put.status().as_u16(), 201);
        self.layer = image.layer;
    }
}

/// What becomes of one request for the layer.
#[derive(Clone, Copy)]
enum Fate {
    /// The connection ends behind so many bytes of the answer.
    Cut(u64),
    /// The proxy itself answers so.
    Status(u16),
}

/// Whether the registry gets to see which bytes are wanted.
#[derive(Clone, Copy)]
enum Ranges {
    Kept,
    Dropped,
}

/// Between the node and the registry. Each connection is one request.
struct Proxy {
    address: String,
    /// `Range` of the requests for the layer.
    asked: Arc<Mutex<Vec<Option<u64>>>>,
    /// Bytes that came of the registry for those, heads included.
    relayed: Arc<Mutex<u64>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    async fn start(registry: &Registry, ranges: Ranges, fates: &[Fate]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let (asked, relayed) = (Arc::default(), Arc::default());
        let mut line = Line {
            registry: registry.address.clone(),
            layer: digest(&registry.layer),
            ranges,
            fates: fates.iter().copied().collect(),
            asked: Arc::clone(&asked),
            relayed: Arc::clone(&relayed),
        };
        let task = coracle_telemetry::spawn("proxy of a test", async move {
            // One after the other, as the only puller asks.
            while let Ok((stream, _)) = listener.accept().await {
                let _ended = line.carry(stream).await;
            }
        });
        Self {
            address,
            asked,
            relayed,
            task,
        }
    }
}

struct Line {
    registry: String,
    layer: String,
    ranges: Ranges,
    fates: VecDeque<Fate>,
    asked: Arc<Mutex<Vec<Option<u64>>>>,
    relayed: Arc<Mutex<u64>>,
}

impl Line {
    async fn carry(&mut self, mut client: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let is_layer = head
            .lines()
            .next()
            .is_some_and(|line| line.contains(&self.layer));
        let mut fate = None;
        if is_layer {
            fate = self.fates.pop_front();
            self.asked.lock().push(range(&head));
        }
        let most = match fate {
            Some(Fate::Status(status)) => {
                let text = format!(
                    "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                );
                client.write_all(text.as_bytes()).await?;
                return client.shutdown().await;
            }
            Some(Fate::Cut(most)) => most,
            None => u64::MAX,
        };
        let mut registry = TcpStream::connect(&self.registry).await?;
        registry.write_all(self.onwards(&head).as_bytes()).await?;
        let relayed = tokio::io::copy(&mut (&mut registry).take(most), &mut client).await?;
        if is_layer {
            *self.relayed.lock() += relayed;
        }
        client.shutdown().await
    }

    /// The request for the registry, which ends the connection behind its answer.
    fn onwards(&self, head: &str) -> String {
        let is_kept = |line: &&str| match self.ranges {
            Ranges::Kept => true,
            Ranges::Dropped => !line.to_ascii_lowercase().starts_with("range:"),
        };
        let lines: Vec<&str> = head.trim_end().lines().filter(is_kept).collect();
        format!("{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"))
    }
}

fn range(head: &str) -> Option<u64> {
    let line = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("range:"))?;
    let from = line.split_once("bytes=")?.1.strip_suffix('-')?;
    from.parse().ok()
}

const CUTS: [Fate; 5] = [
    Fate::Cut(100_000),
    Fate::Cut(600_000),
    Fate::Status(503),
    Fate::Cut(0),
    Fate::Cut(300_000),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_goes_on_where_its_connection_broke() {
    let Some(lab) = Lab::new().await else { return };
    let registry = Registry::start().await;
    let proxy = Proxy::start(&registry, Ranges::Kept, &CUTS).await;
    let record = lab.pull_at(&proxy.address, "a/b:1", &[]).await;
    let record = record.expect("pull");
    let file = lab.layout.layer_dir(&record.layers[0]).join("fs/file");
    assert_eq!(std::fs::metadata(file).expect("file").len(), 2 << 20);
    let asked = proxy.asked.lock().clone();
    let from: Vec<u64> = asked.iter().copied().flatten().collect();
    assert_eq!((asked.len(), from.len()), (6, 5), "{asked:?}");
    assert!(from[0] > 50_000 && from.is_sorted(), "{from:?}");
    // Nothing but the heads came twice.
    let relayed = *proxy.relayed.lock();
    assert!(
        relayed < registry.layer.len() as u64 + 10_000,
        "{relayed} of {}",
        registry.layer.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_comes_anew_where_nobody_knows_of_ranges() {
    let Some(lab) = Lab::new().await else { return };
    let registry = Registry::start().await;
    let proxy = Proxy::start(&registry, Ranges::Dropped, &CUTS).await;
    let record = lab.pull_at(&proxy.address, "a/b:1", &[]).await;
    record.expect("pull");
    let relayed = *proxy.relayed.lock();
    assert!(relayed > registry.layer.len() as u64 + 900_000, "{relayed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_gets_no_further_is_given_up() {
    let Some(lab) = Lab::new().await else { return };
    let registry = Registry::start().await;
    let fates = [&[Fate::Cut(100_000)][..], &[Fate::Cut(0); 10]].concat();
    let proxy = Proxy::start(&registry, Ranges::Kept, &fates).await;
    let error = lab.pull_at(&proxy.address, "a/b:1", &[]).await;
    let error = error.expect_err("cut");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(
        matches!(
            error,
            PullError::FetchLayer {
                source: RegistryError::Broken { .. },
                ..
            }
        ),
        "{error:?}"
    );
    // The first, and five that brought nothing, of which the first is the cut one's.
    assert_eq!(proxy.asked.lock().len(), 5);
    assert!(lab.left().is_empty(), "{:?}", lab.left());
}
