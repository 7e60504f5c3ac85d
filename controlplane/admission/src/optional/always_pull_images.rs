//! AlwaysPullImages: a node that has an image asks the registry again for each container, with the
//! credentials of its pod. Who may not pull an image gets nothing of it by its name.
//!
//! Source: `plugin/pkg/admission/alwayspullimages/admission.go` at v1.37. Volumes of images, which
//! it leaves alone, are asked for again here, too.

use async_trait::async_trait;
use coracle_api::status::{FieldErrors, Status};
use coracle_registry::{
    api_resource::ApiResource,
    fill,
    value::{items, string},
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
    pod::spec_mut,
};

const ALWAYS: &str = "Always";
/// Lists of containers of a pod, and the field of each that says when its image is pulled.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(crate) struct AlwaysPullImages;

#[async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if is_concerned(attributes)
            && let Some(spec) = spec_mut(attributes)
        {
            pull_always(spec);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !is_concerned(attributes) {
            return Ok(());
        }
        let errors = check(&attributes.object()["spec"]);
        let first = errors.iter().next().map(ToString::to_string);
        first.map_or(Ok(()), |why| Err(attributes.forbidden(why)))
    }
}

/// Whether images come with this write. What is there already stays as it is.
fn is_concerned(attributes: &Attributes<'_>) -> bool {
    let Some(old) = attributes.old() else {
        return attributes.is_core("pods");
    };
    let known: Vec<&str> = images(&old["spec"]).collect();
    attributes.is_core("pods")
        && images(&attributes.object()["spec"]).any(|image| !known.contains(&image))
}

fn images(spec: &Value) -> impl Iterator<Item = &str> {
    let lists = LISTS.into_iter().flat_map(|list| items(&spec[list]));
    lists.map(|container| string(&container["image"]))
}

fn pull_always(spec: &mut Value) {
    for list in LISTS {
        fill::each(spec, list, |container| {
            container["imagePullPolicy"] = ALWAYS.into();
        });
    }
    fill::each(spec, "volumes", |volume| {
        fill::within(volume, "image", |image| {
            image["pullPolicy"] = ALWAYS.into();
        });
    });
}

fn check(spec: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    for list in LISTS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let policy = &container["imagePullPolicy"];
            if policy != ALWAYS {
                let path = format!("spec.{list}[{index}].imagePullPolicy");
                errors.not_supported(path, policy, &[ALWAYS]);
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_container_pulls_its_image() {
        let container =
            |policy: &str| json!({"name": "c", "image": "i", "imagePullPolicy": policy});
        let mut spec = json!({
            "initContainers": [container("IfNotPresent"), container("Never")],
            "containers": [container("Always"), {"name": "d", "image": "j"}],
            "volumes": [{"name": "v", "image": {"reference": "k"}}, {"name": "w", "emptyDir": {}}],
        });
        let said: Vec<String> = check(&spec).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3);
        assert_eq!(
            said[0],
            "spec.initContainers[0].imagePullPolicy: Unsupported value: \"IfNotPresent\": supported values: \"Always\""
        );
        pull_always(&mut spec);
        assert!(check(&spec).is_empty());
        assert_eq!(spec["volumes"][0]["image"]["pullPolicy"], "Always");
        assert_eq!(spec["volumes"][1], json!({"name": "w", "emptyDir": {}}));
    }
}
