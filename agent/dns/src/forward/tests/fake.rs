//! A server that answers as a test wants it to, over UDP and TCP on one port of 127.0.0.1.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use hickory_proto::op::Message;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};

/// What is sent back for a question: datagrams, or what goes after the length over TCP.
type Answers = dyn Fn(&Message, Over) -> Vec<Vec<u8>> + Send + Sync;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Udp,
    Tcp,
}

/// Ends when dropped.
pub(super) struct Fake {
    pub(super) at: SocketAddr,
    asked: Arc<Mutex<Vec<(Message, Over)>>>,
    /// Who asked, over UDP.
    pub(super) askers: Arc<Mutex<Vec<SocketAddr>>>,
    tasks: JoinSet<()>,
}

impl Fake {
    pub(super) async fn start(
        answers: impl Fn(&Message, Over) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        // A port that is free for one may be taken for the other.
        for _ in 0..20 {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let at = udp.local_addr().unwrap();
            if let Ok(tcp) = TcpListener::bind(at).await {
                return Self::on(at, udp, tcp, Arc::new(answers));
            }
        }
        panic!("no port that is free for UDP and TCP");
    }

    /// Takes the place of one that was at `at`.
    pub(super) async fn start_at(
        at: SocketAddr,
        answers: impl Fn(&Message, Over) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let udp = UdpSocket::bind(at).await.unwrap();
        let tcp = TcpListener::bind(at).await.unwrap();
        Self::on(at, udp, tcp, Arc::new(answers))
    }

    /// Gives every name this address.
    pub(super) async fn honest(last: u8) -> Self {
        Self::start(move |question, _| vec![super::bytes(&super::address(question, last))]).await
    }

    /// Answers nothing.
    pub(super) async fn silent() -> Self {
        Self::start(|_, _| vec![]).await
    }

    /// Its port is closed when this returns.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// How often it was asked.
    pub(super) fn count(&self) -> usize {
        self.asked.lock().len()
    }

    pub(super) fn asked(&self) -> Vec<(Message, Over)> {
        self.asked.lock().clone()
    }

    fn on(at: SocketAddr, udp: UdpSocket, tcp: TcpListener, answers: Arc<Answers>) -> Self {
        let asked: Arc<Mutex<Vec<(Message, Over)>>> = Arc::default();
        let askers: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let mut tasks = JoinSet::new();
        let datagrams = over_udp(
            udp,
            Arc::clone(&answers),
            Arc::clone(&asked),
            Arc::clone(&askers),
        );
        coracle_telemetry::spawn_in(&mut tasks, "fake-udp", datagrams);
        let streams = over_tcp(tcp, answers, Arc::clone(&asked));
        coracle_telemetry::spawn_in(&mut tasks, "fake-tcp", streams);
        Self {
            at,
            asked,
            askers,
            tasks,
        }
    }
}

async fn over_udp(
    socket: UdpSocket,
    answers: Arc<Answers>,
    asked: Arc<Mutex<Vec<(Message, Over)>>>,
    askers: Arc<Mutex<Vec<SocketAddr>>>,
) {
    let mut buffer = vec![0; 4096];
    // A closed port at the other end is told at the next call: the asker has gone.
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let question = Message::from_vec(&buffer[..length]).unwrap();
        asked.lock().push((question.clone(), Over::Udp));
        askers.lock().push(from);
        for answer in answers(&question, Over::Udp) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn over_tcp(
    listener: TcpListener,
    answers: Arc<Answers>,
    asked: Arc<Mutex<Vec<(Message, Over)>>>,
) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut question = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut question).await.unwrap();
        let question = Message::from_vec(&question).unwrap();
        asked.lock().push((question.clone(), Over::Tcp));
        for answer in answers(&question, Over::Tcp) {
            let length = u16::try_from(answer.len()).unwrap();
            stream.write_u16(length).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        }
    }
}
