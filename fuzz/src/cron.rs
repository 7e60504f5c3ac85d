//! Schedules of CronJobs: what is read is due later and later, at whole seconds, and soon found.

use coracle_api::cron::{Schedule, zone};
use jiff::{Timestamp, tz::TimeZone};

/// Nights in which clocks jump, a leap day, and the end of what times can be told.
const STARTS: [i64; 5] = [
    1_774_745_000,
    1_792_889_000,
    1_835_395_200,
    -8_000_000_000,
    253_402_207_199,
];

/// `spec.schedule`.
pub(crate) fn schedule(text: &str) {
    let Ok(schedule) = Schedule::parse(text) else {
        return;
    };
    for zone in [
        TimeZone::UTC,
        zone("Europe/Berlin").expect("it is built in"),
    ] {
        for start in STARTS {
            let mut at = Timestamp::from_second(start).expect("a time");
            for _ in 0..3 {
                let Some(next) = schedule.next(at, &zone) else {
                    break;
                };
                assert!(next > at, "{next} after {at}");
                assert_eq!(next.subsec_nanosecond(), 0);
                at = next;
            }
        }
    }
}
