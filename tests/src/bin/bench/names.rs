//! How fast a node answers names: of a Service, beside those that are present, asked on the node
//! itself. What a pod sees besides is its way through a pair of links.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::{
    net::UdpSocket,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    cluster::{Bench, PID_VARIABLE, cpu_ticks, resident_mb},
    report::{Row, percentile},
};

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 10), 53);
const NAME: [&str; 5] = ["kubernetes", "default", "svc", "cluster", "local"];
const ONE_BY_ONE: usize = 20_000;
const ASKERS: usize = 8;
/// Questions of an asker that wait for an answer.
const WINDOW: usize = 32;
const FLOOD: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(100);
/// Of `/proc/PID/stat`, a second.
const TICKS: f64 = 100.0;

impl Bench {
    pub(crate) fn names(&mut self) -> anyhow::Result<()> {
        let found = self.within("names")?;
        let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        self.rows.push(Row::at_most(
            "a name of a Service, p50",
            number("p50_us"),
            "us",
            100.0,
        ));
        self.rows.push(Row::at_least(
            "names of Services: a second of one core",
            number("a_core"),
            "/s",
            40_000.0,
        ));
        self.rows.push(Row::told(
            "names of Services: a second, beside those who ask",
            number("rate"),
            "/s",
        ));
        self.rows.push(Row::told(
            "names of Services: times that a flood's questions were lost",
            number("silences"),
            "",
        ));
        self.rows.push(Row::at_most(
            "memory more after a flood of names",
            number("more_mb"),
            "MB",
            3.0,
        ));
        Ok(())
    }
}

pub(crate) async fn measure() -> anyhow::Result<Value> {
    let pid: i32 = std::env::var(PID_VARIABLE)?.parse()?;
    let socket = socket().await?;
    until_answered(&socket).await?;
    let mut times = Vec::with_capacity(ONE_BY_ONE);
    for number in 0..ONE_BY_ONE {
        let begin = Instant::now();
        socket.send(&question(number)).await?;
        answered(&socket)
            .await
            .with_context(|| format!("question {number}, one by one"))?;
        times.push(begin.elapsed());
    }
    let before_mb = resident_mb(pid)?;
    let (before, begin) = (cpu_ticks(pid)?, Instant::now());
    let mut askers = JoinSet::new();
    for _ in 0..ASKERS {
        askers.spawn(ask_until(begin + FLOOD));
    }
    let (mut count, mut silences) = (0, 0);
    while let Some(asked) = askers.join_next().await {
        let [answers, silent] = asked??;
        count += answers;
        silences += silent;
    }
    let took = begin.elapsed().as_secs_f64();
    let used = (cpu_ticks(pid)? - before) as f64 / TICKS;
    let count = count as f64;
    Ok(
        json!({"p50_us": percentile(&mut times, 50) * 1e3, "rate": count / took, "a_core": count / used, "silences": silences,
        "more_mb": (resident_mb(pid)? - before_mb).max(0.0)}),
    )
}

async fn socket() -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(SERVER).await?;
    Ok(socket)
}

/// How many answers came, and how often none did and all was asked again.
async fn ask_until(end: Instant) -> anyhow::Result<[usize; 2]> {
    let socket = socket().await?;
    let (mut count, mut silences) = (0, 0);
    while Instant::now() < end {
        for number in 0..WINDOW {
            socket.send(&question(number)).await?;
        }
        while Instant::now() < end {
            match timeout(SILENCE, answered(&socket)).await {
                Ok(answer) => answer?,
                // What a full socket has dropped is not answered, of any server.
                Err(_) => {
                    silences += 1;
                    break;
                }
            }
            socket.send(&question(count)).await?;
            count += 1;
        }
    }
    Ok([count, silences])
}

/// A node that has just started does not know the names yet, and says so.
async fn until_answered(socket: &UdpSocket) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        socket.send(&question(0)).await?;
        match answered(socket).await {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => sleep(SILENCE).await,
            Ok(()) => return Ok(()),
        }
    }
}

async fn answered(socket: &UdpSocket) -> anyhow::Result<()> {
    let mut buffer = [0; 512];
    let answer = timeout(PATIENCE, socket.recv(&mut buffer)).await;
    let length = answer.context("no answer")??;
    ensure!(length > 12 && buffer[3] & 0xf == 0, "an error");
    ensure!(buffer[6..8] == [0, 1], "one address is expected");
    Ok(())
}

/// For an address.
fn question(number: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes()[6..].to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in NAME {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}
