//! Committing a bulk load: blocks that were encoded before, all at once, and the token that says so.
//!
//! Owns tokens, and the append of a bulk load. A token is a name and a rising version. It is one of the append's
//! [preconditions](super::preconditions) and is spent in the same group as the records, so a bulk load is committed once
//! however many processes ask for it, and however often. Invariant: records and token are there together,
//! or neither is. Each segment's snapshot has the tokens, as it has cursors: they outlive retention. Where
//! blocks come from is left to [`crate::sink`]. See `docs/PROTOCOL.md`, "Bulk loads".

use crate::error::{Error, Result};
use crate::format::state::{IdempotencyState, MAX_TOKEN_NAME};

use super::Log;
use super::append::{Appended, NewBlock};
use super::preconditions::{Found, Precondition, Unmet};

/// A bulk load of a series of bulk loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Number of the topic, and name of the series.
    pub(super) key: (u32, Vec<u8>),
    /// Number of the load in the series.
    pub(super) version: u64,
}

impl Token {
    /// The load with this number of a series, to the topic whose first partition has this number.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is empty or too long, and for the highest number, which no load has.
    pub fn new(topic: u32, name: &str, version: u64) -> Result<Self> {
        if !(1..=MAX_TOKEN_NAME).contains(&name.len()) {
            let what = format!("a token's name has 1 to {MAX_TOKEN_NAME} bytes");
            return Err(Error::InvalidArgument { what });
        }
        if version == IdempotencyState::NONE.version {
            let what = format!("a token's version is below {version}, which means none");
            return Err(Error::InvalidArgument { what });
        }
        Ok(Self { key: (topic, name.as_bytes().to_vec()), version })
    }
}

impl Log {
    /// The load of a series that was committed last to the topic whose first partition has this number;
    /// `None` where there is none. Costs as [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn token_of(&self, topic: u32, name: &str) -> Result<Option<IdempotencyState>> {
        let key = (topic, name.as_bytes().to_vec());
        self.with_metadata(|state| state.token(&key))
    }

    /// Append the blocks of a bulk load as one group, those of a topic one behind the other, with its token.
    /// `firsts` gets the first offset of each. Returns `None`, and appends nothing, if the token or a later
    /// one of its name was spent. Does not wait for the disk.
    ///
    /// # Errors
    /// As [`Log::append`]; `InvalidArgument` where the log remembers as many tokens as it can.
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
            Err(Unmet { found: Found::Past, .. }) => Ok(None),
            Err(unmet) => Err(self.unmet_error(token.as_slice(), unmet)),
        }
    }

    /// Forget a token: another one has room then, and a bulk load of that series can be committed again. Does not wait
    /// for the disk; `None` where there is none.
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

/// Everything that could be wrong with a bulk load, before the lock.
fn check_job(blocks: &[NewBlock<'_>], token: Option<&Token>, firsts: &[u64]) -> Result<()> {
    let refuse = |what: &str| Err(Error::InvalidArgument { what: what.to_owned() });
    if blocks.is_empty() && token.is_none() {
        return refuse("a bulk load without records and without a token has nothing to commit");
    }
    if blocks.len() != firsts.len() || blocks.iter().any(|block| block.count == 0) {
        return refuse("a bulk load has no blocks without records, and an offset for each");
    }
    if !blocks.is_sorted_by_key(|block| block.topic) {
        return refuse("blocks of a bulk load stand in the order of their topics");
    }
    Ok(())
}
