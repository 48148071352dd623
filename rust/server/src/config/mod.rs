//! The configuration of a server: one struct, filled from a file, the environment and flags.
//!
//! Owns the list of settings with their defaults and their one line of help. A setting has one name everywhere: the key
//! `limits.body` of the TOML file is `FALAJ_SERVER_LIMITS_BODY` in the environment and `--limits-body` on the command
//! line. A flag wins over the environment, which wins over the file. A key that is not in the list is refused.

mod settings;
mod sources;
pub mod units;

pub use settings::{Access, Config, Limits, LogFormat, Logging, Reading, Tls};
pub use sources::{Begin, load, read_text};
