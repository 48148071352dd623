//! The workers as processes: started, stopped and killed by their process ids, with none left
//! behind.
//!
//! Each worker's standard input is a pipe that is never written to. Its forked idle children end
//! when the other end is dropped here, or with this process, however that ends. The kernel ends the
//! workers themselves with this process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, set_child_subreaper, waitpid,
};

use crate::task::{Snap, Task, Trap};

/// A worker, alive or stopped.
pub struct Worker {
    /// Its task.
    pub task: Task,
    /// Its process.
    pub pid: Pid,
    /// When a stopped one continues, or is killed if the flag is set.
    pub stopped: Option<(Instant, bool)>,
    /// We killed it, and have not seen its end yet.
    pub killed: bool,
    says: PathBuf,
    child: Child,
}

/// News of a worker: how it ended, or that it stopped.
#[derive(Debug)]
pub enum News {
    /// It ended normally.
    Done,
    /// We killed it.
    Killed,
    /// It reached its trap and died there.
    Trapped(Trap),
    /// It reached its trap and stopped there.
    TrappedStopped(Trap),
    /// It ended otherwise, with this message.
    Failed(String),
}

/// All workers of a round.
pub struct Workers {
    exe: PathBuf,
    python: Option<(PathBuf, PathBuf)>,
    logs: PathBuf,
    /// The living ones.
    pub alive: Vec<Worker>,
    /// Pipes of the dead, which keep their idle children alive until the end.
    orphans: Vec<Child>,
}

impl Workers {
    /// No workers yet. `python` is an interpreter that can import falaj, and a worker's source.
    pub fn new(logs: &Path, python: Option<(PathBuf, PathBuf)>) -> io::Result<Self> {
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let exe = std::env::current_exe()?;
        Ok(Self { exe, python, logs: logs.into(), alive: Vec::new(), orphans: Vec::new() })
    }

    /// Start a worker.
    pub fn start(&mut self, task: Task) -> io::Result<()> {
        let says = self.logs.join(format!("{}.{}", task.id, task.role.name()));
        let mut command = match &self.python {
            Some((interpreter, source)) if task.role.is_python() => {
                let mut command = Command::new(interpreter);
                command.arg(source);
                command
            }
            _ => {
                let mut command = Command::new(&self.exe);
                command.arg("worker");
                command
            }
        };
        command.arg(task.encode()).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.stderr(File::create(&says)?).spawn()?;
        let pid = Pid::from_child(&child);
        self.alive.push(Worker { task, pid, stopped: None, killed: false, says, child });
        Ok(())
    }

    /// Kill a worker, stopped or not.
    pub fn kill(&mut self, i: usize) {
        let worker = &mut self.alive[i];
        worker.killed = true;
        // It may have ended this moment. Its number is still its own, since no one has waited for
        // it.
        let _ = kill_process(worker.pid, Signal::KILL);
    }

    /// Stop a worker for a while, and then continue or kill it.
    pub fn stop(&mut self, i: usize, until: Instant, then_kill: bool) {
        let worker = &mut self.alive[i];
        if worker.stopped.is_none() && kill_process(worker.pid, Signal::STOP).is_ok() {
            worker.stopped = Some((until, then_kill));
        }
    }

    /// Continue or kill the stopped workers whose time is over; return how many were killed.
    pub fn wake_stopped(&mut self, now: Instant) -> u64 {
        let mut killed = 0;
        for i in 0..self.alive.len() {
            let Some((until, then_kill)) = self.alive[i].stopped else { continue };
            if now < until || self.alive[i].killed {
                continue;
            }
            if then_kill {
                self.kill(i);
                killed += 1;
            } else {
                self.alive[i].stopped = None;
                let _ = kill_process(self.alive[i].pid, Signal::CONT);
            }
        }
        killed
    }

    /// Continue all stopped workers.
    pub fn wake_all(&mut self) {
        for worker in &mut self.alive {
            if worker.stopped.take().is_some() {
                let _ = kill_process(worker.pid, Signal::CONT);
            }
        }
    }

    /// Collect the news of dead and stopped children; orphans are reaped on the way.
    pub fn news(&mut self) -> io::Result<Vec<(Task, News)>> {
        let mut news = Vec::new();
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            let (pid, status) = match waitpid(None, options) {
                Ok(Some(found)) => found,
                Ok(None) | Err(rustix::io::Errno::CHILD) => break,
                Err(error) => return Err(error.into()),
            };
            let Some(i) = self.alive.iter().position(|worker| worker.pid == pid) else { continue };
            if status.stopped() {
                let trap = self.alive[i].task.trap.filter(|trap| trap.snap == Snap::Stops);
                if let (None, Some(trap)) = (self.alive[i].stopped, trap) {
                    news.push((self.alive[i].task.clone(), News::TrappedStopped(trap)));
                }
                continue;
            }
            let worker = self.alive.swap_remove(i);
            let said = ending(&worker, status);
            news.push((worker.task, said));
            self.orphans.push(worker.child);
        }
        Ok(news)
    }

    /// Kill all workers and wait until they have ended.
    pub fn kill_all(&mut self) -> io::Result<Vec<(Task, News)>> {
        for i in 0..self.alive.len() {
            self.kill(i);
        }
        let mut news = Vec::new();
        while !self.alive.is_empty() {
            news.extend(self.news()?);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(news)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _ = self.kill_all();
        self.orphans.clear();
        // The idle children end now; no other child is left to wait for.
        while matches!(waitpid(None, WaitOptions::empty()), Ok(Some(_))) {}
    }
}

fn ending(worker: &Worker, status: WaitStatus) -> News {
    let said = || {
        let text = std::fs::read_to_string(&worker.says).unwrap_or_default();
        format!("{} {}: {status:?}: {}", worker.task.role.name(), worker.task.id, text.trim())
    };
    if status.terminating_signal() == Some(Signal::KILL.as_raw()) {
        return match worker.task.trap {
            _ if worker.killed => News::Killed,
            Some(trap) if trap.snap != Snap::Stops => News::Trapped(trap),
            _ => News::Failed(format!("another process killed {}", said())),
        };
    }
    if status.exit_status() == Some(0) { News::Done } else { News::Failed(said()) }
}
