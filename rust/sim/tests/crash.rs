//! A few seconds of the explorer; `make test-proof` visits millions of states
//! (`docs/RELIABILITY.md`).
#![allow(clippy::print_stdout, reason = "how many states were seen is part of the result")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use falaj::internals::format::settings::WriteMode;
use falaj_sim::campaign::{Order, Summary, run};
use falaj_sim::explore::Counts;
use falaj_sim::history::History;
use falaj_sim::look::{Expected, look};
use falaj_sim::machine::Machine;
use falaj_sim::op::Op;
use falaj_sim::plan::{Kind, Unit};
use falaj_sim::replay::replay;
use falaj_sim::seen::Seen;
use falaj_twin::memory::{Choice, Undecided};
use std::time::Duration;

fn order(states: u64, filter: fn(&Unit) -> bool) -> Order {
    let (seed, shard, threads, enough) = (20_260_101, (0, 1), 2, 1);
    let (progress, resume, limit, filter) = (false, None, None, Some(filter));
    let remember = Seen::LIMIT;
    Order { states, seed, shard, threads, remember, progress, resume, limit, enough, filter }
}

/// Explore with the units of a budget of so many states, those alone that a filter takes.
fn explore(states: u64, filter: fn(&Unit) -> bool) -> Summary {
    let summary = run(&order(states, filter)).unwrap();
    println!("{} different states, {:?}", summary.distinct, summary.counts);
    let violation = summary.violations.first().map(|v| {
        let Order { seed, .. } = order(states, filter);
        format!("seed {seed}: {}\n  again: falaj-sim explore --replay '{}'", v.what, v.site)
    });
    assert_eq!(violation, None);
    assert!(summary.complete && summary.distinct > 100);
    // Few looks skip their second half: most bytes that a look leaves are new.
    let Counts { first, second, whole, .. } = summary.counts;
    assert!(whole <= first + second && whole > (first + second) / 2, "{whole}");
    summary
}

fn is_short(unit: &Unit) -> bool {
    matches!(unit.kind, Kind::Short { .. })
}

/// Left out where `make test-proof` runs beside this, as in `make check`: that does more of each.
mod small_budget {
    use super::{Kind, WriteMode, explore, is_short};

    #[test]
    fn short_workloads_in_mapped_memory_survive_every_crash() {
        explore(1_500, |unit| is_short(unit) && unit.mode == WriteMode::Mapped);
    }

    #[test]
    fn short_workloads_written_through_survive_every_crash() {
        explore(1_500, |unit| is_short(unit) && unit.mode == WriteMode::Pwrite);
    }

    #[test]
    fn long_workloads_survive_every_crash() {
        explore(40_000, |unit| matches!(unit.kind, Kind::Long(_)));
    }

    #[test]
    fn processes_that_write_at_once_survive_every_crash() {
        explore(40_000, |unit| matches!(unit.kind, Kind::Crew(_)));
    }
}

#[test]
fn what_is_visited_depends_on_the_seed_and_not_on_threads() {
    let long = |unit: &Unit| matches!(unit.kind, Kind::Long(0..20));
    let visited = [1, 2].map(|threads| {
        let summary = run(&Order { threads, ..order(20_000, long) }).unwrap();
        (summary.counts, summary.distinct)
    });
    assert_eq!(visited[0], visited[1]);
}

#[test]
fn an_interrupted_campaign_goes_on_where_it_was() {
    let file = std::env::temp_dir().join(format!("falaj-sim-{}.json", std::process::id()));
    let long = |unit: &Unit| matches!(unit.kind, Kind::Long(0..10));
    let whole = run(&order(20_000, long)).unwrap();
    let mut pieces = 0;
    let summary = loop {
        let (resume, limit) = (Some(file.clone()), Some(Duration::ZERO));
        let summary = run(&Order { resume, limit, threads: 1, ..order(20_000, long) }).unwrap();
        pieces += 1;
        assert!(pieces < 1000, "it makes no progress");
        if summary.complete {
            break summary;
        }
    };
    std::fs::remove_file(&file).unwrap();
    assert!(pieces > 1, "it was never interrupted");
    assert_eq!(summary.counts.histories, whole.counts.histories);
    assert_eq!(summary.counts.points, whole.counts.points);
    let (one, other) = (summary.distinct as f64, whole.distinct as f64);
    assert!((0.97..1.03).contains(&(one / other)), "{one} and {other} different states");
}

/// By its index, one topic's reader reaches a whole group behind a hole; the other's reader stops
/// at the hole with an error.
#[test]
fn a_whole_group_behind_damage_is_not_taken_for_half_a_group() {
    for site in [
        "mapped/large,group,roll,trim/77/0:0,2:0,3:0,7:0,10:0,16:0,18:0,21:0",
        "pwrite/large,group,roll,trim/71/0:0,2:0,3:0,7:0,10:0,16:0,18:0,21:0",
    ] {
        assert_eq!(replay(site), Ok(None), "{site}");
    }
}

