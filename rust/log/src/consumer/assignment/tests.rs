//! The rule, alone and with many members that see all at different moments.

use super::*;

fn rows(asks: &[u64]) -> Vec<Row> {
    let row = |(row, ask): (usize, &u64)| Row { word: 10 + row as u64, row: row as u64, ask: *ask };
    asks.iter().enumerate().map(row).collect()
}

fn plan(me: u64, asks: &[u64], owners: &[u64]) -> (usize, usize) {
    let plan = AssignmentPlan::of(me, &rows(asks), owners).unwrap();
    (plan.lacks, plan.gives)
}

#[test]
fn shares_differ_by_one_at_most_and_who_has_the_larger_one_keeps_it() {
    assert_eq!(AssignmentPlan::of(9, &rows(&[0]), &[10]), None);
    // One member has all; it gives what is asked for and no more.
    assert_eq!(plan(10, &[0, 0, 0], &[10; 6]), (0, 0));
    assert_eq!(plan(10, &[0, 1, 0], &[10; 6]), (0, 2));
    assert_eq!(plan(11, &[0, 1, 0], &[10; 6]), (2, 0));
    // Free partitions are not released a second time.
    assert_eq!(plan(10, &[0, 1, 1], &[10, 10, 10, 10, 0, 0]), (0, 2));
    // With five partitions, two members have one more; they keep it.
    assert_eq!(plan(11, &[0, 0, 1], &[10, 11, 11, 12, 12]), (0, 0));
    assert_eq!(plan(10, &[0, 0, 1], &[10, 11, 11, 12, 12]), (0, 0));
    // Three members have one more where two should: the last one releases it, as all three see.
    assert_eq!(plan(10, &[0, 0, 0, 1], &[10, 10, 11, 11, 12, 12]), (0, 0));
    assert_eq!(plan(11, &[0, 0, 0, 1], &[10, 10, 11, 11, 12, 12]), (0, 0));
    assert_eq!(plan(12, &[0, 0, 0, 1], &[10, 10, 11, 11, 12, 12]), (0, 1));
    // More members than partitions: a member that is there comes before one that is not.
    assert_eq!(plan(12, &[0, 0, 0], &[10, 10]), (1, 0));
    assert_eq!(plan(10, &[0, 0, 1], &[10, 10]), (0, 1));
    assert_eq!(plan(11, &[0, 0, 1], &[10, 12]), (0, 0));
}

#[test]
fn a_plan_lists_the_other_members_that_lack_partitions_and_none_that_has_enough() {
    let members = rows(&[0, 2, 1, 3]);
    // 10 has too much, 11 and 13 lack some, 12 has its share.
    let owners = [10, 10, 10, 10, 10, 12, 12, 0];
    let lacking = |me| AssignmentPlan::of(me, &members, &owners).unwrap().lacking;
    assert_eq!(lacking(10), [members[1], members[3]]);
    assert_eq!(lacking(11), [members[3]]);
    assert_eq!(lacking(12), [members[1], members[3]]);
}

#[test]
fn what_is_free_waits_for_those_who_lack_it_twice_as_long_each_time_that_they_ask() {
    let (mut sharing, start) = (Sharing::default(), Instant::now());
    let at = |ms: u64| start + Duration::from_millis(ms);
    let lacking = |ask: u64| AssignmentPlan { lacking: rows(&[ask]), ..AssignmentPlan::default() };
    assert!(!sharing.loses_patience(&lacking(0), 1, at(0)));
    assert!(!sharing.loses_patience(&lacking(0), 1, at(9)));
    assert!(sharing.loses_patience(&lacking(0), 1, at(10)));
    assert!(!sharing.loses_patience(&lacking(3), 1, at(10)));
    assert!(!sharing.loses_patience(&lacking(3), 0, at(50)), "it was taken");
    assert!(!sharing.loses_patience(&lacking(3), 1, at(60)));
    assert!(!sharing.loses_patience(&lacking(3), 1, at(139)));
    assert!(sharing.loses_patience(&lacking(3), 1, at(140)));

    let mut asking = Sharing::default();
    assert_eq!(
        [asking.says(true, 0), asking.says(true, 1), asking.says(true, 0)],
        [Some(1), None, Some(2)]
    );
    assert_eq!(
        [asking.says(false, 2), asking.says(false, 0), asking.says(true, 0)],
        [Some(0), None, Some(1)]
    );
}

