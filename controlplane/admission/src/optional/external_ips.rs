//! DenyServiceExternalIPs: a Service gets no more external addresses: who may make one could take
//! the traffic of any address (CVE-2020-8554). Those it has it may keep and give up.
//!
//! Source: `plugin/pkg/admission/network/denyserviceexternalips/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::{api_resource::ApiResource, value::items};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
};

pub(crate) struct DenyServiceExternalIPs;

#[async_trait]
impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && resource.is_core("services")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let old = attributes.old().unwrap_or(&Value::Null);
        if has_no_more(attributes.object(), old) {
            return Ok(());
        }
        Err(attributes.forbidden("Use of external IPs is denied by admission control"))
    }
}

fn has_no_more(new: &Value, old: &Value) -> bool {
    let before = items(&old["spec"]["externalIPs"]);
    items(&new["spec"]["externalIPs"])
        .iter()
        .all(|address| before.contains(address))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_may_go_and_none_may_come() {
        let service = |addresses: &[&str]| json!({"spec": {"externalIPs": addresses}});
        let none: &[&str] = &[];
        for (new, old, is_admitted) in [
            (none, none, true),
            (&["1.1.1.1"], none, false),
            (&["1.1.1.1", "2.2.2.2"], &["1.1.1.1", "2.2.2.2"], true),
            (&["1.1.1.1", "2.2.2.2"], &["2.2.2.2", "1.1.1.1"], true),
            (&["1.1.1.1", "2.2.2.2"], &["1.1.1.1", "3.3.3.3"], false),
            (&["1.1.1.1", "2.2.2.2"], &["1.1.1.1"], false),
            (none, &["1.1.1.1", "2.2.2.2"], true),
            (&["1.1.1.1"], &["1.1.1.1", "2.2.2.2"], true),
            (&["2.2.2.2"], &["1.1.1.1", "2.2.2.2"], true),
        ] {
            let (new, old) = (service(new), service(old));
            assert_eq!(has_no_more(&new, &old), is_admitted, "{new} {old}");
        }
    }
}
