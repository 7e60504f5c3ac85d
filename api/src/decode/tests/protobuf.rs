use super::*;

/// A length-delimited protobuf field.
fn pb(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![
        tag << 3 | 2,
        u8::try_from(bytes.len()).expect("a short field"),
    ];
    out.extend(bytes);
    out
}

/// An enveloped protobuf body.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [pb(1, api_version.as_bytes()), pb(2, kind.as_bytes())].concat();
    [
        b"k8s\0".to_vec(),
        pb(1, &meta),
        pb(2, raw),
        pb(3, b""),
        pb(4, b""),
    ]
    .concat()
}

#[test]
fn zero_values_that_protobuf_always_carries_are_absent() {
    let empty = [2, 3, 4, 5, 6].map(|tag| pb(tag, b"")).concat();
    let meta = [pb(1, b"a"), empty, vec![7 << 3, 0], pb(8, b"")].concat();
    let port = [
        pb(1, b""),
        pb(2, b""),
        vec![3 << 3, 80],
        pb(4, &[1 << 3, 0, 2 << 3, 0, 26, 0]),
        vec![5 << 3, 0],
    ]
    .concat();
    let body = envelope(
        "v1",
        "Service",
        &[pb(1, &meta), pb(2, &pb(1, &port)), pb(3, &pb(1, b""))].concat(),
    );
    let service = Gvk::new("", "v1", "Service");
    let object = decode(
        &body,
        ContentType::Protobuf,
        &service,
        FieldValidation::Strict,
    )
    .expect("a service")
    .object;
    let expect = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {}}});
    assert_eq!(object, expect);
}

#[test]
fn protobuf_bodies_of_other_kinds_are_refused() {
    let body = envelope("apps/v1", "Deployment", b"");
    let error = decode(
        &body,
        ContentType::Protobuf,
        &pod(),
        FieldValidation::Strict,
    )
    .expect_err("another kind");
    assert!(
        error
            .message
            .starts_with("Deployment in version \"v1\" cannot be handled as a Pod: converting"),
        "{error}"
    );
    let body = envelope("v1", "Pod", &[0x0a, 0x7f, 1]);
    let error = decode(
        &body,
        ContentType::Protobuf,
        &pod(),
        FieldValidation::Strict,
    )
    .expect_err("a cut message");
    assert_eq!(
        error.message,
        "Pod in version \"v1\" cannot be handled as a Pod: unexpected EOF"
    );
}

#[test]
fn what_a_protobuf_body_does_not_name_is_the_endpoints() {
    let raw = pb(1, &pb(1, b"a"));
    for (api_version, kind) in [("v1", "Pod"), ("", "Pod"), ("v1", ""), ("", "")] {
        let body = envelope(api_version, kind, &raw);
        let decoded = decode(
            &body,
            ContentType::Protobuf,
            &pod(),
            FieldValidation::Strict,
        )
        .expect("a pod");
        assert_eq!(
            decoded.object,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
            "{kind}"
        );
    }
}

/// The tag, the length and the bytes of a field of protobuf.
fn field(tag: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for mut number in [tag << 3 | 2, bytes.len()] {
        while number >= 0x80 {
            out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
            number >>= 7;
        }
        out.push(u8::try_from(number).expect("seven bits"));
    }
    out.extend_from_slice(bytes);
    out
}

/// A ConfigMap in its envelope, whose `managedFields` hold `inner` where JSON should be.
fn enveloped(inner: &[u8]) -> Vec<u8> {
    let managed = field(7, &field(1, inner));
    let object = field(1, &field(17, &managed));
    let meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, &object)].concat()
}

#[test]
fn envelopes_within_envelopes_are_bounded() {
    let config_map = Gvk::new("", "v1", "ConfigMap");
    let decoded = |levels: usize| {
        let body = (0..levels).fold(b"{}".to_vec(), |inner, _| enveloped(&inner));
        decode(
            &body,
            ContentType::Protobuf,
            &config_map,
            FieldValidation::Ignore,
        )
    };
    assert!(decoded(3).is_ok());
    let refused = decoded(2_000).expect_err("it is refused");
    assert_eq!(refused.code, 400);
    assert!(refused.message.contains("exceeded max depth"), "{refused}");
}
