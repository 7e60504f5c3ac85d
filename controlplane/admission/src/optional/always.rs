//! AlwaysAdmit, which does nothing, and AlwaysDeny, which lets nothing be written. Both are of no
//! use but to tests; upstream has them still, and so have configurations.
//!
//! Source: `plugin/pkg/admission/{admit,deny}/admission.go` at v1.37.

use async_trait::async_trait;
use coracle_api::status::Status;
use coracle_registry::api_resource::ApiResource;

use crate::{
    attributes::{Attributes, Operation},
    plugin::Plugin,
};

pub(crate) struct AlwaysAdmit;

#[async_trait]
impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn handles(&self, _: Operation, _: &ApiResource) -> bool {
        false
    }
}

pub(crate) struct AlwaysDeny;

const DENIED: &str = "admission control is denying all modifications";

#[async_trait]
impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn handles(&self, _: Operation, _: &ApiResource) -> bool {
        true
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        Err(attributes.forbidden(DENIED))
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        Err(attributes.forbidden(DENIED))
    }
}
