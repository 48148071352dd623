//! Subscriptions: a member reads named topics, or all topics whose names match a pattern.
//!
//! Owns the pattern, and how topics join and leave a member that has one. Invariants: the members that
//! live at the same time have equal subscriptions ([`Subscription::checksum`]). A topic that appears
//! while a member lives is read from its first record. A topic that was deleted leaves the member; a
//! deleted *named* topic is an error instead. See `docs/PROTOCOL.md`, "Consumers".

use std::time::{Duration, Instant};

use super::file::{Attached, attach, find};
use super::handle::{AssignedPartition, GroupMember, begin, expect_room, lanes_of, wanted_of};
use super::{log_cursors, members};
use crate::error::{Error, Result};
use crate::format::checksum::crc32;
use crate::store::{Store, TopicOptions};
use crate::topic::{Start, Topic, Visibility};

/// How often a member looks for topics that match its pattern.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A pattern of topic names: `*` stands for any characters, `?` for one; all others stand for
/// themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPattern(String);

impl TopicPattern {
    /// Check a pattern.
    ///
    /// # Errors
    /// `InvalidArgument` for a pattern that is empty, or has a character that no topic name has.
    pub fn new(pattern: &str) -> Result<Self> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "._-*?".contains(c);
        if pattern.is_empty() || !pattern.chars().all(is_known) {
            let what = format!(
                "{pattern:?} is no pattern of topic names: it has letters, digits, \".\", \"_\" and \"-\", \
                 * for any characters and ? for one, and it is no regular expression"
            );
            return Err(Error::InvalidArgument { what });
        }
        Ok(Self(pattern.to_owned()))
    }

    /// Get its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a name that matches as a whole.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // The last star, and the first character that comes after what it stands for.
        let mut star = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(c) if *c == b'?' || *c == name[n] => (p, n) = (p + 1, n + 1),
                _ => {
                    let Some((at, end)) = star else { return false };
                    star = Some((at, end + 1));
                    (p, n) = (at + 1, end + 1);
                }
            }
        }
        pattern[p..].iter().all(|c| *c == b'*')
    }

    /// Open the topics of a store that match, except those that are known.
    fn topics(
        &self,
        store: &Store,
        visibility: Visibility,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Vec<Topic>> {
        let options = TopicOptions { must_exist: true, ..TopicOptions::default() };
        let mut found = Vec::new();
        for name in store.listed_topics()? {
            if !self.matches(&name) || is_known(&name) {
                continue;
            }
            match Topic::open(store, &name, &options) {
                Ok(topic) => found.push(topic.with_visibility(visibility)),
                // It was deleted since.
                Err(Error::UnknownTopic { .. } | Error::TopicDeleted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// A member reads named topics, or those of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Subscription {
    Topics,
    Pattern {
        pattern: TopicPattern,
        visibility: Visibility,
        /// When it last looked for topics.
        looked: Option<Instant>,
    },
}

impl Subscription {
    /// Compute what is equal for members with equal subscriptions, and for no others. The lower half
    /// counts named topics, and is 0 for a pattern.
    pub(super) fn checksum(&self, topics: &[Topic]) -> u64 {
        match self {
            Self::Topics => {
                let all = topics.iter().flat_map(|topic| topic.settings().generation);
                (u64::from(crc32(&all.collect::<Vec<u8>>())) << 32) | topics.len() as u64
            }
            Self::Pattern { pattern, .. } => u64::from(crc32(pattern.0.as_bytes())) << 32,
        }
    }

    /// Get how long until it is to look for topics; `None` where it has no pattern.
    pub(super) fn due(&self) -> Option<Duration> {
        let Self::Pattern { looked, .. } = self else { return None };
        Some(looked.map_or(Duration::ZERO, |looked| LOOK_EVERY.saturating_sub(looked.elapsed())))
    }
}

impl GroupMember {
    /// Join a group, and read all topics whose names match a pattern. Topics that are created while
    /// the member lives join within about a second, and are read from their first record. Topics that
    /// are deleted leave it. `home` is as for [`GroupMember::open_in`].
    ///
    /// # Errors
    /// As [`GroupMember::open`] and [`GroupMember::open_in`]. A pattern that matches no topic is none.
    pub fn open_matching(
        store: &Store,
        group: &str,
        pattern: &TopicPattern,
        (visibility, start): (Visibility, Start),
        home: Option<&Topic>,
    ) -> Result<Self> {
        loop {
            let topics = pattern.topics(store, visibility, |_| false)?;
            let (pattern, looked) = (pattern.clone(), None);
            let subscription = Subscription::Pattern { pattern, visibility, looked };
            match Self::join(store, group, subscription, topics.clone(), start, home) {
                Err(Error::TopicDeleted { .. }) if topics.iter().any(Topic::is_deleted) => {}
                joined => return joined,
            }
        }
    }

    /// Get its pattern; `None` where its topics were named.
    pub fn pattern(&self) -> Option<&TopicPattern> {
        match &self.subscription {
            Subscription::Topics => None,
            Subscription::Pattern { pattern, .. } => Some(pattern),
        }
    }

    /// Look for topics at the next [`GroupMember::refresh`].
    pub fn look_for_topics(&mut self) {
        if let Subscription::Pattern { looked, .. } = &mut self.subscription {
            *looked = None;
        }
    }

    /// True for the error that a topic was deleted, in a member with a pattern: the next refresh drops
    /// the topic.
    pub fn is_gone(&mut self, error: &Error) -> bool {
        let is_gone = matches!(error, Error::TopicDeleted { .. });
        if is_gone {
            self.look_for_topics();
        }
        is_gone && self.pattern().is_some()
    }

    /// Drop the topics that were deleted, and add those that match by now.
    pub(super) fn find_topics(&mut self) -> Result<()> {
        let Subscription::Pattern { pattern, visibility, .. } = &self.subscription else {
            return Ok(());
        };
        let (pattern, visibility) = (pattern.clone(), *visibility);
        self.leave_deleted()?;
        let is_known = |name: &str| {
            let same = |topic: &Topic| topic.name() == name && !topic.is_deleted();
            self.topics.iter().any(same)
        };
        let found = pattern.topics(&self.file.store, visibility, is_known)?;
        if !found.is_empty() {
            match self.add(found.clone()) {
                // One was deleted meanwhile: the next look finds the others.
                Err(Error::TopicDeleted { .. }) if found.iter().any(Topic::is_deleted) => {
                    return Ok(());
                }
                added => added?,
            }
        }
        if let Subscription::Pattern { looked, .. } = &mut self.subscription {
            *looked = Some(Instant::now());
        }
        Ok(())
    }

    /// Release the partitions of deleted topics.
    fn leave_deleted(&mut self) -> Result<()> {
        for lane in &mut self.lanes {
            if !lane.gone && self.topics[lane.topic].is_deleted() {
                // The records are deleted: nothing is left to commit.
                (lane.gone, lane.closing) = (true, true);
                if let Some(held) = &mut lane.held {
                    (held.next, held.rewound) = (Ok(held.cursor.committed.offset), false);
                    self.changed = true;
                }
            }
        }
        self.let_go()?;
        let is_left = |lane: &AssignedPartition| !lane.gone || lane.held.is_some();
        if self.lanes.iter().all(is_left) {
            return Ok(());
        }
        self.lanes.retain(is_left);
        for topic in (0..self.topics.len()).rev() {
            if self.lanes.iter().all(|lane| lane.topic != topic) {
                self.topics.remove(topic);
                let later = self.lanes.iter_mut().filter(|lane| lane.topic > topic);
                later.for_each(|lane| lane.topic -= 1);
            }
        }
        self.changed = true;
        Ok(())
    }

    /// Read further topics, which the group never read, from their first records.
    fn add(&mut self, found: Vec<Topic>) -> Result<()> {
        let store = self.file.store.clone();
        let (mut lanes, wanted) = (lanes_of(&found), wanted_of(&found));
        let begin = begin(&found, &lanes, Start::Earliest);
        let (who, me, home) = (&self.who, self.me, self.home.as_ref());
        let Attached { file, places, .. } = store.under_claim(|| {
            if let Some(home) = home {
                expect_room(home, &self.group, &wanted)?;
            }
            let found = find(&store, &self.group, home)?;
            let attached = attach(&store, (who, me), found, &wanted, begin)?;
            if let Some(home) = home.filter(|_| !attached.gone.is_empty()) {
                log_cursors::forget(home, &self.group, Some(&attached.gone))?;
            }
            members::note_read(&attached.file, &attached.places, false)?;
            attached.file.tell_under_claim()?;
            Ok(attached)
        })?;
        for (lane, entry) in lanes.iter_mut().zip(places) {
            (lane.entry, lane.topic) = (entry, lane.topic + self.topics.len());
        }
        self.lanes.append(&mut lanes);
        self.topics.extend(found);
        (self.file, self.changed) = (file, true);
        self.rouse();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names_and_no_regular_expression_is_one() {
        for (pattern, matched, others) in [
            (
                "orders.*",
                &["orders.", "orders.eu", "orders.eu.x"][..],
                &["orders", "xorders.eu"][..],
            ),
            ("*", &["a", "a.b"], &[]),
            ("?", &["a"], &["", "ab"]),
            ("a*b*c", &["abc", "aabbc", "a.b.b.c"], &["ab", "abcd", "acb"]),
            ("*.eu", &["a.eu", "b.eu.eu"], &["eu", "a.eu.x"]),
            ("orders", &["orders"], &["orders2"]),
        ] {
            let pattern = TopicPattern::new(pattern).unwrap();
            for name in matched {
                assert!(pattern.matches(name), "{pattern:?} {name:?}");
            }
            for name in others {
                assert!(!pattern.matches(name), "{pattern:?} {name:?}");
            }
        }
        for refused in ["", "^orders", "orders-(a|b)", "a/b", "ö*"] {
            let error = TopicPattern::new(refused).unwrap_err();
            assert!(error.to_string().contains("no regular expression"), "{error}");
        }
    }
}
