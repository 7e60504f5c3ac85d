use hickory_proto::{op::Message, serialize::binary::BinEncodable as _};

use super::*;
use crate::{
    forward::Settings,
    testing::{Other, World, name, request, texts},
    wire,
};

const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

async fn resolver(other: &Other) -> Resolver {
    Resolver {
        zone: Zone::new("cluster.local", None).unwrap(),
        names: Arc::new(World::new()),
        others: Forwarder::new(Settings {
            servers: vec![other.address],
            ..Settings::default()
        }),
        searches: vec![name("corp.example.")],
    }
}

async fn outside() -> Other {
    Other::knowing(&[
        ("www.example.org.", "192.0.2.1"),
        ("mail.corp.example.", "192.0.2.2"),
    ])
    .await
}

async fn said(resolver: &Resolver, asker: IpAddr, of: &str, wanted: RecordType) -> Message {
    let asked = wire::read(&request(of, wanted).to_bytes().unwrap()).unwrap();
    let answer = resolver.answer(asker, &asked).await;
    Message::from_vec(&wire::write(&asked, answer, 65_535).unwrap()).unwrap()
}

async fn answers(resolver: &Resolver, of: &str) -> (ResponseCode, Vec<String>) {
    let message = said(resolver, POD, of, RecordType::A).await;
    (message.metadata.response_code, texts(&message.answers))
}

#[tokio::test]
async fn aliases_are_followed_wherever_they_lead() {
    let other = outside().await;
    let resolver = resolver(&other).await;
    let (code, found) = answers(&resolver, "inside.shop.svc.cluster.local.").await;
    assert_eq!(code, ResponseCode::NoError);
    assert_eq!(
        found,
        [
            "db.other.svc.cluster.local. A 10.96.0.30",
            "inside.shop.svc.cluster.local. CNAME db.other.svc.cluster.local.",
        ]
    );
    assert_eq!(other.asked(), 0);
    let (_, found) = answers(&resolver, "outside.shop.svc.cluster.local.").await;
    assert_eq!(
        found,
        [
            "outside.shop.svc.cluster.local. CNAME www.example.org.",
            "www.example.org. A 192.0.2.1",
        ]
    );
    let (_, found) = answers(&resolver, "www.example.org.").await;
    assert_eq!(found, ["www.example.org. A 192.0.2.1"]);
}

#[tokio::test]
async fn who_is_not_there_is_told_by_whom() {
    let other = outside().await;
    let resolver = resolver(&other).await;
    let message = said(
        &resolver,
        POD,
        "absent.other.svc.cluster.local.",
        RecordType::A,
    )
    .await;
    assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
    assert!(message.metadata.authoritative && message.metadata.recursion_available);
    let authority = texts(&message.authorities);
    assert!(
        authority[0]
            .starts_with("cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local."),
        "{authority:?}"
    );
    let message = said(
        &resolver,
        POD,
        "db.other.svc.cluster.local.",
        RecordType::MX,
    )
    .await;
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    assert_eq!((message.answers.len(), message.authorities.len()), (0, 1));
    assert_eq!(other.asked(), 0);
}

/// With the first of five questions a resolver of a pod knows what the others would have told it.
#[tokio::test]
async fn the_search_path_is_gone_along_in_one_question() {
    let other = outside().await;
    let resolver = resolver(&other).await;
    let own = |text: &str| format!("{text}.shop.svc.cluster.local.");
    for (asked, leads_to, address) in [
        ("db.other", "db.other.svc.cluster.local.", "10.96.0.30"),
        ("db.other.svc", "db.other.svc.cluster.local.", "10.96.0.30"),
        ("mail", "mail.corp.example.", "192.0.2.2"),
        ("www.example.org", "www.example.org.", "192.0.2.1"),
    ] {
        let (code, found) = answers(&resolver, &own(asked)).await;
        assert_eq!(code, ResponseCode::NoError, "{asked}");
        let mut expected = [
            format!("{leads_to} A {address}"),
            format!("{} CNAME {leads_to}", own(asked)),
        ];
        expected.sort();
        assert_eq!(found, expected);
    }
    // A Service of that name is there, though what it leads to is not.
    let (code, found) = answers(&resolver, &own("nowhere")).await;
    let alias = format!("{} CNAME absent.other.svc.cluster.local.", own("nowhere"));
    assert_eq!((code, found), (ResponseCode::NXDomain, vec![alias]));
    // A name that leads nowhere is none, and so is that of another family.
    let (code, found) = answers(&resolver, &own("absent.example")).await;
    assert_eq!((code, found), (ResponseCode::NXDomain, vec![]));
    let message = said(&resolver, POD, &own("www.example.org"), RecordType::AAAA).await;
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    let alias = format!("{} CNAME www.example.org.", own("www.example.org"));
    assert_eq!(texts(&message.answers), [alias]);
}

