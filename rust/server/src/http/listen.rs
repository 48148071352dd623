//! Connections: accepted within limits, with TLS where it is configured, and ended in order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::App;
use super::guarded::Guarded;
use crate::config::Limits;
use crate::tls::Certificates;

/// The answer to a client beyond `limits.connections`.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n\
Connection: close\r\nContent-Length: 123\r\n\r\n\
{\"type\":\"urn:falaj:problem:busy\",\"status\":503,\"detail\":\"as many connections are open as limits.connections allows\"       }\n";
/// Bytes that an HTTP/1 connection keeps of a request's head, and that HTTP/2 takes of its fields.
const HEAD: usize = 64 << 10;
const FIELDS: usize = 100;
/// Once the server ends, a connection without a request in flight stays open so long: its client may be sending one.
/// The answer to that tells an HTTP/1 client that the connection ends, so the client is never cut off in the middle.
const LAST_REQUEST: Duration = Duration::from_millis(500);

/// Ends a connection at once, from within its requests.
#[derive(Clone, Debug, Default)]
pub struct Cut(Arc<Notify>);

impl Cut {
    /// End the connection.
    pub fn cut(&self) {
        self.0.notify_one();
    }
}

/// The routes, for the requests of one connection: each learns how to end it.
#[derive(Clone)]
struct Routes {
    all: TowerToHyperService<axum::Router>,
    cut: Cut,
}

impl Service<Request<Incoming>> for Routes {
    type Response = <TowerToHyperService<axum::Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<axum::Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<axum::Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.cut.clone());
        self.all.call(request)
    }
}

/// Serve a listener until the server is asked to end, then wait for what is in flight, at most `drain`.
pub async fn serve(app: App, listener: TcpListener, tls: Option<Arc<Certificates>>) {
    let limits = app.config.limits.clone();
    let room = Arc::new(Semaphore::new(
        usize::try_from(limits.connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
    ));
    let service = app.clone().router();
    let builders = Arc::new(Builders::new(&limits));
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.until_drained() => break,
        };
        // Connections that ended are forgotten here.
        while open.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                rest_after(&error).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            refuse(stream, tls.is_some());
            continue;
        };
        // Small answers are whole: waiting for more to send would only make them late.
        let _ = stream.set_nodelay(true);
        let (app, builders, tls) = (app.clone(), Arc::clone(&builders), tls.clone());
        let all = TowerToHyperService::new(service.clone());
        let service = Routes { all, cut: Cut::default() };
        open.spawn(async move {
            let _place = place;
            app.metrics.connections.inc();
            // In boxes, so that a connection takes no memory for what it does not have.
            match tls {
                None => Box::pin(connection(&app, &builders, stream, service)).await,
                Some(tls) => Box::pin(with_tls(&app, &builders, stream, service, &tls)).await,
            }
            app.metrics.connections.dec();
        });
    }
    drop(listener);
    let ended = async { while open.join_next().await.is_some() {} };
    if tokio::time::timeout(app.config.drain.0, ended).await.is_err() {
        tracing::warn!("requests were still in flight when the time to end was over");
    }
    app.sessions.end_all().await;
}

async fn with_tls(
    app: &App,
    builders: &Builders,
    stream: TcpStream,
    service: Routes,
    tls: &Certificates,
) {
    let handshake = tls.acceptor().accept(stream);
    match tokio::time::timeout(app.config.limits.header_timeout.0, handshake).await {
        Ok(Ok(stream)) => connection(app, builders, stream, service).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
        Err(_) => tracing::debug!("no TLS in time"),
    }
}

async fn connection<S>(app: &App, builders: &Builders, stream: S, service: Routes)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let limits = &app.config.limits;
    let mut stream = Guarded::new(stream, limits.write_timeout.0);
    let last_request = async {
        app.until_drained().await;
        tokio::time::sleep(LAST_REQUEST).await;
    };
    let begun = tokio::select! {
        begun = stream.begin(limits.header_timeout.0) => begun,
        () = last_request => return,
    };
    let (io, cut) = (TokioIo::new(stream), service.cut.clone());
    match begun {
        Ok(false) => serve_one(app, builders.http1.serve_connection(io, service), cut).await,
        Ok(true) => {
            Box::pin(serve_one(app, builders.http2.serve_connection(io, service), cut)).await;
        }
        Err(error) => tracing::debug!(%error, "a connection ended before its first request"),
    }
}

/// Serve a connection until it ends. A server that is asked to end finishes the requests in flight.
async fn serve_one<C>(app: &App, serving: C, cut: Cut)
where
    C: GracefulConnection<Error = hyper::Error>,
{
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = cut.0.notified() => {
            tracing::debug!("a connection ended, since its client left an answer unread");
            return;
        }
        () = app.until_drained() => {
            let ended = tokio::time::timeout(LAST_REQUEST, serving.as_mut()).await;
            if let Ok(ended) = ended {
                ended
            } else {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Builders of connections, by the version of HTTP.
struct Builders {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Builders {
    fn new(limits: &Limits) -> Self {
        let mut builders =
            Self { http1: http1::Builder::new(), http2: http2::Builder::new(TokioExecutor::new()) };
        builders
            .http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout.0)
            .max_headers(FIELDS)
            .max_buf_size(HEAD);
        let resets = usize::try_from(limits.resets).unwrap_or(usize::MAX);
        builders
            .http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(HEAD).unwrap_or(u32::MAX))
            .max_concurrent_streams(256)
            .max_pending_accept_reset_streams(resets)
            .max_local_error_reset_streams(resets)
            .max_send_buf_size(1 << 20)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        builders
    }
}

/// Tell a client that there is no place for it. With TLS there is no cheap way to say so: the connection ends.
fn refuse(mut stream: TcpStream, tls: bool) {
    if !tls {
        tokio::spawn(async move {
            let answer = async {
                let _ = stream.write_all(FULL).await;
                let _ = stream.shutdown().await;
            };
            let _ = tokio::time::timeout(Duration::from_secs(1), answer).await;
        });
    }
}

/// Too many open files is an error that stays for a while: accepting again at once would only burn a core.
async fn rest_after(error: &io::Error) {
    let is_the_clients = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    );
    if !is_the_clients {
        tracing::error!(%error, "no connection could be accepted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::FULL;

    #[test]
    fn the_answer_to_one_client_too_many_is_whole() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        assert_eq!(len.parse::<usize>().unwrap(), body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["detail"].is_string());
    }
}
