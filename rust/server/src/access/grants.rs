//! Grants: which actions a principal may take on which topics and groups.

use serde::Deserialize;

/// An action on a topic or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Read records, offsets and settings; poll as a member of a group.
    Read,
    /// Append records; put jobs.
    Append,
    /// Create a topic or a queue.
    Create,
    /// Trim, finish or delete.
    Delete,
    /// Change settings; read metrics and what concerns the whole store.
    Admin,
}

impl Action {
    /// The verb of a refusal.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append to",
            Self::Create => "create",
            Self::Delete => "delete from",
            Self::Admin => "administer",
        }
    }
}

/// The kind of thing that a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A topic, or a queue by the name of its topic.
    Topic,
    /// A consumer group or a queue.
    Group,
}

/// One line of a principal's permissions.
///
/// A name with `*` at its end stands for all that begin so; `*` alone stands for all.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Topics.
    #[serde(default)]
    pub topic: Option<String>,
    /// Consumer groups and queues.
    #[serde(default)]
    pub group: Option<String>,
    /// Actions.
    pub allow: Vec<Action>,
}

impl Grant {
    /// The grant of a principal that may do everything.
    pub fn everything() -> Self {
        let all = Some("*".to_owned());
        let allow =
            vec![Action::Read, Action::Append, Action::Create, Action::Delete, Action::Admin];
        Self { topic: all.clone(), group: all, allow }
    }

    /// True if it covers this.
    pub fn covers(&self, action: Action, kind: Kind, name: &str) -> bool {
        let pattern = match kind {
            Kind::Topic => &self.topic,
            Kind::Group => &self.group,
        };
        self.allow.contains(&action)
            && pattern.as_deref().is_some_and(|pattern| matches(pattern, name))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}
