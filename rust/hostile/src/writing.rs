//! A writer on a harmed store: it repairs, recovers and appends.
//!
//! A later reader must find each durable append, or get an error that says why not.

use std::path::Path;
use std::sync::Arc;

use falaj::internals::storage::Storage;
use falaj::internals::store::{Store, StoreOptions, TopicOptions, repair};
use falaj::internals::topic::{NewRecord, SyncMode, Topic};

use crate::answers::{Asking, Told, Trust, ask};
use crate::example::{Example, ROOT, options};

pub fn mend(
    storage: &Arc<dyn Storage>,
    example: &Example,
    asking: &Asking<'_>,
) -> Result<(), String> {
    for dry_run in [true, false] {
        let done =
            repair(Arc::clone(storage), Path::new(ROOT), &options(example.variant.mode), dry_run);
        if let Err(error) = done {
            asking.error(&mut Told::default(), &error, "repair")?;
        }
    }
    Ok(())
}

/// Open for writing, ask again, append, and ask a new reader.
///
/// Where a reader met corruption, the log continues behind it. Offsets skip what may be lost and
/// are not given twice.
pub fn write_on(
    storage: &Arc<dyn Storage>,
    example: &Example,
    asking: &Asking<'_>,
    known: bool,
) -> Result<&'static str, String> {
    let mut told = Told::default();
    let twice = asking.trust == Trust::All && !asking.mended && !asking.may_be_cut;
    let most = if known { Trust::Values } else { Trust::All };
    let asking = &Asking {
        trust: asking.trust.min(most),
        beside: asking.beside.map(|(beside, trust)| (beside, trust.min(most))),
        ..*asking
    };
    let mut appended = Vec::new();
    match Store::open_on(Arc::clone(storage), ROOT, &options(example.variant.mode)) {
        Ok(store) => {
            ask(&store, asking, &mut told)?;
            if let Some((beside, trust)) = asking.beside {
                beside.go_on(&store, &Asking { trust, ..*asking }, &mut told)?;
            }
            for name in asking.topics {
                appended.extend(append(&store, name, (asking, twice), &mut told)?);
            }
        }
        Err(error) => asking.error(&mut told, &error, "open for writing")?,
    }
    // A later reader finds what was there, and what was appended.
    let mut later = Told::default();
    let store = match Store::open_on(Arc::clone(storage), ROOT, &StoreOptions::reading()) {
        Ok(store) => store,
        Err(error) => {
            asking.error(&mut later, &error, "open again")?;
            return Ok(", write detected");
        }
    };
    for (topic, offset) in &appended {
        let topic = Topic::open(&store, topic, &TopicOptions::default());
        match topic.and_then(|topic| topic.get_in(0, *offset)) {
            Ok(record) if record.value() == Some(NEW) => {}
            Ok(record) if asking.trust == Trust::All => {
                return Err(format!("appended at {offset}, and found {record:?}"));
            }
            Ok(_) => {}
            Err(error) => asking.error(&mut later, &error, "what was appended")?,
        }
    }
    Ok(if told.is_same() && later.is_same() { ", write harmless" } else { ", write detected" })
}

/// The value that is appended to a harmed store.
const NEW: &[u8] = b"something new";

fn append(
    store: &Store,
    name: &str,
    (asking, twice): (&Asking<'_>, bool),
    told: &mut Told,
) -> Result<Option<(String, u64)>, String> {
    let topic = match Topic::open(store, name, &TopicOptions::default()) {
        Ok(topic) => topic,
        Err(error) => return asking.error(told, &error, "open to append").map(|()| None),
    };
    let truth = &asking.truths[name][0];
    let whole = truth.records.len() as u64;
    match topic.append_to(0, &NewRecord::new(NEW), Some(SyncMode::Durable)) {
        Ok(offset) if offset == whole => {}
        Ok(offset) if asking.may_be_cut && (truth.synced..whole).contains(&offset) => {}
        Ok(offset) if offset < whole && twice => {
            return Err(format!("appended to {name} at {offset} a second time, of {whole}"));
        }
        Ok(offset) if asking.trust == Trust::All => {
            return Err(format!("appended to {name} at {offset} instead of {whole}"));
        }
        Ok(_) => {}
        Err(error) => return asking.error(told, &error, "append").map(|()| None),
    }
    let offset = match topic.end(0) {
        Ok(end) => end.saturating_sub(1),
        Err(error) => return asking.error(told, &error, "the end behind it").map(|()| None),
    };
    match topic.get_in(0, offset) {
        Ok(record) if record.value() == Some(NEW) => {}
        Ok(record) if asking.trust == Trust::All => {
            return Err(format!("appended to {name}, and read {record:?}"));
        }
        Ok(_) => return Ok(None),
        Err(error) => asking.error(told, &error, "read what was appended")?,
    }
    Ok(Some((name.to_owned(), offset)))
}
