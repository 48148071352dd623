//! The clock of expiring producers, and which of them are idle.

use super::*;
use crate::format::state::TopicState;

const HOUR: i64 = LONGEST_STEP_US;
const BEGIN: i64 = 1_700_000_000_000_000;

fn state() -> LogState {
    let mut state = LogState::default();
    (0..4).for_each(|number| assert!(state.set_topic(number, TopicState::empty([1; 16], number))));
    state
}

fn append(state: &mut LogState, topic: u32, id: u64, hours: i64) {
    append_at(state, topic, id, hours, 7);
}

fn append_at(state: &mut LogState, topic: u32, id: u64, hours: i64, first: u64) {
    let flags = producer_flag::EXPIRING;
    let of = Producer { id, sequence: 1, span: 1, flags };
    state.note_producer(topic, of, first, BEGIN + hours * HOUR);
}

fn ids(idle: &[IdleProducer]) -> Vec<u64> {
    idle.iter().map(|of| of.id).collect()
}

#[test]
fn a_producer_is_idle_a_day_after_its_last_append_to_any_partition() {
    let mut state = state();
    append(&mut state, 0, 7, 0);
    append(&mut state, 1, 8, 0);
    append(&mut state, 2, 7, 1);
    for hour in 2..=24 {
        assert_eq!(ids(&state.idle_producers(0, &[])), [0; 0], "at hour {hour}");
        append(&mut state, 0, 1, hour);
    }
    assert_eq!(ids(&state.idle_producers(0, &[])), [8]);
    append(&mut state, 0, 1, 25);
    assert_eq!(ids(&state.idle_producers(0, &[])), [8, 7]);
    append(&mut state, 1, 8, 25);
    assert_eq!(ids(&state.idle_producers(0, &[])), [7]);
}

#[test]
fn a_clock_that_jumps_makes_no_producer_idle_in_either_direction() {
    for jump in [24 * 365, -24 * 365] {
        let mut state = state();
        append(&mut state, 0, 7, 0);
        append(&mut state, 0, 1, jump);
        assert_eq!(ids(&state.idle_producers(0, &[])), [0; 0]);
        let counted = jump.clamp(0, 1);
        for hour in 1..24 - counted {
            append(&mut state, 0, 1, jump + hour);
            assert_eq!(ids(&state.idle_producers(0, &[])), [0; 0], "{jump}, at hour {hour}");
        }
        append(&mut state, 0, 1, jump + 24 - counted);
        assert_eq!(ids(&state.idle_producers(0, &[])), [7], "{jump}");
    }
}

#[test]
fn those_used_longest_ago_give_their_place_first_and_named_ones_never() {
    let mut state = state();
    let named = Producer { id: 9, sequence: 1, span: 1, flags: 0 };
    state.note_producer(0, named, 0, BEGIN);
    append(&mut state, 0, 5, 0);
    append(&mut state, 1, 3, 1);
    append(&mut state, 2, 3, 1);
    append(&mut state, 0, 4, 2);
    let in_use = Producer { id: 5, ..named };
    assert_eq!(ids(&state.idle_producers(1, &[])), [5]);
    assert_eq!(ids(&state.idle_producers(2, &[])), [5, 3]);
    assert_eq!(ids(&state.idle_producers(3, &[])), [5, 3], "its two partitions count");
    assert_eq!(ids(&state.idle_producers(99, &[])), [5, 3, 4]);
    assert_eq!(ids(&state.idle_producers(1, &[in_use])), [3]);
    let chosen = state.idle_producers(2, &[]);
    assert!(state.are_idle(&chosen));
    append(&mut state, 3, 3, 3);
    assert!(!state.are_idle(&chosen), "it was used meanwhile, in another partition");
    state.apply_body(&encode_idle(&state, &chosen), |_, _| ()).unwrap();
    assert_eq!(ids(&state.idle_producers(99, &[])), [4]);
    assert!(state.producer(0, 9).is_some());
}

#[test]
fn of_producers_that_were_used_at_the_same_time_the_first_offset_decides() {
    let mut state = state();
    append_at(&mut state, 0, 5, 0, 9);
    append_at(&mut state, 0, 8, 0, 8);
    let chosen = state.idle_producers(2, &[]);
    assert_eq!((ids(&chosen), state.are_idle(&chosen)), (vec![8, 5], true));
    append_at(&mut state, 0, 8, 0, 10);
    assert!(!state.are_idle(&chosen), "it was used again at the same time");
    assert_eq!(ids(&state.idle_producers(2, &[])), [5, 8]);
}

#[test]
fn snapshots_say_when_expiring_producers_were_used_and_a_walk_says_the_same() {
    let mut walked = state();
    append(&mut walked, 0, 7, 0);
    let prepared = walked.clone();
    let mut told = LogState::default();
    told.apply_body(&prepared.encode_since(&LogState::default()), |_, _| ()).unwrap();
    assert_eq!(told, prepared);
    // The clock goes back before the segment is named.
    append(&mut walked, 0, 8, -48);
    told.apply_body(&walked.encode_since(&prepared), |_, _| ()).unwrap();
    assert_eq!(told, walked);
    for hour in -47..-22 {
        append(&mut walked, 1, 8, hour);
        append(&mut told, 1, 8, hour);
    }
    let (a, b) = (walked.idle_producers(0, &[]), told.idle_producers(0, &[]));
    assert_eq!((ids(&a), &a), (vec![7], &b));
    for state in [&mut walked, &mut told] {
        state.apply_body(&encode_idle(state, &a), |_, _| ()).unwrap();
    }
    assert_eq!((told.last_use_us(), &told), (BEGIN - 23 * HOUR, &walked));
}
