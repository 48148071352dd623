//! A little of each campaign, so that the harness itself keeps working; `make test-proof` runs
//! more.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_falaj-hostile");
    let done = Command::new(program).args(arguments).output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn tempdir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("falaj-hostile-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn finds_nothing(arguments: &[&str]) {
    let (code, said) = run(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
}

/// Left out where `make test-proof` runs beside this, as in `make check`: that does more of each.
mod small_budget {
    use super::finds_nothing;

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
}

/// A machine may be so busy that the time is over before the first case is ready.
#[test]
fn however_short_the_time_something_is_run() {
    let (code, said) = run(&["flips", "--seconds", "0", "--threads", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("flips: 1 cases"), "{said}");
}

#[test]
fn a_push_runs_every_target_and_says_what_each_came_to() {
    let (code, said) = run(&["push", "--seconds", "0.2", "--share", "9973"]);
    assert_eq!(code, Some(0), "{said}");
    let names = ["block", "records", "varint", "segment", "index", "pages", "entries", "end"];
    let rest = ["settings", "names", "consumer", "queue", "part", "stores", "at-work"];
    let told = names.iter().chain(&rest).map(|name| format!("bytes-{name}: "));
    for told in told.chain(["flips: ".into(), "faults: ".into(), "push: 17 targets".into()]) {
        assert!(said.contains(&told), "{told}: {said}");
    }
}

#[test]
fn a_campaign_goes_on_where_it_was_interrupted() {
    let dir = tempdir("state");
    let state = dir.join("state.varint.json");
    let order = ["bytes", "--only", "varint", "--to", "30", "--state"];
    let base = dir.join("state");
    let order = [&order[..], &[base.to_str().unwrap()]].concat();
    finds_nothing(&order);
    let first = std::fs::read_to_string(&state).unwrap();
    let (_, said) = run(&order);
    assert!(said.contains("30 cases"), "no case runs twice: {said}");
    assert_eq!(std::fs::read_to_string(&state).unwrap(), first);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A store's threads make calls too, so the count of a scene's calls differs each time.
#[test]
fn failing_calls_go_on_with_the_numbers_that_they_began_with() {
    let dir = tempdir("faults");
    let state = dir.join("state.json");
    let order =
        ["faults", "--only", "append mapped", "--seconds", "0.3", "--threads", "1", "--state"];
    let order = [&order[..], &[state.to_str().unwrap()]].concat();
    finds_nothing(&order);
    let told =
        || -> Value { serde_json::from_str(&std::fs::read_to_string(&state).unwrap()).unwrap() };
    let mut first = told();
    let scene = &mut first["basis"]["scenes"][0];
    scene["total"] = json!(scene["total"].as_u64().unwrap() + 3);
    // Nine ways to fail, each once and always.
    first["to"] = json!(first["to"].as_u64().unwrap() + 3 * 18);
    std::fs::write(&state, first.to_string()).unwrap();
    finds_nothing(&order);
    let then = told();
    assert_eq!((&then["to"], &then["basis"]), (&first["to"], &first["basis"]));
    assert!(then["next"].as_u64() > first["next"].as_u64(), "{then}");

    first["basis"]["scenes"][0]["scene"] = json!("another");
    std::fs::write(&state, first.to_string()).unwrap();
    let (code, said) = run(&order);
    assert_eq!(code, Some(2), "{said}");

    // The form of a file from when cases ran one scene after another.
    first["basis"] = first["basis"]["scenes"].take();
    std::fs::write(&state, first.to_string()).unwrap();
    let (code, said) = run(&order);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is of another campaign"), "{said}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_it_does_not_know_it_refuses() {
    for arguments in [&["flips", "--al"][..], &["bytes", "--only", "nothing"], &["burn"]] {
        assert_eq!(run(arguments).0, Some(2), "{arguments:?}");
    }
}
