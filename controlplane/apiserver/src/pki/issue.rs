//! Making certificates: the authority and what it puts into each kind of leaf.

use std::{net::IpAddr, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyUsagePurpose, SanType, SerialNumber,
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _};

use super::{KeyPair, PkiError};

const DAY: u64 = 86_400;
const CA_DAYS: u64 = 3650;
const LEAF_DAYS: u64 = 365;
/// A leaf with less than this left is renewed at start.
const RENEW_DAYS: u64 = 90;

/// What a leaf certificate says.
pub(super) struct Profile {
    name: String,
    pub(super) group: String,
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Profile {
    pub(super) fn client(name: &str, group: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: group.to_owned(),
            dns: Vec::new(),
            addresses: Vec::new(),
        }
    }

    pub(super) fn server(name: &str, dns: Vec<String>, addresses: Vec<IpAddr>) -> Self {
        Self {
            name: name.to_owned(),
            group: String::new(),
            dns,
            addresses,
        }
    }

    fn is_server(&self) -> bool {
        !self.dns.is_empty() || !self.addresses.is_empty()
    }
}

/// What an authority is called, and its files.
pub(super) struct AuthorityName {
    pub(super) name: &'static str,
    certificate_file: &'static str,
    key_file: &'static str,
}

/// Of the API.
pub(super) const CA: AuthorityName = AuthorityName {
    name: "ca",
    certificate_file: "ca.crt",
    key_file: "ca.key",
};
/// Of the nodes' port 10250.
pub(super) const KUBELET_CA: AuthorityName = AuthorityName {
    name: "kubelet-ca",
    certificate_file: "kubelet-ca.crt",
    key_file: "kubelet-ca.key",
};

/// A CA with its key, ready to sign.
pub(super) struct Authority {
    issuer: Issuer<'static, rcgen::KeyPair>,
    cert_pem: String,
}

impl Authority {
    /// A new self-signed CA.
    pub(super) fn create(called: &AuthorityName) -> Result<KeyPair, PkiError> {
        let name = format!("coracle-{}@{}", called.name, now_secs());
        let fail = |source| PkiError::Issue {
            name: name.clone(),
            source,
        };
        let mut params = params(&name, CA_DAYS);
        // Critical CA:TRUE with keyUsage: OpenSSL's X509_STRICT and rustls insist.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = new_key(&name)?;
        let cert = params.self_signed(&key).map_err(fail)?;
        Ok(KeyPair {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    pub(super) fn load(pair: &KeyPair, called: &AuthorityName) -> Result<Self, PkiError> {
        let damaged = |what| PkiError::Parse { what };
        let key = rcgen::KeyPair::from_pem(&pair.key_pem).map_err(|_| damaged(called.key_file))?;
        let issuer = Issuer::from_ca_cert_pem(&pair.cert_pem, key)
            .map_err(|_| damaged(called.certificate_file))?;
        Ok(Self {
            issuer,
            cert_pem: pair.cert_pem.clone(),
        })
    }

    /// A new key and a certificate for it. A server's chain carries the CA, so that a joining node
    /// finds it there.
    pub(super) fn issue(&self, profile: &Profile) -> Result<KeyPair, PkiError> {
        let fail = |source| PkiError::Issue {
            name: profile.name.clone(),
            source,
        };
        let mut params = params(&profile.name, LEAF_DAYS);
        if !profile.group.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, profile.group.as_str());
        }
        // Explicit CA:FALSE also brings the subject key identifier.
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![if profile.is_server() {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        for name in &profile.dns {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.as_str().try_into().map_err(fail)?));
        }
        params
            .subject_alt_names
            .extend(profile.addresses.iter().copied().map(SanType::IpAddress));
        let key = new_key(&profile.name)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(fail)?;
        let mut cert_pem = cert.pem();
        if profile.is_server() {
            cert_pem.push_str(&self.cert_pem);
        }
        Ok(KeyPair {
            cert_pem,
            key_pem: key.serialize_pem(),
        })
    }
}

/// A fresh P-256 key.
pub(super) fn new_key(name: &str) -> Result<rcgen::KeyPair, PkiError> {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|source| PkiError::Issue {
        name: name.to_owned(),
        source,
    })
}

fn params(name: &str, days: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // An hour back: clocks of nodes differ.
    params.not_before = epoch + Duration::from_secs(now_secs() - 3600);
    params.not_after = epoch + Duration::from_secs(now_secs() + days * DAY);
    let mut serial: [u8; 16] = rand::random();
    serial[0] = (serial[0] & 0x7f) | 0x40; // Positive, and of full length.
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.use_authority_key_identifier_extension = true;
    params
}

fn now_secs() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Whether `pair` was issued by `ca`, is not near expiry, and says who `profile` says and what it
/// names.
pub(super) fn is_current(pair: &KeyPair, ca: &KeyPair, profile: &Profile) -> bool {
    let (Ok(chain), Ok(ca_chain)) = (pair.chain(), ca.chain()) else {
        return false;
    };
    let (Some(leaf), Some(ca)) = (chain.first(), ca_chain.first()) else {
        return false;
    };
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else {
        return false;
    };
    let Ok((_, ca)) = X509Certificate::from_der(ca) else {
        return false;
    };
    let left =
        leaf.validity().not_after.timestamp() - i64::try_from(now_secs()).unwrap_or(i64::MAX);
    if left < i64::try_from(RENEW_DAYS * DAY).unwrap_or(0) || leaf.issuer() != ca.subject() {
        return false;
    }
    if leaf.verify_signature(Some(ca.public_key())).is_err() || !has_subject(&leaf, profile) {
        return false;
    }
    if !profile.is_server() {
        return true;
    }
    let Ok(Some(names)) = leaf.subject_alternative_name() else {
        return false;
    };
    let (mut dns, mut addresses) = (Vec::new(), Vec::new());
    for name in &names.value.general_names {
        match name {
            GeneralName::DNSName(name) => dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
            _ => return false,
        }
    }
    dns.sort();
    addresses.sort();
    dns == profile.dns && addresses == profile.addresses
}

/// Whether a certificate is the profile's: a group that was taken away must not live on in an old
/// one.
fn has_subject(leaf: &X509Certificate<'_>, profile: &Profile) -> bool {
    let subject = leaf.subject();
    let names: Vec<&str> = subject
        .iter_common_name()
        .filter_map(|name| name.as_str().ok())
        .collect();
    let groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .collect();
    let wanted: Vec<&str> = Some(profile.group.as_str())
        .filter(|group| !group.is_empty())
        .into_iter()
        .collect();
    names == [profile.name.as_str()]
        && groups == wanted
        && subject.iter_attributes().count() == 1 + wanted.len()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
