//! Plugins that a test puts into the chain.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_admission::{Attributes, Operation, Plugin};
use coracle_api::status::Status;
use coracle_registry::api_resource::ApiResource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Lets writes of the user `slow` wait, and remembers what they were to replace.
pub(super) struct Gate {
    pub(super) seen: Mutex<Vec<Value>>,
    pub(super) entered: Semaphore,
    pub(super) open: Semaphore,
}

impl Gate {
    pub(super) fn closed() -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            entered: Semaphore::new(0),
            open: Semaphore::new(0),
        })
    }

    async fn pass(&self, attributes: &Attributes<'_>) {
        if attributes.user.name == "slow" {
            self.seen.lock().push(
                attributes
                    .old()
                    .map_or(Value::Null, |old| old["data"].clone()),
            );
            self.entered.add_permits(1);
            self.open.acquire().await.unwrap().forget();
        }
    }

    pub(super) async fn entered(&self) {
        tokio::time::timeout(PATIENCE, self.entered.acquire())
            .await
            .expect("a write that waits")
            .unwrap()
            .forget();
    }
}

pub(super) struct Slow(pub(super) Arc<Gate>);

#[async_trait]
impl Plugin for Slow {
    fn name(&self) -> &'static str {
        "Slow"
    }

    fn handles(&self, _: Operation, resource: &ApiResource) -> bool {
        resource.is_core("configmaps")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        self.0.pass(attributes).await;
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        self.0.pass(attributes).await;
        Ok(())
    }
}

/// Adds to pods and Deployments what is incomplete or not a client's to write; refuses Services
/// that say so.
pub(super) struct Meddler;

#[async_trait]
impl Plugin for Meddler {
    fn name(&self) -> &'static str {
        "Meddler"
    }

    fn handles(&self, _: Operation, resource: &ApiResource) -> bool {
        ["pods", "services"]
            .iter()
            .any(|plural| resource.is_core(plural))
            || resource.plural == "deployments"
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.is_core("pods") && attributes.operation == Operation::Create {
            let containers = attributes.object_mut()["spec"]["containers"]
                .as_array_mut()
                .unwrap();
            containers.push(json!({"name": "sidecar", "image": "proxy"}));
        }
        if attributes.resource.plural == "deployments" && attributes.operation == Operation::Update
        {
            let object = attributes.object_mut();
            object["spec"]["replicas"] = 7.into();
            object["status"]["replicas"] = 99.into();
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let containers = attributes.object()["spec"]["containers"].as_array();
        if let Some(sidecar) =
            containers.and_then(|all| all.iter().find(|one| one["name"] == "sidecar"))
        {
            assert_eq!(
                sidecar["imagePullPolicy"], "Always",
                "defaults come before what validates"
            );
            attributes.warn("there is a sidecar");
        }
        if attributes.object()["metadata"]["labels"]["refuse"] == "yes" {
            return Err(attributes.forbidden("it says so"));
        }
        Ok(())
    }
}
