use std::{net::SocketAddr, sync::Arc};

use hickory_proto::{
    op::{Edns, Message},
    rr::RecordType,
    serialize::binary::BinEncodable as _,
};

use super::*;
use crate::{
    directory::Port,
    forward::{Forwarder, Settings},
    testing::{Other, World, port, request, sockets, texts},
    zone::Zone,
};

const PEERS: &str = "peers.shop.svc.cluster.local.";

/// A server on the loopback, for as long as the guard lives.
async fn server(world: World, others: &[&Other]) -> (SocketAddr, tokio_util::sync::DropGuard) {
    let (udp, tcp) = sockets().await;
    let address = udp.local_addr().unwrap();
    let resolver = Arc::new(Resolver {
        zone: Zone::new("cluster.local", Some(address.ip())).unwrap(),
        names: Arc::new(world),
        others: Forwarder::new(Settings {
            servers: others.iter().map(|one| one.address).collect(),
            ..Settings::default()
        }),
        searches: Vec::new(),
    });
    let stop = CancellationToken::new();
    let serve = run(Sockets { udp, tcp }, resolver, stop.clone());
    coracle_telemetry::spawn("the server of a test", serve);
    (address, stop.drop_guard())
}

async fn by_datagram(server: SocketAddr, message: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    socket.send(&message.to_bytes().unwrap()).await.unwrap();
    let mut buffer = [0; 4096];
    let length = timeout(IDLE, socket.recv(&mut buffer)).await.unwrap();
    Message::from_vec(&buffer[..length.unwrap()]).unwrap()
}

async fn by_connection(stream: &mut TcpStream, message: &Message) -> Message {
    let bytes = message.to_bytes().unwrap();
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    stream
        .write_all(&[&length, &bytes[..]].concat())
        .await
        .unwrap();
    read_answer(stream).await
}

async fn read_answer(stream: &mut TcpStream) -> Message {
    let length = stream.read_u16().await.unwrap();
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.unwrap();
    Message::from_vec(&answer).unwrap()
}

fn crowd(count: u16) -> World {
    let mut world = World::new();
    let ports: Arc<[Port]> = [port("peer", "tcp", 7000)].into();
    for number in 0..count {
        let address = format!("10.1.{}.{}", number / 250, number % 250 + 1);
        world.join("shop", "peers", &address, None, &ports);
    }
    world
}

#[tokio::test]
async fn a_thousand_endpoints_come_by_a_connection() {
    let (address, _server) = server(crowd(1000), &[]).await;
    let mut asked = request(PEERS, RecordType::A);
    let cut = by_datagram(address, &asked).await;
    assert!(cut.metadata.truncation);
    assert!(!cut.answers.is_empty() && cut.to_bytes().unwrap().len() <= 512);
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    asked.edns = Some(edns);
    let cut = by_datagram(address, &asked).await;
    let length = cut.to_bytes().unwrap().len();
    assert!(
        cut.metadata.truncation && (1000..=1232).contains(&length),
        "{length}"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    let whole = by_connection(&mut stream, &asked).await;
    assert_eq!(
        (whole.answers.len(), whole.metadata.truncation),
        (1002, false)
    );
}

#[tokio::test]
async fn questions_of_a_connection_are_answered_in_turn() {
    let (address, _server) = server(World::new(), &[]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut sent = Vec::new();
    for id in 0..5 {
        let mut asked = request(PEERS, RecordType::A);
        asked.metadata.id = id;
        let bytes = asked.to_bytes().unwrap();
        sent.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        sent.extend(bytes);
    }
    stream.write_all(&sent).await.unwrap();
    for id in 0..5 {
        let answer = read_answer(&mut stream).await;
        assert_eq!((answer.metadata.id, answer.answers.len()), (id, 2));
    }
    // One that sends something else is not heard any longer.
    stream.write_all(&[0xff, 0xff, 1, 2]).await.unwrap();
    assert!(matches!(stream.read(&mut [0; 16]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn who_waits_for_others_holds_up_nobody() {
    let silent = Other::start(Arc::new(|_, _| Vec::new())).await;
    let (address, _server) = server(World::new(), &[&silent]).await;
    let foreign = request("www.example.org.", RecordType::A);
    let start = tokio::time::Instant::now();
    let (slow, ()) = tokio::join!(by_datagram(address, &foreign), async {
        for _ in 0..100 {
            by_datagram(address, &request(PEERS, RecordType::A)).await;
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    });
    assert_eq!(slow.metadata.response_code, ResponseCode::ServFail);
}

#[tokio::test]
async fn others_are_asked_for_what_is_theirs() {
    let other = Other::knowing(&[("www.example.org.", "192.0.2.1")]).await;
    let (address, _server) = server(World::new(), &[&other]).await;
    let foreign = request("www.example.org.", RecordType::A);
    for _ in 0..2 {
        let answer = by_datagram(address, &foreign).await;
        assert_eq!(texts(&answer.answers), ["www.example.org. A 192.0.2.1"]);
        assert!(!answer.metadata.authoritative && answer.metadata.recursion_available);
    }
    assert_eq!(other.asked(), 1);
}

#[tokio::test]
async fn garbage_ends_nothing() {
    let (address, _server) = server(World::new(), &[]).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let whole = request(PEERS, RecordType::A).to_bytes().unwrap();
    for at in 0..whole.len() {
        let mut turned = whole.clone();
        turned[at] ^= 0xff;
        socket.send_to(&turned, address).await.unwrap();
        socket.send_to(&whole[..at], address).await.unwrap();
    }
    let answer = by_datagram(address, &request(PEERS, RecordType::A)).await;
    assert_eq!(answer.answers.len(), 2);
}

#[tokio::test]
async fn one_who_opens_many_connections_leaves_some_to_others() {
    let (address, _server) = server(World::new(), &[]).await;
    let asked = request(PEERS, RecordType::A);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS.each {
        let mut stream = TcpStream::connect(address).await.unwrap();
        by_connection(&mut stream, &asked).await;
        open.push(stream);
    }
    let mut more = TcpStream::connect(address).await.unwrap();
    assert!(matches!(more.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    drop(open.pop());
    // Its end is seen a moment later.
    let mut answered = false;
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let bytes = asked.to_bytes().unwrap();
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        let sent = stream.write_all(&[&length, &bytes[..]].concat()).await;
        answered = sent.is_ok() && stream.read_u16().await.is_ok();
        if answered {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(answered);
}

#[tokio::test]
async fn a_few_who_say_nothing_keep_nobody_out() {
    let (address, _server) = server(World::new(), &[]).await;
    let connect = async |last: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut silent = Vec::new();
    for last in 2..7 {
        for _ in 0..CONNECTIONS.each {
            silent.push(connect(last).await);
        }
    }
    assert_eq!(silent.len(), CONNECTIONS.total);
    let mut asking = connect(7).await;
    for _ in 0..2 {
        let answer = by_connection(&mut asking, &request(PEERS, RecordType::A)).await;
        assert_eq!(answer.answers.len(), 2);
    }
    // The first of them has made room.
    let left = timeout(IDLE / 2, silent[0].read(&mut [0; 1])).await;
    assert!(matches!(left, Ok(Ok(0) | Err(_))), "{left:?}");
}
