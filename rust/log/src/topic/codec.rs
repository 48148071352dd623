//! The codec of a topic: named once, and before the first record.
//!
//! Owns the rule that all records of a topic have one codec. A topic that was created without a codec takes any,
//! until the first opening that names one, or the first append. Invariant: when a record is committed, the name of
//! the topic's codec is on the disk. Each way to append begins with [`Topic::expect_codec`] or one of its siblings.
//! `store::codec` writes the name. (`docs/PROTOCOL.md`, "Topics".)

use std::sync::Arc;

use super::Topic;
use crate::error::Result;
use crate::store::TopicCodec;
use crate::store::options::CODEC;

impl Topic {
    /// Return the name of its codec; `None` as long as no program has named it. Then the topic has no records.
    ///
    /// # Errors
    /// `SettingsMismatch` where another program has named another codec than this handle asked for. `TopicDeleted`,
    /// `CorruptData`, `SystemCallFailed`.
    pub fn codec(&self) -> Result<Option<&str>> {
        self.codec.read()
    }

    /// Its codec, for records that outlive this handle.
    #[doc(hidden)]
    pub fn shared_codec(&self) -> &Arc<TopicCodec> {
        &self.codec
    }

    /// Name the topic's codec, unless this handle knows its name: the one that the opening asked for, else this one.
    /// The name is on the disk when this returns.
    ///
    /// # Errors
    /// `SettingsMismatch` where another program has named another one; `NotWritable`, `TopicDeleted`, `LockTimeout`,
    /// `CorruptData`, `NoSpace`, `SystemCallFailed`.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn name_codec(&self, codec: &str) -> Result<()> {
        let is_empty = self.has_never_had_records()?;
        self.store.name_codec(&self.settings, &self.codec, codec, is_empty)
    }

    fn has_never_had_records(&self) -> Result<bool> {
        for partition in 0..self.partitions() {
            if self.committed(partition)? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Say whether this handle knows that the codec is named: it may append then.
    #[inline(always)]
    pub(super) fn has_codec(&self) -> bool {
        self.codec.is_named()
    }

    /// Make sure that the codec is named. Each append calls this first.
    #[inline(always)]
    pub(super) fn expect_codec(&self) -> Result<()> {
        if self.has_codec() { Ok(()) } else { self.name_codec(CODEC) }
    }

    /// Do the same for records that are bytes of any codec, and take the name that there is.
    pub(crate) fn adopt_codec(&self, codec: &str) -> Result<()> {
        if self.codec()?.is_some() { Ok(()) } else { self.name_codec(codec) }
    }
}
