//! What the kubelet says of images that are not there, and when it pulls.

use super::*;
use crate::image::{PullError, RegistryError, Said};

fn not_pulled(source: RegistryError) -> ImageError {
    let reference = "r.test/A/b:c".to_owned();
    ImageError::Pull {
        reference: reference.clone(),
        source: Box::new(PullError::Resolve { reference, source }),
    }
}

#[test]
fn images_are_missed_in_upstreams_words() {
    let reference = || "A/b:c".to_owned();
    let why = "invalid reference format: repository name must be lowercase".to_owned();
    let what = "r.test/A/b:c".to_owned();
    let said = Said::default();
    for (error, waiting, event, text) in [
        (
            ImageError::InvalidName {
                reference: reference(),
                why,
            },
            "InvalidImageName",
            "InspectFailed",
            "Failed to apply default image tag \"A/b:c\": couldn't parse image name \"A/b:c\": \
             invalid reference format: repository name must be lowercase",
        ),
        (
            ImageError::NeverPull {
                reference: reference(),
            },
            "ErrImageNeverPull",
            "ErrImageNeverPull",
            "Container image \"A/b:c\" is not present with pull policy of Never",
        ),
        (
            not_pulled(RegistryError::NotFound { what, said }),
            "ErrImagePull",
            "Failed",
            "Failed to pull image \"A/b:c\": failed to pull and unpack image \"r.test/A/b:c\": \
             failed to resolve reference \"r.test/A/b:c\": r.test/A/b:c: not found",
        ),
    ] {
        let told = told(&reference(), &error);
        assert_eq!((told.0, &*told.1, &*told.2.reason), (event, text, waiting));
    }
}

#[test]
fn a_registry_that_nobody_reaches_is_a_reason_of_its_own() {
    let silent = || not_pulled(RegistryError::Deadline(Duration::from_secs(30)));
    let chain = "failed to pull and unpack image \"r.test/A/b:c\": \
                 failed to resolve reference \"r.test/A/b:c\": no answer within 30 s";
    let (event, text, why) = told("A/b:c", &silent());
    assert_eq!(
        (event, text),
        (
            "Failed",
            format!("Failed to pull image \"A/b:c\": RegistryUnavailable: {chain}")
        )
    );
    let message =
        format!("image pull failed for A/b:c because the registry is unavailable: {chain}");
    assert_eq!(
        (&*why.reason, &why.message),
        ("RegistryUnavailable", &message)
    );
    let waits = backed_off("A/b:c", Duration::from_secs(9), &why, &|_, _, _| {});
    assert_eq!(waits.why.reason, "ImagePullBackOff");
    assert_eq!(
        waits.why.message,
        format!("Back-off pulling image \"A/b:c\": RegistryUnavailable: {message}")
    );
}

#[test]
fn moving_tags_are_pulled_always() {
    for (reference, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("r.test:5000/nginx", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("r.test:5000/a/nginx:1.25", "IfNotPresent"),
        ("nginx@sha256:0", "IfNotPresent"),
    ] {
        assert_eq!(default_policy(reference), policy, "{reference}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_waits_is_told_of_now_and_then() {
    let pulls = PullBackoff::default();
    let tells = || [pulls.tells("a"), pulls.tells("b")];
    assert_eq!([tells(), tells()], [[true, true], [false, false]]);
    tokio::time::advance(BACK_OFF_TOLD / 2).await;
    assert_eq!(tells(), [false, false]);
    tokio::time::advance(BACK_OFF_TOLD / 2).await;
    assert_eq!([tells(), tells()], [[true, true], [false, false]]);
}