/// A member that looks in two steps: what it sees, and, later, what it does about it.
#[derive(Debug)]
struct Member {
    word: u64,
    sharing: Sharing,
    /// In the order in which it took them.
    mine: Vec<usize>,
    saw: Option<(Vec<Row>, Vec<u64>)>,
    /// It does not look until then.
    busy: u64,
    /// How long it is busy after each look.
    pace: u64,
}

/// All of them, and the words that they share.
struct World {
    members: Vec<Member>,
    asks: Vec<u64>,
    owners: Vec<u64>,
    start: Instant,
    ms: u64,
}

impl World {
    fn rows(&self) -> Vec<Row> {
        let row = |member: &Member| {
            let row = member.word;
            Row { word: row, row, ask: self.asks[row as usize] }
        };
        let mut rows: Vec<_> = self.members.iter().map(row).collect();
        rows.sort_unstable();
        rows
    }

    fn joins(&mut self, pace: u64) {
        let (word, sharing) = (self.asks.len() as u64, Sharing::default());
        self.asks.push(0);
        let mine = Vec::new();
        self.members.push(Member { word, sharing, mine, saw: None, busy: 0, pace });
    }

    fn leaves(&mut self, number: usize) {
        let gone = self.members.remove(number).word;
        self.owners.iter_mut().filter(|owner| **owner == gone).for_each(|owner| *owner = 0);
    }

    fn takes(&mut self, number: usize, partition: usize) -> bool {
        let is_free = self.owners[partition] == 0;
        if is_free {
            self.owners[partition] = self.members[number].word;
            self.members[number].mine.push(partition);
        }
        is_free
    }

    /// Take a member's next step; it does not know what others did since it looked.
    fn step(&mut self, number: usize) {
        if self.members[number].busy > self.ms {
            return;
        }
        let Some((rows, owners)) = self.members[number].saw.take() else {
            self.members[number].saw = Some((self.rows(), self.owners.clone()));
            return;
        };
        let (now, me) = (self.start + Duration::from_millis(self.ms), self.members[number].word);
        let plan = AssignmentPlan::of(me, &rows, &owners).unwrap();
        let free: Vec<_> = (0..owners.len()).filter(|part| owners[*part] == 0).collect();
        let mut taken = 0;
        for part in &free {
            taken += usize::from(taken < plan.lacks && self.takes(number, *part));
        }
        let left = free.iter().filter(|part| self.owners[**part] == 0).count();
        let left = if taken < plan.lacks { 0 } else { left };
        if self.members[number].sharing.loses_patience(&plan, left, now) {
            for row in &plan.lacking {
                let ask = &mut self.asks[row.row as usize];
                *ask = if *ask == row.ask { 0 } else { *ask };
            }
            for part in &free {
                self.takes(number, *part);
            }
        }
        let says = self.members[number].sharing.says(taken < plan.lacks, self.asks[me as usize]);
        self.asks[me as usize] = says.unwrap_or(self.asks[me as usize]);
        for _ in 0..plan.gives {
            let last = self.members[number].mine.pop().unwrap();
            assert_eq!(self.owners[last], me, "no member takes what a living one has");
            self.owners[last] = 0;
        }
        self.members[number].busy = self.ms + self.members[number].pace;
    }

    fn has(&self, number: usize) -> usize {
        let me = self.members[number].word;
        self.owners.iter().filter(|owner| **owner == me).count()
    }

    fn is_fair(&self) -> bool {
        let has: Vec<_> = (0..self.members.len()).map(|number| self.has(number)).collect();
        let spread = has.iter().max().unwrap() - has.iter().min().unwrap();
        has.iter().sum::<usize>() == self.owners.len() && spread <= 1
    }
}

