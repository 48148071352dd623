//! All workloads of up to three operations, cut short by a power cut or a death at each event of the
//! last one. What comes before it was cut short as the end of a shorter workload.

use falaj::format::settings::WriteMode;

use crate::explore::{Effort, Explorer};
use crate::world::{OPS, Op, World};

const SEED: u64 = 20_260_101;

struct Sum {
    workloads: u64,
    points: u64,
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

fn explore(mode: WriteMode, len: usize, effort: Effort) {
    let empty = World::empty(mode);
    let mut explorer = Explorer::new(mode, SEED);
    let mut sum = Sum { workloads: 0, points: 0 };
    let start = std::time::Instant::now();
    for ops in workloads_of(len) {
        cut_short(&ops, &empty, &mut explorer, effort, &mut sum);
    }
    println!(
        "{mode:?}, {} workloads of {len} operations: {} crash points, {} states, {} after a second \
         crash, {:.1} s",
        sum.workloads,
        sum.points,
        explorer.states,
        explorer.deeper,
        start.elapsed().as_secs_f64()
    );
}

#[test]
fn one_operation_mapped() {
    explore(WriteMode::Mapped, 1, Effort { images: 8, deeper: Some(4) });
}

#[test]
fn one_operation_written_through() {
    explore(WriteMode::Pwrite, 1, Effort { images: 8, deeper: Some(4) });
}

#[test]
fn two_operations_mapped() {
    explore(WriteMode::Mapped, 2, Effort { images: 2, deeper: Some(1) });
}

#[test]
fn debug_trace() {
    let empty = World::empty(WriteMode::Mapped);
    let mut world = empty.again();
    world.run(Op::Append);
    let journal = world.storage.journal();
    let crash = journal.crash_at(24);
    let image = crash.image(&crash.everything());
    let log = crate::world::open(&image, WriteMode::Mapped, crate::common::TestMember::new(0, 2))
        .unwrap();
    println!("opened at {}", image.events());
    println!("{:?} {:?}", log.committed(), log.durable());
    crate::world::append_group(&log, &crate::model::Group::one(0, vec![vec![b'~'; 40]])).unwrap();
    println!("appended at {}", image.events());
    if std::env::var("SYNCED").is_ok() {
        let log = crate::world::open(
            &image,
            WriteMode::Mapped,
            crate::common::TestMember::new(0, 2).beside(1),
        )
        .unwrap();
        println!("opened at {}", image.events());
        println!("{:?} {:?}", log.committed(), log.durable());
        log.sync().unwrap();
        println!("{:?} {:?}", log.committed(), log.durable());
    }
    let mut before = String::new();
    for crash in image.journal().crashes() {
        let now = format!(
            "{:?}",
            crash
                .choices()
                .iter()
                .map(|c| format!("{}{:?}/{}", c.path, c.what, c.arity))
                .collect::<Vec<_>>()
        );
        println!("{} {}", crash.time(), if now == before { "same" } else { &now });
        before = now;
    }
}
