//! The numbers of a run so far, for the summary and the state file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Counters by name.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    counts: BTreeMap<String, u64>,
    /// Processes killed or stopped at named points, by point.
    points: BTreeMap<String, u64>,
}

impl Totals {
    /// Add to a counter.
    pub fn add(&mut self, name: &str, more: u64) {
        *self.counts.entry(name.to_owned()).or_default() += more;
    }

    /// Raise a counter to at least this.
    pub fn raise(&mut self, name: &str, value: u64) {
        let count = self.counts.entry(name.to_owned()).or_default();
        *count = (*count).max(value);
    }

    /// Set a counter.
    pub fn set(&mut self, name: &str, value: u64) {
        self.counts.insert(name.to_owned(), value);
    }

    /// A counter.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Note that a process ended, or stopped, at a point.
    pub fn at_point(&mut self, name: &str) {
        *self.points.entry(name.to_owned()).or_default() += 1;
    }

    /// Number of points at which a worker ended or stopped.
    pub fn points_met(&self) -> usize {
        self.points.len()
    }

    /// As JSON.
    pub fn encode(&self, more: &[(&str, Value)]) -> Value {
        let mut all = Map::new();
        for (name, value) in more {
            all.insert((*name).to_owned(), value.clone());
        }
        for (name, count) in &self.counts {
            all.insert(name.clone(), json!(count));
        }
        all.insert("points".to_owned(), json!(self.points));
        Value::Object(all)
    }

    /// Keep them in a file, whole or not at all.
    pub fn keep(&self, path: &Path, more: &[(&str, Value)]) -> io::Result<()> {
        let beside = path.with_extension("new");
        std::fs::write(&beside, format!("{:#}\n", self.encode(more)))?;
        std::fs::rename(&beside, path)
    }

    /// Read those of an earlier run with the same seed; none if there is no such file.
    pub fn resume(path: &Path, seed: u64) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let kept: Value = serde_json::from_str(&text).ok()?;
        if kept["seed"].as_u64() != Some(seed) {
            return None;
        }
        let mut totals = Self::default();
        for (name, value) in kept.as_object()? {
            if let (Some(count), false) = (value.as_u64(), name == "seed") {
                totals.set(name, count);
            }
        }
        for (name, value) in kept["points"].as_object()? {
            totals.points.insert(name.clone(), value.as_u64().unwrap_or_default());
        }
        Some(totals)
    }
}
