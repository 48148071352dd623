//! Committing a job: blocks that were encoded before, all at once, and the token that tells that it was.
//!
//! Owns what a log knows of tokens, and the append of a job. A token is a name and a rising version; it is
//! looked at under the append lock and noted in the same group as the records, so a job is committed once
//! however often that is asked for, and whoever asks. Invariant: records and token are there together, or
//! neither is. What is known of tokens is in each segment's snapshot, as cursors are: it outlives
//! retention. Where blocks come from is left to [`crate::sink`]. See `docs/PROTOCOL.md`, "Sinks".

use crate::error::{Error, Result};
use crate::format::state::{MAX_TOKEN_NAME, MAX_TOKENS, TokenState, encode_tokens};

use super::append::{Appended, Blocked, NewBlock, Writer};
use super::batch::Batch;
use super::preconditions::{Preconditions, Unmet};
use super::{Log, enter};

/// Bytes that a token takes at most in a segment's snapshot.
const TOKEN_LEN: u64 = MAX_TOKEN_NAME as u64 + 24;

/// Which job of which series is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Number of the topic, and name of the series.
    pub(super) key: (u32, Vec<u8>),
    /// Number of the job in the series.
    pub(super) version: u64,
}

impl Token {
    /// The job with this number of a series, to the topic whose first partition has this number.
    ///
    /// # Errors
    /// `Invalid` for a name that is empty or too long, and for the highest number, which no job has.
    pub fn new(topic: u32, name: &str, version: u64) -> Result<Self> {
        if !(1..=MAX_TOKEN_NAME).contains(&name.len()) {
            let what = format!("a token's name has 1 to {MAX_TOKEN_NAME} bytes");
            return Err(Error::Invalid { what });
        }
        if version == TokenState::NONE.version {
            let what = format!("a token's version is below {version}, which means none");
            return Err(Error::Invalid { what });
        }
        Ok(Self { key: (topic, name.as_bytes().to_vec()), version })
    }
}

impl Log {
    /// How many tokens this log remembers: so many that a snapshot of them takes no more than an eighth of
    /// a segment.
    pub fn max_tokens(&self) -> usize {
        let fit = self.settings.segment_bytes / 8 / TOKEN_LEN;
        usize::try_from(fit).map_or(MAX_TOKENS, |fit| fit.min(MAX_TOKENS))
    }

    /// The job of a series that was committed last to the topic whose first partition has this number;
    /// `None` where there is none. Costs as [`Log::cursor_of`].
    ///
    /// # Errors
    /// As [`Log::cursor_of`].
    pub fn token_of(&self, topic: u32, name: &str) -> Result<Option<TokenState>> {
        let key = (topic, name.as_bytes().to_vec());
        self.with_metadata(|state| state.token(&key))
    }

    /// Append the blocks of a job as one group, those of a topic one behind the other, with its token.
    /// `firsts` gets the first offset of each. `None` where the token, or a later one of its name, is
    /// there already; then nothing was appended. Neither is waited for the medium.
    ///
    /// # Errors
    /// As [`Log::append`]; `Invalid` where the log remembers as many tokens as it can.
    pub fn commit_job(
        &self,
        blocks: &[NewBlock<'_>],
        token: Option<&Token>,
        firsts: &mut [u64],
    ) -> Result<Option<Appended>> {
        let (control, member) = self.writing()?;
        member.check()?;
        check_job(blocks, token, firsts)?;
        let facts = token.map(|token| self.fact(token, token.version)).unwrap_or_default();
        let batch = Batch { token, ..self.batch(blocks, &facts, false)? };
        let mut slot = enter(&self.writer);
        let demands = Preconditions::default();
        let tried = self.attempt(&mut slot, (control, member), &demands, &batch, firsts);
        match tried.map_err(|error| self.unless_deleted(error))? {
            Ok(appended) => Ok(Some(appended)),
            Err(Unmet::Spent) => Ok(None),
            Err(refusal) => Err(self.unmet_error(refusal, &demands)),
        }
    }

    /// Forget a token, so that another one has room, and a job of that series could be committed anew. It
    /// is not waited for the medium; `None` where there is none.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn forget_token(&self, topic: u32, name: &str) -> Result<Option<Appended>> {
        if self.token_of(topic, name)?.is_none() {
            return Ok(None);
        }
        let (control, member) = self.writing()?;
        let facts = self.fact(&Token::new(topic, name, 0)?, TokenState::NONE.version);
        let batch = self.batch(&[], &facts, false)?;
        let (mut slot, demands) = (enter(&self.writer), Preconditions::default());
        let appended = self.append_to(&mut slot, (control, member), &demands, &batch, &mut []);
        appended.map(Some).map_err(|error| self.unless_deleted(error))
    }

    /// Body of the block that says it.
    pub(super) fn fact(&self, token: &Token, version: u64) -> Vec<u8> {
        let committed_ms = self.storage.now_us() / 1000;
        encode_tokens(token.key.0, &token.key.1, TokenState { version, committed_ms })
    }

    /// What it means that a log remembers no more tokens.
    #[cold]
    pub(super) fn too_many_tokens(&self) -> Error {
        let (dir, limit) = (self.dir.display(), self.max_tokens());
        let what = format!(
            "{dir} remembers {limit} tokens, and this would be one more: let jobs of one kind share a name \
             and count versions, and forget the names that no job has any more"
        );
        Error::Invalid { what }
    }
}

impl Writer {
    /// Under the append lock: whether a token is still to be spent, and there is room to note it.
    pub(super) fn expect_unspent(
        &self,
        log: &Log,
        token: Option<&Token>,
    ) -> std::result::Result<(), Blocked> {
        let Some(token) = token else { return Ok(()) };
        log.sure_of_facts(&self.walk.state)?;
        // What is said of a topic that is gone nobody would ever forget.
        let topic = token.key.0;
        if self.walk.state.topic(topic).is_none() {
            return Err(Blocked::Unknown { topic });
        }
        match self.walk.state.token(&token.key) {
            Some(last) if token.version <= last.version => Err(Blocked::Refused(Unmet::Spent)),
            None if self.walk.state.tokens().count() >= log.max_tokens() => {
                Err(Blocked::Refused(Unmet::Tokens))
            }
            _ => Ok(()),
        }
    }
}

/// Everything that could be wrong with a job, before the lock.
fn check_job(blocks: &[NewBlock<'_>], token: Option<&Token>, firsts: &[u64]) -> Result<()> {
    let refuse = |what: &str| Err(Error::Invalid { what: what.to_owned() });
    if blocks.is_empty() && token.is_none() {
        return refuse("a job without records and without a token has nothing to commit");
    }
    if blocks.len() != firsts.len() || blocks.iter().any(|block| block.count == 0) {
        return refuse("a job has no blocks without records, and an offset for each");
    }
    if !blocks.is_sorted_by_key(|block| block.topic) {
        return refuse("blocks of a job stand in the order of their topics");
    }
    Ok(())
}
