//! The kernel's own account of a packet: nftables' trace, which the nft variant of iptables is part
//! of.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use crate::harness::Node;

/// A packet is through the hooks, and its trace printed, long before this has passed without more.
const LULL: Duration = Duration::from_millis(150);
/// Before all others; only first packets, which are what an explanation is about. What comes up
/// from the bridge to be routed has lost its mark.
const PROBE: &str = "table ip probe {
    chain first {
        tcp flags & (syn | ack) == syn meta nftrace set 1
        meta l4proto udp meta nftrace set 1
    }
    chain arriving {
        type filter hook prerouting priority -400;
        jump first
    }
    chain passing {
        type filter hook forward priority -400;
        jump first
    }
    chain coming_in {
        type filter hook input priority -400;
        jump first
    }
    chain leaving {
        type filter hook output priority -400;
        jump first
    }
}";

/// Follows first packets through the hooks of a node.
pub(super) struct Tracer {
    monitor: Child,
    lines: Receiver<String>,
}

/// What the kernel has done with one.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Where it was meant to go when it was seen last.
    pub(super) to: Option<SocketAddr>,
    /// In which table it was dropped, refusals among them.
    pub(super) dropped_in: Option<String>,
    /// As it was printed.
    pub(super) text: String,
}

impl Tracer {
    pub(super) fn new(node: &Node) -> Self {
        let file = std::env::temp_dir().join(format!("ct-probe-{}", std::process::id()));
        std::fs::write(&file, PROBE).unwrap();
        node.nft(&["-f", file.to_str().unwrap()]).unwrap();
        std::fs::remove_file(&file).unwrap();
        let monitor = node.ns.run(|| {
            let mut command = Command::new("nft");
            command.args(["monitor", "trace"]).env("LC_ALL", "C");
            command.stdout(Stdio::piped()).spawn().unwrap()
        });
        let mut monitor = monitor.unwrap();
        let output = monitor.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { monitor, lines }
    }

    /// Forgets what was seen so far.
    pub(super) fn clear(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// Of the first packet since then that was sent to `to`.
    pub(super) fn trace(&self, to: SocketAddr) -> Trace {
        self.trace_of("tcp", to)
    }

    /// The same of this protocol.
    pub(super) fn trace_of(&self, protocol: &str, to: SocketAddr) -> Trace {
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(LULL) {
            lines.push(line);
        }
        let asked = format!("ip daddr {} ", to.ip());
        let port = format!("{protocol} dport {} ", to.port());
        let first = lines
            .iter()
            .find(|line| line.contains(&asked) && line.contains(&port));
        let Some(from) = first.and_then(|line| after(line, " sport ")) else {
            return Trace::default();
        };
        let of_packet = lines
            .iter()
            .filter(|line| after(line, " sport ") == Some(from));
        let ids: BTreeSet<&str> = of_packet
            .filter_map(|line| word_after(line, "id"))
            .collect();
        let is_its = |line: &&String| word_after(line, "id").is_some_and(|id| ids.contains(id));
        let its = lines.iter().filter(is_its);
        let mut trace = Trace::default();
        for line in its {
            trace.text += &format!("{line}\n");
            if line.contains(" packet: ") {
                let to = after(line, " ip daddr ").zip(after(line, " dport "));
                let to = to.and_then(|(ip, port)| format!("{ip}:{port}").parse().ok());
                trace.to = to.or(trace.to);
            }
            if line.contains("verdict drop") || line.contains("policy drop") {
                trace.dropped_in = word_after(line, "ip").map(str::to_owned);
            }
        }
        trace
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

/// `... ether daddr 0a:58:0a:f4:01:03 ... ip daddr 10.244.1.3 ...`: the word after these.
fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(words)?;
    rest.split_whitespace().next()
}

/// `trace id 2f8c1d60 ip coracle-policy forward rule ...`: the word after the first of its kind.
fn word_after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.by_ref().find(|one| *one == word)?;
    words.next()
}
