//! The label `pod-template-hash`, and templates without it. Pure.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// The label on ReplicaSets, their templates and pods.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Whether two templates are the same apart from the hash label.
pub(super) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    without_hash(a) == without_hash(b)
}

/// The template without the hash label and without empty leftovers.
pub(super) fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let mut metadata = template.metadata.take().unwrap_or_default();
    metadata.creation_timestamp = None;
    if let Some(labels) = &mut metadata.labels {
        labels.remove(HASH_LABEL);
    }
    metadata.labels = metadata.labels.filter(|labels| !labels.is_empty());
    metadata.annotations = metadata
        .annotations
        .filter(|annotations| !annotations.is_empty());
    template.metadata = Some(metadata);
    template
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec};
    use kube::api::ObjectMeta;

    use super::*;

    fn template(image: &str, label: Option<&str>) -> PodTemplateSpec {
        PodTemplateSpec {
            metadata: label.map(|hash| ObjectMeta {
                labels: Some([(HASH_LABEL.to_owned(), hash.to_owned())].into()),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec {
                containers: vec![Container {
                    name: "c".into(),
                    image: Some(image.into()),
                    ..Container::default()
                }],
                ..PodSpec::default()
            }),
        }
    }

    #[test]
    fn hash_label_does_not_make_templates_differ() {
        assert!(same_template(
            &template("a", None),
            &template("a", Some("x"))
        ));
        assert!(!same_template(
            &template("a", None),
            &template("b", Some("x"))
        ));
    }
}
