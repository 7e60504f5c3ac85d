//! When a schedule is due next, by the clock of a time zone.
//!
//! Where that clock jumps ahead, what it jumps over is not due that day; where it goes back, what
//! is due in the hour that it shows twice is due twice. Both as upstream, whose steps these are:
//! other ways to the same times differ in these two nights of a year.
//!
//! Source: `github.com/robfig/cron/v3`, `spec.go` (Next), `constantdelay.go`; `time.Date` of Go
//! 1.26.

use std::time::Duration;

use jiff::{
    SignedDuration, Timestamp, ToSpan as _,
    civil::DateTime,
    tz::{Offset, TimeZone},
};

use super::{Fields, field::STAR};

/// How far it is looked for.
const YEARS: i16 = 5;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// That much later, at a whole second.
pub(super) fn after_delay(after: Timestamp, delay: Duration) -> Option<Timestamp> {
    whole_second(after).checked_add(delay).ok()
}

/// The first time after `after` that matches; `None` if there is none in five years.
pub(super) fn next(fields: &Fields, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    if [fields.minutes, fields.hours, fields.months].contains(&0) {
        // Without a walk of five years.
        return None;
    }
    let start = whole_second(after)
        .checked_add(SignedDuration::from_secs(1))
        .ok()?;
    let mut walk = Walk {
        fields,
        zone,
        at: start,
        civil: zone.to_datetime(start),
        is_cut: false,
    };
    let last_year = walk.civil.year().checked_add(YEARS)?;
    while walk.civil.year() <= last_year {
        // Each goes on to the first value that matches; past the last one what is before it is to
        // be looked at again.
        let found =
            walk.month()? && walk.day()? && walk.hour()? && walk.minute()? && walk.second()?;
        if found {
            return Some(walk.at);
        }
    }
    None
}

fn whole_second(at: Timestamp) -> Timestamp {
    let part =
        SignedDuration::from_nanos(i64::from(at.subsec_nanosecond()).rem_euclid(1_000_000_000));
    at - part
}

/// A time on its way to one that matches.
struct Walk<'a> {
    fields: &'a Fields,
    zone: &'a TimeZone,
    at: Timestamp,
    /// `at` by the clock of `zone`.
    civil: DateTime,
    /// Whether it has left where it started: smaller units are at their beginning then.
    is_cut: bool,
}

impl Walk<'_> {
    fn month(&mut self) -> Option<bool> {
        while !has(self.fields.months, self.civil.month()) {
            let day = self.civil.date().first_of_month();
            self.cut(day.to_datetime(jiff::civil::Time::midnight()))?;
            self.go_to(self.civil.checked_add(1.month()).ok()?)?;
            if self.civil.month() == 1 {
                return Some(false);
            }
        }
        Some(true)
    }

    fn day(&mut self) -> Option<bool> {
        while !self.is_day() {
            self.cut(self.civil.date().to_datetime(jiff::civil::Time::midnight()))?;
            self.go_to(self.civil.checked_add(1.day()).ok()?)?;
            // A day may begin at one o'clock, and then midnight is an hour off.
            let hour = self.civil.hour();
            if hour != 0 {
                let to_midnight = if hour > 12 { 24 - hour } else { -hour };
                self.add(SignedDuration::from_hours(i64::from(to_midnight)))?;
            }
            if self.civil.day() == 1 {
                return Some(false);
            }
        }
        Some(true)
    }

    fn is_day(&self) -> bool {
        let Fields { days, weekdays, .. } = *self.fields;
        let day = has(days, self.civil.day());
        let weekday = has(weekdays, self.civil.weekday().to_sunday_zero_offset());
        if (days | weekdays) & STAR != 0 {
            day && weekday
        } else {
            day || weekday
        }
    }

    fn hour(&mut self) -> Option<bool> {
        while !has(self.fields.hours, self.civil.hour()) {
            let date = self.civil.date();
            self.cut(date.at(self.civil.hour(), 0, 0, 0))?;
            self.add(HOUR)?;
            if self.civil.hour() == 0 {
                return Some(false);
            }
        }
        Some(true)
    }

    fn minute(&mut self) -> Option<bool> {
        while !has(self.fields.minutes, self.civil.minute()) {
            self.cut_at(MINUTE)?;
            self.add(MINUTE)?;
            if self.civil.minute() == 0 {
                return Some(false);
            }
        }
        Some(true)
    }

    fn second(&mut self) -> Option<bool> {
        let second = self.civil.second();
        if second == 0 {
            return Some(true);
        }
        self.is_cut = true;
        self.add(SignedDuration::from_secs(i64::from(60 - second)))?;
        Some(false)
    }

    /// Goes back to the beginning of the unit the first time that one is left.
    fn cut(&mut self, beginning: DateTime) -> Option<()> {
        if !self.is_cut {
            self.is_cut = true;
            self.go_to(beginning)?;
        }
        Some(())
    }

    /// The same by the time itself, whatever the clock of the zone shows.
    fn cut_at(&mut self, unit: SignedDuration) -> Option<()> {
        if !self.is_cut {
            self.is_cut = true;
            let over = self.at.as_second().rem_euclid(unit.as_secs());
            self.add(SignedDuration::from_secs(-over))?;
        }
        Some(())
    }

    fn add(&mut self, duration: SignedDuration) -> Option<()> {
        self.at = self.at.checked_add(duration).ok()?;
        self.civil = self.zone.to_datetime(self.at);
        Some(())
    }

    /// Goes to what the clock shows as `civil`. Where it shows that twice, or not at all, as Go
    /// does: by the offset that holds at about that time.
    fn go_to(&mut self, civil: DateTime) -> Option<()> {
        let as_utc = Offset::UTC.to_timestamp(civil).ok()?;
        let about = as_utc
            .checked_sub(SignedDuration::from_secs(offset(self.zone, as_utc)))
            .ok()?;
        let seconds = offset(self.zone, about);
        self.at = as_utc
            .checked_sub(SignedDuration::from_secs(seconds))
            .ok()?;
        self.civil = self.zone.to_datetime(self.at);
        Some(())
    }
}

fn offset(zone: &TimeZone, at: Timestamp) -> i64 {
    i64::from(zone.to_offset(at).seconds())
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}
