//! Who gets a certificate of a node, and under whose name; whom clients of the API believe.

use coracle_apiserver::UserInfo;
use k8s_openapi::api::{
    certificates::v1::{CertificateSigningRequest, ClusterTrustBundle},
    core::v1::{Node, Secret},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::json;

use crate::cluster::Cluster;

fn request(signer: &str, usage: &str, node: &str, sans: Vec<SanType>) -> CertificateSigningRequest {
    request_by(&KeyPair::generate().unwrap(), signer, usage, node, sans)
}

fn request_by(
    key: &KeyPair,
    signer: &str,
    usage: &str,
    node: &str,
    sans: Vec<SanType>,
) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node}"));
    params.subject_alt_names = sans;
    let pem = params.serialize_request(key).unwrap().pem().unwrap();
    let mut csr: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": "csr-"},
        "spec": {"signerName": signer, "usages": ["digital signature", usage], "request": ""},
    }))
    .unwrap();
    csr.spec.request = k8s_openapi::ByteString(pem.into_bytes());
    csr
}

async fn ask(cluster: &Cluster, user: UserInfo, csr: &CertificateSigningRequest) -> String {
    let api: Api<CertificateSigningRequest> = Api::all(cluster.server.client(user));
    api.create(&PostParams::default(), csr)
        .await
        .unwrap()
        .name_any()
}

