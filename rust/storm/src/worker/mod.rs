//! The workers: programs that use falaj normally, and keep an account of it outside.
//!
//! A worker ends with its parent; the kernel sees to it. It prints an unexpected error on standard
//! error, and then ends with a non-zero code.

mod churner;
mod reader;
pub mod sharer;
mod writer;

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use falaj::internals::error::Error;
use falaj::internals::store::Store;
use falaj::internals::topic::{SyncMode, Topic};

use crate::acks::{Acks, FORKS};
use crate::random::Random;
use crate::system;
use crate::task::{Layout, Role, Task};

/// An error that ends a worker because something is wrong.
pub type Wrong = Box<dyn std::error::Error>;

/// Play a role.
pub fn run(task: &Task) -> ExitCode {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != task.parent as i32) {
        // The parent that would kill us has ended already.
        return ExitCode::SUCCESS;
    }
    if let Some(trap) = task.trap {
        trap.set();
    }
    if task.fork_ms > 0 && matches!(task.role, Role::Writer | Role::Sharer) {
        fork_now_and_then(task);
    }
    let done = match task.role {
        Role::Writer => writer::write(task),
        Role::Churner => churner::churn(task),
        Role::Sharer => sharer::share(task),
        Role::Follower => reader::follow(task),
        Role::Scanner => reader::scan_again_and_again(task),
        Role::PythonWriter | Role::PythonFollower => Err("a role for Python".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if task.tolerant => {
            eprintln!("{} {}: {error}", task.role.name(), task.id);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{} {}: {error}", task.role.name(), task.id);
            ExitCode::FAILURE
        }
    }
}

/// Fork at times, while other threads run. The children are idle and outlive this process.
fn fork_now_and_then(task: &Task) {
    let mut random = Random::new(task.seed ^ u64::from(task.id), 3);
    let (every_ms, account) = (task.fork_ms, task.account.clone());
    std::thread::spawn(move || {
        let Ok(mut acks) = Acks::open(&account) else { return };
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(random.between(1, 2 * every_ms)));
            if system::fork_idle().is_ok() {
                acks.add(FORKS, 1);
            }
        }
    });
}

fn open_for_writing(layout: &Layout) -> Result<(Store, Vec<Topic>), Error> {
    let store = Store::open_with(&layout.store, &layout.store_options())?;
    let topic = |t| Topic::open(&store, &Layout::topic(t), &layout.topic_options());
    let topics = (0..layout.topics).map(topic).collect::<Result<_, _>>()?;
    Ok((store, topics))
}

fn sync_mode(mode: u64) -> SyncMode {
    match mode {
        0 => SyncMode::None,
        1 => SyncMode::Interval,
        _ => SyncMode::Durable,
    }
}

/// Microseconds of a clock that all processes of the machine share.
pub fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
