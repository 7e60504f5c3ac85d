use super::*;
use crate::framework::{PluginName, Point, Point::*};

mod extenders;

fn parsed(rest: &str) -> Result<SchedulerConfig, String> {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    SchedulerConfig::parse(&format!("{head}{rest}")).map_err(|error| error.to_string())
}

fn names(config: &SchedulerConfig, point: Point) -> Vec<String> {
    let plugins = config.profiles[0].points.at(point).iter();
    plugins.map(|(name, _)| name.to_string()).collect()
}

#[test]
fn a_file_that_says_nothing_says_the_defaults() {
    let (said, unsaid) = (parsed("").unwrap(), SchedulerConfig::default());
    assert_eq!(said.names().collect::<Vec<_>>(), [DEFAULT_SCHEDULER]);
    assert_eq!(said.profiles[0].points, unsaid.profiles[0].points);
    assert_eq!(
        (said.backoff_initial, said.backoff_max),
        (unsaid.backoff_initial, unsaid.backoff_max)
    );
    assert_eq!(said.election, unsaid.election);
    let weights = unsaid.profiles[0].points.at(Score);
    let expect = [
        (PluginName::TaintToleration, 3),
        (PluginName::NodeAffinity, 2),
        (PluginName::NodeResourcesFit, 1),
        (PluginName::PodTopologySpread, 2),
        (PluginName::InterPodAffinity, 2),
        (PluginName::NodeResourcesBalancedAllocation, 1),
        (PluginName::ImageLocality, 1),
    ];
    assert_eq!(weights, expect);
}

/// Upstream's rules, `expandMultiPointPlugins`: what a point names of what is asked everywhere
/// comes first, what it names beside that last.
#[test]
fn plugins_are_turned_off_and_on_and_weighed() {
    let plugins = r"
profiles:
- plugins:
    multiPoint:
      disabled: [{name: ImageLocality}, {name: TaintToleration}]
    filter:
      disabled: [{name: NodePorts}]
      enabled: [{name: InterPodAffinity}, {name: TaintToleration}]
    score:
      disabled: [{name: NodeResourcesFit}]
      enabled: [{name: PodTopologySpread, weight: 7}]
";
    let config = parsed(plugins).unwrap();
    let filters = names(&config, Filter);
    assert_eq!(
        filters.first().map(String::as_str),
        Some("InterPodAffinity")
    );
    assert_eq!(filters.last().map(String::as_str), Some("TaintToleration"));
    assert!(!filters.contains(&"NodePorts".to_owned()));
    assert!(
        names(&config, PreFilter).contains(&"NodePorts".to_owned()),
        "only there"
    );
    let expect = [
        (PluginName::PodTopologySpread, 7),
        (PluginName::NodeAffinity, 2),
        (PluginName::InterPodAffinity, 2),
        (PluginName::NodeResourcesBalancedAllocation, 1),
    ];
    assert_eq!(config.profiles[0].points.at(Score), expect);
    let only = "profiles:\n- plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality}]}}";
    assert_eq!(names(&parsed(only).unwrap(), Score), ["ImageLocality"]);
    // Turned off and on again with another weight, where it was.
    let again = "profiles:\n- plugins: {multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}}";
    let again = parsed(again).unwrap();
    assert_eq!(
        again.profiles[0].points.at(Score)[1],
        (PluginName::NodeAffinity, 9)
    );
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    for (text, expect) in [
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            "profiles[1].schedulerName: Duplicate value: \"a\"",
        ),
        (
            "profiles: [{schedulerName: ''}]",
            "profiles[0].schedulerName: Required value",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: Nothing}]}}}]",
            "profiles[0].plugins.filter.enabled[0]: plugin \"Nothing\" does not exist",
        ),
        (
            "profiles: [{plugins: {bind: {enabled: [{name: NodeName}]}}}]",
            "profiles[0].plugins.bind: plugin NodeName does not extend it",
        ),
        (
            "profiles: [{plugins: {bind: {disabled: [{name: '*'}]}}}]",
            "profiles[0].plugins.bind: at least one bind plugin is needed",
        ),
        (
            "profiles: [{plugins: {multiPoint: {disabled: [{name: PrioritySort}]}}}]",
            "profiles[0].plugins.queueSort: exactly one",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weight: -1}]}}}]",
            "profiles[0].plugins.score.enabled[0]: weight -1",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}}]",
            "profiles[0].plugins.score.enabled[1]: plugin \"NodeAffinity\" already registered",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeName, args: {}}]}]",
            "profiles[0].pluginConfig[0]: plugin NodeName takes no arguments",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]",
            "profiles[0].pluginConfig[1]: repeated config for plugin NodeAffinity",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Fullest}}}]}]",
            "profiles[0].pluginConfig[0].args: unknown variant `Fullest`",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio}}}]}]",
            "profiles[0].pluginConfig[0].args.scoringStrategy: requestedToCapacityRatio.shape: at least one point",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {resources: [{name: cpu, weight: 101}]}}}]}]",
            "profiles[0].pluginConfig[0].args.scoringStrategy.resources: weight 101 of cpu",
        ),
        (
            "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]",
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight",
        ),
        (
            "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}}]}]",
            "profiles[0].pluginConfig[0].args.defaultConstraints: when .defaultingType is System",
        ),
        (
            "percentageOfNodesToScore: 101",
            "percentageOfNodesToScore: Invalid value: 101",
        ),
        ("parallelism: 0", "parallelism: Invalid value: 0"),
        (
            "podInitialBackoffSeconds: 20",
            "podMaxBackoffSeconds: must be greater",
        ),
        (
            "leaderElection: {leaseDuration: 5s}",
            "leaderElection: leaseDuration must be greater than renewDeadline",
        ),
        (
            "leaderElection: {retryPeriod: soon}",
            "leaderElection.retryPeriod: \"soon\" is no duration",
        ),
        (
            "profiles: [{schedulerName: a}, {}]",
            "profiles[1].schedulerName: Required value",
        ),
        (
            "podInitialBackoffSeconds: 18446744073709551615\npodMaxBackoffSeconds: 18446744073709551615",
            "podMaxBackoffSeconds: must be at most",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: in, values: [b]}]}]}}}}]}]",
            "profiles[0].pluginConfig[0].args.addedAffinity: \"a\" cannot be asked",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: -1, preference: {}}]}}}]}]",
            "profiles[0].pluginConfig[0].args.addedAffinity: weight -1",
        ),
        ("surprise: true", "unknown field `surprise`"),
    ] {
        let refused = parsed(text).err().unwrap_or_default();
        assert!(refused.starts_with(expect), "{text}: {refused}");
    }
    let other = SchedulerConfig::parse("apiVersion: v1\nkind: Pod\n").unwrap_err();
    assert!(
        other.to_string().starts_with("apiVersion, kind: expected"),
        "{other}"
    );
}

