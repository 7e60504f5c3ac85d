//! A cluster of a few Services, and a server that says what it is told to.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::SOA},
    serialize::binary::BinEncodable,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UdpSocket},
};

use crate::directory::{Directory, Endpoint, Port, Service, ServiceName};

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub(crate) fn port(name: &str, protocol: &'static str, number: u16) -> Port {
    Port {
        name: name.to_owned(),
        protocol,
        number,
    }
}

/// Everything that is known of a cluster.
pub(crate) struct World {
    pub(crate) is_complete: bool,
    pub(crate) services: BTreeMap<(String, String), Service>,
    pub(crate) endpoints: BTreeMap<(String, String), Vec<Endpoint>>,
    pub(crate) pods: BTreeMap<IpAddr, String>,
    /// Those without Services.
    pub(crate) namespaces: Vec<&'static str>,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            is_complete: true,
            services: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            pods: BTreeMap::from([("127.0.0.1".parse().unwrap(), "shop".to_owned())]),
            namespaces: vec!["empty"],
        };
        world.addressed("shop", "web", &["10.96.0.20", "fd00::20"]);
        world.addressed("other", "db", &["10.96.0.30"]);
        world.add(
            "shop",
            "outside",
            Service::External("www.example.org".into()),
        );
        world.add(
            "shop",
            "inside",
            Service::External("db.other.svc.cluster.local".into()),
        );
        let absent = "absent.other.svc.cluster.local";
        world.add("shop", "nowhere", Service::External(absent.into()));
        world.add("shop", "number", Service::External("192.0.2.1".into()));
        world.add("shop", "peers", Service::Headless);
        world.add("shop", "nobody", Service::Headless);
        let ports: Arc<[Port]> = [port("peer", "tcp", 7000)].into();
        for (address, hostname) in [("10.244.0.5", Some("Peer-0")), ("10.244.0.6", None)] {
            world.join("shop", "peers", address, hostname, &ports);
        }
        world.join("shop", "web", "10.244.0.7", None, &ports);
        world
    }

    fn add(&mut self, namespace: &str, name: &str, service: Service) {
        self.services
            .insert((namespace.into(), name.into()), service);
    }

    fn addressed(&mut self, namespace: &str, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|one| one.parse().unwrap()).collect();
        let ports = vec![port("http", "tcp", 80), port("dns", "udp", 53)];
        self.add(namespace, name, Service::Addresses { addresses, ports });
    }

    pub(crate) fn join(
        &mut self,
        namespace: &str,
        name: &str,
        address: &str,
        hostname: Option<&str>,
        ports: &Arc<[Port]>,
    ) {
        let endpoint = Endpoint {
            address: address.parse().unwrap(),
            hostname: hostname.map(str::to_owned),
            ports: Arc::clone(ports),
        };
        let all = self.endpoints.entry((namespace.into(), name.into()));
        all.or_default().push(endpoint);
    }
}

impl Directory for World {
    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        self.services.get(&(namespace.into(), name.into())).cloned()
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        let mut services = self.services.keys();
        self.namespaces.contains(&namespace) || services.any(|(one, _)| one == namespace)
    }

    fn endpoints(&self, namespace: &str, service: &str) -> Vec<Endpoint> {
        let found = self.endpoints.get(&(namespace.into(), service.into()));
        found.cloned().unwrap_or_default()
    }

    fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        let mut services = self.services.iter();
        let (namespace, name) = services.find_map(|(key, service)| match service {
            Service::Addresses { addresses, .. } => addresses.contains(&address).then_some(key),
            _ => None,
        })?;
        Some(ServiceName {
            namespace: namespace.clone(),
            name: name.clone(),
        })
    }

    fn endpoints_at(&self, address: IpAddr) -> Vec<(ServiceName, Endpoint)> {
        let of_service = |((namespace, name), all): (&(String, String), &Vec<Endpoint>)| {
            let service = ServiceName {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            let found = all.iter().filter(|one| one.address == address);
            let found = found.map(|one| (service.clone(), one.clone()));
            found.collect::<Vec<_>>()
        };
        self.endpoints.iter().flat_map(of_service).collect()
    }

    fn namespace_of(&self, asker: IpAddr) -> Option<String> {
        self.pods.get(&asker).cloned()
    }
}

/// Sockets of one port, which nobody else has for either.
pub(crate) async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

/// What a server says to a question; nothing, if it has no answer.
pub(crate) type Says = dyn Fn(&Query, Message) -> Vec<Vec<u8>> + Send + Sync;

/// A server for datagrams and connections on one port of the loopback.
pub(crate) struct Other {
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<AtomicUsize>,
}

impl Other {
    /// It answers with everything that `says` returns. By a connection only the last of it counts.
    pub(crate) async fn start(says: Arc<Says>) -> Self {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (counted, over_udp) = (Arc::clone(&asked), Arc::clone(&says));
        coracle_telemetry::spawn("a server of a test", async move {
            let mut buffer = [0; 4096];
            while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
                counted.fetch_add(1, SeqCst);
                for answer in said(&*over_udp, &buffer[..length]) {
                    udp.send_to(&answer, from).await.unwrap();
                }
            }
        });
        coracle_telemetry::spawn("the same for connections", async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let length = stream.read_u16().await.unwrap();
                let mut question = vec![0; usize::from(length)];
                stream.read_exact(&mut question).await.unwrap();
                let Some(answer) = said(&*says, &question).pop() else {
                    continue;
                };
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                stream
                    .write_all(&[&length, &answer[..]].concat())
                    .await
                    .unwrap();
            }
        });
        Self { address, asked }
    }

    /// It knows these, and that there is nothing else.
    pub(crate) async fn knowing(records: &[(&str, &str)]) -> Self {
        let records: Vec<Record> = records
            .iter()
            .map(|(of, address)| {
                let data = match address.parse().unwrap() {
                    IpAddr::V4(address) => RData::A(address.into()),
                    IpAddr::V6(address) => RData::AAAA(address.into()),
                };
                Record::from_rdata(name(of), 300, data)
            })
            .collect();
        Self::start(Arc::new(move |question, mut answer| {
            let named: Vec<&Record> = records
                .iter()
                .filter(|record| record.name == *question.name())
                .collect();
            for record in &named {
                if record.record_type() == question.query_type() {
                    answer.add_answer((*record).clone());
                }
            }
            if named.is_empty() {
                answer.metadata.response_code = ResponseCode::NXDomain;
            }
            if answer.answers.is_empty() {
                answer.add_authority(authority());
            }
            vec![answer.to_bytes().unwrap()]
        }))
        .await
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

pub(crate) fn authority() -> Record {
    let soa = SOA::new(name("ns."), name("root."), 1, 1, 1, 1, 60);
    Record::from_rdata(Name::root(), 60, RData::SOA(soa))
}

fn said(says: &Says, question: &[u8]) -> Vec<Vec<u8>> {
    let question = Message::from_vec(question).unwrap();
    let asked = question.queries[0].clone();
    let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
    answer.add_query(asked.clone());
    says(&asked, answer)
}

/// The data of records, in the order of their texts.
pub(crate) fn texts(records: &[Record]) -> Vec<String> {
    let mut texts: Vec<String> = records
        .iter()
        .map(|record| format!("{} {} {}", record.name, record.record_type(), record.data))
        .collect();
    texts.sort();
    texts
}

/// A request as a client sends it.
pub(crate) fn request(of: &str, wanted: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(of), wanted));
    message
}
