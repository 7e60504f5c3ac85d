//! For the fuzz targets: what strangers send.

use std::net::IpAddr;

use crate::{
    directory::{Directory, Endpoint, Service, ServiceName},
    wire::{self, Answer, Unread},
    zone::{Found, Zone},
};

/// A cluster in which everything is there.
struct Everything;

impl Directory for Everything {
    fn is_complete(&self) -> bool {
        true
    }

    fn service(&self, _: &str, name: &str) -> Option<Service> {
        Some(match name.len() % 3 {
            0 => Service::Headless,
            1 => Service::External(name.to_owned()),
            _ => Service::Addresses {
                addresses: vec![[10, 96, 0, 1].into()],
                ports: Vec::new(),
            },
        })
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        namespace.len().is_multiple_of(2)
    }

    fn endpoints(&self, _: &str, service: &str) -> Vec<Endpoint> {
        let endpoint = |last: u8| Endpoint {
            address: [10, 244, 0, last].into(),
            hostname: last.is_multiple_of(2).then(|| service.to_owned()),
            ports: Vec::new().into(),
        };
        (0..100).map(endpoint).collect()
    }

    fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        let name = |text: String| ServiceName {
            namespace: text.clone(),
            name: text,
        };
        address
            .is_ipv4()
            .then(|| name(address.to_string().replace('.', "-")))
    }

    fn endpoints_at(&self, address: IpAddr) -> Vec<(ServiceName, Endpoint)> {
        let service = ServiceName {
            namespace: "ns".to_owned(),
            name: address.to_string().replace([':', '.'], "-"),
        };
        let endpoints = self.endpoints("ns", "named").into_iter();
        endpoints.map(|one| (service.clone(), one)).collect()
    }

    fn namespace_of(&self, _: IpAddr) -> Option<String> {
        None
    }
}

/// Reads a request, looks its name up, and answers it: within the bytes that its sender takes, and
/// as something that can be read again.
///
/// # Panics
/// If not.
pub fn packet(bytes: &[u8]) {
    let request = match wire::read(bytes) {
        Ok(request) => request,
        Err(Unread::Drop) => return,
        Err(Unread::Error(answer)) => {
            assert_eq!(answer[..2], bytes[..2], "it reaches its sender");
            return;
        }
    };
    let Ok(zone) = Zone::new("cluster.local", None) else {
        return;
    };
    let mut answer = Answer::default();
    let question = &request.question;
    match zone.find(&Everything, question.name(), question.query_type()) {
        Found::Records {
            answers,
            additionals,
        } => (answer.answers, answer.additionals) = (answers, additionals),
        Found::Alias { record, .. } => answer.answers = vec![*record],
        Found::NoData | Found::NoName | Found::Foreign | Found::Unknown => {
            answer.authorities = vec![zone.start_of_authority()];
        }
    }
    let most = request.most_bytes();
    if let Some(written) = wire::write(&request, answer, most) {
        assert!(written.len() <= most, "{} of {most}", written.len());
        let again = hickory_proto::op::Message::from_vec(&written);
        assert!(again.is_ok(), "{again:?}");
    }
}