async fn issued(cluster: &Cluster, name: &str) -> String {
    let api: Api<CertificateSigningRequest> = Api::all(cluster.client.clone());
    let certificate = || async {
        api.get(name)
            .await
            .unwrap()
            .status
            .and_then(|status| status.certificate)
    };
    cluster
        .wait("a certificate", || async { certificate().await.is_some() })
        .await;
    String::from_utf8(certificate().await.unwrap().0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrap_token_gets_a_client_certificate_for_its_node() {
    let cluster = Cluster::start().await;
    let csr = request(
        "kubernetes.io/kube-apiserver-client-kubelet",
        "client auth",
        "n1",
        Vec::new(),
    );
    let user = UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers"]);
    let pem = issued(&cluster, &ask(&cluster, user, &csr).await).await;
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serving_certificate_waits_until_the_node_has_the_address() {
    let cluster = Cluster::start().await;
    let sans = vec![
        SanType::DnsName("n1".try_into().unwrap()),
        SanType::IpAddress("192.0.2.11".parse().unwrap()),
    ];
    let csr = request("kubernetes.io/kubelet-serving", "server auth", "n1", sans);
    let name = ask(&cluster, UserInfo::node("n1"), &csr).await;
    cluster.add_node("n1", "192.0.2.11").await;
    issued(&cluster, &name).await;
}

/// Whether anything was decided about a request.
async fn is_decided(cluster: &Cluster, name: &str) -> bool {
    let api: Api<CertificateSigningRequest> = Api::all(cluster.client.clone());
    api.get(name)
        .await
        .unwrap()
        .status
        .is_some_and(|status| status.conditions.is_some_and(|list| !list.is_empty()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_binding_nobody_is_approved_by_itself() {
    let cluster = Cluster::start().await;
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    bindings
        .delete(
            "coracle:node-autoapprove-bootstrap",
            &DeleteParams::default(),
        )
        .await
        .unwrap();
    let csr = request(
        "kubernetes.io/kube-apiserver-client-kubelet",
        "client auth",
        "n1",
        Vec::new(),
    );
    let joining = UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers"]);
    let waiting = ask(&cluster, joining, &csr).await;
    // This one still may, and comes after it.
    let renewing = ask(&cluster, UserInfo::node("n1"), &csr).await;
    issued(&cluster, &renewing).await;
    assert!(!is_decided(&cluster, &waiting).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_never_gets_the_api_servers_names() {
    let cluster = Cluster::start().await;
    cluster.add_node("n1", "192.0.2.11").await;
    let address = |text: &str| SanType::IpAddress(text.parse().unwrap());
    let sans = vec![
        SanType::DnsName("kubernetes.default.svc".try_into().unwrap()),
        address("10.43.0.1"),
    ];
    let csr = request("kubernetes.io/kubelet-serving", "server auth", "n1", sans);
    let claimed = ask(&cluster, UserInfo::node("n1"), &csr).await;
    let csr = request(
        "kubernetes.io/kubelet-serving",
        "server auth",
        "n1",
        vec![address("192.0.2.11")],
    );
    let pem = issued(&cluster, &ask(&cluster, UserInfo::node("n1"), &csr).await).await;
    assert!(!is_decided(&cluster, &claimed).await);
    assert!(
        pem.ends_with(&cluster.kubelet_ca_pem),
        "the node learns its authority: {pem}"
    );
    assert!(!pem.contains(&cluster.ca_pem));
}

fn joining() -> UserInfo {
    UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers"])
}

/// Asks for the client certificate of a node by this key; what was said, if it was denied.
async fn joins(cluster: &Cluster, user: UserInfo, node: &str, key: &KeyPair) -> Result<(), String> {
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let csr = request_by(key, signer, "client auth", node, Vec::new());
    let name = ask(cluster, user, &csr).await;
    let api: Api<CertificateSigningRequest> = Api::all(cluster.client.clone());
    let outcome = async || {
        let status = api.get(&name).await.unwrap().status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        match conditions.find(|condition| condition.type_ == "Denied") {
            Some(denied) => Some(Err(denied.message.unwrap_or_default())),
            None => status.certificate.map(|_| Ok(())),
        }
    };
    cluster
        .wait("a decision", || async { outcome().await.is_some() })
        .await;
    outcome().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_does_not_make_a_second_machine_a_node_that_is_there() {
    let cluster = Cluster::start().await;
    let (first, second) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    joins(&cluster, joining(), "n1", &first).await.unwrap();
    // Two clones that start at once: the first has not registered its Node yet.
    let said = joins(&cluster, joining(), "n1", &second).await.unwrap_err();
    assert!(said.contains("a moment ago"), "{said}");
    cluster.add_node("n1", "192.0.2.11").await;
    let said = joins(&cluster, joining(), "n1", &second).await.unwrap_err();
    assert!(said.starts_with("node \"n1\" exists"), "{said}");
    // The machine itself, which was killed or has let its certificate expire, and another name.
    joins(&cluster, joining(), "n1", &first).await.unwrap();
    joins(&cluster, joining(), "n2", &second).await.unwrap();

    // Whoever deletes the node gives its name free.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    let secrets = cluster.api::<Secret>("kube-system");
    cluster
        .wait("the name to be free", || async {
            let secret = secrets.get_opt("n1.node-key.coracle.dev").await.unwrap();
            secret.is_none()
        })
        .await;
    joins(&cluster, joining(), "n1", &second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_known_by_the_keys_that_it_has_renewed() {
    let cluster = Cluster::start().await;
    // Joined before keys were kept.
    cluster.add_node("n1", "192.0.2.11").await;
    let (renewed, stranger) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    joins(&cluster, joining(), "n1", &stranger)
        .await
        .unwrap_err();
    joins(&cluster, UserInfo::node("n1"), "n1", &renewed)
        .await
        .unwrap();
    joins(&cluster, joining(), "n1", &renewed).await.unwrap();
    joins(&cluster, joining(), "n1", &stranger)
        .await
        .unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_clients_of_the_api_believe_is_one_bundle() {
    const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
    let cluster = Cluster::start().await;
    let bundles: Api<ClusterTrustBundle> = Api::all(cluster.client.clone());
    let all = || async {
        let list = bundles.list(&Default::default()).await.unwrap();
        let of_signer = list
            .items
            .into_iter()
            .filter(|bundle| bundle.spec.signer_name.as_deref() == Some(SIGNER));
        of_signer.collect::<Vec<_>>()
    };
    let is_right = || async {
        let all = all().await;
        all.len() == 1 && all[0].spec.trust_bundle == cluster.ca_pem
    };
    cluster.wait("the bundle", is_right).await;
    let mut own = all().await.remove(0);
    let name = own.name_any();
    assert!(
        name.starts_with("kubernetes.io:kube-apiserver-serving:"),
        "{name}"
    );
    // One of another authority goes, and what is changed is put right.
    let other = json!({"metadata": {"name": "kubernetes.io:kube-apiserver-serving:former"},
        "spec": {"signerName": SIGNER, "trustBundle": cluster.kubelet_ca_pem}});
    let other: ClusterTrustBundle = serde_json::from_value(other).unwrap();
    bundles
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    own.spec.trust_bundle = cluster.kubelet_ca_pem.clone();
    bundles
        .replace(&name, &PostParams::default(), &own)
        .await
        .unwrap();
    cluster.wait("the bundle again", is_right).await;
    assert_eq!(all().await[0].name_any(), name);
}
