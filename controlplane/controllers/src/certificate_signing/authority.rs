//! The keys that sign certificates. Knows nothing of who may have one.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, date_time_ymd,
};

use super::request::{Profile, Request};
use crate::config::{CertificateAuthority, ControllersConfig};

/// How far clocks may differ.
const BACKDATE: Duration = Duration::from_secs(300);

/// Why the authority cannot be used or a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error("reading the authority's key")]
    Key(#[source] rcgen::Error),
    #[error("reading the authority's certificate")]
    Certificate(#[source] rcgen::Error),
    #[error("signing")]
    Sign(#[source] rcgen::Error),
}

/// Which authority signs what.
pub(crate) struct Authorities {
    /// Clients of the API.
    cluster: Authority,
    /// What nodes show on port 10250. Nobody who trusts the cluster's authority believes it.
    kubelet: Authority,
}

impl Authorities {
    pub(crate) fn new(config: &ControllersConfig) -> Result<Self, AuthorityError> {
        Ok(Self {
            cluster: Authority::new(&config.ca)?,
            kubelet: Authority::new(&config.kubelet_ca)?,
        })
    }

    /// PEM of a certificate for a checked request, valid from five minutes ago for `validity`. A
    /// node's serving certificate is followed by its authority's, so that the node learns from it
    /// whom the API server's is of.
    pub(super) fn sign(
        &self,
        profile: Profile,
        request: &Request,
        key_encipherment: bool,
        validity: Duration,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        match profile {
            Profile::NodeServing => {
                let mut chain =
                    self.kubelet
                        .sign(profile, request, key_encipherment, validity, now)?;
                chain.push_str(&self.kubelet.certificate_pem);
                Ok(chain)
            }
            Profile::NodeClient | Profile::Client => {
                self.cluster
                    .sign(profile, request, key_encipherment, validity, now)
            }
        }
    }
}

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
}

impl Authority {
    fn new(pair: &CertificateAuthority) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(&pair.key_pem).map_err(AuthorityError::Key)?;
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate_pem, key)
            .map_err(AuthorityError::Certificate)?;
        Ok(Self {
            issuer,
            certificate_pem: pair.certificate_pem.clone(),
        })
    }

    fn sign(
        &self,
        profile: Profile,
        request: &Request,
        key_encipherment: bool,
        validity: Duration,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        let mut subject = DistinguishedName::new();
        if let Some(organization) = request.organizations.first() {
            subject.push(DnType::OrganizationName, organization.as_str());
        }
        subject.push(DnType::CommonName, request.common_name.as_str());
        let mut params = CertificateParams::default();
        let epoch = date_time_ymd(1970, 1, 1);
        let seconds = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        params.not_before = epoch + seconds.saturating_sub(BACKDATE);
        params.not_after = epoch + seconds + validity;
        params.distinguished_name = subject;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        let mut serial: [u8; 16] = rand::random();
        // Positive, and of full length.
        serial[0] = serial[0] & 0x7f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.key_usages.push(KeyUsagePurpose::DigitalSignature);
        if key_encipherment {
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        match profile {
            Profile::NodeServing => {
                params
                    .extended_key_usages
                    .push(ExtendedKeyUsagePurpose::ServerAuth);
                params.subject_alt_names.clone_from(&request.names);
            }
            Profile::NodeClient | Profile::Client => params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ClientAuth),
        }
        let certificate = params
            .signed_by(&request.public_key, &self.issuer)
            .map_err(AuthorityError::Sign)?;
        Ok(certificate.pem())
    }
}
