//! Who may use what somebody else has pulled.

use super::{
    super::*,
    registry::{Lab, kept_in, login},
};
use crate::{
    image::{ImageStore, ImageStoreConfig},
    runtime::ImageService,
};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_opens_what_it_opened_before() {
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
