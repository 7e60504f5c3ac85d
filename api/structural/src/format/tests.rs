//! One line a format: what it takes and what it does not.

use super::Format;

#[test]
fn formats_take_what_upstream_takes() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
        (
            "uri",
            &[
                "http://a.org/x?y=1",
                "/path",
                "mailto:a",
                "https://[::1]:80/",
            ],
            &["", "a.org", "http://a b", "http://a:x/", "http://%zz/"],
        ),
        (
            "email",
            &["a@b.org", "A <a@b>", "\"a b\"@c", "<a@b.c>"],
            &["", "a", "@b", "a@", "a b@c", "a@b c"],
        ),
        (
            "hostname",
            &["a.example.org", "a", "1a.org", "a.b-c"],
            &["", "-a", "a..b", "a.-b", "a_b"],
        ),
        ("ipv4", &["1.2.3.4"], &["1.2.3", "::1", "1.2.3.256"]),
        ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":::"]),
        (
            "cidr",
            &["10.0.0.0/8", "::/0"],
            &["10.0.0.0", "10.0.0.0/33", "a/8"],
        ),
        (
            "mac",
            &["00:11:22:33:44:55", "00-11-22-33-44-55", "0011.2233.4455"],
            &["00:11", "00:11:22:33:44:gg"],
        ),
        (
            "uuid",
            &[
                "A987FBC9-4BED-3078-CF07-9141BA07C9F3",
                "a987fbc94bed3078cf079141ba07c9f3",
            ],
            &["", "xxx"],
        ),
        (
            "uuid3",
            &["A987FBC9-4BED-3078-CF07-9141BA07C9F3"],
            &["A987FBC9-4BED-4078-8F07-9141BA07C9F3"],
        ),
        (
            "uuid4",
            &["57B73598-8764-4AD0-A76A-679BB6640EB1"],
            &["A987FBC9-4BED-3078-CF07-9141BA07C9F3"],
        ),
        (
            "uuid5",
            &["987FBC97-4BED-5078-AF07-9141BA07C9F3"],
            &["A987FBC9-4BED-4078-8F07-9141BA07C9F3"],
        ),
        (
            "isbn",
            &["0321751043", "978-0321751041"],
            &["1", "0321751044"],
        ),
        (
            "isbn10",
            &["0321751043", "3-401-01319-X"],
            &["978-0321751041"],
        ),
        ("isbn13", &["978-0321751041"], &["0321751043"]),
        (
            "creditcard",
            &["4111-1111-1111-1111"],
            &["4111-1111-1111-1112", "1"],
        ),
        ("ssn", &["111-11-1111", "111111111"], &["111-1-1111"]),
        ("hexcolor", &["#fff", "FFFFFF"], &["#ffff", "#ggg"]),
        (
            "rgbcolor",
            &["rgb(255,0, 10)"],
            &["rgb(256,0,0)", "rgb(0,0)"],
        ),
        ("byte", &["aGVsbG8=", "YQ=="], &["", "a", "a===", "YQ"]),
        ("password", &["", "x"], &[]),
        (
            "date",
            &["2006-01-02", "2024-02-29"],
            &["2006-13-02", "2023-02-29", "06-01-02"],
        ),
        (
            "duration",
            &["1h2m3.5s", "22 ns", "3 days", "0", "-1m", "2 weeks"],
            &["", "x", "3", "1 year"],
        ),
        (
            "date-time",
            &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+02:00"],
            &[
                "2014-12-15",
                "2014-12-15T24:30:20Z",
                "2014-12-15T19:30:20",
                "x",
            ],
        ),
        ("k8s-short-name", &["a-1"], &["A", "-a", "a.b"]),
        ("k8s-long-name", &["a.b-1"], &["A", ".a", "a..b"]),
    ];
    for (name, fits, misfits) in table {
        let format = Format::named(name).unwrap();
        for text in *fits {
            assert!(format.holds(text), "{name}: {text:?} fits");
        }
        for text in *misfits {
            assert!(!format.holds(text), "{name}: {text:?} does not fit");
        }
    }
    assert!(Format::named("int32").is_none() && Format::named("nonsense").is_none());
}
