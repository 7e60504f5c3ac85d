use super::*;

#[test]
fn a_single_plugin_is_a_list_of_one() {
    let list = parse(br#"{"cniVersion":"0.4.0","name":"n","type":"bridge","bridge":"b"}"#).unwrap();
    assert_eq!(
        (
            list.name.as_str(),
            list.cni_version.as_str(),
            plugin_type(&list, 0)
        ),
        ("n", "0.4.0", "bridge")
    );
}

#[test]
fn unusable_configurations_are_refused() {
    for text in ["{", "[]", r#"{"name":"n","plugins":[]}"#] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
    for kind in ["", "/", ".", "..", "../x", "x/", "/x"] {
        let text = json!({"name": "n", "plugins": [{"type": kind}]}).to_string();
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn the_highest_version_that_both_know_is_used() {
    let cases = [
        (json!({"cniVersions": ["0.4.0", "1.1.0", "1.0.0"]}), "1.1.0"),
        (
            json!({"cniVersions": ["1.0.0", "1.2.0", "99.0.0"]}),
            "1.0.0",
        ),
        (
            json!({"cniVersion": "1.0.0", "cniVersions": ["0.3.1"]}),
            "1.0.0",
        ),
        (json!({"cniVersions": []}), "0.1.0"),
        (json!({}), "0.1.0"),
    ];
    for (mut conf, expected) in cases {
        conf["name"] = "n".into();
        conf["plugins"] = json!([{"type": "a"}]);
        let list = parse(conf.to_string().as_bytes()).unwrap();
        assert_eq!(list.cni_version, expected, "{conf}");
    }
    for versions in [
        json!("1.0.0"),
        json!([1]),
        json!(["one"]),
        json!(["1.0.0.0"]),
    ] {
        let conf = json!({"name": "n", "plugins": [{"type": "a"}], "cniVersions": versions});
        assert!(parse(conf.to_string().as_bytes()).is_err(), "{conf}");
    }
}

#[test]
fn switches_may_be_text() {
    for (given, expected) in [
        (json!(true), Some(true)),
        (json!("TRUE"), Some(true)),
        (json!("false"), Some(false)),
        (json!(1), None),
        (json!("yes"), None),
    ] {
        let conf = json!({"name": "n", "plugins": [{"type": "a"}], "disableGC": given});
        let list = parse(conf.to_string().as_bytes());
        assert_eq!(list.ok().map(|list| list.disable_gc), expected, "{conf}");
    }
}

#[test]
fn gc_and_status_exist_since_1_1() {
    for (version, known) in [
        ("0.4.0", false),
        ("1.0.0", false),
        ("1.1.0", true),
        ("", false),
    ] {
        assert_eq!(knows_gc_and_status(version), known, "{version}");
    }
}

#[test]
fn a_plugin_gets_name_version_result_and_the_capabilities_it_declares() {
    let list = parse(
        br#"{"cniVersion":"1.0.0","name":"n","plugins":[
            {"type":"a"}, {"type":"b","capabilities":{"portMappings":true}}]}"#,
    )
    .unwrap();
    let ports = json!([{"hostPort": 1, "containerPort": 2, "protocol": "udp", "hostIP": ""}]);
    let mut known = Capabilities::new();
    known.insert("portMappings".into(), ports.clone());
    let first = plugin_conf(&list, 0, None, &known);
    assert_eq!(
        first,
        json!({"type": "a", "name": "n", "cniVersion": "1.0.0"})
    );
    let second = plugin_conf(&list, 1, Some(&json!({"ips": []})), &known);
    assert_eq!(second["prevResult"], json!({"ips": []}));
    assert_eq!(second["runtimeConfig"], json!({"portMappings": ports}));
}

#[test]
fn plugins_in_the_networks_folder_come_after_those_of_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
    std::fs::create_dir(dir.path().join("n")).unwrap();
    write("n/20-c.conf", r#"{"type":"c"}"#);
    write("n/10-b.conf", r#"{"type":"b"}"#);
    write("n/README", "no plugin");
    let kinds = |conf: &str| {
        write("1.conflist", conf);
        let list = load(dir.path())?;
        let kinds = (0..list.plugins.len()).map(|index| plugin_type(&list, index).to_owned());
        Ok::<Vec<String>, String>(kinds.collect())
    };
    let all = kinds(r#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"a"}]}"#);
    assert_eq!(all.unwrap(), ["a", "b", "c"]);
    let folder = kinds(r#"{"cniVersion":"1.1.0","name":"n"}"#);
    assert_eq!(folder.unwrap(), ["b", "c"]);
    let listed = kinds(r#"{"name":"n","plugins":[{"type":"a"}],"loadOnlyInlinedPlugins":true}"#);
    assert_eq!(listed.unwrap(), ["a"]);
    assert!(kinds(r#"{"name":"n","loadOnlyInlinedPlugins":true}"#).is_err());
    let one = kinds(r#"{"name":"n","type":"a"}"#);
    assert_eq!(one.unwrap(), ["a"]);
}

#[test]
fn a_broken_first_file_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
    let said = load(dir.path()).unwrap_err();
    assert!(said.contains("no *.conflist or *.conf there"), "{said}");
    write(
        "87-bridge.conflist",
        r#"{"name":"b","plugins":[{"type":"bridge"}]}"#,
    );
    for broken in ["", r#"{"name":"a","#, r#"{"name":"a","plugins":[]}"#] {
        write("10-a.conflist", broken);
        let said = load(dir.path()).unwrap_err();
        assert!(said.contains("10-a.conflist: "), "{said}");
    }
    write("10-a.conflist", r#"{"name":"a","plugins":[{"type":"a"}]}"#);
    assert_eq!(load(dir.path()).unwrap().name, "a");
}

#[test]
fn what_is_no_file_or_has_no_end_is_told_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("1.conflist");
    nix::unistd::mkfifo(&list, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let why = load(dir.path()).unwrap_err();
    assert!(why.contains("it is no regular file"), "{why}");
    fs::remove_file(&list).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &list).unwrap();
    let why = load(dir.path()).unwrap_err();
    assert!(why.contains("it is no regular file"), "{why}");
    fs::remove_file(&list).unwrap();
    let file = fs::File::create(&list).unwrap();
    file.set_len(MOST_BYTES + 1).unwrap();
    let why = load(dir.path()).unwrap_err();
    assert!(why.contains("it has more than 1048576 bytes"), "{why}");
    // Written by a name, and led to by another, as operators' daemons do.
    fs::remove_file(&list).unwrap();
    let elsewhere = dir.path().join("net.d");
    std::os::unix::fs::symlink(dir.path(), &elsewhere).unwrap();
    let text = r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"p"}]}"#;
    fs::write(dir.path().join("written"), text).unwrap();
    std::os::unix::fs::symlink("written", &list).unwrap();
    assert_eq!(load(&elsewhere).unwrap().name, "n");
}
