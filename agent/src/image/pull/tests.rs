//! Pulling from registries that are honest, broken or hostile, all of them on loopback.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use sha2::Digest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{super::config::oci_architecture, *};
use crate::runtime::SecretCoordinates;

/// What the server says to one path.
#[derive(Clone, Default)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Goes on with zeros for ever.
    endless: bool,
    /// Hangs up this many bytes before the announced end.
    cut: usize,
    /// Only for requests with this `Authorization`; others get `challenge`.
    authorization: Option<String>,
    challenge: String,
}

fn ok(body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status: 200,
        body: body.into(),
        ..Answer::default()
    }
}

fn redirect(to: String) -> Answer {
    Answer {
        status: 307,
        headers: vec![("Location", to)],
        ..Answer::default()
    }
}

/// A server on loopback; knows what it was asked.
struct Server {
    address: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    /// Path with query and `Authorization` of every request.
    asked: Asked,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(ip: &str) -> Self {
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

    fn put(&self, path: &str, answer: Answer) {
        self.answers.lock().insert(path.to_owned(), answer);
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Answer)) {
        change(self.answers.lock().get_mut(path).expect("known path"));
    }

    fn asked(&self, part: &str) -> Vec<(String, Option<String>)> {
        self.asked
            .lock()
            .iter()
            .filter(|(path, _)| path.contains(part))
            .cloned()
            .collect()
    }
}

/// Paths with their `Authorization`.
type Asked = Arc<Mutex<Vec<(String, Option<String>)>>>;

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
    let mut answer = answers.lock().get(path).cloned().unwrap_or(Answer {
        status: 404,
        ..Answer::default()
    });
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

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

/// A registry with `a/b:1` behind an index, and a store to pull it into.
struct Lab {
    server: Server,
    dir: tempfile::TempDir,
    layout: Layout,
    layer: String,
    config: String,
    manifest: String,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Where a test put a file system of its own there.
        let _not_mounted = nix::mount::umount2(
            &self.dir.path().join("images"),
            nix::mount::MntFlags::MNT_DETACH,
        );
    }
}

