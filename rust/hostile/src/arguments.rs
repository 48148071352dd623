//! Options of the program: `--name value`; an unknown name is refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// The options that were given.
#[derive(Debug)]
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Read the options; every name must be one of `known`.
    pub fn read(words: impl Iterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").filter(|name| known.contains(name));
            let name =
                name.ok_or_else(|| format!("{word:?} is not one of --{}", known.join(", --")))?;
            let value = words.next_if(|next| !next.starts_with("--")).unwrap_or_default();
            found.insert(name.to_owned(), value);
        }
        Ok(Self(found))
    }

    /// A value, or the default if it was not given.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        self.maybe(name).map(|found| found.unwrap_or(default))
    }

    /// A value, if it was given.
    pub fn maybe<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.0.get(name) else { return Ok(None) };
        let text = text.replace('_', "");
        text.parse().map(Some).map_err(|_| format!("--{name} cannot be {text:?}"))
    }

    /// A path, if it was given.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get(name).map(PathBuf::from)
    }

    /// A text, if it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// True if it was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}
