//! The codec of a topic, as its settings name it.
//!
//! Owns reading the name and writing it. Invariant: a name never changes, and it is on the disk when
//! [`Store::name_codec`] returns. [`crate::topic`] names a codec before each first append, so that all records of
//! a topic have one codec. (`docs/PROTOCOL.md`, "Topics".)

use std::sync::{Arc, OnceLock};

use super::configure::differ;
use super::options::CODEC;
use super::topics::{read_settings, topic_gone};
use super::{Layout, Store};
use crate::error::Result;
use crate::format::settings::TopicSettings;
use crate::storage::Storage;

/// The codec of an open topic. It outlives the topic, for records that were read from it.
pub struct TopicCodec {
    storage: Arc<dyn Storage>,
    layout: Layout,
    topic: String,
    generation: [u8; 16],
    /// The codec that the opening named.
    asked: Option<String>,
    /// The name in the store, once it is known. It stays as it is.
    named: OnceLock<String>,
}

impl std::fmt::Debug for TopicCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TopicCodec({:?} of {:?})", self.named.get(), self.topic)
    }
}

impl TopicCodec {
    fn new(store: &Store, topic: &TopicSettings, asked: Option<String>) -> Self {
        let (storage, layout) = (Arc::clone(store.storage()), store.layout().clone());
        let named = OnceLock::new();
        if !topic.codec_unnamed {
            let _ = named.set(topic.codec.clone());
        }
        let (topic, generation) = (topic.name.clone(), topic.generation);
        Self { storage, layout, topic, generation, asked, named }
    }

    /// Return its name; `None` as long as no program has named it. Then the topic has no records.
    ///
    /// # Errors
    /// [`crate::Error::SettingsMismatch`] where the opening asked for another one;
    /// [`crate::Error::TopicDeleted`], [`crate::Error::CorruptData`], [`crate::Error::SystemCallFailed`].
    pub fn read(&self) -> Result<Option<&str>> {
        if let Some(name) = self.named.get() {
            return Ok(Some(name));
        }
        let found = read_settings(&*self.storage, &self.layout, &self.topic)?;
        let Some(found) = found.filter(|found| found.generation == self.generation) else {
            return Err(topic_gone(&*self.storage, &self.layout, &self.topic));
        };
        if found.codec_unnamed { Ok(None) } else { self.know(found.codec).map(Some) }
    }

    /// Return its name, or the one that an append would name.
    pub fn name_or_default(&self) -> &str {
        let asked = self.asked.as_deref().unwrap_or(CODEC);
        self.read().ok().flatten().unwrap_or(asked)
    }

    /// Tell whether the name is known.
    #[inline(always)]
    pub(crate) fn is_named(&self) -> bool {
        self.named.get().is_some()
    }

    fn know(&self, name: String) -> Result<&str> {
        differ(&self.topic, "codec", self.asked.as_ref(), &name)?;
        Ok(self.named.get_or_init(|| name))
    }
}

impl Store {
    /// Return the codec of a topic that was opened with a codec, or without one.
    pub(crate) fn codec(&self, topic: &TopicSettings, asked: Option<String>) -> TopicCodec {
        TopicCodec::new(self, topic, asked)
    }

    /// Name the codec of an open topic: the one that its opening named, else this one. `is_empty`
    /// tells whether the topic never had a record. A topic with records and without a codec can
    /// only come from a foreign copy of its settings; no codec has encoded its records.
    ///
    /// # Errors
    /// [`crate::Error::SettingsMismatch`] if another program has named another codec, and the errors of
    /// [`Store::configure_topic`].
    pub(crate) fn name_codec(
        &self,
        topic: &TopicSettings,
        codec: &TopicCodec,
        default: &str,
        is_empty: bool,
    ) -> Result<()> {
        let asked = codec.asked.as_deref().unwrap_or(default);
        let name = if is_empty { asked } else { CODEC };
        let rename = |found: TopicSettings| match found.codec_unnamed {
            true => TopicSettings { codec: name.to_owned(), codec_unnamed: false, ..found },
            false => found,
        };
        let named = self.rewrite_topic(&topic.name, Some(topic.generation), rename)?;
        // A process that was killed may have named it without syncing the directory.
        let named = self.shared.adopted(named)?;
        differ(&topic.name, "codec", Some(&asked), &named.codec.as_str())?;
        codec.know(named.codec).map(drop)
    }
}
