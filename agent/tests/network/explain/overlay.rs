//! What is sent to the overlay's port: explanations beside the kernel's trace.

use std::net::{SocketAddr, UdpSocket};

use super::{objects::OVERLAY, *};

for_each_engine!(explanations_tell_of_the_overlays_guard);

/// Who drops, and whether that is before anything is translated.
fn guard(mode: ProxyMode, is_first: bool) -> &'static str {
    match mode {
        ProxyMode::Iptables if is_first => "raw",
        ProxyMode::Iptables => "mangle",
        ProxyMode::Nftables | ProxyMode::Auto => "coracle-overlay",
    }
}

fn explanations_tell_of_the_overlays_guard(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "explain-overlay") else {
        return;
    };
    let ground = Ground::new(&lab);
    let network = ground.node.ready_network();
    let overlay = |node: [u8; 4]| {
        Overlay::Port(Envelopes {
            pods: CLUSTER_CIDR.parse().unwrap(),
            port: OVERLAY,
            nodes: Some([node.into()].into()),
        })
    };
    let tracer = Tracer::new(&ground.node);
    let send = |from: &str, to: SocketAddr| {
        let socket = ground.ns(from).run(|| UdpSocket::bind("0.0.0.0:0"));
        let _ = socket.unwrap().unwrap().send_to(b"x", to);
    };
    wait_for("the kernel's trace is printed", || {
        let to = SocketAddr::new(ground.address_of("a"), 9);
        tracer.clear();
        send("default/client", to);
        tracer.trace_of("udp", to).to.is_some()
    });
    let (first, later) = (Some(guard(mode, true)), Some(guard(mode, false)));
    let check = |node, cases: &[(&str, &str, Option<&str>)]| {
        let overlay = overlay(node);
        let write = || network.set_overlay(overlay.clone()).unwrap();
        ground.node.ns.run(write).unwrap();
        for (from, to, dropped_in) in cases {
            let question = Question::parse(from, Some(to)).unwrap();
            let world = World {
                overlay: overlay.clone(),
                ..ground.world()
            };
            let Answer::Path(path) = world.answer(&question).unwrap() else {
                panic!("{from} to {to}");
            };
            let asked = SocketAddr::new(path.to.address, path.port);
            tracer.clear();
            send(from, asked);
            let trace = tracer.trace_of("udp", asked);
            let context = format!("{path}\nbut {trace:#?}");
            assert_eq!(trace.dropped_in.as_deref(), *dropped_in, "{context}");
            let expected = match dropped_in {
                Some(_) => Verdict::Dropped,
                None => Verdict::Arrives,
            };
            assert_eq!(path.verdict, expected, "{context}");
            let is_told = path.why.contains("overlay");
            assert_eq!(is_told, dropped_in.is_some(), "{context}");
        }
    };
    let cases = [
        ("default/client", "node:8472/udp", first),
        ("default/client", "10.244.1.1:8472/udp", first),
        ("default/client", "198.18.0.3:8472/udp", later),
        ("default/client", "svc/tunnel", later),
        ("198.18.0.3", "node:30053/udp", later),
        ("default/client", "default/a:8472/udp", None),
        ("default/client", "198.18.0.3:8473/udp", None),
        ("198.18.0.3", "node:8472/udp", None),
        ("node", "198.18.0.3:8472/udp", None),
    ];
    check([198, 18, 0, 3], &cases);
    let strangers = [
        ("198.18.0.3", "node:8472/udp", later),
        ("198.18.0.3", "node:8473/udp", None),
    ];
    check([198, 18, 0, 9], &strangers);
}
