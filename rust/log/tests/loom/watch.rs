//! One thread that waits for several logs on the store's bell.

use std::sync::Arc;

use falaj::internals::sync::{Ordering, SharedWord, Slept, fence};
use falaj::internals::wake::{self, FOLLOWERS, KEEPERS, WATCHERS};
use falaj::internals::{publish, wake::Ticket};

use crate::word::ModelWord;
use crate::world::{Bytes, thread};
use crate::{FOREVER, model};

struct One {
    commit: ModelWord,
    bytes: Bytes,
    counter: ModelWord,
    flag: ModelWord,
}

struct Store {
    logs: [One; 2],
    bell: ModelWord,
}

impl Store {
    fn new() -> Self {
        let one = || One {
            commit: ModelWord::new(0),
            bytes: Bytes::new(),
            counter: ModelWord::new(0),
            flag: ModelWord::new(0),
        };
        Self { logs: [one(), one()], bell: ModelWord::new(0) }
    }

    fn append(&self, log: usize) {
        let one = &self.logs[log];
        one.bytes.write(5);
        publish::publish(&one.commit, 1);
        if wake::is_awaited(&one.flag) {
            wake::notify(&one.counter, &one.flag, Some(&self.bell));
        }
    }

    fn has(&self, log: usize) -> bool {
        publish::observe(&self.logs[log].commit) != 0
    }
}

/// Leave a bit with each log that has no news yet; true if some has.
type Ask = fn(&Store, usize, u64) -> bool;

fn ask(store: &Store, log: usize, who: u64) -> bool {
    wake::register_waiter(&store.logs[log].flag, who);
    store.has(log)
}

fn ask_by_overwriting(store: &Store, log: usize, who: u64) -> bool {
    store.logs[log].flag.store(who, Ordering::Release);
    fence(Ordering::SeqCst);
    store.has(log)
}

fn ask_only_before(store: &Store, log: usize, who: u64) -> bool {
    let news = store.has(log);
    wake::register_waiter(&store.logs[log].flag, who);
    news
}

/// Wait on the bell until all of some logs had news.
fn watch(store: &Store, logs: &[usize], who: u64, ask: Ask) {
    let mut missing = logs.to_vec();
    loop {
        let ticket: Ticket = wake::observe(&store.bell);
        missing.retain(|log| {
            let news = ask(store, *log, who);
            if news {
                assert_eq!(store.logs[*log].bytes.read(), 5);
            }
            !news
        });
        if missing.is_empty() {
            return;
        }
        if wake::wait_for(&store.bell, who, ticket, FOREVER) == Slept::TimedOut {
            panic!("these sleeps have no bound");
        }
    }
}

fn follow(store: &Store, log: usize) {
    let one = &store.logs[log];
    loop {
        let ticket = wake::observe(&one.counter);
        if store.has(log) {
            return;
        }
        wake::park(&one.counter, &one.flag, wake::FOLLOWERS, ticket, FOREVER, || store.has(log));
    }
}

fn spawn(store: &Arc<Store>, work: impl FnOnce(&Store) + 'static) -> thread::JoinHandle<()> {
    let store = Arc::clone(store);
    thread::spawn(move || work(&store))
}

#[test]
fn who_watches_two_logs_misses_news_of_neither() {
    model(|| {
        let store = Arc::new(Store::new());
        let writers = [0, 1].map(|log| spawn(&store, move |store| store.append(log)));
        watch(&store, &[0, 1], WATCHERS, ask);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

#[test]
fn a_watcher_and_a_follower_of_a_log_are_both_woken() {
    model(|| {
        let store = Arc::new(Store::new());
        let follower = spawn(&store, |store| follow(store, 0));
        let writer = spawn(&store, |store| store.append(0));
        watch(&store, &[0], WATCHERS, ask);
        follower.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn a_watcher_and_a_keeper_of_a_log_are_both_woken() {
    model(|| {
        let store = Arc::new(Store::new());
        let keeper = spawn(&store, |store| watch(store, &[0], KEEPERS, ask));
        let writer = spawn(&store, |store| store.append(0));
        watch(&store, &[0], WATCHERS, ask);
        keeper.join().unwrap();
        writer.join().unwrap();
    });
}

/// As an asyncio task does: it leaves the bit itself, while another thread sleeps to wake it.
#[test]
fn word_left_by_one_thread_wakes_another_that_sleeps() {
    model(|| {
        let store = Arc::new(Store::new());
        let wanted = Arc::new(ModelWord::new(0));
        let task = spawn(&store, {
            let wanted = Arc::clone(&wanted);
            move |store| {
                wanted.store(1, Ordering::Release);
                if ask(store, 0, WATCHERS) {
                    wanted.store(2, Ordering::Release);
                    wake::wake_all(&store.bell); // no other thread is needed
                }
            }
        });
        let writer = spawn(&store, |store| store.append(0));
        loop {
            let ticket = wake::observe(&store.bell);
            match wanted.load(Ordering::Acquire) {
                2 => break,
                1 if ask(&store, 0, WATCHERS) => break,
                _ => {}
            }
            wake::wait_for(&store.bell, WATCHERS, ticket, FOREVER);
        }
        task.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_word_that_overwrites_others_leaves_one_of_them_asleep() {
    model(|| {
        let store = Arc::new(Store::new());
        let follower = spawn(&store, |store| follow(store, 0));
        let writer = spawn(&store, |store| store.append(0));
        watch(&store, &[0], WATCHERS, ask_by_overwriting);
        follower.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_watcher_that_does_not_look_again_sleeps_for_ever() {
    model(|| {
        let store = Arc::new(Store::new());
        let writer = spawn(&store, |store| store.append(0));
        watch(&store, &[0], WATCHERS, ask_only_before);
        writer.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_writer_that_rings_for_followers_only_leaves_a_watcher_asleep() {
    model(|| {
        let store = Arc::new(Store::new());
        let writer = spawn(&store, |store| {
            let one = &store.logs[0];
            one.bytes.write(5);
            publish::publish(&one.commit, 1);
            if wake::is_awaited(&one.flag) && one.flag.swap(0, Ordering::Acquire) & FOLLOWERS != 0 {
                wake::wake_all(&one.counter);
            }
        });
        watch(&store, &[0], WATCHERS, ask);
        writer.join().unwrap();
    });
}
