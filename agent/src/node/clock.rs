//! Compares this machine's clock with the API server's.
//!
//! Certificates, tokens and Leases are worth nothing where clocks differ, and nothing else says
//! why. The server's clock is the `Date` of its answers; a difference counts only as far as neither
//! the answer's way nor the seconds that `Date` leaves out explain it. In one process with the
//! server there is no such header, and nothing to compare.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use k8s_openapi::jiff::fmt::rfc2822;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(30);
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Clocks may differ by this many seconds.
pub(super) const TOLERANCE_SECS: i64 = 10;

/// How many seconds this clock is ahead of the server's (behind it if negative), at least; `None`
/// as long as it is not known.
pub(crate) type ClockView = Arc<Mutex<Option<i64>>>;

/// Measures until `shutdown`.
pub(crate) async fn run(client: kube::Client, view: ClockView, shutdown: CancellationToken) {
    loop {
        if let Ok(Some(ahead)) = tokio::time::timeout(REQUEST_LIMIT, measure(&client)).await {
            *view.lock() = Some(ahead);
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn measure(client: &kube::Client) -> Option<i64> {
    let request = http::Request::get("/version")
        .body(kube::client::Body::empty())
        .ok()?;
    let sent = unix_secs();
    let answer = client.send(request).await.ok()?;
    let received = unix_secs();
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    Some(ahead(
        sent,
        received,
        rfc2822::parse(date).ok()?.timestamp().as_second(),
    ))
}

fn unix_secs() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The server wrote `date` at some time between `sent` and `received`. All are whole seconds, cut
/// off.
fn ahead(sent: i64, received: i64, date: i64) -> i64 {
    let (least, most) = (sent - (date + 1), received + 1 - date);
    if least > 0 {
        least
    } else if most < 0 {
        most
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_way_cannot_explain_is_a_difference() {
        let cases = [
            ((100, 100, 100), 0),
            ((100, 109, 104), 0),
            ((100, 101, 99), 0),
            ((100, 103, 60), 39),
            ((100, 103, 160), -56),
        ];
        for ((sent, received, date), expected) in cases {
            assert_eq!(
                ahead(sent, received, date),
                expected,
                "{sent} {received} {date}"
            );
        }
    }

    #[test]
    fn dates_of_http_are_read() {
        let date = rfc2822::parse("Sun, 06 Nov 1994 08:49:37 GMT")
            .expect("a date")
            .timestamp()
            .as_second();
        assert_eq!(date, 784_111_777);
    }
}
