//! What each metric of an autoscaler proposes. Pure.
//!
//! Source: `pkg/controller/podautoscaler/horizontal.go` (computeReplicasForMetrics and what it
//! calls) at v1.37. `custom.metrics.k8s.io` and `external.metrics.k8s.io` are not served here: what
//! asks for them is told so, in the words that upstream has where nobody serves them.

use coracle_api::quantity;
use k8s_openapi::{
    api::autoscaling::v2::{
        ContainerResourceMetricStatus, ExternalMetricSource, MetricSpec, MetricStatus,
        MetricTarget, MetricValueStatus, ObjectMetricSource, ResourceMetricStatus,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};

use super::{
    replicas::{self, Seen},
    status::{Draft, SCALING_ACTIVE},
    usage::{self, PodMetrics},
};

/// What the metrics come to.
#[derive(Debug)]
pub(super) struct Computed {
    /// The largest of all proposals, and the metric that it is of.
    pub(super) best: Option<(i32, String)>,
    pub(super) statuses: Vec<MetricStatus>,
    /// What could not be computed, if anything.
    pub(super) failure: Option<String>,
}

/// What the pods use, or why nobody knows; `None` if no metric asks for it.
pub(super) type Measured = Option<Result<Vec<PodMetrics>, String>>;

/// What one metric comes to.
struct Proposed {
    replicas: i32,
    name: String,
    status: MetricStatus,
}

/// Why one metric comes to nothing.
struct Failed {
    reason: &'static str,
    /// For its condition and its Event.
    why: String,
    /// For the Event about all metrics.
    whole: String,
}

/// Whether a metric is of what pods use.
pub(super) fn is_measured(metric: &MetricSpec) -> bool {
    matches!(metric.type_.as_str(), "Resource" | "ContainerResource")
}

/// `seen` is of no resource yet.
pub(super) fn compute(
    namespace: &str,
    specs: &[MetricSpec],
    seen: &Seen<'_>,
    measured: &Measured,
    draft: &mut Draft,
) -> Computed {
    let mut best: Option<(i32, String)> = None;
    let mut statuses = Vec::new();
    let mut first: Option<Failed> = None;
    let mut failures = 0;
    for spec in specs {
        match propose(namespace, spec, seen, measured) {
            Ok(proposed) => {
                statuses.push(proposed.status);
                // Upstream takes the last of the first ones that say zero.
                if best
                    .as_ref()
                    .is_none_or(|(most, _)| *most == 0 || proposed.replicas > *most)
                {
                    best = Some((proposed.replicas, proposed.name));
                }
            }
            Err(failed) => {
                draft.warn(failed.reason, failed.why.clone());
                statuses.push(MetricStatus::default());
                failures += 1;
                first.get_or_insert(failed);
            }
        }
    }
    let failure = first.as_ref().map(|failed| {
        let (whole, all) = (&failed.whole, specs.len());
        format!("invalid metrics ({failures} invalid out of {all}), first error is: {whole}")
    });
    // While one of them is not known it may be the one that needs the pods: nothing goes down.
    let best = best.filter(|(replicas, _)| first.is_none() || *replicas >= seen.current);
    match (&best, first) {
        (Some((_, name)), _) => {
            let message =
                format!("the HPA was able to successfully calculate a replica count from {name}");
            draft.condition(SCALING_ACTIVE, true, "ValidMetricFound", message);
        }
        (None, Some(failed)) => {
            let why = &failed.why;
            let message = format!("the HPA was unable to compute the replica count: {why}");
            draft.condition(SCALING_ACTIVE, false, failed.reason, message);
        }
        (None, None) => {}
    }
    Computed {
        best,
        statuses,
        failure,
    }
}

fn propose(
    namespace: &str,
    spec: &MetricSpec,
    seen: &Seen<'_>,
    measured: &Measured,
) -> Result<Proposed, Failed> {
    if let Some(source) = &spec.resource {
        let proposed = of_resource(&source.name, None, &source.target, seen, measured);
        let (replicas, name, current) = proposed.map_err(|why| Failed {
            reason: "FailedGetResourceMetric",
            whole: format!("failed to get {} resource metric value: {why}", source.name),
            why,
        })?;
        let status = MetricStatus {
            type_: spec.type_.clone(),
            resource: Some(ResourceMetricStatus {
                name: source.name.clone(),
                current,
            }),
            ..MetricStatus::default()
        };
        return Ok(Proposed {
            replicas,
            name,
            status,
        });
    }
    if let Some(source) = &spec.container_resource {
        let container = Some(source.container.as_str());
        let proposed = of_resource(&source.name, container, &source.target, seen, measured);
        let (replicas, name, current) = proposed.map_err(|why| Failed {
            reason: "FailedGetContainerResourceMetric",
            whole: format!(
                "failed to get {} container metric value: {why}",
                source.container
            ),
            why,
        })?;
        let status = MetricStatus {
            type_: spec.type_.clone(),
            container_resource: Some(ContainerResourceMetricStatus {
                name: source.name.clone(),
                container: source.container.clone(),
                current,
            }),
            ..MetricStatus::default()
        };
        return Ok(Proposed {
            replicas,
            name,
            status,
        });
    }
    Err(not_served(namespace, spec))
}

/// How many there should be, the name of the metric, and its value.
fn of_resource(
    resource: &str,
    container: Option<&str>,
    target: &MetricTarget,
    seen: &Seen<'_>,
    measured: &Measured,
) -> Result<(i32, String, MetricValueStatus), String> {
    let what = if target.average_value.is_some() {
        "usage"
    } else {
        "utilization"
    };
    let failed = |why: String| format!("failed to get {resource} {what}: {why}");
    let samples = || match measured {
        Some(Ok(metrics)) => Ok(usage::samples(metrics, resource, container)),
        Some(Err(why)) => Err(format!(
            "unable to get metrics for resource {resource}: {why}"
        )),
        None => Ok(replicas::Samples::new()),
    };
    let seen = Seen { resource, ..*seen };
    if let Some(average) = &target.average_value {
        let target = milli(average);
        let proposal = samples().and_then(|samples| replicas::by_average(&seen, samples, target));
        let proposal = proposal.map_err(failed)?;
        let status = MetricValueStatus {
            average_value: Some(amount(resource, proposal.average)),
            ..MetricValueStatus::default()
        };
        return Ok((proposal.replicas, format!("{resource} resource"), status));
    }
    let Some(percent) = target.average_utilization else {
        let why = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
        return Err(why.to_owned());
    };
    let proposal = samples()
        .and_then(|samples| replicas::by_utilization(&seen, samples, percent, container))
        .map_err(failed)?;
    let kind = if container.is_some() {
        "container resource"
    } else {
        "resource"
    };
    let name = format!("{resource} {kind} utilization (percentage of request)");
    let status = MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(amount(resource, proposal.average)),
        ..MetricValueStatus::default()
    };
    Ok((proposal.replicas, name, status))
}

