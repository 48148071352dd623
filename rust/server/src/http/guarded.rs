//! A connection that ends itself where its client stalls it.
//!
//! A client that connects and sends nothing, or that asks and then never reads, costs memory for nothing. HTTP libraries
//! bound the time of a request's head once they know the version of HTTP; [`Guarded::begin`] bounds the time before.
//! A write bounds the time that an answer waits to be read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, timeout};

/// The bytes that an HTTP/2 client begins with (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a first read: the whole head of most requests. An HTTP/1 connection that gets its head in one read
/// keeps a buffer of half the size.
const FIRST: usize = 1 << 10;

/// A stream with deadlines.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    /// Bytes that were read to find the version, and how many of them are read again.
    begun: Vec<u8>,
    again: usize,
    write_timeout: Duration,
    /// Runs while a write waits for the client to read.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Guarded<S> {
    /// Guard a stream that was just accepted.
    pub fn new(stream: S, write_timeout: Duration) -> Self {
        Self { stream, begun: Vec::new(), again: 0, write_timeout, stalled: None }
    }

    /// Let a write go on, or end the connection where it has waited for too long.
    fn bound<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let until = Instant::now() + self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not read",
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
    /// Read until the version of HTTP is known: true for HTTP/2. A later read returns these bytes again.
    ///
    /// # Errors
    /// Those of the stream; `TimedOut` for a client that sends too little in this time.
    pub async fn begin(&mut self, patience: Duration) -> io::Result<bool> {
        timeout(patience, self.read_preface()).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "the client did not begin a request")
        })?
    }

    async fn read_preface(&mut self) -> io::Result<bool> {
        self.begun.reserve_exact(FIRST);
        while self.begun.len() < PREFACE.len() && PREFACE.starts_with(&self.begun) {
            if self.stream.read_buf(&mut self.begun).await? == 0 {
                break;
            }
        }
        Ok(self.begun.starts_with(PREFACE))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.begun.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let left = &self.begun[self.again..];
        let taken = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..taken]);
        self.again += taken;
        if self.again == self.begun.len() {
            self.begun = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bound(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bound(cx, ended)
    }
}
