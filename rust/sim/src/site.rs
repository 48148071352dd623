//! Sites: where a promise was broken, as text for a command line.
//!
//! ```text
//! mapped/append,roll,sync/57/3:0,8:1               power failed after event 57, but for two picks: all
//! mapped/append,roll,sync/57/all/12/4:0            … and again after event 12 of the recovery
//! mapped/append,roll,sync/57/all/12/heir           … and the recovering process died there; an heir came
//! mapped/append,roll,sync/57/all/synced/all        … and again after the sync that followed
//! pwrite/append/9/heir                             all processes died after event 9; an heir came
//! ```

use std::fmt;
use std::str::FromStr;

use falaj::internals::format::settings::WriteMode;
use falaj_twin::memory::Crash;

use crate::history::History;
use crate::pick;

/// A second crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// After an event of the recovery and the append that followed the first crash.
    Within {
        /// The event.
        time: usize,
        /// The picks that decide what was on disk.
        picks: Option<String>,
    },
    /// The process that recovered died after an event, and another of its incarnation took over.
    Died {
        /// The event.
        time: usize,
    },
    /// After a sync that followed the recovery and the append.
    Synced {
        /// The picks that decide what was on disk.
        picks: Option<String>,
    },
}

impl Again {
    /// The event, given how many there are.
    pub fn time(&self, events: usize) -> usize {
        match self {
            Self::Within { time, .. } | Self::Died { time } => (*time).min(events),
            Self::Synced { .. } => events,
        }
    }

    /// The picks that decide what was on disk.
    pub fn picks(&self) -> &str {
        match self {
            Self::Within { picks, .. } | Self::Synced { picks } => {
                picks.as_deref().unwrap_or("all")
            }
            Self::Died { .. } => "heir",
        }
    }

    /// The same, with other picks.
    #[must_use]
    pub fn with(&self, picks: String) -> Self {
        let picks = Some(picks);
        match self {
            Self::Within { time, .. } => Self::Within { time: *time, picks },
            Self::Synced { .. } => Self::Synced { picks },
            Self::Died { .. } => self.clone(),
        }
    }
}

/// A crash of a history, and perhaps a second one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// The power failed.
    PowerLoss {
        /// How the log is written.
        mode: &'static str,
        /// Name of the history.
        history: String,
        /// After which event.
        time: usize,
        /// The picks that decide what was on disk.
        picks: String,
        /// The second crash.
        again: Option<Again>,
    },
    /// All processes died.
    Death {
        /// How the log is written.
        mode: &'static str,
        /// Name of the history.
        history: String,
        /// After which event.
        time: usize,
        /// The process that came next.
        whose: String,
        /// The second crash.
        again: Option<Again>,
    },
}

/// The name of a mode here.
pub fn name_of(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Mapped => "mapped",
        WriteMode::Pwrite => "pwrite",
    }
}

impl Site {
    /// A power cut.
    pub fn power_loss(
        history: &History,
        crash: &Crash,
        selection: &[usize],
        again: Option<Again>,
    ) -> Self {
        let (mode, picks) = (name_of(history.mode), pick::written(crash, selection));
        Self::PowerLoss { mode, history: history.name.clone(), time: crash.time(), picks, again }
    }

    /// A death of all processes.
    pub fn death(history: &History, time: usize, whose: &str, again: Option<Again>) -> Self {
        let (mode, history) = (name_of(history.mode), history.name.clone());
        Self::Death { mode, history, time, whose: whose.into(), again }
    }

    /// How the log is written, and the history's name.
    pub fn history(&self) -> (WriteMode, &str) {
        let (Self::PowerLoss { mode, history, .. } | Self::Death { mode, history, .. }) = self;
        let mode = if *mode == "pwrite" { WriteMode::Pwrite } else { WriteMode::Mapped };
        (mode, history)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, history, time, what, again) = match self {
            Self::PowerLoss { mode, history, time, picks, again } => {
                (mode, history, time, picks, again)
            }
            Self::Death { mode, history, time, whose, again } => {
                (mode, history, time, whose, again)
            }
        };
        write!(f, "{mode}/{history}/{time}/{what}")?;
        match again {
            None => Ok(()),
            Some(again @ (Again::Within { time, .. } | Again::Died { time })) => {
                write!(f, "/{time}/{}", again.picks())
            }
            Some(again @ Again::Synced { .. }) => write!(f, "/synced/{}", again.picks()),
        }
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no event"));
        let parts: Vec<_> = text.split('/').collect();
        let (mode, history, time, what, again) = match parts[..] {
            [mode, history, time, what] => (mode, history, time, what, None),
            [mode, history, time, what, second, picks] => {
                let again = match (second, picks) {
                    ("synced", picks) => Again::Synced { picks: Some(picks.into()) },
                    (time, "heir") => Again::Died { time: number(time)? },
                    (time, picks) => {
                        Again::Within { time: number(time)?, picks: Some(picks.into()) }
                    }
                };
                (mode, history, time, what, Some(again))
            }
            _ => {
                return Err(
                    "a site is mode/history/event/picks, or has a second /event/picks".into()
                );
            }
        };
        let mode =
            [WriteMode::Mapped, WriteMode::Pwrite].map(name_of).into_iter().find(|m| *m == mode);
        let mode = mode.ok_or("a mode is mapped or pwrite")?;
        let (history, time) = (history.to_owned(), number(time)?);
        Ok(match what {
            "heir" | "next" => Self::Death { mode, history, time, whose: what.into(), again },
            picks => Self::PowerLoss { mode, history, time, picks: picks.into(), again },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_read_back_from_what_it_is_written_as() {
        for text in [
            "mapped/append,roll/57/3:0,8:1",
            "mapped/append/57/all/12/4:0",
            "pwrite/append/57/all/synced/all",
            "pwrite/append/57/all/3/heir",
            "pwrite/append/9/heir",
            "mapped/append/9/next/synced/1:0",
        ] {
            assert_eq!(text.parse::<Site>().unwrap().to_string(), text);
        }
        assert!("mapped/append".parse::<Site>().is_err());
        assert!("else/append/9/next".parse::<Site>().is_err());
    }
}
