//! Query strings: typed access, strict where upstream is strict.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/conversion.go` at v1.37.

use std::{borrow::Cow, time::Duration};

use coracle_api::{percent::decode_form, status::Status};

/// A parsed query string. Parameters keep their order; the first of a name counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Parses `raw`, the part after `?`. Never fails: a bad escape stays as it is.
    pub fn parse(raw: &'a str) -> Self {
        if raw.is_empty() {
            return Self::default();
        }
        let pair = |part: &'a str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode_form(key), decode_form(value))
        };
        Self(
            raw.split('&')
                .filter(|part| !part.is_empty())
                .map(pair)
                .collect(),
        )
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_ref())
    }

    /// The first value of `name`, unless it is empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Every value of `name`, in order.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> + 'q {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_ref())
    }

    /// A truth value. As upstream, everything that is not `false` in some spelling or `0` is true,
    /// also an empty value.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)
            .map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// How long the client wants to wait; `most` if it does not say, or longer.
    ///
    /// # Errors
    /// 400 for what is no duration of Go.
    ///
    /// Source: `k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go` at v1.37.
    pub fn timeout(&self, most: Duration) -> Result<Duration, Status> {
        let Some(text) = self.text("timeout") else {
            return Ok(most);
        };
        let asked = duration(text).map_err(|why| {
            Status::bad_request(format!(
                "invalid timeout specified in the request URL - time: {why}"
            ))
        })?;
        Ok(asked
            .filter(|asked| !asked.is_zero() && *asked < most)
            .unwrap_or(most))
    }

    /// An integer.
    ///
    /// # Errors
    /// 400 if it is not one: nothing is none either.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        })
    }
}

/// A duration such as `1m30s`, as Go's `time.ParseDuration` reads it; `None` for a negative one.
fn duration(text: &str) -> Result<Option<Duration>, String> {
    let invalid = || format!("invalid duration {text:?}");
    let unsigned = text.trim_start_matches(['-', '+']);
    if text.len() - unsigned.len() > 1 || unsigned.is_empty() {
        return Err(invalid());
    }
    let (mut rest, mut seconds) = (unsigned, 0.0);
    while !rest.is_empty() && unsigned != "0" {
        let digits = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = &rest[..rest
            .find(|letter: char| letter.is_ascii_digit() || letter == '.')
            .unwrap_or(rest.len())];
        seconds += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" => return Err(format!("missing unit in duration {text:?}")),
                unit => return Err(format!("unknown unit {unit:?} in duration {text:?}")),
            };
        rest = &rest[unit.len()..];
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| invalid())?;
    Ok((!text.starts_with('-')).then_some(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_pluses_are_decoded() {
        let query = Query::parse(
            "labelSelector=a%3Db%2Cc+in+%28d%29&watch=true&limit=5&command=ls&command=-l&flag",
        );
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.integer("limit").unwrap(), Some(5));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["ls", "-l"]);
        assert_eq!(query.flag("flag"), Some(true));
        assert_eq!(query.get("absent"), None);
    }

    #[test]
    fn nothing_is_true_and_no_number() {
        for (value, expect) in [
            ("", true),
            ("true", true),
            ("f", true),
            ("no", true),
            ("0", false),
            ("false", false),
            ("fALSE", false),
        ] {
            let query = format!("force={value}");
            assert_eq!(Query::parse(&query).flag("force"), Some(expect), "{value}");
        }
        let error = Query::parse("limit=").integer("limit").unwrap_err();
        assert_eq!(
            (error.code, &*error.message),
            (400, r#"strconv.ParseInt: parsing "": invalid syntax"#)
        );
    }

    #[test]
    fn timeouts_are_gos_durations() {
        let most = Duration::from_secs(60);
        let check = |text: &str, expect: Result<u64, &str>| {
            let query = format!("timeout={text}");
            let found = Query::parse(&query)
                .timeout(most)
                .map(|found| found.as_millis());
            let found = found.map_err(|status| (status.code, status.message));
            let prefix = "invalid timeout specified in the request URL - time: ";
            assert_eq!(
                found,
                expect
                    .map(u128::from)
                    .map_err(|why| (400, format!("{prefix}{why}"))),
                "{text}"
            );
        };
        check("10s", Ok(10_000));
        check("1.5s", Ok(1_500));
        check("0m2s3ms", Ok(2_003));
        check("0", Ok(60_000));
        check("0s", Ok(60_000));
        check("-3s", Ok(60_000));
        check("34h", Ok(60_000));
        check("", Ok(60_000));
        check("5", Err("missing unit in duration \"5\""));
        check("5x", Err("unknown unit \"x\" in duration \"5x\""));
        check("soon", Err("invalid duration \"soon\""));
        check("--3s", Err("invalid duration \"--3s\""));
    }
}
