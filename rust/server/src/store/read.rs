//! Reads: on a pool of threads, within a budget of bytes.
//!
//! A read may fault on a page that the disk does not give, so it never holds up a thread of the HTTP doors: it runs on
//! the pool, or another thread takes over the door's work first. Records are copied out. The copy counts against the budget until its last byte was sent.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use falaj::Error;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A unit of the budget, bytes: permits are counted in `u32`.
const UNIT: usize = 1 << 10;

/// An answer's bytes. They count against the budget until the last one was sent, since their memory is whole until then.
#[derive(Debug)]
pub struct Held {
    bytes: Bytes,
    left: Arc<AtomicUsize>,
}

/// Bytes that a connection gets at a time.
const PIECE: usize = 64 << 10;

/// The memory of an answer, and its share.
struct Owned {
    bytes: Vec<u8>,
    _share: Share,
    _alive: Option<oneshot::Sender<()>>,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Held {
    /// Bytes, and the share that they take.
    pub fn new(bytes: Vec<u8>, share: Share) -> Self {
        Self::owned(bytes, share, None)
    }

    fn owned(bytes: Vec<u8>, mut share: Share, alive: Option<oneshot::Sender<()>>) -> Self {
        share.shrink_to(bytes.capacity());
        let left = Arc::new(bytes.len().into());
        Self { bytes: Bytes::from_owner(Owned { bytes, _share: share, _alive: alive }), left }
    }

    /// Likewise; `cut` is called once this long has passed without a piece being sent on.
    ///
    /// HTTP/2 needs it: a client that gives a stream no window blocks no write of the connection, which has a deadline of
    /// its own. And the connection then keeps a piece, so only its end frees the memory.
    pub fn with_deadline(
        bytes: Vec<u8>,
        share: Share,
        patience: Duration,
        cut: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (alive, mut sent) = oneshot::channel();
        let held = Self::owned(bytes, share, Some(alive));
        let left = Arc::clone(&held.left);
        tokio::spawn(async move {
            loop {
                let before = left.load(Ordering::Relaxed);
                tokio::select! {
                    // The last piece was sent, and the sender dropped with it.
                    _ = &mut sent => return,
                    () = tokio::time::sleep(patience) => {}
                }
                if left.load(Ordering::Relaxed) == before {
                    return cut();
                }
            }
        });
        held
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
        self.left.store(self.bytes.len(), Ordering::Relaxed);
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

    /// Take another part, if there is one.
    pub fn beside(&self) -> Option<Self> {
        Arc::clone(self.0.semaphore()).try_acquire_owned().ok().map(Self)
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

    /// Bytes of all shares together.
    pub fn capacity(&self) -> usize {
        self.units * UNIT
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

/// Call the engine on this thread, after another thread has taken over its other work. So a read that has to wait for
/// the disk delays its own connection alone.
///
/// # Errors
/// As [`blocking`].
///
/// # Panics
/// Outside of a runtime with several threads.
pub fn here<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    tokio::task::block_in_place(|| {
        std::panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            tracing::error!("a call of the engine did not end in order");
            Err(Error::Interrupted)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn next(held: &mut Held) -> Option<Bytes> {
        let frame = poll_fn(|cx| Pin::new(&mut *held).poll_frame(cx)).await?;
        frame.ok()?.into_data().ok()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_that_panics_is_an_error_on_the_pool_and_on_the_spot() {
        let told = blocking(|| -> Result<(), Error> { panic!("planted") }).await;
        assert!(matches!(told, Err(Error::Interrupted)));
        let told = here(|| -> Result<(), Error> { panic!("planted") });
        assert!(matches!(told, Err(Error::Interrupted)));
        assert_eq!(here(|| Ok(7)).unwrap(), 7);
    }

    #[tokio::test]
    async fn an_answer_takes_its_share_until_its_last_piece_was_sent() {
        let reads = Reads::new(1 << 20);
        let mut held = Held::new(vec![7; 3 * PIECE], reads.take(1 << 20).await);
        assert_eq!(reads.in_flight(), 3 * PIECE);
        let mut pieces = Vec::new();
        while let Some(piece) = next(&mut held).await {
            pieces.push(piece);
        }
        assert_eq!(pieces.concat(), vec![7; 3 * PIECE]);
        drop(held);
        // A connection still has to send it.
        let last = pieces.pop();
        drop(pieces);
        assert_eq!(reads.in_flight(), 3 * PIECE);
        drop(last);
        assert_eq!(reads.in_flight(), 0);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_taken_in_time_cuts_its_connection_even_for_its_last_piece() {
        let (cut, called) = oneshot::channel();
        let (reads, patience) = (Reads::new(1 << 20), Duration::from_millis(10));
        let share = reads.take(1 << 20).await;
        let mut held =
            Held::with_deadline(vec![7; PIECE], share, patience, || cut.send(()).unwrap_or(()));
        let piece = next(&mut held).await;
        drop(held);
        called.await.unwrap();
        drop(piece);
        let (cut, called) = oneshot::channel();
        let share = reads.take(1 << 20).await;
        let held =
            Held::with_deadline(vec![7; PIECE], share, patience, || cut.send(()).unwrap_or(()));
        drop(held);
        called.await.unwrap_err();
    }
}
