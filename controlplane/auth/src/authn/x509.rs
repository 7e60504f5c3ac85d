//! Client certificates: CN is the user, every O a group. The chain was verified by TLS, when the
//! connection began.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::user::{CREDENTIAL_ID, UserInfo};

/// Who holds a verified client certificate, and until when.
#[derive(Debug, Clone)]
pub struct Holder {
    user: Arc<UserInfo>,
    /// Unix time of its last second.
    not_after_secs: i64,
}

impl Holder {
    /// `None` without a common name.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let user = Arc::new(user(certificate)?);
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(Self {
            user,
            not_after_secs: certificate.validity().not_after.timestamp(),
        })
    }

    /// The user, unless the certificate has expired: a connection may last longer than it.
    pub fn user_at(&self, now_secs: i64) -> Option<&Arc<UserInfo>> {
        (now_secs <= self.not_after_secs).then_some(&self.user)
    }
}

/// The identity in a verified client certificate; `None` without a common name.
fn user(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let hash = hex::encode(Sha256::digest(certificate));
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate
        .subject()
        .iter_common_name()
        .next()?
        .as_str()
        .ok()?;
    if name.is_empty() {
        return None;
    }
    let groups: Vec<&str> = certificate
        .subject()
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .collect();
    let mut user = UserInfo::new(name, &groups);
    user.extra
        .push((CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")]));
    Some(user)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rustls_pki_types::CertificateDer;

    fn certificate(name: &str, group: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .clone()
    }

    #[test]
    fn subject_gives_user_and_groups() {
        let user = super::user(&certificate("system:node:n1", "system:nodes")).unwrap();
        assert_eq!(user.name, "system:node:n1");
        assert!(user.is_in("system:nodes") && user.is_in("system:authenticated"));
    }

    #[test]
    fn a_certificate_is_nobodys_after_its_last_second() {
        let holder = super::Holder::of(&certificate("alice", "dev")).unwrap();
        let end = holder.not_after_secs;
        assert_eq!(
            holder.user_at(end).map(|user| user.name.as_str()),
            Some("alice")
        );
        assert!(holder.user_at(end + 1).is_none());
    }
}
