//! The text of the files that every container gets: hosts, resolv.conf (pure), and the pod's host
//! name.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use crate::{pod::PodExt, runtime::types::PodDns};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_HOSTNAME: usize = 63;
/// What the kernel takes for a host name.
const MAX_NODENAME: usize = 64;

/// A host name that the kernel does not take.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX_NODENAME} characters is the max, {} characters requested)",
    fqdn.len()
)]
pub(crate) struct FqdnTooLong {
    fqdn: String,
}

/// What `hostname` says in the pod: the short name, or the full one if the pod wants that.
pub(crate) fn nodename(pod: &Pod, cluster_domain: &str) -> Result<String, FqdnTooLong> {
    match hostname(pod, cluster_domain) {
        (own, Some(domain)) if pod.spec_or_default().set_hostname_as_fqdn == Some(true) => {
            let fqdn = format!("{own}.{domain}");
            if fqdn.len() > MAX_NODENAME {
                Err(FqdnTooLong { fqdn })
            } else {
                Ok(fqdn)
            }
        }
        (own, _) => Ok(own),
    }
}

/// The pod's short name, and the domain below which other pods find it. A name that overrides all
/// stands alone.
fn hostname(pod: &Pod, cluster_domain: &str) -> (String, Option<String>) {
    let spec = pod.spec_or_default();
    if let Some(name) = &spec.hostname_override {
        let name = name
            .get(..MAX_NODENAME)
            .unwrap_or(name)
            .trim_end_matches(['-', '.']);
        return (name.to_owned(), None);
    }
    let own = spec
        .hostname
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| pod.name());
    let own = own
        .get(..MAX_HOSTNAME)
        .unwrap_or(own)
        .trim_end_matches(['-', '.']);
    let domain = spec
        .subdomain
        .as_deref()
        .filter(|subdomain| !subdomain.is_empty())
        .map(|subdomain| format!("{subdomain}.{}.svc.{cluster_domain}", pod.namespace()));
    (own.to_owned(), domain)
}

/// The content of `/etc/hosts`.
pub(crate) fn hosts(pod: &Pod, ips: &[IpAddr], cluster_domain: &str, of_node: &str) -> String {
    let mut text = if pod.host_network() {
        format!("# Kubernetes-managed hosts file (host network).\n{of_node}")
    } else {
        let (name, domain) = hostname(pod, cluster_domain);
        let mut text = String::from(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
        );
        for ip in ips {
            match &domain {
                Some(domain) => text.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n")),
                None => text.push_str(&format!("{ip}\t{name}\n")),
            }
        }
        text
    };
    let aliases = pod
        .spec_or_default()
        .host_aliases
        .as_deref()
        .unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            text.push_str(&format!(
                "{}\t{}\n",
                alias.ip,
                alias
                    .hostnames
                    .iter()
                    .flatten()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join("\t")
            ));
        }
    }
    text
}

/// Parsed `resolv.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Resolver {
    nameservers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

impl Resolver {
    fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let keyword = words.next().unwrap_or_default();
            let words: Vec<String> = words.map(str::to_owned).collect();
            match keyword {
                "nameserver" => resolver.nameservers.extend(words.into_iter().take(1)),
                "search" | "domain" => resolver.searches = words,
                "options" => resolver.options.extend(words),
                _ => {}
            }
        }
        resolver
    }

    fn fitting_nameservers(&self) -> &[String] {
        &self.nameservers[..self.nameservers.len().min(MAX_NAMESERVERS)]
    }

    /// As many as resolvers take, in number and in length together.
    fn fitting_searches(&self) -> &[String] {
        let mut chars = 0;
        let fits = |search: &&String| {
            chars += search.len() + usize::from(chars > 0);
            chars <= MAX_SEARCH_CHARS
        };
        let count = self
            .searches
            .iter()
            .take(MAX_SEARCHES)
            .take_while(fits)
            .count();
        &self.searches[..count]
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for server in self.fitting_nameservers() {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.searches.is_empty() {
            text.push_str(&format!("search {}\n", self.fitting_searches().join(" ")));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("options {}\n", self.options.join(" ")));
        }
        text
    }
}

