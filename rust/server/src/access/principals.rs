//! Principals: names for clients, with the hashes of their tokens and their grants.
//!
//! They come from a TOML file, which holds no secret: a token is 256 random bits, so its SHA-256 tells nothing.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use super::grants::{Action, Grant, Kind};
use super::{Digest, Refusal};

/// A client by name, and what it may do.
#[derive(Clone, Debug)]
pub struct Principal(Arc<Named>);

#[derive(Debug)]
struct Named {
    name: String,
    tokens: Vec<Digest>,
    grants: Vec<Grant>,
}

/// All principals of a file.
#[derive(Clone, Debug, Default)]
pub struct Principals(Vec<Principal>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    principal: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    tokens: Vec<String>,
    #[serde(default)]
    grants: Vec<Grant>,
}

impl Principal {
    fn all(name: &str, tokens: Vec<Digest>) -> Self {
        Self(Arc::new(Named { name: name.to_owned(), tokens, grants: vec![Grant::everything()] }))
    }

    /// The holder of the store's own token.
    pub(super) fn local(token: Digest) -> Self {
        Self::all("local", vec![token])
    }

    /// A client without a token, where the server is open.
    pub(super) fn open() -> Self {
        Self::all("open", Vec::new())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// True if one of its tokens has this digest.
    pub(super) fn has(&self, digest: &Digest) -> bool {
        let equal = self.0.tokens.iter().map(|token| token.ct_eq(digest));
        equal.fold(subtle::Choice::from(0), |any, this| any | this).into()
    }

    /// Check that it may do this.
    ///
    /// # Errors
    /// `Forbidden`, with a sentence that names the missing grant.
    pub fn may(&self, action: Action, kind: Kind, name: &str) -> Result<(), Refusal> {
        if self.0.grants.iter().any(|grant| grant.covers(action, kind, name)) {
            return Ok(());
        }
        let what = match kind {
            Kind::Topic => "topic",
            Kind::Group => "group",
            Kind::Object => "objects at",
        };
        let verb = match (action, kind) {
            (Action::Delete, Kind::Object) => "delete",
            _ => action.verb(),
        };
        let principal = self.name();
        Err(Refusal::Forbidden(format!(
            "principal {principal} may not {verb} {what} {name}; a grant is missing"
        )))
    }

    /// True if some grant allows this for some name of this kind: for listings, which show what it may read.
    pub fn sees(&self, kind: Kind, name: &str) -> bool {
        self.may(Action::Read, kind, name).is_ok()
    }
}

impl Principals {
    /// Read a file.
    ///
    /// # Errors
    /// A sentence that names the file and what is wrong in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Read the text of a file.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File =
            toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        let mut principals: Vec<Principal> = Vec::new();
        for entry in file.principal {
            if ["local", "open"].contains(&entry.name.as_str()) || entry.name.is_empty() {
                return Err(format!("a principal cannot be called {:?}", entry.name));
            }
            if entry.name.contains('/') {
                // It ends the principal's name in that of a producer.
                return Err(format!("the name of principal {:?} has a slash", entry.name));
            }
            if principals.iter().any(|other| other.name() == entry.name) {
                return Err(format!("principal {} stands there twice", entry.name));
            }
            let names_none = |grant: &&Grant| {
                grant.topic.is_none() && grant.group.is_none() && grant.place.is_none()
            };
            if let Some(grant) = entry.grants.iter().find(names_none) {
                let name = entry.name;
                return Err(format!(
                    "a grant of principal {name} names no topic, group or place: {:?}",
                    grant.allow
                ));
            }
            let read = |text: &String| {
                parse_digest(text).ok_or_else(|| {
                    let name = &entry.name;
                    format!("a token of principal {name} is not 64 hexadecimal digits; falaj-server --mint-token makes them")
                })
            };
            let tokens = entry.tokens.iter().map(read).collect::<Result<_, _>>()?;
            let (name, grants) = (entry.name, entry.grants);
            principals.push(Principal(Arc::new(Named { name, tokens, grants })));
        }
        Ok(Self(principals))
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Principal> {
        self.0.iter()
    }
}

fn parse_digest(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_mistake_is_refused_as_a_whole() {
        let token = "0".repeat(64);
        for (text, part) in [
            ("[[principal]]\nname = \"a\"\ntokens = [\"secret\"]\n".to_owned(), "64 hexadecimal digits"),
            ("[[principal]]\nname = \"a/b\"\ntokens = []\n".to_owned(), "slash"),
            (format!("[[principal]]\nname = \"local\"\ntokens = [\"{token}\"]\n"), "local"),
            (format!("[[principal]]\nname = \"a\"\ntokens = [\"{token}\"]\nadmin = true\n"), "admin"),
            (
                format!("[[principal]]\nname = \"a\"\ntokens = [\"{token}\"]\n[[principal.grants]]\nallow = [\"read\"]\n"),
                "names no topic, group or place",
            ),
            (
                format!(
                    "[[principal]]\nname = \"a\"\ntokens = [\"{token}\"]\n[[principal.grants]]\ntopic = \"x\"\nallow = [\"write\"]\n"
                ),
                "write",
            ),
            ("[[principal]]\nname = \"a\"\ntokens = []\n[[principal]]\nname = \"a\"\ntokens = []\n".to_owned(), "twice"),
        ] {
            let refused = Principals::parse(&text).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }
}
