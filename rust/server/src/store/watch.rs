//! The watcher: one thread that waits for news, on behalf of all followers.
//!
//! ```text
//! follower --subscribe--> entry of the partition <--bump-- thread: Watch::wait over the partitions with followers
//! ```
//!
//! A partition is watched while somebody follows it, and no longer. Each has a channel of its own, so news of one wakes
//! its own followers alone. Invariant: a follower that subscribes, then reads to the end, then waits misses nothing.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use falaj::{Store, Topic, Visibility, Watch, Watched};
use tokio::sync::watch;

use super::enter;

/// Longest sleep, after which the thread looks whether it is still wanted.
const BOUND: Duration = Duration::from_secs(60);

/// A partition, and what of it counts as news.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    partition: u32,
    visibility: Visibility,
}

/// A partition with followers.
#[derive(Debug)]
struct Entry {
    watched: Watched,
    bumps: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Shared {
    added: Mutex<Vec<(Key, Entry)>>,
    followed: Mutex<HashMap<Key, (Topic, watch::Receiver<()>)>>,
    ended: AtomicBool,
}

/// The thread, and the partitions that it watches.
#[derive(Debug)]
pub struct Watcher {
    watch: Watch,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A follower's end of a channel.
#[derive(Clone, Debug)]
pub struct News(watch::Receiver<()>);

impl News {
    /// Wait for news since the last call. Whether there is something to read, only reading shows.
    pub async fn wait(&mut self) {
        // The watcher ends after all followers.
        let _ = self.0.changed().await;
    }
}

/// Wait for news of any of them.
pub async fn any<'a>(all: impl Iterator<Item = &'a mut News>) {
    let mut waits: Vec<_> = all.map(|news| Box::pin(news.wait())).collect();
    poll_fn(|cx| match waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

impl Watcher {
    /// Start the thread. It sleeps until somebody follows.
    pub fn start(store: &Store) -> Self {
        let (watch, shared) = (store.watch(), Arc::<Shared>::default());
        let (waits, served) = (watch.clone(), Arc::clone(&shared));
        let spawned = std::thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || serve(&waits, &served));
        let thread = spawned
            .inspect_err(|error| tracing::error!(%error, "no thread that waits for news"))
            .ok();
        Self { watch, shared, thread: Mutex::new(thread) }
    }

    /// Follow a partition: the handle is of that partition, and its visibility counts.
    pub fn subscribe(&self, topic: &Topic, partition: u32) -> News {
        let key = Key { topic: topic.name().to_owned(), partition, visibility: topic.visibility() };
        let mut followed = enter(&self.shared.followed);
        // A topic that was made again under its name is another one.
        if let Some((_, receiver)) = followed.get(&key).filter(|(topic, _)| !topic.is_deleted()) {
            return News(receiver.clone());
        }
        let (bumps, receiver) = watch::channel(());
        followed.insert(key.clone(), (topic.clone(), receiver.clone()));
        enter(&self.shared.added).push((key, Entry { watched: topic.watched(), bumps }));
        drop(followed);
        self.wake();
        News(receiver)
    }

    fn wake(&self) {
        self.watch.wake();
        if let Some(thread) = enter(&self.thread).as_ref() {
            thread.thread().unpark();
        }
    }

    /// How many partitions are watched.
    pub fn partitions(&self) -> usize {
        enter(&self.shared.followed).len()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = enter(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

/// Wait and bump until the server ends.
fn serve(watch: &Watch, shared: &Shared) {
    let mut names: Vec<Key> = Vec::new();
    let mut bumps: Vec<watch::Sender<()>> = Vec::new();
    let mut watched: Vec<Watched> = Vec::new();
    while !shared.ended.load(Ordering::Acquire) {
        for (key, entry) in enter(&shared.added).drain(..) {
            names.push(key);
            bumps.push(entry.bumps);
            watched.push(entry.watched);
        }
        if watched.is_empty() {
            std::thread::park_timeout(BOUND);
            continue;
        }
        for i in watch.wait(&mut watched, BOUND) {
            bumps[i].send_replace(());
        }
        forget(shared, &mut names, &mut bumps, &mut watched);
    }
}

/// Forget the partitions that have no followers any more: the map's own receiver is the last one.
fn forget(
    shared: &Shared,
    names: &mut Vec<Key>,
    bumps: &mut Vec<watch::Sender<()>>,
    watched: &mut Vec<Watched>,
) {
    let mut followed = enter(&shared.followed);
    for i in (0..names.len()).rev() {
        if bumps[i].receiver_count() <= 1 {
            let own = bumps[i].subscribe();
            if followed.get(&names[i]).is_some_and(|(_, receiver)| receiver.same_channel(&own)) {
                followed.remove(&names[i]);
            }
            names.swap_remove(i);
            bumps.swap_remove(i);
            watched.swap_remove(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_append_reaches_the_followers_of_its_partition_and_a_partition_without_followers_is_forgotten()
     {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (a, b) = (store.topic("a").unwrap(), store.topic("b").unwrap());
        let watcher = Watcher::start(&store);
        let (mut of_a, mut again, mut of_b) =
            (watcher.subscribe(&a, 0), watcher.subscribe(&a, 0), watcher.subscribe(&b, 0));
        assert_eq!(watcher.partitions(), 2);
        for _ in 0..100 {
            a.append(b"x").unwrap();
            of_a.wait().await;
            again.wait().await;
        }
        let nothing = tokio::time::timeout(Duration::from_millis(50), of_b.wait()).await;
        assert!(nothing.is_err(), "b has no news");
        b.append(b"x").unwrap();
        of_b.wait().await;
        drop((of_a, again));
        // Forgotten at the next turn, which these appends bring.
        while watcher.partitions() > 1 {
            b.append(b"x").unwrap();
            of_b.wait().await;
        }
        let mut of_a = watcher.subscribe(&a, 0);
        a.append(b"x").unwrap();
        of_a.wait().await;
    }
}