/// The servers that a `resolv.conf` names.
pub(crate) fn nameservers(text: &str) -> Vec<IpAddr> {
    let resolver = Resolver::parse(text);
    let servers = resolver.nameservers.iter();
    servers.filter_map(|server| server.parse().ok()).collect()
}

/// Its search path.
pub(crate) fn searches(text: &str) -> Vec<String> {
    Resolver::parse(text).searches
}

/// The content of `/etc/resolv.conf`.
pub(crate) fn resolv_conf(
    pod: &Pod,
    cluster_dns: &[IpAddr],
    cluster_domain: &str,
    of_node: &str,
) -> String {
    resolver(pod, cluster_dns, cluster_domain, of_node).to_text()
}

/// The same for whoever configures resolvers otherwise.
pub(crate) fn dns(
    pod: &Pod,
    cluster_dns: &[IpAddr],
    cluster_domain: &str,
    of_node: &str,
) -> PodDns {
    let resolver = resolver(pod, cluster_dns, cluster_domain, of_node);
    PodDns {
        servers: resolver.fitting_nameservers().to_vec(),
        searches: resolver.fitting_searches().to_vec(),
        options: resolver.options,
    }
}

/// What is left out of `/etc/resolv.conf` because resolvers take no more, in upstream's words; the
/// event is `DNSConfigForming`.
///
/// Source: `formDNSSearchFitsLimits` and `formDNSNameserversFitsLimits` in
/// `pkg/kubelet/network/dns/dns.go` at v1.37.
pub(crate) fn dns_limits(
    pod: &Pod,
    cluster_dns: &[IpAddr],
    cluster_domain: &str,
    of_node: &str,
) -> Vec<String> {
    let resolver = resolver(pod, cluster_dns, cluster_domain, of_node);
    let (servers, searches) = (resolver.fitting_nameservers(), resolver.fitting_searches());
    let mut messages = Vec::new();
    if servers.len() < resolver.nameservers.len() {
        messages.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            servers.join(" ")
        ));
    }
    if searches.len() < resolver.searches.len() {
        messages.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            searches.join(" ")
        ));
    }
    messages
}

/// What a pod is told that asks for the cluster's DNS where there is none, in upstream's words; the
/// event is `MissingClusterDNS`.
///
/// Source: `GetPodDNS` in `pkg/kubelet/network/dns/dns.go` at v1.37.
pub(crate) fn missing_dns(pod: &Pod, cluster_dns: &[IpAddr]) -> Option<String> {
    let asks = match pod.spec_or_default().dns_policy.as_deref() {
        Some("None" | "Default") => false,
        Some("ClusterFirstWithHostNet") => true,
        _ => !pod.host_network(),
    };
    (asks && cluster_dns.is_empty()).then(|| {
        format!(
            "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
            pod.name(),
            pod.namespace(),
            pod.uid()
        )
    })
}

fn resolver(pod: &Pod, cluster_dns: &[IpAddr], cluster_domain: &str, of_node: &str) -> Resolver {
    let spec = pod.spec_or_default();
    let node = Resolver::parse(of_node);
    let mut resolver = match spec.dns_policy.as_deref() {
        Some("None") => Resolver::default(),
        Some("Default") => node,
        Some("ClusterFirstWithHostNet") => cluster_first(pod, cluster_dns, cluster_domain, node),
        _ if pod.host_network() => node,
        _ => cluster_first(pod, cluster_dns, cluster_domain, node),
    };
    if let Some(more) = &spec.dns_config {
        append_new(&mut resolver.nameservers, more.nameservers.iter().flatten());
        append_new(&mut resolver.searches, more.searches.iter().flatten());
        for option in more.options.iter().flatten() {
            let name = option.name.as_deref().unwrap_or_default();
            let text = match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name.to_owned(),
            };
            resolver
                .options
                .retain(|have| have.split(':').next() != Some(name));
            resolver.options.push(text);
        }
    }
    resolver
}

