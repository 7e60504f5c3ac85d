//! Which ports are open, and what is answered there.

use serde_json::json;

use super::*;

fn key(name: &str) -> ServiceKey {
    ServiceKey {
        namespace: "ns".into(),
        name: name.into(),
    }
}

fn subject(name: &str) -> Subject {
    Subject::Service(key(name))
}

fn checks(ports: &[(&str, u16)]) -> HealthChecks {
    let check = |port| HealthCheck {
        uid: None,
        port,
        local_endpoints: 1,
    };
    let ports = ports.iter();
    ports
        .map(|(name, port)| (key(name), check(*port)))
        .collect()
}

#[test]
fn sockets_are_opened_and_closed_by_difference() {
    let open = |ports: &[(&str, u16)]| -> BTreeMap<Subject, u16> {
        let ports = ports.iter();
        ports.map(|(name, port)| (subject(name), *port)).collect()
    };
    let check = |open: BTreeMap<Subject, u16>,
                 healthz: Option<u16>,
                 wanted: &[(&str, u16)],
                 close: &[&str],
                 opened: &[(Subject, u16)]| {
        let plan = plan(&open, healthz, &checks(wanted));
        let close: Vec<Subject> = close.iter().map(|name| subject(name)).collect();
        assert_eq!((plan.close, &*plan.open), (close, opened));
    };
    let a = [("a", 30_000)];
    check(
        open(&[]),
        Some(10_256),
        &a,
        &[],
        &[(Subject::Proxy, 10_256), (subject("a"), 30_000)],
    );
    check(open(&a), None, &a, &[], &[]);
    check(open(&a), None, &[], &["a"], &[]);
    let moved = [("a", 30_001)];
    check(open(&a), None, &moved, &["a"], &[(subject("a"), 30_001)]);
    // A port that goes from one to another is closed first.
    let others = [("b", 30_000)];
    check(open(&a), None, &others, &["a"], &[(subject("b"), 30_000)]);
}

#[test]
fn a_service_answers_for_its_endpoints_here() {
    for (count, is_healthy, status) in [(2, true, 200), (0, true, 503), (2, false, 503)] {
        let answer = Answer::of_service(&key("a"), count, is_healthy);
        assert_eq!(answer.status.as_u16(), status);
        assert_eq!(
            answer.headers["X-Load-Balancing-Endpoint-Weight"],
            count.to_string()
        );
        assert_eq!(answer.headers["Content-Type"], "application/json");
        assert_eq!(
            answer.body,
            json!({"service": {"namespace": "ns", "name": "a"}, "localEndpoints": count, "serviceProxyHealthy": is_healthy})
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_proxy_answers_for_itself_and_for_its_node() {
    let health = ProxyHealth::default();
    let status = |path: &str, is_eligible: bool| {
        let answer = Answer::of_proxy(path, &health, is_eligible)?;
        Some((answer.status.as_u16(), answer.body))
    };
    assert_eq!(status("/", true), None);
    let (code, body) = status("/healthz", true).unwrap();
    assert_eq!((code, &body["nodeEligible"]), (200, &json!(true)));
    assert_eq!(body["lastUpdated"], body["currentTime"]);
    let (code, body) = status("/healthz", false).unwrap();
    assert_eq!((code, &body["nodeEligible"]), (503, &json!(false)));
    assert_eq!(body["lastUpdated"], NEVER);
    // It lives, whatever becomes of the node.
    let (code, body) = status("/livez", false).unwrap();
    assert_eq!((code, body.get("nodeEligible")), (200, None));
    health.falls_behind();
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(status("/healthz", true).unwrap().0, 503);
    assert_eq!(status("/livez", true).unwrap().0, 503);
}
