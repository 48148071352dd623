//! Replay of a crash by its name: that crash alone is judged again.

use falaj_twin::memory::Crash;

use crate::actor::Actor;
use crate::crew::Crew;
use crate::explore::{expected_again, guarded, heir_of_recovery};
use crate::history::History;
use crate::look::{Before, Expected, look, successors, take_over};
use crate::machine::Machine;
use crate::op::Op;
use crate::pick;
use crate::site::{Again, Site};

/// Replay a site; return what is wrong there, if anything.
///
/// # Errors
/// A mistake in the name.
pub fn replay(text: &str) -> Result<Option<String>, String> {
    let site: Site = text.parse()?;
    let (mode, name) = site.history();
    let empty = Machine::empty(mode).map_err(|e| e.to_string())?;
    let mut nowhere = None;
    let done = guarded(|| {
        let history = match Crew::named(name) {
            Some(crew) => crew.run(&empty)?,
            None => {
                let ops: Result<Vec<Op>, String> = name.split(',').map(str::parse).collect();
                History::of(&ops?, &empty)?
            }
        };
        crash(&history, &site, &mut nowhere)
    });
    match nowhere {
        Some(what) => Err(what),
        None => Ok(done.err()),
    }
}

/// A crash of a history; `nowhere` gets the reason if the site is not one of its crashes.
fn crash(history: &History, site: &Site, nowhere: &mut Option<String>) -> Result<(), String> {
    let (Site::PowerLoss { time, .. } | Site::Death { time, .. }) = site;
    if *time > history.journal.len() {
        *nowhere = Some(format!("this history has no event {time}"));
        return Ok(());
    }
    let mut read = |crash: &Crash, picks: &str| {
        let selection = pick::read(crash, picks);
        if let Err(what) = &selection {
            *nowhere = Some(what.clone());
        }
        selection
    };
    let (truth, incarnation, mode) = (&history.truth, history.incarnation, history.mode);
    let image;
    let (looked, again) = match site {
        Site::PowerLoss { time, picks, again, .. } => {
            let crash = history.journal.crash_at(*time);
            image = crash.image(&read(&crash, picks)?);
            let (least, most) = history.after_power_loss(*time);
            let gone = history.gone(*time);
            let cuts = history.cuts(*time);
            let expected = Expected { truth, least, most, gone, incarnation, cuts, before: None };
            (look(&image, mode, expected)?, again)
        }
        Site::Death { time, whose, again, .. } => {
            image = history.journal.killed_at(*time);
            let (least, most) = history.after_death(*time);
            let gone = history.gone(*time);
            let cuts = history.cuts(*time);
            let expected = Expected { truth, least, most, gone, incarnation, cuts, before: None };
            let actor = successors(history.heir()).into_iter().find(|(_, name)| name == whose);
            let (actor, _): (Actor, _) = actor.ok_or("no such successor")?;
            (take_over(&image, mode, actor, expected)?, again)
        }
    };
    let Some(again) = again else { return Ok(()) };
    let before = (Before { truth, gone: history.gone(*time) }, history.cuts(*time));
    if matches!(again, Again::Synced { .. }) {
        looked.process.log.sync().map_err(|e| format!("sync after recovery: {e}"))?;
    }
    let journal = image.journal();
    if let Again::Died { time } = again {
        let survivor = journal.killed_at((*time).min(journal.len()));
        let expected = expected_again(again, &looked, before, incarnation);
        return take_over(&survivor, mode, heir_of_recovery(incarnation), expected).map(drop);
    }
    let crash = journal.crash_at(again.time(journal.len()));
    let selection = read(&crash, again.picks())?;
    let expected = expected_again(again, &looked, before, incarnation);
    look(&crash.image(&selection), mode, expected).map(drop)
}