/// Numbers that look random and are the same each time.
fn random(state: &mut u64) -> impl FnMut(u64) -> u64 + '_ {
    move |below| {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }
}

#[test]
fn members_that_see_all_at_different_moments_come_to_fair_shares_and_then_nothing_moves() {
    for seed in 0..60 {
        let mut state = seed;
        let mut random = random(&mut state);
        let owners = vec![0; 1 + random(12) as usize];
        let start = Instant::now();
        let mut world = World { members: Vec::new(), asks: vec![0], owners, start, ms: 0 };
        // Word 0 is no member's.
        world.joins(0);
        for _ in 0..2000 {
            world.ms += random(2);
            match random(100) {
                0 if world.members.len() < 8 => world.joins([0, 0, 1, 30, 400][random(5) as usize]),
                1 if world.members.len() > 1 => {
                    world.leaves(random(world.members.len() as u64) as usize);
                }
                _ => world.step(random(world.members.len() as u64) as usize),
            }
        }
        // No member joins or leaves any more; they look as seldom as they do, in any order.
        let mut fair_since = 0;
        for _ in 0..200_000 {
            world.ms += random(2);
            world.step(random(world.members.len() as u64) as usize);
            if !world.is_fair() {
                fair_since = world.ms;
            }
            if world.ms - fair_since > 2000 {
                break;
            }
        }
        assert!(world.is_fair() && world.ms - fair_since > 2000, "seed {seed}: {:?}", world.owners);
        let before = world.owners.clone();
        for _ in 0..2000 {
            world.ms += 1;
            world.step(random(world.members.len() as u64) as usize);
        }
        assert_eq!(world.owners, before, "seed {seed}: it is fair, and something moved");
    }
}

#[test]
fn when_one_of_many_goes_only_what_it_had_moves() {
    for seed in 0..100 {
        let mut state = seed;
        let mut random = random(&mut state);
        let (members, partitions) = (2 + random(6) as usize, 1 + random(20) as usize);
        let start = Instant::now();
        let mut world =
            World { members: Vec::new(), asks: vec![0], owners: vec![0; partitions], start, ms: 0 };
        (0..members).for_each(|_| world.joins(0));
        // Fair, and all at rest.
        for part in 0..partitions {
            world.takes(part % members, part);
        }
        let gone = random(members as u64) as usize;
        world.leaves(gone);
        let before = world.owners.clone();
        for _ in 0..members * 400 {
            world.ms += random(2);
            world.step(random(world.members.len() as u64) as usize);
        }
        assert!(world.is_fair(), "seed {seed}");
        let mut stayed = (0..partitions).filter(|part| before[*part] != 0);
        assert!(stayed.all(|part| world.owners[part] == before[part]), "seed {seed}");
    }
}

#[test]
fn who_stops_for_ever_keeps_what_it_has_and_all_else_is_had_by_those_who_look() {
    for seed in 0..100 {
        let mut state = seed;
        let mut random = random(&mut state);
        let owners = vec![0; 1 + random(12) as usize];
        let start = Instant::now();
        let mut world = World { members: Vec::new(), asks: vec![0], owners, start, ms: 0 };
        (0..2 + random(6)).for_each(|_| world.joins(0));
        for _ in 0..random(200) {
            world.ms += random(2);
            world.step(random(world.members.len() as u64) as usize);
        }
        // Anywhere: between what it saw and what it does, with a wish or without.
        let looking = 1 + random(world.members.len() as u64 - 1) as usize;
        world.members[looking..].iter_mut().for_each(|member| member.busy = u64::MAX);
        world.joins(0);
        world.leaves(0);
        let stopped = looking - 1..world.members.len() - 1;
        let had: Vec<_> = stopped.clone().map(|number| world.has(number)).collect();
        for _ in 0..1000 {
            world.ms += random(2);
            world.step(random(world.members.len() as u64) as usize);
        }
        assert!(world.owners.iter().all(|owner| *owner != 0), "seed {seed}: {:?}", world.owners);
        let has: Vec<_> = stopped.map(|number| world.has(number)).collect();
        assert_eq!(has, had, "seed {seed}");
    }
}