/// Thousandths of a target.
pub(super) fn milli(amount: &Quantity) -> i64 {
    quantity::Quantity::parse(&amount.0).map_or(0, |amount| amount.milli_value())
}

/// As metrics-server shows it: memory in binary units.
fn amount(resource: &str, milli: i64) -> Quantity {
    let format = if resource == "memory" {
        quantity::Format::BinarySi
    } else {
        quantity::Format::DecimalSi
    };
    Quantity(
        quantity::Quantity::from_milli(milli)
            .in_format(format)
            .to_string(),
    )
}

/// Of metrics that nobody serves here.
///
/// Source: `k8s.io/metrics/pkg/client/custom_metrics/discovery.go` and `external_metrics/client.go`
/// at v1.37; for `%+v` of a selector `k8s.io/apimachinery/pkg/apis/meta/v1/generated.pb.go`.
fn not_served(namespace: &str, spec: &MetricSpec) -> Failed {
    if let Some(source) = &spec.pods {
        let why = format!("unable to get metric {}: {NO_CUSTOM}", source.metric.name);
        return Failed {
            reason: "FailedGetPodsMetric",
            whole: format!("failed to get pods metric value: {why}"),
            why,
        };
    }
    if let Some(source) = &spec.object {
        return no_object(namespace, source);
    }
    if let Some(source) = &spec.external {
        return no_external(namespace, source);
    }
    let why = format!("unknown metric source type {:?}", spec.type_);
    Failed {
        reason: "InvalidMetricSourceType",
        whole: why.clone(),
        why,
    }
}

const NO_CUSTOM: &str = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";

fn no_object(namespace: &str, source: &ObjectMetricSource) -> Failed {
    let (name, of) = (&source.metric.name, &source.described_object);
    // In upstream's order, which is not the one that it means.
    let mut why = format!(
        "unable to get metric {name}: {} on {namespace} {}/{NO_CUSTOM}",
        of.kind, of.name
    );
    let target = &source.target;
    let whole = match target.type_.as_str() {
        "Value" if target.value.is_some() => why.clone(),
        "AverageValue" if target.average_value.is_some() => {
            format!("failed to get {name} object metric: {why}")
        }
        _ => {
            why = "invalid object metric source: neither a value target nor an average value target was set".to_owned();
            why.clone()
        }
    };
    Failed {
        reason: "FailedGetObjectMetric",
        whole: format!("failed to get object metric value: {whole}"),
        why,
    }
}

fn no_external(namespace: &str, source: &ExternalMetricSource) -> Failed {
    let name = &source.metric.name;
    let selector = shown(source.metric.selector.as_ref());
    let mut why = format!(
        "unable to get external metric {namespace}/{name}/{selector}: unable to fetch metrics from external metrics API: \
         the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
    );
    let whole = if source.target.average_value.is_some() {
        format!("failed to get {name} external metric: {why}")
    } else if source.target.value.is_some() {
        format!("failed to get external metric {name}: {why}")
    } else {
        why = "invalid external metric source: neither a value target nor an average value target was set".to_owned();
        why.clone()
    };
    Failed {
        reason: "FailedGetExternalMetric",
        whole: format!("failed to get {name} external metric value: {whole}"),
        why,
    }
}

/// As Go's `%+v` shows it.
fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let labels: String = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let requirements: String = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|one| {
            let values = one.values.as_deref().unwrap_or_default().join(" ");
            let (key, operator) = (&one.key, &one.operator);
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}
