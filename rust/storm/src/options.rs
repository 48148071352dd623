//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kills, or cuts, to reach.
    pub events: u64,
    /// Acknowledged records to reach.
    pub records: u64,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// The only round to run; all of them otherwise.
    pub round: Option<u64>,
    /// Directory of the stores during the run.
    pub dir: PathBuf,
    /// File for the summary.
    pub json: Option<PathBuf>,
    /// File of progress, to resume from.
    pub state: Option<PathBuf>,
    /// Longest time to run.
    pub time: Option<Duration>,
    /// An interpreter that can import falaj, for workers in Python.
    pub python: Option<PathBuf>,
    /// The file systems to cut.
    pub filesystems: Vec<String>,
    /// A block device of the storm's own, for file systems that are cut off by the device mapper.
    pub device: Option<PathBuf>,
}

/// Help of the command line.
pub const USAGE: &str = "\
usage: falaj-storm kill  [--kills N] [--records N] [options]
       falaj-storm power [--cuts N] [--filesystems ext4,xfs] [options]
       falaj-storm power --device DEV [--filesystems btrfs,…] …   all of DEV is written over

options: --seed S      draw everything from it (default: drawn, and printed)
         --round R     run this round of the seed alone
         --dir D       where stores lie meanwhile (default: a temporary directory)
         --json FILE   write the summary there
         --state FILE  keep there how far it is, and go on from there
         --hours H     end after so many hours
         --python EXE  interpreter that knows falaj: some workers are then in Python

Ends with 0 when nothing was found, 1 when something was, 2 for a wrong command line, 77 when this
machine cannot do it, 130 when interrupted.";

impl Options {
    /// Read the arguments after the subcommand.
    pub fn read(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            events: 500,
            records: 0,
            seed: 0,
            round: None,
            dir: std::env::temp_dir(),
            json: None,
            state: None,
            time: None,
            python: None,
            filesystems: vec!["ext4".into(), "xfs".into()],
            device: None,
        };
        let mut seed = None;
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number =
                || value.replace('_', "").parse::<u64>().map_err(|e| format!("{name}: {e}"));
            match name.as_str() {
                "--kills" | "--cuts" => options.events = number()?,
                "--records" => options.records = number()?,
                "--seed" => seed = Some(number()?),
                "--round" => options.round = Some(number()?),
                "--dir" => options.dir = value.into(),
                "--json" => options.json = Some(value.into()),
                "--state" => options.state = Some(value.into()),
                "--python" => options.python = Some(value.into()),
                "--hours" => {
                    let hours: f64 = value.parse().map_err(|e| format!("{name}: {e}"))?;
                    options.time = Some(Duration::from_secs_f64(hours * 3600.0));
                }
                "--device" => options.device = Some(value.into()),
                "--filesystems" => options.filesystems = value.split(',').map(Into::into).collect(),
                _ => return Err(format!("{name} is not an option")),
            }
        }
        options.seed = seed.unwrap_or_else(drawn);
        Ok(options)
    }
}

fn drawn() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007)
}
