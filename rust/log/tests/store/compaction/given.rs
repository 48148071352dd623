//! Compaction with a list of keys' last records that another program computed.

use std::collections::BTreeMap;

use falaj::internals::topic::Last;

use super::*;

fn told(history: &History, end: u64) -> Last {
    let mut last = HashMap::new();
    let mut times = HashMap::new();
    for (at, made) in (0..end).zip(history).filter(|(_, made)| made.key.is_some()) {
        last.insert(made.key, at);
        *times.entry(made.key).or_insert(0) += 1;
    }
    let mut offsets: Vec<_> = last.values().copied().collect();
    offsets.sort_unstable();
    let alone = |at: &&u64| times[&history[**at as usize].key] == 1;
    let alone = offsets.iter().filter(alone).copied().collect();
    Last { end, offsets, alone }
}

#[test]
fn what_others_found_out_leaves_what_would_be_found_out() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 3000, 100);
    seal(&prices);
    let how = |end| CompactOptions::default().last(BTreeMap::from([(0, told(&history, end))]));
    // Records that it did not look at stay.
    prices.compact(&how(1000), &mut quietly).unwrap();
    assert_eq!(found(&prices, &history, "1000"), last_of(&history, 1000));
    prices.compact(&how(3000), &mut quietly).unwrap();
    assert_eq!(found(&prices, &history, "3000"), last_of(&history, 3000));
    let nothing = CompactOptions::default().last(BTreeMap::new());
    assert_eq!(prices.compact(&nothing, &mut quietly).unwrap().removed, 0);
}

#[test]
fn what_cannot_be_true_is_refused_and_nothing_goes() {
    let (_, storage) = machine();
    let store = open(&storage, Path::new(STORE)).unwrap();
    let (prices, mut history) = (topic(&store), History::new());
    fill(&prices, &mut history, 1000, 100);
    seal(&prices);
    let last = told(&history, 1000);
    let mut falls = last.clone();
    falls.offsets.reverse();
    for (partition, wrong) in [
        (0, falls),
        (0, Last { end: 1001, ..last.clone() }),
        (0, Last { end: 999, ..last.clone() }),
        (1, last),
    ] {
        let given = BTreeMap::from([(partition, wrong)]);
        let how = CompactOptions::default().last(given);
        let error = prices.compact(&how, &mut quietly).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    assert_eq!(found(&prices, &history, "").len(), 1000);
}
