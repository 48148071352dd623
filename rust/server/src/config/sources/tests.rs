//! Settings from flags, the environment and files: which wins, and what is refused.

use super::*;

fn read(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Config, String> {
    let arguments = ["falaj-server"].iter().chain(arguments).map(OsString::from);
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
    match load(arguments, environment)? {
        Begin::Serve(config) => Ok(*config),
        Begin::Print(text) => Err(format!("printed: {text}")),
        Begin::Mint => Err("minted".to_owned()),
    }
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("falaj.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn each_setting_has_a_line_of_help_and_each_line_a_setting() {
    let leaves = defaults().into_iter().flat_map(|(name, value)| match value {
        Value::Table(section) => section.keys().map(|key| format!("{name}.{key}")).collect(),
        _ => vec![name],
    });
    let mut leaves: Vec<_> = leaves.collect();
    let mut helped: Vec<_> = HELP.iter().map(|(key, _)| (*key).to_owned()).collect();
    leaves.sort();
    helped.sort();
    assert_eq!(leaves, helped);
}

#[test]
fn a_flag_wins_over_the_environment_which_wins_over_the_file() {
    let (_dir, path) =
        file("http = \"127.0.0.1:1\"\n[limits]\nbatch = 1\nbody = \"1MiB\"\nrecord = \"1KiB\"\n");
    let environment =
        [("FALAJ_SERVER_HTTP", "127.0.0.1:2"), ("FALAJ_SERVER_LIMITS_BATCH", "2"), ("HOME", "/")];
    let config =
        read(&["events", "--config", &path, "--http", "127.0.0.1:3"], &environment).unwrap();
    assert_eq!((config.store.as_str(), config.http.as_str()), ("events", "127.0.0.1:3"));
    assert_eq!((config.limits.batch, config.limits.body.0), (2, 1 << 20));
    assert_eq!(config.limits.connections, Limits::default().connections);
    let config = read(&["e"], &[("FALAJ_SERVER_CONFIG", &path)]).unwrap();
    assert_eq!(config.http, "127.0.0.1:1");
}

#[test]
fn the_store_is_an_argument_or_an_option_or_the_file_s_or_else_the_variable_s() {
    let (_dir, path) = file("store = \"of-file\"\n");
    let variable = [("FALAJ_STORE", "of-variable")];
    for (arguments, store) in [
        (&["argument", "--config", &path][..], "argument"),
        (&["-s", "option", "--config", &path], "option"),
        (&["--store", "option"], "option"),
        (&["--config", &path], "of-file"),
        (&[], "of-variable"),
    ] {
        assert_eq!(read(arguments, &variable).unwrap().store, store);
    }
    assert!(read(&["one", "-s", "two"], &[]).unwrap_err().contains("twice"));
}

#[test]
fn a_setting_that_does_not_exist_is_refused_with_those_that_do() {
    let (_dir, path) = file("[limits]\nbodyy = \"1MiB\"\n");
    let refused = read(&["e", "--config", &path], &[]).unwrap_err();
    assert!(
        refused.contains(&path)
            && refused.contains("limits.bodyy")
            && refused.contains("decoded_body"),
        "{refused}"
    );
    let refused = read(&["e"], &[("FALAJ_SERVER_LIMITS_BODYY", "1")]).unwrap_err();
    assert!(
        refused.contains("FALAJ_SERVER_LIMITS_BODYY") && refused.contains("limits.body"),
        "{refused}"
    );
    let refused = read(&["e", "--limits-bodyy", "1MiB"], &[]).unwrap_err();
    assert!(refused.contains("--limits-body"), "{refused}");
    let (_dir, path) = file("http = 5\n");
    let refused = read(&["e", "--config", &path], &[]).unwrap_err();
    assert!(refused.contains(&path) && refused.contains("string"), "{refused}");
}

#[test]
fn a_value_of_another_type_is_refused_by_its_source() {
    for (flag, value, part) in [
        ("--limits-batch", "many", "whole number"),
        ("--limits-body", "5", "\"64MiB\""),
        ("--drain", "soon", "\"5s\""),
        ("--reading", "magic", "magic"),
    ] {
        let refused = read(&["e", flag, value], &[]).unwrap_err();
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for arguments in [
        &[][..],
        &["e", "--tls-key", "key.pem"],
        &["e", "--limits-record", "65MiB"],
        &["e", "--limits-bytes-in-flight", "127MiB"],
        &["e", "--access-origins", "app.example"],
        &["e", "--log-level", "xx"],
        &["e", "--log-level", "warn,falaj_server"],
    ] {
        assert!(read(arguments, &[]).is_err(), "{arguments:?}");
    }
}

#[test]
fn a_limit_of_nothing_is_refused_by_its_name_where_no_request_could_keep_it() {
    for (flag, zero) in [
        ("limits-body", "0B"),
        ("limits-decoded-body", "0B"),
        ("limits-record", "0B"),
        ("limits-bytes-in-flight", "0B"),
        ("limits-batch", "0"),
        ("limits-connections", "0"),
        ("limits-header-timeout", "0s"),
        ("limits-body-timeout", "0s"),
        ("limits-write-timeout", "0s"),
        ("limits-ping", "0s"),
    ] {
        let refused = read(&["e", &format!("--{flag}"), zero], &[]).unwrap_err();
        let name = flag.replacen('-', ".", 1).replace('-', "_");
        assert!(refused.starts_with(&format!("{name} is 0")), "{refused}");
    }
    for flag in ["followers", "members", "workers", "resets"] {
        read(&["e", &format!("--limits-{flag}"), "0"], &[]).unwrap();
    }
    for level in ["debug", "warn,falaj_server=debug", "INFO", "off"] {
        read(&["e", "--log-level", level], &[]).unwrap();
    }
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    let given =
        ["events", "--limits-batch", "7", "--access-hosts", "a.example,b.example", "--open"];
    let mut printing = given.to_vec();
    printing.push("--print-config");
    let printed = read(&printing, &[]).unwrap_err();
    let (_dir, path) = file(printed.strip_prefix("printed: ").unwrap());
    assert_eq!(read(&["--config", &path], &[]).unwrap(), read(&given, &[]).unwrap());
}
