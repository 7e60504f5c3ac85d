//! How fast a pod may send and receive, as its annotations say. Pure.
//!
//! Bursts are not a pod's to choose. Source: `toCNIBandWidth` in containerd
//! `internal/cri/server/sandbox_run.go` (2.x), `ExtractPodBandwidthResources` in kubernetes
//! `pkg/util/bandwidth/utils.go`.

use std::collections::BTreeMap;

use coracle_api::quantity::Quantity;
use coracle_cni::conf::{Bandwidth, MAX_RATE, MIN_RATE};

use super::NetworkError;

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

/// The limits of a pod with these annotations.
///
/// # Errors
/// [`NetworkError::Bandwidth`]: such a pod has no network.
pub(super) fn of(annotations: &BTreeMap<String, String>) -> Result<Bandwidth, NetworkError> {
    let rate = |name| annotations.get(name).map_or(Ok(0), |text| rate(text));
    Ok(Bandwidth {
        ingress_rate: rate(INGRESS)?,
        egress_rate: rate(EGRESS)?,
        ..Bandwidth::default()
    })
}

/// Bits a second.
fn rate(text: &str) -> Result<u64, NetworkError> {
    let invalid = |why: &dyn ToString| NetworkError::Bandwidth {
        why: why.to_string(),
    };
    let quantity = Quantity::parse(text).map_err(|error| invalid(&error))?;
    match u64::try_from(quantity.value()) {
        Ok(rate) if rate > MAX_RATE => Err(invalid(&"resource is unreasonably large (> 1Pbit)")),
        Ok(rate) if rate >= MIN_RATE => Ok(rate),
        _ => Err(invalid(&"resource is unreasonably small (< 1kbit)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_annotations_or_refused_in_upstreams_words() {
        let read = |ingress: &str| of(&[(INGRESS.to_owned(), ingress.to_owned())].into());
        for (text, rate) in [
            ("1k", 1_000),
            ("10M", 10_000_000),
            ("1Mi", 1 << 20),
            ("1P", MAX_RATE),
        ] {
            let found = read(text).unwrap();
            assert_eq!((found.ingress_rate, found.egress_rate), (rate, 0), "{text}");
        }
        for (text, why) in [
            ("999", "resource is unreasonably small (< 1kbit)"),
            ("-10M", "resource is unreasonably small (< 1kbit)"),
            ("1001T", "resource is unreasonably large (> 1Pbit)"),
            ("10MM", "unable to parse quantity's suffix"),
            (
                "10 Mbit",
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ] {
            assert_eq!(
                read(text).unwrap_err().to_string(),
                format!("reading pod bandwidth annotations: {why}"),
                "{text}"
            );
        }
        let egress = of(&[(EGRESS.to_owned(), "2M".to_owned())].into()).unwrap();
        assert_eq!((egress.ingress_rate, egress.egress_rate), (0, 2_000_000));
        assert_eq!(of(&BTreeMap::new()).unwrap(), Bandwidth::default());
    }
}
