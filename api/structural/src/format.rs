//! `format` of texts: the ones that upstream checks.
//!
//! Names are compared without hyphens. `password` and `quantity` are names for any text.
//!
//! Source: `k8s.io/kube-openapi/pkg/validation/strfmt`, `supportedVersionedFormats` in
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/validation/formats.go` at v1.37, and
//! `github.com/asaskevich/govalidator`.

mod codes;
mod net;
mod time;

/// What a text is, if that is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format(Holds);

type Holds = fn(&str) -> bool;

const ALL: [(&str, Holds); 27] = [
    ("bsonobjectid", codes::is_object_id),
    ("uri", net::is_uri),
    ("email", net::is_email),
    ("hostname", net::is_hostname),
    ("ipv4", net::is_ipv4),
    ("ipv6", net::is_ipv6),
    ("cidr", net::is_cidr),
    ("mac", net::is_mac),
    ("uuid", codes::is_uuid),
    ("uuid3", codes::is_uuid3),
    ("uuid4", codes::is_uuid4),
    ("uuid5", codes::is_uuid5),
    ("isbn", codes::is_isbn),
    ("isbn10", codes::is_isbn10),
    ("isbn13", codes::is_isbn13),
    ("creditcard", codes::is_credit_card),
    ("ssn", codes::is_ssn),
    ("hexcolor", codes::is_hex_color),
    ("rgbcolor", codes::is_rgb_color),
    ("byte", codes::is_base64),
    ("password", any),
    ("date", time::is_date),
    ("duration", time::is_duration),
    ("datetime", time::is_date_time),
    ("quantity", any),
    ("k8sshortname", net::is_label),
    ("k8slongname", net::is_subdomain),
];

impl Format {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let name = name.replace('-', "");
        let found = ALL.iter().find(|(one, _)| *one == name);
        found.map(|(_, holds)| Self(*holds))
    }

    pub(crate) fn is_known(name: &str) -> bool {
        Self::named(name).is_some()
    }

    pub(crate) fn holds(self, text: &str) -> bool {
        (self.0)(text)
    }
}

fn any(_: &str) -> bool {
    true
}

#[cfg(test)]
mod tests;