#[tokio::test]
async fn a_plugin_is_made_wherever_it_says_it_has_something_to_say() {
    use crate::plugins::{self, Parts};
    let client = kube::Client::new(
        tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        }),
        "default",
    );
    let storage = std::sync::Arc::default();
    let parts = Parts {
        storage: &storage,
        client: Some(&client),
    };
    let profile = Profile::default();
    let made = plugins::framework(&profile, &parts);
    for (point, count) in [
        (PreEnqueue, made.pre_enqueue.len()),
        (PreFilter, made.pre_filter.len()),
        (Filter, made.filter.len()),
        (PostFilter, made.post_filter.len()),
        (PreScore, made.pre_score.len()),
        (Score, made.score.len()),
        (Reserve, made.reserve.len()),
        (Permit, made.permit.len()),
        (PreBind, made.pre_bind.len()),
        (Bind, made.bind.len()),
        (PostBind, made.post_bind.len()),
    ] {
        assert_eq!(count, profile.points.at(point).len(), "{point:?}");
    }
}

/// As Go has it: what is empty is not said.
#[test]
fn what_is_left_empty_is_not_said() {
    let text = "
leaderElection: {leaderElect: false, resourceName: '', resourceNamespace: '', leaseDuration: 0s}
profiles:
- schedulerName: a
  plugins:
    preScore: {enabled: [{name: NodeResourcesFit}, {name: VolumeBinding}]}
    score:
    filter: {enabled: , disabled: }
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: []}}
  - name: NodeResourcesBalancedAllocation
    args: {resources: }
";
    let config = parsed(text).unwrap();
    let expect = ElectionConfig {
        elect: false,
        ..ElectionConfig::default()
    };
    assert_eq!(config.election, expect);
    let told = &config.profiles[0].arguments;
    assert_eq!(told.fit.scoring_strategy.resources.len(), 2);
    assert_eq!(told.balanced.resources.len(), 2);
}
