//! DefaultBinder: writes the Binding.
//!
//! Nothing is retried here: what fails goes back to the queue, which knows when.
//!
//! Source: `pkg/scheduler/framework/plugins/defaultbinder/default_binder.go` at v1.37.

mod batches;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;

use self::batches::{Batches, Binding};
use crate::{
    framework::{Bind, CycleState, Plugin, PluginName, Status},
    pod_info::PodInfo,
};

/// For one request, of one Binding or many.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct DefaultBinder {
    batches: Batches,
}

/// Why a pod was not bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// The API server refused.
    #[error("bind the pod")]
    Api(#[source] kube::Error),
    /// It could not be asked, for this pod and those that were sent with it.
    #[error("bind the pod together with others")]
    Batch(#[source] Arc<kube::Error>),
    /// No answer.
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Timeout,
    /// An answer that says nothing of this pod.
    #[error("the API server answered {answered} of {sent} bindings")]
    Unanswered {
        /// Outcomes of the answer.
        answered: usize,
        /// Bindings of the request.
        sent: usize,
    },
    /// Who was sending it has been stopped.
    #[error("the binding was given up while it was sent")]
    GivenUp,
}

impl BindError {
    /// Whether the pod seems to be gone or bound already: then nobody is to be told of it.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 404 || status.code == 409)
    }
}

impl DefaultBinder {
    pub(super) fn new(client: Client) -> Self {
        Self {
            batches: Batches::new(client),
        }
    }
}

impl Plugin for DefaultBinder {
    fn name(&self) -> PluginName {
        PluginName::DefaultBinder
    }
}

impl Bind for DefaultBinder {
    fn bind<'a>(
        &'a self,
        _: &'a CycleState,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> BoxFuture<'a, Status> {
        async move {
            let bound = self.batches.bind(Binding::new(pod, node)).await;
            bound.map_or_else(Status::failed, |()| Status::SUCCESS)
        }
        .boxed()
    }
}
