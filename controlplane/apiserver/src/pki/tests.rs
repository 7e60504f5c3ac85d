use std::os::unix::fs::PermissionsExt as _;

use x509_parser::prelude::*;

use super::*;

fn names() -> ServerNames {
    ServerNames {
        dns: vec!["node-a".into()],
        addresses: vec!["10.96.0.1".parse().unwrap()],
    }
}

#[test]
fn second_open_keeps_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let first = Pki::open(dir.path(), &names()).unwrap();
    let second = Pki::open(dir.path(), &names()).unwrap();
    assert_eq!(first.ca, second.ca);
    assert_eq!(first.server, second.server);
    assert_eq!(first.admin, second.admin);
    assert_eq!(
        first.service_account_key_pem,
        second.service_account_key_pem
    );
}

#[test]
fn changed_addresses_renew_the_server_certificate_alone() {
    let dir = tempfile::tempdir().unwrap();
    let first = Pki::open(dir.path(), &names()).unwrap();
    let mut other = names();
    other.addresses.push("198.18.0.1".parse().unwrap());
    let second = Pki::open(dir.path(), &other).unwrap();
    assert_ne!(first.server, second.server);
    assert_eq!(first.ca, second.ca);
    assert_eq!(first.admin, second.admin);
}

/// Name and groups in the subject.
fn subject(pair: &KeyPair) -> String {
    let chain = pair.chain().unwrap();
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    leaf.subject().to_string()
}

#[test]
fn what_the_api_server_shows_to_nodes_is_no_administrator() {
    let pki = Pki::ephemeral(&names()).unwrap();
    for pair in [&pki.kubelet_client, &pki.old_kubelet_client] {
        assert_eq!(
            subject(pair),
            "CN=kube-apiserver-kubelet-client, O=system:kubelet-clients"
        );
    }
}

#[test]
fn a_certificate_with_another_group_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let first = Pki::open(dir.path(), &names()).unwrap();
    let masters = Profile::client(KUBELET_CLIENT_NAME, GROUP_MASTERS);
    let mighty = Authority::load(&first.ca, &CA)
        .unwrap()
        .issue(&masters)
        .unwrap();
    file::write_pair(dir.path(), "kubelet-client", mighty).unwrap();
    for file in ["kubelet-ca", "apiserver-kubelet-client"] {
        // As a server of old left the directory.
        std::fs::remove_file(dir.path().join(format!("{file}.crt"))).unwrap();
        std::fs::remove_file(dir.path().join(format!("{file}.key"))).unwrap();
    }
    let second = Pki::open(dir.path(), &names()).unwrap();
    assert_eq!(
        subject(&second.old_kubelet_client),
        "CN=kube-apiserver-kubelet-client, O=system:kubelet-clients"
    );
    assert_eq!(
        (&second.ca, &second.server, &second.admin),
        (&first.ca, &first.server, &first.admin)
    );
    let third = Pki::open(dir.path(), &names()).unwrap();
    assert_eq!(third.kubelet_ca, second.kubelet_ca);
    assert_eq!(
        (third.kubelet_client, third.old_kubelet_client),
        (second.kubelet_client, second.old_kubelet_client)
    );
}

#[test]
fn the_authority_of_nodes_vouches_for_nothing_of_the_api() {
    let pki = Pki::ephemeral(&names()).unwrap();
    let is_from = |pair: &KeyPair, ca: &KeyPair| {
        let (chain, ca) = (pair.chain().unwrap(), ca.chain().unwrap());
        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        let (_, ca) = X509Certificate::from_der(&ca[0]).unwrap();
        leaf.verify_signature(Some(ca.public_key())).is_ok()
    };
    let serving = pki
        .issue_node_serving("n1", "192.0.2.1".parse().unwrap())
        .unwrap();
    for pair in [&serving, &pki.kubelet_client] {
        assert!(is_from(pair, &pki.kubelet_ca) && !is_from(pair, &pki.ca));
    }
    for pair in [&pki.server, &pki.admin, &pki.old_kubelet_client] {
        assert!(is_from(pair, &pki.ca) && !is_from(pair, &pki.kubelet_ca));
    }
}

#[test]
fn files_are_for_the_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pki_dir = dir.path().join("pki");
    Pki::open(&pki_dir, &names()).unwrap();
    assert_eq!(
        std::fs::metadata(&pki_dir).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let mut count = 0;
    for entry in std::fs::read_dir(&pki_dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{:?}",
            entry.path()
        );
        count += 1;
    }
    assert_eq!(count, 13);
}

#[test]
fn damaged_ca_is_told_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), &names()).unwrap();
    std::fs::write(dir.path().join("ca.crt"), "nonsense").unwrap();
    let error = Pki::open(dir.path(), &names()).unwrap_err().to_string();
    assert!(
        error.contains("ca.crt in the pki directory is damaged"),
        "{error}"
    );
}

#[test]
fn certificates_carry_what_strict_clients_check() {
    let pki = Pki::ephemeral(&names()).unwrap();
    let ca = pki.ca.chain().unwrap();
    let (_, ca) = X509Certificate::from_der(&ca[0]).unwrap();
    assert!(ca.basic_constraints().unwrap().unwrap().critical && ca.is_ca());
    assert!(ca.key_usage().unwrap().unwrap().value.key_cert_sign());
    assert!(ca.key_usage().unwrap().unwrap().critical);
    for pair in [&pki.server, &pki.admin, &pki.ca] {
        let chain = pair.chain().unwrap();
        let (_, cert) = X509Certificate::from_der(&chain[0]).unwrap();
        assert_eq!(cert.version(), X509Version::V3);
        let has = |name: &str| {
            cert.extensions().iter().any(|extension| {
                matches!(
                    (name, extension.parsed_extension()),
                    ("aki", ParsedExtension::AuthorityKeyIdentifier(_))
                        | ("ski", ParsedExtension::SubjectKeyIdentifier(_))
                )
            })
        };
        assert!(has("aki") && has("ski"), "{:?}", cert.subject());
        cert.verify_signature(Some(ca.public_key())).unwrap();
    }
    let admin = pki.admin.chain().unwrap();
    let (_, admin) = X509Certificate::from_der(&admin[0]).unwrap();
    assert_eq!(
        admin.subject().to_string(),
        "CN=kubernetes-admin, O=system:masters"
    );
    assert!(!admin.is_ca());
    assert_eq!(pki.server.chain().unwrap().len(), 2);
}

#[test]
fn a_private_file_that_is_right_is_left_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.kubeconfig");
    let inode = || std::fs::metadata(&path).unwrap().ino();
    keep_private(&path, b"one").unwrap();
    let first = inode();
    keep_private(&path, b"one").unwrap();
    assert_eq!(inode(), first);
    keep_private(&path, b"two").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"two");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    keep_private(&path, b"two").unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}
