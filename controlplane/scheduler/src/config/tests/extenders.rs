use std::io;

use super::parsed;
use crate::config::SchedulerConfig;

#[test]
fn an_extender_is_read_with_upstreams_defaults() {
    let config = parsed("extenders: [{urlPrefix: 'http://127.0.0.1:80/', filterVerb: a/b}]");
    let one = config.unwrap().extenders.remove(0);
    let filter = one.filter.as_ref().unwrap();
    assert_eq!(filter.url.to_string(), "http://127.0.0.1:80/a/b");
    assert_eq!(filter.name, "a/b");
    assert_eq!((one.prioritize, one.preempt, one.bind), (None, None, None));
    assert_eq!((one.timeout.as_secs(), one.weight), (5, 0));
    assert!(!one.node_cache_capable && !one.ignorable && one.server_name.is_none());
    let all = r"
extenders:
- urlPrefix: https://localhost:8888
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 7
  enableHTTPS: true
  tlsConfig: {insecure: true, serverName: extender.example.com, caFile: '', caData: }
  httpTimeout: 1m30s
  nodeCacheCapable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}, {name: example.com/fpga}]
  ignorable: true
- {urlPrefix: 'http://localhost', httpTimeout: 0s}
";
    let config = parsed(all).unwrap();
    let [one, other] = config.extenders.as_slice() else {
        panic!("there are two");
    };
    assert_eq!(one.url_prefix, "https://localhost:8888");
    assert_eq!((one.timeout.as_secs(), one.weight), (90, 7));
    assert!(one.node_cache_capable && one.ignorable && one.server_name.is_some());
    let managed: Vec<&String> = one.managed_resources.iter().collect();
    assert_eq!(managed, ["example.com/fpga", "example.com/gpu"]);
    assert_eq!(other.timeout.as_secs(), 5);
}

#[test]
fn what_an_extender_sees_to_goes_before_what_the_profile_says() {
    let profiles = "
profiles:
- {schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/tpu]}}]}
- {schedulerName: b}
";
    let ignored = |extender: &str| -> Vec<Vec<String>> {
        let config = parsed(&format!("{profiles}extenders: [{extender}]")).unwrap();
        let profiles = config.profiles.into_iter();
        let told = profiles.map(|profile| profile.arguments.fit.ignored_resources);
        told.collect()
    };
    let sees = "{urlPrefix: 'http://h', managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]}";
    assert_eq!(ignored(sees), [["example.com/gpu"], ["example.com/gpu"]]);
    let not = "{urlPrefix: 'http://h', managedResources: [{name: example.com/gpu}]}";
    assert_eq!(ignored(not), [vec!["example.com/tpu".to_owned()], vec![]]);
}

#[test]
fn what_no_extender_can_be_is_refused_with_its_place() {
    for (extenders, expect) in [
        (
            "{prioritizeVerb: p}",
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            "{prioritizeVerb: p, weight: -1}",
            "extenders[0].weight: Invalid value: -1: must have a positive weight applied to it",
        ),
        (
            "{urlPrefix: 'http://h', bindVerb: b}, {urlPrefix: 'http://h', bindVerb: b}",
            "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
        ),
        (
            "{managedResources: [{name: example.com/gpu}]}, {managedResources: [{name: a.b/c}, {name: example.com/gpu}]}",
            "extenders[1].managedResources[1].name: Invalid value: \"example.com/gpu\": duplicate extender managed resource name",
        ),
        (
            "{managedResources: [{name: cpu}]}",
            "extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name",
        ),
        (
            "{managedResources: [{name: kubernetes.io/a}]}",
            "extenders[0].managedResources[0].name: Invalid value: \"kubernetes.io/a\": is an invalid extended resource name",
        ),
        (
            "{managedResources: [{name: example.com/}]}",
            "extenders[0].managedResources[0].name: Invalid value: \"example.com/\": name part must be non-empty",
        ),
        (
            "{}",
            "extenders[0].urlPrefix: Invalid value: \"\": empty string",
        ),
        (
            "{urlPrefix: localhost}",
            "extenders[0].urlPrefix: Invalid value: \"localhost\": must begin with http:// or https://",
        ),
        (
            "{urlPrefix: 'ftp://localhost'}",
            "extenders[0].urlPrefix: Invalid value: \"ftp://localhost\": must begin with http:// or https://",
        ),
        (
            "{urlPrefix: 'http://me:secret@h'}",
            "extenders[0].urlPrefix: must not have a user",
        ),
        (
            "{urlPrefix: 'http://h', filterVerb: 'a b'}",
            "extenders[0].filterVerb: Invalid value: \"a b\": ",
        ),
        (
            "{urlPrefix: 'http://h', httpTimeout: -1s}",
            "extenders[0].httpTimeout: \"-1s\" is no duration",
        ),
        (
            "{urlPrefix: 'https://h', tlsConfig: {insecure: true, caData: YQ==}}",
            "extenders[0].tlsConfig: specifying a root certificates file with the insecure flag is not allowed",
        ),
        (
            "{urlPrefix: 'https://h', tlsConfig: {caData: '#'}}",
            "extenders[0].tlsConfig.caData: ",
        ),
        (
            "{urlPrefix: 'https://h', tlsConfig: {caData: YQ==}}",
            "extenders[0].tlsConfig.ca: there is no certificate in it",
        ),
        (
            "{urlPrefix: 'https://h', tlsConfig: {insecure: true, certData: YQ==, keyData: YQ==}}",
            "extenders[0].tlsConfig.cert: there is no certificate in it",
        ),
        (
            "{urlPrefix: 'https://h', tlsConfig: {insecure: true, serverName: 'a b'}}",
            "extenders[0].tlsConfig.serverName: Invalid value: \"a b\": ",
        ),
        (
            "{urlPrefix: 'http://h', tlsConfig: {keyFile: /nowhere/key}}",
            "extenders[0].tlsConfig.keyFile: /nowhere/key: ",
        ),
        ("{surprise: true}", "unknown field `surprise`"),
    ] {
        let refused = parsed(&format!("extenders: [{extenders}]"));
        let refused = refused.err().unwrap_or_default();
        assert!(refused.starts_with(expect), "{extenders}: {refused}");
    }
}

#[test]
fn files_are_read_where_there_is_no_data() {
    let issuer = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
    let (certificate, key) = (issuer.cert.pem(), issuer.signing_key.serialize_pem());
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        extenders: [{urlPrefix: 'https://h', tlsConfig: {caFile: /c, certFile: /c, keyFile: /k}}]";
    let read = |path: &std::path::Path| match path.to_str() {
        Some("/c") => Ok(certificate.clone().into_bytes()),
        Some("/k") => Ok(key.clone().into_bytes()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let config = SchedulerConfig::parse_with(text, &read).unwrap();
    assert!(
        config.extenders[0]
            .tls
            .client_auth_cert_resolver
            .has_certs()
    );
    let debugged = format!("{config:?}");
    let secret = key.lines().nth(1).unwrap();
    assert!(!debugged.contains(secret), "a key is nobody's to read");
}
