//! Committing a bulk load: blocks that were encoded before, all at once, with an idempotency key.
//!
//! Owns idempotency keys ([`Token`]), and the append of a bulk load. A key is a name and a rising
//! version. It is one of the append's [preconditions](super::preconditions), and is spent in the
//! same group as the records. So a bulk load is committed once, however many processes ask for it
//! and however often. Invariant: records and key are both there, or neither is. Each segment's
//! snapshot has the keys, as it has cursors: they outlive retention. [`crate::sink`] provides the
//! blocks. See `docs/PROTOCOL.md`, "Bulk loads".

use crate::error::{Error, Result};
use crate::format::state::{IdempotencyState, MAX_TOKEN_NAME};

use super::Log;
use super::append::{Appended, NewBlock};
use super::preconditions::{Found, Precondition, Unmet};

/// The idempotency key of a bulk load in a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Number of the topic, and name of the series.
    pub(super) key: (u32, Vec<u8>),
    /// Number of the load in the series.
    pub(super) version: u64,
}

impl Token {
    /// Make the key of the load with this number of a series, to the topic whose first partition
    /// has this number.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is empty or too long, and for the highest number, which no load has.
    pub fn new(topic: u32, name: &str, version: u64) -> Result<Self> {
        if !(1..=MAX_TOKEN_NAME).contains(&name.len()) {
            return Err(Error::invalid(format!(
                "an idempotency key's name has 1 to {MAX_TOKEN_NAME} bytes"
            )));
        }
        if version == IdempotencyState::NONE.version {
            return Err(Error::invalid(format!(
                "an idempotency key's version is below {version}, which means none"
            )));
        }
        Ok(Self { key: (topic, name.as_bytes().to_vec()), version })
    }
}

impl Log {
    /// Return the last committed load of a series to the topic whose first partition has this
    /// number; `None` without one. Costs as [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn token_of(&self, topic: u32, name: &str) -> Result<Option<IdempotencyState>> {
        let key = (topic, name.as_bytes().to_vec());
        self.with_metadata(|state| state.token(&key))
    }

    /// Append the blocks of a bulk load as one group, those of a topic in a row, with its key.
    /// `firsts` gets the first offset of each. Returns `None`, and appends nothing, if the key or a
    /// later one of its name was spent. Does not wait for the disk.
    ///
    /// # Errors
    /// As [`Log::append`]; `InvalidArgument` if the log cannot remember more keys.
    pub fn commit_load(
        &self,
        blocks: &[NewBlock<'_>],
        token: Option<&Token>,
        firsts: &mut [u64],
    ) -> Result<Option<Appended>> {
        check_job(blocks, token, firsts)?;
        let token = token.map(Precondition::Token);
        match self.try_append_if(token.as_slice(), blocks, false, firsts)? {
            Ok(appended) => Ok(Some(appended)),
            Err(Unmet { found: Found::Past(_), .. }) => Ok(None),
            Err(unmet) => Err(self.unmet_error(token.as_slice(), unmet)),
        }
    }

    /// Forget an idempotency key: a bulk load of that series can then be committed again, and the
    /// log can remember another key. Does not wait for the disk; `None` without such a key.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn forget_idempotency_key(&self, topic: u32, name: &str) -> Result<Option<Appended>> {
        if self.token_of(topic, name)?.is_none() {
            return Ok(None);
        }
        let forgotten =
            Token { version: IdempotencyState::NONE.version, ..Token::new(topic, name, 0)? };
        self.append_if(&[Precondition::Token(&forgotten)], &[], false, &mut []).map(Some)
    }
}

/// Check all that can be wrong with a bulk load, before the lock.
fn check_job(blocks: &[NewBlock<'_>], token: Option<&Token>, firsts: &[u64]) -> Result<()> {
    let refuse = |what: &str| Err(Error::invalid(what));
    if blocks.is_empty() && token.is_none() {
        return refuse(
            "a bulk load without records and without an idempotency key has nothing to commit",
        );
    }
    if blocks.len() != firsts.len() || blocks.iter().any(|block| block.count == 0) {
        return refuse("each block of a bulk load has records, and a place for its first offset");
    }
    if !blocks.is_sorted_by_key(|block| block.topic) {
        return refuse("blocks of a bulk load must be in the order of their topics");
    }
    Ok(())
}