fn cluster_first(pod: &Pod, cluster_dns: &[IpAddr], domain: &str, node: Resolver) -> Resolver {
    if cluster_dns.is_empty() {
        return node;
    }
    let mut searches = vec![
        format!("{}.svc.{domain}", pod.namespace()),
        format!("svc.{domain}"),
        domain.to_owned(),
    ];
    append_new(&mut searches, node.searches.iter());
    Resolver {
        nameservers: cluster_dns.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn append_new<'a>(list: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// The node's own resolver configuration, as pods can use it: a stub that listens on the node's
/// loopback (systemd-resolved) is nobody's in a pod's network, and what it forwards to is written
/// down elsewhere.
pub(crate) fn node_resolv_conf(read: impl Fn(&str) -> String) -> String {
    let main = read("/etc/resolv.conf");
    let servers = |text: &str| Resolver::parse(text).nameservers;
    let local = |server: &String| {
        server
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
    };
    let own = servers(&main);
    if own.is_empty() || !own.iter().all(local) {
        return main;
    }
    let behind = read("/run/systemd/resolve/resolv.conf");
    if servers(&behind).iter().any(|server| !local(server)) {
        behind
    } else {
        main
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": "web-0", "namespace": "ns"}, "spec": spec}),
        )
        .expect("pod")
    }

    #[test]
    fn host_names_follow_the_spec() {
        let long = "a".repeat(70);
        let cases = [
            (serde_json::json!({"containers": []}), ("web-0", None)),
            (
                serde_json::json!({"containers": [], "hostname": "h"}),
                ("h", None),
            ),
            (
                serde_json::json!({"containers": [], "subdomain": "s"}),
                ("web-0", Some("s.ns.svc.cluster.local")),
            ),
            (
                serde_json::json!({"containers": [], "subdomain": "s", "setHostnameAsFQDN": true}),
                ("web-0", Some("s.ns.svc.cluster.local")),
            ),
            (
                serde_json::json!({"containers": [], "hostname": long}),
                (&long[..63], None),
            ),
            (
                serde_json::json!({"containers": [], "hostnameOverride": "db.example.com", "hostname": "h", "subdomain": "s"}),
                ("db.example.com", None),
            ),
        ];
        for (spec, (name, domain)) in cases {
            assert_eq!(
                hostname(&pod(spec), "cluster.local"),
                (name.to_owned(), domain.map(str::to_owned))
            );
        }
    }

    #[test]
    fn the_kernel_is_told_the_full_name_if_the_pod_wants_that() {
        let named = |name: &str, full: bool| {
            nodename(
                &pod(
                    serde_json::json!({"containers": [], "hostname": name, "subdomain": "s", "setHostnameAsFQDN": full}),
                ),
                "cluster.local",
            )
        };
        assert_eq!(named("web-0", false).as_deref(), Ok("web-0"));
        assert_eq!(
            named("web-0", true).as_deref(),
            Ok("web-0.s.ns.svc.cluster.local")
        );
        let long = "a".repeat(60);
        let error = named(&long, true).expect_err("too long").to_string();
        assert_eq!(
            error,
            format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {long}.s.ns.svc.cluster.local is too \
                 long (64 characters is the max, 83 characters requested)"
            )
        );
    }

    #[test]
    fn hosts_name_the_pod_once_also_by_its_full_name() {
        let pod =
            pod(serde_json::json!({"containers": [], "subdomain": "s", "setHostnameAsFQDN": true}));
        let text = hosts(
            &pod,
            &["10.0.0.2".parse().expect("address")],
            "cluster.local",
            "",
        );
        assert!(
            text.contains("\n10.0.0.2\tweb-0.s.ns.svc.cluster.local\tweb-0\n"),
            "{text}"
        );
    }

    #[test]
    fn hosts_name_the_pod_and_its_aliases() {
        let pod = pod(
            serde_json::json!({"containers": [], "subdomain": "s", "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["x", "y"]}]}),
        );
        let text = hosts(
            &pod,
            &["10.0.0.2".parse().expect("address")],
            "cluster.local",
            "",
        );
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.contains("10.0.0.2\tweb-0.s.ns.svc.cluster.local\tweb-0\n"));
        assert!(text.ends_with("\n# Entries added by HostAliases.\n192.0.2.7\tx\ty\n"));
    }

    #[test]
    fn who_asks_for_a_dns_that_is_not_there_is_told() {
        let told = |spec: serde_json::Value, dns: &[IpAddr]| {
            let pod = serde_json::json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": spec});
            missing_dns(&serde_json::from_value(pod).expect("pod"), dns)
        };
        let spec = |policy: &str, host: bool| serde_json::json!({"dnsPolicy": policy, "hostNetwork": host, "containers": []});
        let text = "pod: \"web_shop(u1)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                    \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
        assert_eq!(
            told(spec("ClusterFirst", false), &[]).as_deref(),
            Some(text)
        );
        assert!(told(spec("ClusterFirstWithHostNet", true), &[]).is_some());
        for (policy, host) in [("ClusterFirst", true), ("Default", false), ("None", false)] {
            assert_eq!(told(spec(policy, host), &[]), None, "{policy} {host}");
        }
        let dns = [IpAddr::from([10, 96, 0, 10])];
        assert_eq!(told(spec("ClusterFirst", false), &dns), None);
    }

    #[test]
    fn resolv_conf_follows_the_policy() {
        let node = "nameserver 192.0.2.53\nsearch example.com\noptions edns0\n";
        let cluster = "nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local cluster.local example.com\noptions ndots:5\n";
        let cases = [
            (serde_json::json!({"containers": []}), cluster),
            (
                serde_json::json!({"containers": [], "dnsPolicy": "ClusterFirst", "hostNetwork": true}),
                node,
            ),
            (
                serde_json::json!({"containers": [], "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
                cluster,
            ),
            (
                serde_json::json!({"containers": [], "dnsPolicy": "Default"}),
                node,
            ),
            (
                serde_json::json!({"containers": [], "dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}}),
                "nameserver 1.1.1.1\nsearch a\noptions ndots:2 edns0\n",
            ),
        ];
        let dns = ["10.96.0.10".parse().expect("address")];
        for (spec, expected) in cases {
            assert_eq!(
                resolv_conf(&pod(spec.clone()), &dns, "cluster.local", node),
                expected,
                "{spec}"
            );
        }
    }

    #[test]
    fn what_resolvers_do_not_take_is_told() {
        let servers: Vec<String> = (1..=4).map(|n| format!("192.0.2.{n}")).collect();
        let searches: Vec<String> = (1..=33).map(|n| format!("s{n}")).collect();
        let config = serde_json::json!({"nameservers": servers, "searches": searches});
        let pod =
            pod(serde_json::json!({"containers": [], "dnsPolicy": "None", "dnsConfig": config}));
        let messages = dns_limits(&pod, &[], "cluster.local", "");
        assert_eq!(
            messages[0],
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: \
             192.0.2.1 192.0.2.2 192.0.2.3"
        );
        assert!(
            messages[1].starts_with("Search Line limits were exceeded"),
            "{messages:?}"
        );
        assert!(messages[1].ends_with(" s32"), "{messages:?}");
        let text = resolv_conf(&pod, &[], "cluster.local", "");
        assert!(
            text.ends_with(" s32\n") && !text.contains("192.0.2.4"),
            "{text}"
        );
    }

    #[test]
    fn pods_ask_what_the_nodes_stub_asks() {
        let stub = "nameserver 127.0.0.53\noptions edns0\n";
        let real = "nameserver 192.0.2.1\nsearch example.test\n";
        for (main, behind, expected) in [
            (stub, real, real),
            ("nameserver 192.0.2.9\n", real, "nameserver 192.0.2.9\n"),
            (
                "nameserver 127.0.0.1\nnameserver 192.0.2.9\n",
                real,
                "nameserver 127.0.0.1\nnameserver 192.0.2.9\n",
            ),
            (stub, "", stub),
            ("", real, ""),
        ] {
            let read = |path: &str| {
                if path.starts_with("/run") {
                    behind
                } else {
                    main
                }
                .to_owned()
            };
            assert_eq!(node_resolv_conf(read), expected);
        }
    }
}
