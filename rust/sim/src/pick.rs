//! Selections: which pending changes reached the disk, drawn to do harm.
//!
//! All combinations are tried when they are few. Otherwise each draw imitates a real machine's
//! losses: all but one, one alone, a prefix, the newest first, one file without the others.
//! [`falaj_twin::memory::Crash`] says what a selection is.

use falaj_twin::memory::{Choice, Crash, Undecided};

use crate::random::Random;

/// One pick for each choice of a crash.
pub type Selection = Vec<usize>;

/// All combinations if there are at most `few`, else `images` drawn ones.
pub fn selections(crash: &Crash, few: usize, images: usize, random: &mut Random) -> Vec<Selection> {
    let choices = crash.choices();
    if crash.combinations() <= few.max(images) as u64 {
        return all(choices);
    }
    (0..images).map(|_| draw(choices, random)).collect()
}

fn all(choices: &[Choice]) -> Vec<Selection> {
    let mut combinations = vec![Vec::with_capacity(choices.len())];
    for choice in choices {
        let longer = |head: &Selection| {
            let head = head.clone();
            (0..choice.arity).map(move |pick| [head.as_slice(), &[pick]].concat())
        };
        combinations = combinations.iter().flat_map(longer).collect();
    }
    combinations
}

fn draw(choices: &[Choice], random: &mut Random) -> Selection {
    let one = random.below(choices.len());
    let inode = choices[one].inode;
    let style = random.below(16);
    let sparse = [2, 8, 32][random.below(3)];
    let mut pick = |i: usize, choice: &Choice| -> usize {
        let there = |arrived: bool| if arrived { choice.latest } else { lost(choice) };
        match style {
            0 => there(false),
            1 => there(true),
            // Only one, all but one.
            2 => there(i == one),
            3 | 4 => there(i != one),
            // In the order of the choices, and against it: the newest first.
            5 => there(i <= one),
            6 => there(i >= one),
            // One file alone, all files but one; names stand for a file of their own.
            7 => there(choice.inode == inode),
            8 | 9 => there(choice.inode != inode),
            // Names and lengths without bytes, or bytes without names and lengths.
            10 => there(!matches!(choice.what, Undecided::Sector(_))),
            11 => there(matches!(choice.what, Undecided::Sector(_))),
            // Each with a probability: nearly all, nearly none, or half.
            12 => there(random.below(sparse) != 0),
            13 => there(random.below(sparse) == 0),
            14 => there(random.below(2) == 0),
            // Any version of each.
            _ => random.below(choice.arity),
        }
    };
    choices.iter().enumerate().map(|(i, choice)| pick(i, choice)).collect()
}

/// A pick that is not the latest: the oldest, unless that is the same.
fn lost(choice: &Choice) -> usize {
    usize::from(choice.latest == 0)
}

/// A selection as text, short enough for a command line: only what differs from "everything".
pub fn written(crash: &Crash, selection: &[usize]) -> String {
    let choices = crash.choices().iter().zip(selection).enumerate();
    let lost = choices.filter(|(_, (choice, pick))| **pick != choice.latest);
    let lost: Vec<_> = lost.map(|(i, (_, pick))| format!("{i}:{pick}")).collect();
    if lost.is_empty() { "all".into() } else { lost.join(",") }
}

/// Read what [`written`] wrote.
///
/// # Errors
/// A mistake in the text.
pub fn read(crash: &Crash, text: &str) -> Result<Selection, String> {
    let mut selection = crash.everything();
    for part in text.split(',').filter(|part| *part != "all") {
        let numbers = part.split_once(':');
        let numbers = numbers.and_then(|(i, pick)| Some((i.parse().ok()?, pick.parse().ok()?)));
        let (i, pick): (usize, usize) = numbers.ok_or_else(|| format!("{part:?} is not a pick"))?;
        let arity = crash.choices().get(i).map_or(0, |choice| choice.arity);
        if pick >= arity {
            return Err(format!("there is no pick {pick} of choice {i}"));
        }
        selection[i] = pick;
    }
    Ok(selection)
}
