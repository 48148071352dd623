//! Deaths and power cuts during a compaction: at each moment one version of each segment is the
//! log, and the next compaction finishes.

use falaj_twin::memory::{Choice, Undecided, every};

use super::*;

/// A store that is being compacted, the event when that began, and what was appended.
fn compacting(then: impl FnOnce(&Topic, &mut History)) -> (MemoryStorage, usize, History) {
    let (machine, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 700, 200);
    seal(&prices);
    fill(&prices, &mut history, 20, 20);
    prices.flush().unwrap();
    let begun = machine.events();
    then(&prices, &mut history);
    std::mem::forget((prices, store));
    (machine, begun, history)
}

/// Check that the last record of each key is there, that no record differs, and that compaction
/// finishes.
fn look(image: MemoryStorage, history: &History, sealed: u64, story: &str) -> usize {
    let storage = Arc::new(image) as Arc<dyn Storage>;
    let store = open(&storage, Path::new(STORE)).unwrap_or_else(|error| panic!("{story}: {error}"));
    let prices = topic(&store);
    assert_eq!(prices.end(0).unwrap(), history.len() as u64, "{story}");
    let there = found(&prices, history, story);
    let least = last_of(history, history.len() as u64);
    assert!(
        least.iter().all(|at| there.binary_search(at).is_ok()),
        "{story}: the last of a key is gone"
    );
    let left = there.len();
    is_sound(&store, story);
    let mut history = history.clone();
    put(&prices, &mut history, 1, Some(40));
    compact(&prices).unwrap_or_else(|error| panic!("{story}: {error}"));
    let there = found(&prices, &history, story);
    let wanted = last_of(&history, sealed);
    assert!(there.iter().all(|at| wanted.contains(at)), "{story}: not finished");
    assert_eq!(leftovers(&storage), [""; 0], "{story}");
    is_sound(&store, story);
    left
}

#[test]
fn a_death_anywhere_in_a_compaction_leaves_a_whole_log_and_the_next_one_finishes() {
    let (machine, begun, history) = compacting(|prices, _| {
        compact(prices).unwrap();
    });
    let journal = machine.journal();
    let mut left = Vec::new();
    for time in (begun..=journal.len()).step_by(every(3)) {
        left.push(look(journal.killed_at(time), &history, 700, &format!("death at {time}")));
    }
    left.dedup();
    assert!(journal.len() - begun > 30 && left.len() >= 3, "{left:?}");
    assert!(left.is_sorted_by(|a, b| a > b), "{left:?}");
}

#[test]
fn a_power_cut_anywhere_in_a_compaction_leaves_a_whole_log_and_the_next_one_finishes() {
    let (machine, begun, history) = compacting(|prices, _| {
        compact(prices).unwrap();
    });
    let (mut images, mut left) = (0, std::collections::BTreeSet::new());
    for crash in machine.journal().crashes_from(begun).step_by(every(17)) {
        let explored = crash.explore(2, 11, |selection, image| {
            let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
            left.insert(look(image, &history, 700, &story));
        });
        images += explored.images;
    }
    assert!(images > 10 && left.len() >= 2, "{images} {left:?}");
}

#[test]
fn a_second_compaction_over_the_first_survives_power_cuts_too() {
    let (machine, begun, history) = compacting(|prices, history| {
        compact(prices).unwrap();
        fill(prices, history, 300, 30);
        seal(prices);
        put(prices, history, 1, Some(8));
        prices.flush().unwrap();
    });
    let _ = begun;
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let store = open(&storage, Path::new(STORE)).unwrap();
    let begun = machine.events();
    compact(&topic(&store)).unwrap();
    let mut images = 0;
    for crash in machine.journal().crashes_from(begun).step_by(every(19)) {
        let explored = crash.explore(3, 3, |selection, image| {
            let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
            look(image, &history, 1020, &story);
        });
        images += explored.images;
    }
    assert!(images > 8, "{images}");
}

#[test]
fn a_power_cut_that_undoes_the_swap_finds_all_that_it_replaces_whatever_names_reached_the_medium() {
    let (machine, begun, history) = compacting(|prices, _| {
        let done = compact(prices).unwrap();
        assert!(done.segments_removed > 0, "{done:?}");
    });
    let changes = |choice: &Choice| match &choice.what {
        Undecided::Name(what) => {
            what.starts_with("rename compact.tmp") || what.starts_with("unlink")
        }
        _ => false,
    };
    let (mut points, mut undone) = (0, 0);
    for crash in machine.journal().crashes_from(begun) {
        // From the rename to the last sync of the directory, each operation on a name may be lost
        // by itself.
        if !crash.choices().iter().any(changes) {
            continue;
        }
        points += 1;
        crash.explore(1, 5, |selection, image| {
            let story = format!("cut at {}: {}", crash.time(), crash.describe(selection));
            if story.contains("rename compact.tmp") {
                undone += 1;
                look(image, &history, 700, &story);
            }
        });
    }
    assert!(points >= 4 && undone > 0, "{points} {undone}");
}

#[test]
fn what_a_finished_compaction_says_is_on_the_medium_also_where_one_before_it_died_in_the_swap() {
    let (machine, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 150, 20);
    seal(&prices);
    put(&prices, &mut history, 1, Some(8));
    prices.flush().unwrap();
    let begun = machine.events();
    // Only one segment: no other file shows that it was replaced.
    let done = compact(&prices).unwrap();
    assert_eq!((done.segments, done.segments_removed), (1, 0));
    std::mem::forget((prices, store));
    let journal = machine.journal();
    for time in begun..=journal.len() {
        let survivor = journal.killed_at(time);
        let storage: Arc<dyn Storage> = Arc::new(survivor.clone());
        let store = open(&storage, Path::new(STORE)).unwrap();
        compact(&topic(&store)).unwrap();
        let story = format!("death at {time}");
        let there = found(&topic(&store), &history, &story);
        let wanted = last_of(&history, 150);
        assert!(there.iter().all(|at| wanted.contains(at)), "{story}: not finished");
        let crash = survivor.journal().crash_at(survivor.events());
        let storage: Arc<dyn Storage> = Arc::new(crash.image(&crash.nothing()));
        let store = open(&storage, Path::new(STORE)).unwrap();
        assert_eq!(found(&topic(&store), &history, &story), there, "{story}");
    }
}
