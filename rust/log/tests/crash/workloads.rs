//! All workloads of up to three operations, cut short by a power cut or a death at each event of the
//! last one. What comes before it was cut short as the end of a shorter workload.

use std::time::Instant;

use falaj::format::settings::WriteMode;

use crate::explore::{Effort, Explorer, Random};
use crate::world::{OPS, Op, World};

const SEED: u64 = 20_260_101;

struct Sum {
    workloads: u64,
    points: u64,
    random: Random,
}

/// Run a workload and cut its last operation short at each event.
fn cut_short(ops: &[Op], empty: &World, explorer: &mut Explorer, effort: Effort, sum: &mut Sum) {
    let mut world = empty.again();
    let (last, before) = ops.split_last().unwrap();
    before.iter().for_each(|op| world.run(*op));
    let start = world.storage.events();
    world.run(*last);
    let journal = world.storage.journal();
    sum.workloads += 1;
    for (time, crash) in journal.crashes().enumerate().skip(start + 1) {
        if !sum.random.chance(effort.chance) {
            continue;
        }
        sum.points += 1;
        let incarnation = world.incarnation();
        let groups = world.after_power_loss(time);
        let lost = explorer.power_loss(&crash, &world.truth, groups, incarnation, effort);
        let groups = world.after_death(time);
        let died =
            lost.and_then(|()| explorer.death(&journal, time, world.heir(), &world.truth, groups));
        if let Err(what) = died {
            panic!("{ops:?} in {:?}, seed {SEED}, at event {time}: {what}", world.mode);
        }
    }
}

fn workloads_of(len: usize) -> impl Iterator<Item = Vec<Op>> {
    let count = OPS.len().pow(len as u32);
    (0..count).map(move |n| {
        (0..len as u32).map(|place| OPS[n / OPS.len().pow(place) % OPS.len()]).collect()
    })
}

/// Crash points of all workloads of one, two and three operations, about.
const POINTS: [f64; 3] = [430.0, 2400.0, 30_000.0];

fn explore(mode: WriteMode, len: usize) {
    let start = Instant::now();
    // A third of the states for each length, half of those for each mode.
    let effort = Effort::of(budget() / 6.0 / POINTS[len - 1]);
    let empty = World::empty(mode);
    let mut explorer = Explorer::new(mode, SEED);
    let mut sum = Sum { workloads: 0, points: 0, random: Random::new(SEED) };
    for ops in workloads_of(len) {
        cut_short(&ops, &empty, &mut explorer, effort, &mut sum);
    }
    println!(
        "{mode:?}, {} workloads of {len} operations, {effort:?}: {} crash points, {} states, {} \
         after a second crash, {:.1} s",
        sum.workloads,
        sum.points,
        explorer.states,
        explorer.deeper,
        start.elapsed().as_secs_f64()
    );
}

/// How many states the workloads may visit, all together.
fn budget() -> f64 {
    let asked = std::env::var("FALAJ_CRASH_STATES").ok();
    asked.map_or(20_000.0, |asked| asked.parse().expect("FALAJ_CRASH_STATES is a number"))
}

#[test]
fn one_operation_in_mapped_memory_survives_every_crash() {
    explore(WriteMode::Mapped, 1);
}

#[test]
fn one_operation_written_through_survives_every_crash() {
    explore(WriteMode::Pwrite, 1);
}

#[test]
fn two_operations_in_mapped_memory_survive_every_crash() {
    explore(WriteMode::Mapped, 2);
}

#[test]
fn two_operations_written_through_survive_every_crash() {
    explore(WriteMode::Pwrite, 2);
}

#[test]
fn three_operations_in_mapped_memory_survive_every_crash() {
    explore(WriteMode::Mapped, 3);
}

#[test]
fn three_operations_written_through_survive_every_crash() {
    explore(WriteMode::Pwrite, 3);
}
