//! What failures are called: as Go's client calls them, for people look for that.

use std::{error::Error as _, io};

use jiff::Timestamp;
use rustls::{CertificateError, Error, InvalidMessage};
use rustls_pki_types::UnixTime;

/// The most bytes of an answer, as of any request.
pub(crate) const MAX_ANSWER: usize = 3 * 1024 * 1024;

/// An error of the system in Go's words.
pub(crate) fn of_io(error: &io::Error) -> String {
    let known = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::HostUnreachable => "connect: no route to host",
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable",
        io::ErrorKind::UnexpectedEof => "EOF",
        _ => return error.to_string(),
    };
    known.to_owned()
}

/// An exchange that failed.
pub(crate) fn of_http(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    if error.is_parse() {
        return format!("net/http: malformed HTTP response: {error}");
    }
    match error.source().and_then(|cause| cause.downcast_ref()) {
        Some(cause) => of_io(cause),
        None => error.to_string(),
    }
}

/// A handshake that failed, in Go's words.
pub(crate) fn of_tls(error: &io::Error) -> String {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match of_tls {
        Some(Error::InvalidCertificate(why)) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                certificate(why)
            )
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        Some(Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(other) => format!("tls: {other}"),
        None => of_io(error),
    }
}

fn certificate(why: &CertificateError) -> String {
    const TIMES: &str = "certificate has expired or is not yet valid";
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!(
                "{TIMES}: current time {} is after {}",
                at(*time),
                at(*not_after)
            )
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "{TIMES}: current time {} is before {}",
                at(*time),
                at(*not_before)
            )
        }
        CertificateError::Expired | CertificateError::NotValidYet => TIMES.to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| dns(name)).collect();
            let names = names.join(", ");
            let expected = expected.to_str();
            if names.is_empty() {
                format!("certificate is not valid for any names, but wanted to match {expected}")
            } else {
                format!("certificate is valid for {names}, not {expected}")
            }
        }
        CertificateError::NotValidForName => "certificate is valid for other names".to_owned(),
        other => other.to_string(),
    }
}

/// `DnsName("a.b")` or `IpAddress(::1)`, as it is presented, without what stands around it.
fn dns(presented: &str) -> &str {
    let inner = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

fn at(time: UnixTime) -> String {
    let secs = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(secs).map_or_else(|_| secs.to_string(), |time| time.to_string())
}
