//! The pods of a Job, from its template. Pure.
//!
//! Source: `pkg/controller/controller_utils.go` (GetPodFromTemplate),
//! `pkg/controller/job/indexed_job_utils.go` at v1.37.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
};
use kube::api::ObjectMeta;

use super::{
    indexes::INDEX,
    observed::FINALIZER,
    per_index::{FAILURES, Failures, IGNORED},
    scale::NewPod,
};
use crate::owner::controller_reference;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// What is left of a name's 63 characters beside the five that are made up.
const MAX_PREFIX: usize = 58;

/// A pod of `job`.
pub(super) fn pod(job: &Job, new: NewPod) -> Pod {
    let template = job
        .spec
        .as_ref()
        .map(|spec| spec.template.clone())
        .unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut finalizers = meta.finalizers.unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let mut pod = Pod {
        metadata: ObjectMeta {
            namespace: job.metadata.namespace.clone(),
            generate_name: Some(format!("{name}-")),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![controller_reference(job)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    if let Some(index) = new.index {
        give_index(&mut pod, name, index);
    }
    if let Some(failures) = new.failures {
        tell(&mut pod, failures);
    }
    pod
}

fn give_index(pod: &mut Pod, job: &str, index: u32) {
    let end = format!("-{index}-");
    let start: String = job.chars().take(MAX_PREFIX - end.len()).collect();
    pod.metadata.generate_name = Some(start + &end);
    pod.metadata
        .annotations
        .get_or_insert_default()
        .insert(INDEX.to_owned(), index.to_string());
    pod.metadata
        .labels
        .get_or_insert_default()
        .insert(INDEX.to_owned(), index.to_string());
    let Some(spec) = &mut pod.spec else { return };
    spec.hostname = Some(format!("{job}-{index}"));
    for container in spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten())
    {
        add_variable(container);
    }
}

fn tell(pod: &mut Pod, failures: Failures) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(FAILURES.to_owned(), failures.counted.to_string());
    if failures.ignored > 0 {
        annotations.insert(IGNORED.to_owned(), failures.ignored.to_string());
    }
}

fn add_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables
        .iter()
        .any(|variable| variable.name == INDEX_VARIABLE)
    {
        return;
    }
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: format!("metadata.labels['{INDEX}']"),
    };
    let source = EnvVarSource {
        field_ref: Some(field),
        ..EnvVarSource::default()
    };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value: None,
        value_from: Some(source),
    });
}