#[test]
fn a_hole_in_the_newest_segment_ends_it_for_all_topics_before_recovery() {
    // Sites of the explorer's. A reader that follows the index of the newest segment is noticed in each.
    for site in [
        "mapped/durable,sync,close,extend,interval,roll,trim,die-begun,die-committed,group/\
         165/0:0,2:0,3:0,6:0",
        "mapped/die-begun,group,large,reopen/68/2:0,7:0,8:0,10:0,12:0,13:0,14:0,15:0",
        "pwrite/append,large,group,die-committed/60/5:0,9:0,12:0",
        "pwrite/close,die-uncommitted,die-committed,group/90/2:0,4:0,8:0,12:0,14:0,15:0",
    ] {
        assert_eq!(replay(site), Ok(None), "{site}");
    }
}

/// The shared page is older than the hole, and says that the log ends there.
#[test]
fn a_hole_where_an_old_page_ends_the_log_ends_it_for_all_topics_before_recovery() {
    // Choice 11 is the page. The hole is in each of the sectors behind it, filled in each possible
    // way.
    for (history, page) in
        [("mapped/group,roll,large,group/88", 18), ("pwrite/group,roll,large,group/80", 16)]
    {
        let sites = (12..24).flat_map(|sector| (0..4).map(move |pick| (sector, pick)));
        let sites = sites.map(|(sector, pick)| format!("{history}/11:{page},{sector}:{pick}"));
        let found: Vec<_> = sites.filter_map(|site| Some((replay(&site).ok()?, site))).collect();
        assert!(found.len() > 25, "{history}: only {} of these sites are there", found.len());
        assert!(found.iter().all(|(wrong, _)| wrong.is_none()), "{found:?}");
    }
}

/// The dead process had carried a record over to a new segment, where a lookup finds it.
///
/// It had not marked yet that the log continues there, so a read from the beginning finds the
/// record in the old segment.
#[test]
fn a_record_that_was_carried_over_is_the_same_in_both_places() {
    let site = "mapped/die-committed,die-durable-15,die-uncommitted,die-sync-11,die-reopen-0,interval,\
                other,die-committed,seal,die-sync-7,job/269/heir";
    assert_eq!(replay(site), Ok(None), "{site}");
}

/// A hole in a segment that has a successor: a reader before recovery gets an error, not an end.
#[test]
fn a_hole_before_the_end_of_a_segment_is_an_error() {
    // Sites of the explorer that notice a reader which treats such a hole as the end.
    for site in [
        "mapped/die-begun,roll,append,job/77/0:0,4:0,9:0,11:0,13:0,14:0,16:0,19:0",
        "mapped/die-committed,roll,group,die-committed/104/0:0,1:0,3:0,7:0,9:0,12:0,14:0,21:0,22:0",
        "pwrite/other,large,roll,die-begun/70/0:0,2:0,6:0,7:0,8:0,9:0,12:0,13:0,15:0,17:0,18:0,21:0",
    ] {
        assert_eq!(replay(site), Ok(None), "{site}");
    }
}

/// Two rolls without a sync between them: the segments behind a lost end block are lost with it.
///
/// They were kept once, and then no cut of the log could be made, and no backup.
#[test]
fn a_cut_can_be_made_of_a_log_that_lost_an_end_block_between_rolls() {
    for site in [
        "mapped/cut,roll,other,roll/79/11:0",
        "mapped/cut,roll,roll,other/77/12:0,13:0",
        "pwrite/cut,roll,roll,other/73/12:0,13:0",
    ] {
        assert_eq!(replay(site), Ok(None), "{site}");
    }
}

/// A process dies in compaction before its removals are synced, and a trim follows.
///
/// Removed records do not come back without the records that they continued (found with seed
/// 358768149).
#[test]
fn what_compaction_removed_does_not_come_back_behind_a_trim() {
    let ops = "group,append,die-compact-11,die-roll-8,group,die-compact-1,die-large-14,\
        die-uncommitted,append,die-trim-15,trim";
    let ops: Vec<Op> = ops.split(',').map(|op| op.parse().unwrap()).collect();
    let mode = WriteMode::Pwrite;
    let history = History::of(&ops, &Machine::empty(mode).unwrap()).unwrap();
    let (truth, incarnation) = (&history.truth, history.incarnation);
    let mut removals = 0;
    for time in history.from..=history.journal.len() {
        let (least, most) = history.after_power_loss(time);
        let gone = history.gone(time);
        let cuts = history.cuts(time);
        let expected = Expected { truth, least, most, gone, incarnation, cuts, before: None };
        let crash = history.journal.crash_at(time);
        let is_removal = |c: &Choice| matches!(&c.what, Undecided::Name(n) if n.ends_with(".log"));
        removals += crash.choices().iter().filter(|choice| is_removal(choice)).count();
        crash.explore(100, 358_768_149, |selection, image| {
            if let Err(what) = look(&image, mode, expected).map(drop) {
                panic!("{what}; {}", crash.describe(selection));
            }
        });
    }
    assert!(removals > 0);
}
