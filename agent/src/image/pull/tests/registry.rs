//! A registry on loopback that says what a test has put there, and a store to pull into.

use std::{collections::HashMap, sync::Arc};

use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use sha2::Digest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::super::{super::config::oci_architecture, *};
use crate::runtime::SecretCoordinates;

/// What the server says to one path.
#[derive(Clone, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// Goes on with zeros for ever.
    pub(super) endless: bool,
    /// Hangs up this many bytes before the announced end.
    pub(super) cut: usize,
    /// Only for requests with this `Authorization`; others get `challenge`.
    pub(super) authorization: Option<String>,
    pub(super) challenge: String,
    /// What comes in place of it at first, one request each.
    pub(super) before: Vec<Answer>,
}

pub(super) fn ok(body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status: 200,
        body: body.into(),
        ..Answer::default()
    }
}

pub(super) fn refused(status: u16) -> Answer {
    Answer {
        status,
        ..Answer::default()
    }
}

pub(super) fn redirect(to: String) -> Answer {
    Answer {
        status: 307,
        headers: vec![("Location", to)],
        ..Answer::default()
    }
}

/// A server on loopback; knows what it was asked.
pub(super) struct Server {
    pub(super) address: String,
    pub(super) answers: Arc<Mutex<HashMap<String, Answer>>>,
    /// Path with query and `Authorization` of every request.
    pub(super) asked: Asked,
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) async fn start(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.expect("bind");
        let address = listener.local_addr().expect("address").to_string();
        let answers: Arc<Mutex<HashMap<String, Answer>>> = Arc::default();
        let asked: Arc<Mutex<Vec<_>>> = Arc::default();
        let (shared, log) = (Arc::clone(&answers), Arc::clone(&asked));
        let task = coracle_telemetry::spawn("task of a test", async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(coracle_telemetry::spawn(
                    "task of a test",
                    serve(stream, Arc::clone(&shared), Arc::clone(&log)),
                ));
            }
        });
        Self {
            address,
            answers,
            asked,
            task,
        }
    }

    pub(super) fn put(&self, path: &str, answer: Answer) {
        self.answers.lock().insert(path.to_owned(), answer);
    }

    pub(super) fn change(&self, path: &str, change: impl FnOnce(&mut Answer)) {
        change(self.answers.lock().get_mut(path).expect("known path"));
    }

    pub(super) fn asked(&self, part: &str) -> Vec<(String, Option<String>)> {
        self.asked
            .lock()
            .iter()
            .filter(|(path, _)| path.contains(part))
            .cloned()
            .collect()
    }
}

/// Paths with their `Authorization`.
pub(super) type Asked = Arc<Mutex<Vec<(String, Option<String>)>>>;

async fn serve(
    mut stream: TcpStream,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    log: Asked,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1)?.to_owned();
    let authorization = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization")
            .then(|| value.to_owned())
    });
    log.lock().push((target.clone(), authorization.clone()));
    let path = target.split('?').next()?;
    let mut answer = match answers.lock().get_mut(path) {
        Some(known) if known.before.is_empty() => known.clone(),
        Some(known) => known.before.remove(0),
        None => refused(404),
    };
    if answer.authorization.is_some() && answer.authorization != authorization {
        let challenge = answer.challenge;
        answer = Answer {
            status: 401,
            headers: vec![("WWW-Authenticate", challenge)],
            ..Answer::default()
        };
    }
    let mut text = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    if !answer.endless {
        text.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
    }
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream
        .write_all(format!("{text}\r\n").as_bytes())
        .await
        .ok()?;
    stream
        .write_all(&answer.body[..answer.body.len() - answer.cut])
        .await
        .ok()?;
    if answer.endless {
        // Until the other side has had enough.
        loop {
            stream.write_all(&[b' '; 65536]).await.ok()?;
        }
    }
    Some(())
}

pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

/// An image of one layer.
pub(super) struct Image {
    pub(super) layer: Vec<u8>,
    pub(super) config: Vec<u8>,
    pub(super) manifest: Vec<u8>,
}

impl Image {
    /// Has `content` in `/file`.
    pub(super) fn of(content: &[u8]) -> Self {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, "file", content)
            .expect("append");
        let tar = tar.into_inner().expect("finish");
        let layer = compress_to_vec(&tar[..], CompressionLevel::Fastest);
        let config = serde_json::json!({ "architecture": oci_architecture(), "os": "linux",
            "config": { "Cmd": ["run"] }, "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] } })
        .to_string()
        .into_bytes();
        let manifest = serde_json::json!({ "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config),
                        "size": config.len() },
            "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd", "digest": digest(&layer),
                         "size": layer.len() }] })
        .to_string()
        .into_bytes();
        Self {
            layer,
            config,
            manifest,
        }
    }
}

