//! Pulling from registries that are honest, broken or hostile, all of them on loopback.

mod access;
mod credentials;
mod interrupted;
mod redirects;
mod registry;
mod retries;

use super::{super::distribution::INDEXES_MAX, *};
use registry::{Lab, digest};

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
async fn an_index_may_name_another_and_so_on_for_a_while() {
    let Some(lab) = Lab::new().await else { return };
    for _ in 1..INDEXES_MAX {
        nest(&lab);
    }
    lab.pull(&[]).await.expect("pull");
    nest(&lab);
    let error = lab.pull(&[]).await.expect_err("too deep");
    assert!(
        error.contains("more than 4 indexes within each other"),
        "{error}"
    );
}

/// Puts an index over what the tag stands for.
fn nest(lab: &Lab) {
    let tag = "/v2/a/b/manifests/1";
    let inner = lab.server.answers.lock()[tag].clone();
    let (name, size) = (digest(&inner.body), inner.body.len());
    lab.server.put(&format!("/v2/a/b/manifests/{name}"), inner);
    let media_type = "application/vnd.oci.image.index.v1+json";
    let outer = serde_json::json!({ "schemaVersion": 2, "mediaType": media_type,
        "manifests": [{ "mediaType": media_type, "digest": name, "size": size }] });
    lab.server.put(tag, registry::ok(outer.to_string()));
}

/// Makes something of what a registry has other than promised.
type Damage = fn(&Lab);

/// For each: what it is called, and words of the error.
async fn assert_refused(cases: &[(&str, Damage, &str)]) {
    for (what, damage, words) in cases {
        let Some(lab) = Lab::new().await else { return };
        damage(&lab);
        let error = lab.pull(&[]).await.expect_err(what);
        assert!(error.contains(words), "{what}: {error}");
        assert!(lab.left().is_empty(), "{what}: {:?}", lab.left());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_was_not_promised_is_refused_and_nothing_is_left() {
    assert_refused(&[
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
            "endless layer",
            |lab| {
                lab.server
                    .change(&lab.layer, |answer| answer.endless = true)
            },
            "more than",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_were_not_promised_are_refused_and_nothing_is_left() {
    assert_refused(&[
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
            "no manifest",
            |lab| {
                lab.server
                    .change(&lab.manifest, |answer| answer.status = 404)
            },
            "not found",
        ),
    ])
    .await;
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
