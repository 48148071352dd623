//! Grants: which actions a principal may take on which topics, groups and objects of the place.

use serde::Deserialize;

/// An action on a topic, a group or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Read records, offsets and settings; poll as a member of a group; get and list objects.
    Read,
    /// Append records; put jobs.
    Append,
    /// Create a topic, a queue or an object.
    Create,
    /// Trim, finish or delete; delete objects.
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
    /// An object of the place by its key, or a folder of objects with a slash at its end.
    Object,
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
    /// Keys of objects in the place.
    #[serde(default)]
    pub place: Option<String>,
    /// Actions.
    pub allow: Vec<Action>,
}

impl Grant {
    /// The grant of a principal that may do everything.
    pub fn everything() -> Self {
        let all = Some("*".to_owned());
        let allow =
            vec![Action::Read, Action::Append, Action::Create, Action::Delete, Action::Admin];
        Self { topic: all.clone(), group: all.clone(), place: all, allow }
    }

    /// True if it covers this.
    pub fn covers(&self, action: Action, kind: Kind, name: &str) -> bool {
        let pattern = match kind {
            Kind::Topic => &self.topic,
            Kind::Group => &self.group,
            Kind::Object => &self.place,
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