/// A registry with `a/b:1` behind an index, and a store to pull it into.
pub(super) struct Lab {
    pub(super) server: Server,
    pub(super) dir: coracle_ground::Ground,
    pub(super) layout: Layout,
    pub(super) capacity: Capacity,
    pub(super) registries: Registries,
    pub(super) layer: String,
    pub(super) config: String,
    pub(super) manifest: String,
}

impl Lab {
    /// `None`: unpacking needs root.
    pub(super) async fn new() -> Option<Self> {
        // Unpacking sets owners.
        if !coracle_ground::is_root_or_skip() {
            return None;
        }
        let server = Server::start("127.0.0.1").await;
        let Image {
            layer,
            config,
            manifest,
        } = Image::of(b"hello");
        let platform =
            |architecture: &str| serde_json::json!({ "architecture": architecture, "os": "linux" });
        let index = serde_json::json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [
                { "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(b"other"), "size": 5,
                  "platform": platform("s390x") },
                { "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&manifest),
                  "size": manifest.len(), "platform": platform(oci_architecture()) },
            ] })
        .to_string();
        let path = |what: &str, digest: &str| format!("/v2/a/b/{what}/{digest}");
        let paths = [
            path("blobs", &digest(&layer)),
            path("blobs", &digest(&config)),
            path("manifests", &digest(&manifest)),
        ];
        server.put("/v2/a/b/manifests/1", ok(index));
        for (path, body) in paths.iter().zip([layer, config, manifest]) {
            server.put(path, ok(body));
        }
        let [layer, config, manifest] = paths;
        let dir = coracle_ground::Ground::new();
        let layout = Layout::open(dir.path().join("images")).expect("store");
        Some(Self {
            server,
            dir,
            layout,
            capacity: Capacity::default(),
            registries: Registries::default(),
            layer,
            config,
            manifest,
        })
    }

    pub(super) async fn pull(&self, auth: &[RegistryAuth]) -> Result<Record, String> {
        self.pull_named("a/b:1", auth).await
    }

    /// As [`Lab::pull`], with the error itself.
    pub(super) async fn try_pull(&self, auth: &[RegistryAuth]) -> Result<Record, PullError> {
        self.pull_at(&self.server.address, "a/b:1", auth).await
    }

    pub(super) async fn pull_named(
        &self,
        name: &str,
        auth: &[RegistryAuth],
    ) -> Result<Record, String> {
        let pulled = self.pull_at(&self.server.address, name, auth).await;
        pulled.map_err(|error| ErrorChain(&error).to_string())
    }

    /// Pulls from another registry.
    pub(super) async fn pull_at(
        &self,
        registry: &str,
        name: &str,
        auth: &[RegistryAuth],
    ) -> Result<Record, PullError> {
        let image = reference::parse(&format!("{registry}/{name}")).expect("name");
        let context = Context {
            layout: &self.layout,
            registries: &self.registries,
            capacity: &self.capacity,
            retries: Retries::QUICK,
        };
        pull(context, &image, auth).await
    }

    /// Everything below the store that is not an empty directory or a lock.
    pub(super) fn left(&self) -> Vec<std::path::PathBuf> {
        let list = |path: &str| {
            std::fs::read_dir(self.dir.path().join("images").join(path))
                .into_iter()
                .flatten()
        };
        list("layers")
            .chain(list("staging"))
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }

    pub(super) fn login(&self) -> Vec<RegistryAuth> {
        vec![RegistryAuth {
            registry: self.server.address.clone(),
            username: "u".into(),
            password: "p".into(),
            ..RegistryAuth::default()
        }]
    }
}

/// A layer of `lab` as whoever has this password may have it.
pub(super) fn login(lab: &Lab, part: &str, username: &str, password: &str) -> RegistryAuth {
    RegistryAuth {
        registry: format!("{}{part}", lab.server.address),
        username: username.into(),
        password: password.into(),
        ..RegistryAuth::default()
    }
}

/// `auth` as an entry of the Secret `team/<name>`.
pub(super) fn kept_in(name: &str, uid: &str, auth: RegistryAuth) -> RegistryAuth {
    let secret = SecretCoordinates {
        uid: uid.to_owned(),
        namespace: "team".to_owned(),
        name: name.to_owned(),
    };
    RegistryAuth {
        secret: Some(Arc::new(secret)),
        ..auth
    }
}
