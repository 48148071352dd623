//! The lower bounds: a handler that reads a body and answers, and a stream of what comes out of a pipe.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http_body::Frame;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpListener;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

/// An answer as long as the server's.
const ANSWER: &str = r#"{"durable":false,"first":1000000,"next":1001000,"partition":0,"partitions":[{"first":1000000,"next":1001000,"partition":0}]}"#;

/// Serve on a free port until killed.
pub fn serve(fifo: &str) {
    let fifo = fifo.to_owned();
    let events = move || {
        let fifo = fifo.clone();
        async move { stream(&fifo) }
    };
    let routes = Router::new().route("/write", post(write)).route("/events", get(events));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!(r#"{{"port":{}}}"#, listener.local_addr().unwrap().port());
        axum::serve(listener, routes).await.unwrap();
    });
}

async fn write(body: Bytes) -> Response {
    assert!(!body.is_empty());
    (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], ANSWER).into_response()
}

fn stream(fifo: &str) -> Response {
    let pipe = OpenOptions::new().read_write(true).open_receiver(fifo).unwrap();
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(Piped(pipe))).into_response()
}

struct Piped(Receiver);

impl http_body::Body for Piped {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut memory = [0; 4 << 10];
        let mut read = ReadBuf::new(&mut memory);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut read)).unwrap();
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(read.filled())))))
    }
}
