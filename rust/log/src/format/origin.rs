//! The file `origin`: which of the copies of a store this is, and from which one it was restored.
//!
//! Copies of a store have its id. An origin is one store in one place, and what it wrote; no other
//! store has the number. Owns the text of the file, which has the shape of the settings files
//! ([`super::settings`]). Invariant: a file that decodes has a parent with a number and ends, or none of
//! the three. The modules of the store make and read the file. Layout: `docs/FORMAT.md`, "Settings
//! files".

use serde_json::Value;

use super::settings::{JsonMembers, WRONG_MEMBER, seal};
use super::{Decoded, VERSION, names};

/// The contents of `origin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Random id.
    pub id: [u8; 16],
    /// The state that the store was restored from.
    pub parent: Option<ParentOrigin>,
}

/// A state of another origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentOrigin {
    /// That origin.
    pub origin: [u8; 16],
    /// The number of the state in the place that has it.
    pub number: u64,
    /// Where each topic partition ended.
    pub ends: Vec<OriginEnd>,
}

/// Where a topic partition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginEnd {
    /// Generation of the topic.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: u32,
    /// Offset of its next record.
    pub next: u64,
    /// Checksum of the body of its last block with records; 0 without one.
    pub checksum: u32,
}

impl Origin {
    /// Encode the file's text.
    pub fn encode(&self) -> String {
        let mut members = vec![("format", VERSION.into()), ("origin", names::hex(&self.id).into())];
        if let Some(parent) = &self.parent {
            let ends = parent.ends.iter().map(OriginEnd::encode).collect::<Vec<Value>>();
            members.push(("parent", names::hex(&parent.origin).into()));
            members.push(("parent_number", parent.number.into()));
            members.push(("parent_ends", ends.into()));
        }
        seal(&members)
    }

    /// Read the file's bytes.
    ///
    /// # Errors
    /// `Damaged`, `Unknown` or `Version`, as the bytes are.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut members = JsonMembers::open(bytes)?;
        let id = members.id("origin")?;
        let origin = members.optional_id("parent")?;
        let number = members.optional_number("parent_number")?;
        let ends = members.optional_arrays("parent_ends")?;
        members.finish()?;
        let parent = match (origin, number, ends) {
            (Some(origin), Some(number), Some(ends)) => {
                let ends =
                    ends.iter().map(|cells| OriginEnd::decode(cells)).collect::<Decoded<_>>();
                Some(ParentOrigin { origin, number, ends: ends? })
            }
            (None, None, None) => None,
            _ => return Err(WRONG_MEMBER),
        };
        Ok(Self { id, parent })
    }
}

impl OriginEnd {
    fn encode(&self) -> Value {
        let cells: [Value; 4] = [
            names::hex(&self.topic).into(),
            self.partition.into(),
            self.next.into(),
            self.checksum.into(),
        ];
        Value::Array(cells.to_vec())
    }

    fn decode(cells: &[Value]) -> Decoded<Self> {
        let [topic, partition, next, checksum] = cells else { return Err(WRONG_MEMBER) };
        let half = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
        let end = || {
            Some(Self {
                topic: names::unhex(topic.as_str()?)?,
                partition: half(partition)?,
                next: next.as_u64()?,
                checksum: half(checksum)?,
            })
        };
        end().ok_or(WRONG_MEMBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DecodeError;

    fn restored() -> Origin {
        let end = OriginEnd { topic: [1; 16], partition: 2, next: u64::MAX, checksum: 3 };
        let ends = vec![end, OriginEnd { partition: 0, next: 0, checksum: 0, ..end }];
        Origin { id: [7; 16], parent: Some(ParentOrigin { origin: [8; 16], number: 9, ends }) }
    }

    #[test]
    fn an_origin_comes_back_with_its_parent_or_without_one() {
        for origin in [restored(), Origin { parent: None, ..restored() }] {
            assert_eq!(Origin::decode(origin.encode().as_bytes()), Ok(origin));
        }
    }

    #[test]
    fn half_a_parent_or_an_edited_file_is_corruption() {
        let text = restored().encode();
        let body = text.split(",\"checksum\"").next().unwrap();
        let sealed = |body: &str| {
            let crc = crate::format::checksum::crc32(body.as_bytes());
            format!("{body},\"checksum\":\"{crc:08x}\"}}\n")
        };
        assert_eq!(Origin::decode(sealed(body).as_bytes()), Ok(restored()));
        for (from, to) in [
            (",\"parent_number\":9", ""),
            ("\"parent_number\":9", "\"parent_number\":-9"),
            (",2,18446744073709551615,3]", ",2,3]"),
            (",2,18446744073709551615,3]", ",4294967296,1,3]"),
            (",2,18446744073709551615,3]", ",2,1,3,4]"),
        ] {
            assert!(body.contains(from));
            let other = sealed(&body.replace(from, to));
            assert_eq!(Origin::decode(other.as_bytes()), Err(WRONG_MEMBER), "{from} {to}");
        }
        let edited = text.replace("\"parent_number\":9", "\"parent_number\":8");
        assert!(matches!(Origin::decode(edited.as_bytes()), Err(DecodeError::Damaged(_))));
        let newer = sealed(&body.replace("\"parent_number\"", "\"later\":1,\"parent_number\""));
        assert!(matches!(Origin::decode(newer.as_bytes()), Err(DecodeError::Unknown(_))));
    }
}