#[tokio::test]
async fn a_name_without_addresses_does_not_end_the_path() {
    // `other` is a namespace: its name is there, and has nothing.
    let other = Other::knowing(&[
        ("other.corp.example.", "192.0.2.3"),
        ("www.corp.example.", "2001:db8::1"),
        ("www.", "192.0.2.4"),
    ])
    .await;
    let resolver = resolver(&other).await;
    let own = |text: &str| format!("{text}.shop.svc.cluster.local.");
    let (code, found) = answers(&resolver, &own("other")).await;
    let expected = [
        "other.corp.example. A 192.0.2.3".to_owned(),
        format!("{} CNAME other.corp.example.", own("other")),
    ];
    assert_eq!((code, found), (ResponseCode::NoError, expected.into()));
    // Both families are of one name, and a name of the cluster leads nobody out.
    let (_, found) = answers(&resolver, &own("www")).await;
    assert_eq!(found, [format!("{} CNAME www.corp.example.", own("www"))]);
    let asked = other.asked();
    let message = said(&resolver, POD, &own("db.other"), RecordType::AAAA).await;
    let alias = format!("{} CNAME db.other.svc.cluster.local.", own("db.other"));
    assert_eq!(texts(&message.answers), [alias]);
    assert_eq!(other.asked(), asked);
    // Where nothing has addresses, it is there all the same.
    let nothing = Other::knowing(&[]).await;
    let resolver = self::resolver(&nothing).await;
    let (code, found) = answers(&resolver, &own("other")).await;
    let alias = format!("{} CNAME other.svc.cluster.local.", own("other"));
    assert_eq!((code, found), (ResponseCode::NoError, vec![alias]));
}

#[tokio::test]
async fn nobody_is_led_along_a_path_that_is_not_theirs() {
    let other = outside().await;
    let resolver = resolver(&other).await;
    let stranger: IpAddr = "192.0.2.77".parse().unwrap();
    for (asker, of, wanted) in [
        (
            stranger,
            "www.example.org.shop.svc.cluster.local.",
            RecordType::A,
        ),
        (
            POD,
            "www.example.org.other.svc.cluster.local.",
            RecordType::A,
        ),
        (POD, "www.example.org.svc.cluster.local.", RecordType::A),
        (
            POD,
            "www.example.org.shop.svc.cluster.local.",
            RecordType::TXT,
        ),
        (POD, "shop.svc.cluster.local.cluster.local.", RecordType::A),
    ] {
        let message = said(&resolver, asker, of, wanted).await;
        assert_eq!(
            message.metadata.response_code,
            ResponseCode::NXDomain,
            "{of}"
        );
    }
    assert_eq!(other.asked(), 0);
}

#[tokio::test]
async fn a_path_that_others_do_not_answer_for_ends_where_it_began() {
    let silent = Other::start(Arc::new(|_, _| Vec::new())).await;
    let resolver = resolver(&silent).await;
    let (code, _) = answers(&resolver, "www.example.org.shop.svc.cluster.local.").await;
    assert_eq!(code, ResponseCode::NXDomain, "the client sees for itself");
    let (code, _) = answers(&resolver, "www.example.org.").await;
    assert_eq!(code, ResponseCode::ServFail);
}

#[tokio::test]
async fn floods_and_copies_are_not_served() {
    let other = outside().await;
    let resolver = resolver(&other).await;
    let all = said(
        &resolver,
        POD,
        "web.shop.svc.cluster.local.",
        RecordType::ANY,
    )
    .await;
    assert_eq!(texts(&all.answers).len(), 1);
    assert_eq!(all.answers[0].record_type(), RecordType::HINFO);
    let copy = said(&resolver, POD, "cluster.local.", RecordType::AXFR).await;
    assert_eq!(copy.metadata.response_code, ResponseCode::Refused);
}

#[test]
fn what_others_could_not_say_is_no_denial() {
    let query = Query {
        name: name("www.example.org."),
        record_type: RecordType::A,
        dnssec_ok: false,
        checking_disabled: false,
    };
    let failed = |code| {
        Ok(Reply {
            code,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
            authentic: false,
        })
    };
    for (replied, expected) in [
        (failed(ResponseCode::BADVERS), ResponseCode::ServFail),
        (failed(ResponseCode::Unknown(23)), ResponseCode::ServFail),
        (failed(ResponseCode::Refused), ResponseCode::Refused),
        (Err(ForwardError::NoServers), ResponseCode::ServFail),
        (Err(ForwardError::Busy { limit: 1 }), ResponseCode::Refused),
    ] {
        assert_eq!(others(Vec::new(), replied, &query).code, expected);
    }
}
