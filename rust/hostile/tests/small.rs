//! A little of each campaign, so that the harness itself stays whole. `make test-proof` runs more.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_falaj-hostile");
    let done = Command::new(program).args(arguments).output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn finds_nothing(arguments: &[&str]) {
    let (code, said) = run(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
}

#[test]
fn flipped_bits_are_detected_or_harmless() {
    finds_nothing(&["flips", "--to", "400"]);
}

#[test]
fn rubbish_breaks_no_decoder() {
    finds_nothing(&["bytes", "--to", "40"]);
}

#[test]
fn each_scene_survives_some_failing_calls() {
    finds_nothing(&["faults", "--share", "499"]);
}

#[test]
fn a_push_runs_every_target_and_says_what_each_came_to() {
    let (code, said) = run(&["push", "--seconds", "0.2", "--share", "9973"]);
    assert_eq!(code, Some(0), "{said}");
    let names = ["block", "records", "varint", "segment", "index", "pages", "entries", "end"];
    let rest = ["settings", "names", "consumer", "queue", "part", "stores"];
    let told = names.iter().chain(&rest).map(|name| format!("bytes-{name}: "));
    for told in told.chain(["flips: ".into(), "faults: ".into(), "push: 16 targets".into()]) {
        assert!(said.contains(&told), "{told}: {said}");
    }
}

#[test]
fn a_campaign_goes_on_where_it_was_interrupted() {
    let dir = std::env::temp_dir().join(format!("falaj-hostile-state-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let state = dir.join("state.varint.json");
    let order = ["bytes", "--only", "varint", "--to", "30", "--state"];
    let base = dir.join("state");
    let order = [&order[..], &[base.to_str().unwrap()]].concat();
    finds_nothing(&order);
    let first = std::fs::read_to_string(&state).unwrap();
    let (_, said) = run(&order);
    assert!(said.contains("30 cases"), "nothing is done twice: {said}");
    assert_eq!(std::fs::read_to_string(&state).unwrap(), first);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_it_does_not_know_it_refuses() {
    for arguments in [&["flips", "--al"][..], &["bytes", "--only", "nothing"], &["burn"]] {
        assert_eq!(run(arguments).0, Some(2), "{arguments:?}");
    }
}