impl Lab {
    /// `None`: unpacking needs root.
    async fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            assert!(
                std::env::var_os("REQUIRE_ROOT").is_none(),
                "this test needs root"
            );
            eprintln!("skipped: needs root");
            return None;
        }
        let server = Server::start("127.0.0.1").await;
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(5);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, "file", &b"hello"[..])
            .expect("append");
        let tar = tar.into_inner().expect("finish");
        let layer = zstd::encode_all(&tar[..], 1).expect("compress");
        let config = serde_json::json!({ "architecture": oci_architecture(), "os": "linux",
            "config": { "Cmd": ["run"] }, "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] } })
        .to_string();
        let manifest = serde_json::json!({ "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config.as_bytes()),
                        "size": config.len() },
            "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd", "digest": digest(&layer),
                         "size": layer.len() }] })
        .to_string();
        let platform =
            |architecture: &str| serde_json::json!({ "architecture": architecture, "os": "linux" });
        let index = serde_json::json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [
                { "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(b"other"), "size": 5,
                  "platform": platform("s390x") },
                { "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(manifest.as_bytes()),
                  "size": manifest.len(), "platform": platform(oci_architecture()) },
            ] })
        .to_string();
        let path = |what: &str, digest: &str| format!("/v2/a/b/{what}/{digest}");
        let paths = [
            path("blobs", &digest(&layer)),
            path("blobs", &digest(config.as_bytes())),
            path("manifests", &digest(manifest.as_bytes())),
        ];
        server.put("/v2/a/b/manifests/1", ok(index));
        for (path, body) in paths
            .iter()
            .zip([layer, config.into_bytes(), manifest.into_bytes()])
        {
            server.put(path, ok(body));
        }
        let [layer, config, manifest] = paths;
        let dir = tempfile::tempdir().expect("directory");
        let layout = Layout::open(dir.path().join("images")).expect("store");
        Some(Self {
            server,
            dir,
            layout,
            layer,
            config,
            manifest,
        })
    }

    async fn pull(&self, auth: &[RegistryAuth]) -> Result<Record, String> {
        self.pull_named("a/b:1", auth).await
    }

    async fn pull_named(&self, name: &str, auth: &[RegistryAuth]) -> Result<Record, String> {
        let image = reference::parse(&format!("{}/{name}", self.server.address)).expect("name");
        pull(&self.layout, &Registries::default(), &image, auth).await
    }

    /// Everything below the store that is not an empty directory or a lock.
    fn left(&self) -> Vec<std::path::PathBuf> {
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

    fn login(&self) -> Vec<RegistryAuth> {
        vec![RegistryAuth {
            registry: self.server.address.clone(),
            username: "u".into(),
            password: "p".into(),
            ..RegistryAuth::default()
        }]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn image_behind_an_index_is_pulled_whole() {
    let Some(lab) = Lab::new().await else { return };
    let record = lab.pull(&[]).await.expect("pull");
    assert_eq!(record.config.cmd, ["run"]);
    let file = lab.layout.layer_dir(&record.layers[0]).join("fs/file");
    assert_eq!(std::fs::read(file).expect("layer"), b"hello");
    let digest_name = record.repo_digests.first().expect("digest").clone();
    let by_digest = digest_name.split_once('/').expect("host").1.to_owned();
    // The index is also found by its digest, and again needs no layer.
    let index = lab.server.answers.lock()["/v2/a/b/manifests/1"].clone();
    lab.server.put(
        &format!("/v2/{}", by_digest.replacen('@', "/manifests/", 1)),
        index,
    );
    assert_eq!(
        lab.pull_named(&by_digest, &[])
            .await
            .expect("by digest")
            .repo_digests,
        record.repo_digests
    );
    assert_eq!(lab.server.asked(&lab.layer).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_promised_is_refused_and_nothing_is_left() {
    type Damage = fn(&Lab);
    let cases: [(&str, Damage, &str); 10] = [
        (
            "layer digest",
            |lab| lab.server.change(&lab.layer, |answer| answer.body[9] ^= 1),
            "layer",
        ),
        (
            "layer too long",
            |lab| lab.server.change(&lab.layer, |answer| answer.body.push(0)),
            "more than",
        ),
        (
            "layer too short",
            |lab| {
                lab.server.change(&lab.layer, |answer| {
                    let half = answer.body.len() / 2;
                    answer.body.truncate(half);
                });
            },
            "layer",
        ),
        (
            "connection lost",
            |lab| lab.server.change(&lab.layer, |answer| answer.cut = 10),
            "layer",
        ),
        (
            "config",
            |lab| {
                lab.server
                    .change(&lab.config, |answer| answer.body.push(b' '))
            },
            "config is sha256:",
        ),
        (
            "manifest",
            |lab| {
                lab.server
                    .change(&lab.manifest, |answer| answer.body.push(b' '))
            },
            "manifest is sha256:",
        ),
        (
            "manifest by a tag",
            |lab| {
                let digest = lab.manifest.rsplit('/').next().expect("a digest");
                lab.server.change("/v2/a/b/manifests/1", |answer| {
                    let index = String::from_utf8(answer.body.clone()).expect("text");
                    answer.body = index.replace(digest, "1").into_bytes();
                });
            },
            "\"1\" is not a sha256 digest",
        ),
        (
            "endless manifest",
            |lab| {
                lab.server
                    .change(&lab.manifest, |answer| answer.endless = true)
            },
            "longer than",
        ),
        (
            "endless layer",
            |lab| {
                lab.server
                    .change(&lab.layer, |answer| answer.endless = true)
            },
            "more than",
        ),
        (
            "no manifest",
            |lab| {
                lab.server
                    .change(&lab.manifest, |answer| answer.status = 404)
            },
            "not found",
        ),
    ];
    for (what, damage, words) in cases {
        let Some(lab) = Lab::new().await else { return };
        damage(&lab);
        let error = lab.pull(&[]).await.expect_err(what);
        assert!(error.contains(words), "{what}: {error}");
        assert!(lab.left().is_empty(), "{what}: {:?}", lab.left());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_fetched_from_the_realm_and_shown_to_the_registry_only() {
    let Some(lab) = Lab::new().await else { return };
    // Another host by name, as far as credentials go.
    let (realm, blobs) = (
        Server::start("127.0.0.2").await,
        Server::start("127.0.0.3").await,
    );
    realm.put("/token", ok(r#"{"token":"t"}"#));
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"s\",scope=\"repository:x:push\"",
        realm.address
    );
    for path in [
        "/v2/a/b/manifests/1",
        &lab.manifest,
        &lab.config,
        &lab.layer,
    ] {
        lab.server.change(path, |answer| {
            answer.authorization = Some("Bearer t".to_owned());
            answer.challenge.clone_from(&challenge);
        });
    }
    let layer = lab.server.answers.lock()[&lab.layer].body.clone();
    lab.server.change(&lab.layer, |answer| {
        answer.status = 307;
        answer
            .headers
            .push(("Location", format!("http://{}/elsewhere", blobs.address)));
    });
    blobs.put("/elsewhere", ok(layer));
    lab.pull(&lab.login()).await.expect("pull");
    assert_eq!(
        *realm.asked.lock(),
        [(
            "/token?service=s&scope=repository%3Aa%2Fb%3Apull".to_owned(),
            Some("Basic dTpw".to_owned())
        )]
    );
    assert_eq!(*blobs.asked.lock(), [("/elsewhere".to_owned(), None)]);
    assert!(
        lab.server
            .asked("")
            .iter()
            .all(|(_, shown)| shown.as_deref() != Some("Basic dTpw"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_shown_on_request_and_to_the_registry_only() {
    let Some(lab) = Lab::new().await else { return };
    let blobs = Server::start("127.0.0.2").await;
    lab.server.change("/v2/a/b/manifests/1", |answer| {
        answer.authorization = Some("Basic dTpw".to_owned());
        answer.challenge = "Basic realm=\"r\"".to_owned();
    });
    let layer = std::mem::replace(
        lab.server
            .answers
            .lock()
            .get_mut(&lab.layer)
            .expect("layer"),
        redirect(format!("http://{}/elsewhere", blobs.address)),
    );
    // Asks for what only the registry may have.
    blobs.put(
        "/elsewhere",
        Answer {
            authorization: Some("Basic dTpw".to_owned()),
            challenge: "Basic realm=\"r\"".to_owned(),
            ..layer.clone()
        },
    );
    let error = lab.pull(&lab.login()).await.expect_err("refused");
    assert!(error.contains("access denied"), "{error}");
    assert_eq!(*blobs.asked.lock(), [("/elsewhere".to_owned(), None)]);
    blobs.put("/elsewhere", layer);
    lab.pull(&lab.login()).await.expect("pull");
    let error = lab.pull(&[]).await.expect_err("no password");
    assert!(error.contains("access denied"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_cannot_send_the_node_to_inner_addresses() {
    let Some(lab) = Lab::new().await else { return };
    for to in [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1%25eth0]/",
        "http://0.0.0.0/",
        "ftp://x/y",
    ] {
        lab.server
            .put("/v2/a/b/manifests/1", redirect(to.to_owned()));
        let error = lab.pull(&[]).await.expect_err(to);
        assert!(
            error.contains("sends to") || error.contains("redirect to"),
            "{to}: {error}"
        );
        lab.server.put(
            "/v2/a/b/manifests/1",
            Answer {
                authorization: Some("nothing".to_owned()),
                challenge: format!("Bearer realm=\"{to}\",service=\"s\""),
                ..ok("")
            },
        );
        let error = lab.pull(&lab.login()).await.expect_err(to);
        assert!(
            error.contains("sends to") || error.contains("token realm"),
            "{to}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_and_challenges_end() {
    let Some(lab) = Lab::new().await else { return };
    lab.server.put(
        "/v2/a/b/manifests/1",
        redirect("/v2/a/b/manifests/1".to_owned()),
    );
    assert!(lab.pull(&[]).await.expect_err("loop").contains("redirects"));
    lab.server.put("/token", ok(r#"{"token":"never enough"}"#));
    let challenge = format!("Bearer realm=\"http://{}/token\"", lab.server.address);
    lab.server.put(
        "/v2/a/b/manifests/1",
        Answer {
            authorization: Some("Bearer other".to_owned()),
            challenge,
            ..ok("")
        },
    );
    assert!(
        lab.pull(&[])
            .await
            .expect_err("denied")
            .contains("access denied")
    );
    assert_eq!(lab.server.asked("/token").len(), 1);
    lab.server.put(
        "/token",
        Answer {
            endless: true,
            ..ok("")
        },
    );
    assert!(
        lab.pull(&[])
            .await
            .expect_err("endless token")
            .contains("longer than")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_refuses_an_image_and_keeps_the_store() {
    let Some(lab) = Lab::new().await else { return };
    let images = lab.dir.path().join("images");
    let mounted = |options: &str, flags| {
        nix::mount::mount(Some("small"), &images, Some("tmpfs"), flags, Some(options))
            .expect("mount");
    };
    mounted("size=64k", nix::mount::MsFlags::empty());
    let layout = Layout::open(images.clone()).expect("store");
    let fill = images.join("fill");
    let _full = std::fs::write(&fill, vec![1; 1 << 20]);
    let error = lab.pull(&[]).await.expect_err("full");
    assert!(error.contains("No space left"), "{error}");
    assert!(lab.left().is_empty(), "{:?}", lab.left());
    std::fs::remove_file(&fill).expect("free");
    let record = lab.pull(&[]).await.expect("fits");
    assert!(layout.layer_size(&record.layers[0]).is_some());
}

/// A layer of `lab` as whoever has this password may have it.
fn login(lab: &Lab, part: &str, username: &str, password: &str) -> RegistryAuth {
    RegistryAuth {
        registry: format!("{}{part}", lab.server.address),
        username: username.into(),
        password: password.into(),
        ..RegistryAuth::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_tried_one_after_the_other() {
    let Some(lab) = Lab::new().await else { return };
    lab.server.change("/v2/a/b/manifests/1", |answer| {
        answer.authorization = Some("Basic dTpw".to_owned());
        answer.challenge = "Basic realm=\"r\"".to_owned();
    });
    let (wrong, right, other) = (
        login(&lab, "/a", "u", "old"),
        login(&lab, "", "u", "p"),
        login(&lab, "/c", "u", "c"),
    );
    assert!(
        lab.pull(std::slice::from_ref(&wrong))
            .await
            .expect_err("refused")
            .contains("access denied")
    );
    let record = lab
        .pull(&[right.clone(), wrong, other])
        .await
        .expect("pull");
    assert!(
        record
            .access
            .values()
            .all(|keys| *keys == [fingerprint(&right)].into()),
        "{:?}",
        record.access
    );
    let shown: Vec<_> = lab
        .server
        .asked("/manifests/1")
        .into_iter()
        .filter_map(|(_, shown)| shown)
        .collect();
    assert_eq!(shown, ["Basic dTpvbGQ=", "Basic dTpvbGQ=", "Basic dTpw"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_is_exchanged_for_a_token_in_a_body() {
    let Some(lab) = Lab::new().await else { return };
    lab.server.put("/token", ok(r#"{"access_token":"t"}"#));
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"s\"",
        lab.server.address
    );
    lab.server.change("/v2/a/b/manifests/1", |answer| {
        answer.authorization = Some("Bearer t".to_owned());
        answer.challenge = challenge;
    });
    let auth = RegistryAuth {
        identity_token: "secret".into(),
        ..login(&lab, "", "", "")
    };
    lab.pull(&[auth]).await.expect("pull");
    assert_eq!(lab.server.asked("/token"), [("/token".to_owned(), None)]);
    let auth = RegistryAuth {
        registry_token: "t".into(),
        ..login(&lab, "", "", "")
    };
    lab.pull(&[auth]).await.expect("pull");
    assert_eq!(lab.server.asked("/token").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_came_by_a_password_is_fetched_by_everybody_else() {
    let Some(lab) = Lab::new().await else { return };
    let (owner, thief) = (login(&lab, "", "u", "p"), login(&lab, "", "thief", "x"));
    lab.pull(std::slice::from_ref(&owner)).await.expect("pull");
    // Any registry tells whom it likes that an image has that layer; its bytes it does not have.
    lab.server.change(&lab.layer, |answer| answer.status = 403);
    for auth in [vec![thief], vec![]] {
        let error = lab.pull(&auth).await.expect_err("not theirs");
        assert!(error.contains("access denied"), "{error}");
    }
    lab.pull(&[owner]).await.expect("they have had it");
    lab.server.change(&lab.layer, |answer| answer.status = 200);
    lab.pull(&[]).await.expect("fetched without a password");
    lab.server.change(&lab.layer, |answer| answer.status = 403);
    lab.pull(&[login(&lab, "", "anybody", "")])
        .await
        .expect("it is public");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_shared_among_those_with_the_same_credentials() {
    use super::super::{ImageStore, ImageStoreConfig};
    use crate::runtime::ImageService;
    let Some(lab) = Lab::new().await else { return };
    let root_dir = lab.dir.path().join("images");
    let store = ImageStore::open(ImageStoreConfig {
        root_dir,
        registries: Registries::default(),
    })
    .expect("store");
    let name = format!("{}/a/b:1", lab.server.address);
    let (owner, other) = (
        vec![login(&lab, "", "u", "p")],
        vec![login(&lab, "", "u", "q")],
    );
    let asked = || lab.server.asked("/manifests/1").len();
    let (one, two) = tokio::join!(
        store.pull_image(&name, &owner),
        store.pull_image(&name, &owner)
    );
    let id = one.expect("pull").id;
    assert_eq!((two.expect("pull").id, asked()), (id.clone(), 1));
    assert!(
        store.may_use(&name, &owner).await.expect("store")
            && store.may_use(&id, &owner).await.expect("store")
    );
    for auth in [&other[..], &[]] {
        assert!(!store.may_use(&name, auth).await.expect("store"));
        assert!(!store.may_use(&id, auth).await.expect("store"));
    }
    let (one, two) = tokio::join!(
        store.pull_image(&name, &owner),
        store.pull_image(&name, &[])
    );
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(asked(), 3, "who has no password asks for themselves");
    assert!(
        store.may_use(&name, &[]).await.expect("store")
            && store.may_use(&id, &other).await.expect("store")
    );
}

/// `auth` as an entry of the Secret `team/<name>`.
fn kept_in(name: &str, uid: &str, auth: RegistryAuth) -> RegistryAuth {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_opens_what_it_opened_before() {
    use super::super::{ImageStore, ImageStoreConfig};
    use crate::runtime::ImageService;
    let Some(lab) = Lab::new().await else { return };
    let root_dir = lab.dir.path().join("images");
    let store = ImageStore::open(ImageStoreConfig {
        root_dir,
        registries: Registries::default(),
    })
    .expect("store");
    let name = format!("{}/a/b:1", lab.server.address);
    let auth = |password: &str| login(&lab, "", "u", password);
    let may = async |auth: RegistryAuth| store.may_use(&name, &[auth]).await.expect("store");

    store
        .pull_image(&name, &[kept_in("s", "1", auth("old"))])
        .await
        .expect("pull");
    assert!(!may(auth("new")).await, "nobody has shown that");
    assert!(
        !may(kept_in("s", "2", auth("new"))).await,
        "made anew: another secret"
    );
    assert!(
        !may(kept_in("other", "1", auth("new"))).await
            && !may(kept_in("other", "3", auth("new"))).await
    );
    let elsewhere = RegistryAuth {
        registry: "r.test".to_owned(),
        ..auth("new")
    };
    assert!(
        !may(kept_in("s", "1", elsewhere)).await,
        "it has nothing for this registry any more"
    );
    assert!(may(kept_in("s", "1", auth("new"))).await, "rotated");
    // As upstream: what opens it once is known by both its names.
    assert!(
        may(kept_in("copy", "4", auth("new"))).await,
        "a copy of the rotated secret"
    );
    assert!(
        may(kept_in("copy", "4", auth("newer"))).await,
        "which is rotated in turn"
    );
    assert!(
        !may(kept_in("x", "9", auth("old"))).await,
        "what leaked before the rotation is worth nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_a_pull_is_known_by_their_secret() {
    use super::super::{ImageStore, ImageStoreConfig};
    use crate::runtime::ImageService;
    let Some(lab) = Lab::new().await else { return };
    let root_dir = lab.dir.path().join("images");
    let store = ImageStore::open(ImageStoreConfig {
        root_dir,
        registries: Registries::default(),
    })
    .expect("store");
    let name = format!("{}/a/b:1", lab.server.address);
    let kept = ["1", "2"].map(|uid| vec![kept_in("s", uid, login(&lab, "", "u", "p"))]);
    let (one, two) = tokio::join!(
        store.pull_image(&name, &kept[0]),
        store.pull_image(&name, &kept[1])
    );
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(lab.server.asked("/manifests/1").len(), 1);
    for uid in ["1", "2"] {
        let rotated = kept_in("s", uid, login(&lab, "", "u", uid));
        assert!(
            store.may_use(&name, &[rotated]).await.expect("store"),
            "{uid}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_of_a_rotated_secret_are_not_fetched_again() {
    let Some(lab) = Lab::new().await else { return };
    let auth =
        |secret: &str, password: &str| [kept_in(secret, secret, login(&lab, "", "u", password))];
    // One credential in two secrets.
    lab.pull(&[auth("s", "old"), auth("t", "old")].concat())
        .await
        .expect("pull");
    lab.server.change(&lab.layer, |answer| answer.status = 403);
    for secret in ["s", "t"] {
        lab.pull(&auth(secret, "new"))
            .await
            .expect("the layer is there");
    }
    lab.pull(&auth("other", "old"))
        .await
        .expect_err("what leaked before the rotation is worth nothing");
}

#[test]
fn few_of_many_credentials_are_tried() {
    let registries = Registries::default();
    let image = reference::parse("r.test/a/b:1").expect("name");
    let endpoint = &registries.endpoints("r.test")[0];
    let auth = |password: usize| {
        let auth = RegistryAuth {
            registry: "r.test".into(),
            username: "u".into(),
            ..RegistryAuth::default()
        };
        kept_in(
            "s",
            "1",
            RegistryAuth {
                password: password.to_string(),
                ..auth
            },
        )
    };
    let many: Vec<_> = (0..4000).map(|n| auth(n % 1000)).collect();
    let tried = credentials(&registries, endpoint, &image, &many);
    assert_eq!(tried.len(), CREDENTIALS_MAX);
    assert!(
        tried.iter().all(|(_, access)| access.len() == 1),
        "its secret is named once"
    );
}

#[test]
fn layers_and_their_names_in_the_config_are_as_many() {
    let manifest: OciImageManifest =
        serde_json::from_value(serde_json::json!({ "schemaVersion": 2,
        "config": { "mediaType": "c", "digest": digest(b"c"), "size": 1 },
        "layers": [{ "mediaType": "l", "digest": digest(b"l"), "size": 1 }] }))
        .expect("manifest");
    assert!(layer_specs(&manifest, &[]).is_err());
    assert!(layer_specs(&manifest, &[digest(b"d"), digest(b"e")]).is_err());
    assert_eq!(
        layer_specs(&manifest, &[digest(b"d")])
            .expect("one each")
            .len(),
        1
    );
}
