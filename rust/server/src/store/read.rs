//! Reads: on a pool of threads, within a budget of bytes.
//!
//! A read may fault on a page that the disk does not give, so it never happens on a thread of the HTTP doors. Records
//! are copied out. The copy counts against the budget until the connection took its last byte.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use falaj::Error;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A unit of the budget, bytes: permits are counted in `u32`.
const UNIT: usize = 1 << 10;

/// An answer's bytes, which count against the budget until the last one was given to the connection.
#[derive(Debug)]
pub struct Held {
    bytes: Bytes,
    share: Share,
}

/// Bytes that a connection gets at a time.
const PIECE: usize = 64 << 10;

impl Held {
    /// Bytes, and the share that they take.
    pub fn new(bytes: Vec<u8>, mut share: Share) -> Self {
        share.shrink_to(bytes.len());
        Self { bytes: bytes.into(), share }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.bytes.len().min(PIECE);
        let piece = self.bytes.split_to(len);
        let left = self.bytes.len() + len;
        self.share.shrink_to(left);
        Poll::Ready((len > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// The pool's budget.
#[derive(Clone, Debug)]
pub struct Reads {
    budget: Arc<Semaphore>,
    units: usize,
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub struct Share(OwnedSemaphorePermit);

impl Share {
    /// Take more, if there is more: so many bytes in all. False if the budget is used up; no request waits for it while
    /// holding a part of it.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let missing = bytes.div_ceil(UNIT).saturating_sub(self.0.num_permits());
        let Ok(missing) = u32::try_from(missing) else { return false };
        let more = Arc::clone(self.0.semaphore()).try_acquire_many_owned(missing);
        more.map(|more| self.0.merge(more)).is_ok()
    }

    /// Give back all but what these bytes need.
    pub fn shrink_to(&mut self, bytes: usize) {
        let kept = bytes.div_ceil(UNIT).max(1);
        let surplus = self.0.num_permits().saturating_sub(kept);
        drop(self.0.split(surplus));
    }
}

impl Reads {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self { budget: Arc::new(Semaphore::new(units)), units }
    }

    /// Wait for a part of the budget. More than all of it counts as all of it.
    ///
    /// # Panics
    /// Never: the semaphore is not closed.
    pub async fn take(&self, bytes: usize) -> Share {
        let units = bytes.div_ceil(UNIT).clamp(1, self.units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.budget).acquire_many_owned(units).await;
        Share(permit.expect("the budget's semaphore stays open"))
    }

    /// Bytes in use.
    pub fn in_flight(&self) -> usize {
        (self.units - self.budget.available_permits()) * UNIT
    }
}

/// Call the engine on the pool.
///
/// # Errors
/// Those of the call. `Interrupted` where it panicked, or the server ends.
pub async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a call of the engine did not end in order");
            Err(Error::Interrupted)
        }
    }
}
