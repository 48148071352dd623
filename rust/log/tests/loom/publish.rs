//! A block's bytes and the word that makes them visible.

use std::sync::Arc;

use falaj::internals::publish;
use falaj::internals::sync::{Ordering, SharedWord};

use crate::every;
use crate::word::ModelWord;
use crate::world::{Bytes, thread};

fn read_what_is_published(publish: fn(&ModelWord, u64)) {
    every(move || {
        let shared = Arc::new((ModelWord::new(0), Bytes::new()));
        let writer = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            writer.1.write(7);
            publish(&writer.0, 1);
        });
        if publish::observe(&shared.0) != 0 {
            assert_eq!(shared.1.read(), 7);
        }
        writer.join().unwrap();
    });
}

#[test]
fn who_sees_the_commit_word_sees_the_bytes() {
    read_what_is_published(|word, value| publish::publish(word, value));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_relaxed_commit_word_shows_bytes_that_are_not_there() {
    read_what_is_published(|word, value| word.store(value, Ordering::Relaxed));
}

fn read_a_group(first_word_last: bool) {
    every(move || {
        let words = [ModelWord::new(0), ModelWord::new(0)];
        let group = Arc::new((words, [Bytes::new(), Bytes::new()]));
        let writer = Arc::clone(&group);
        let writer = thread::spawn(move || {
            let (words, bytes) = &*writer;
            bytes[0].write(1);
            bytes[1].write(2);
            let order = if first_word_last { [1, 0] } else { [0, 1] };
            for block in order {
                publish::publish(&words[block], 9);
            }
        });
        let (words, bytes) = &*group;
        if publish::observe(&words[0]) != 0 {
            assert_eq!(publish::observe(&words[1]), 9, "half a group");
            assert_eq!((bytes[0].read(), bytes[1].read()), (1, 2));
        }
        writer.join().unwrap();
    });
}

#[test]
fn who_sees_the_first_word_of_a_group_sees_the_whole_group() {
    read_a_group(true);
}

#[test]
#[should_panic(expected = "half a group")]
fn broken_group_published_in_order_is_seen_in_half() {
    read_a_group(false);
}
