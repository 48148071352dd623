//! Counts of what the server did, in the text format of Prometheus.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Instant;

use axum::Extension;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::App;
use super::problem::{Answer, Problem};
use crate::access::{Action, Kind, Principal};

/// The labels by which requests are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Labels {
    method: String,
    route: String,
    status: u16,
}

/// All counts.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    seconds: Histogram,
    /// Connections that are open.
    pub connections: Gauge<i64, AtomicI64>,
    /// Records appended through the server.
    pub appended: Counter<u64, AtomicU64>,
    /// Bytes of values that were read through the server.
    pub read_bytes: Counter<u64, AtomicU64>,
    /// Objects that were created in the place.
    pub created: Counter<u64, AtomicU64>,
    /// Bytes of these.
    pub created_bytes: Counter<u64, AtomicU64>,
    /// Bytes of objects that were read from the place.
    pub sent_bytes: Counter<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 9)),
            connections: Gauge::default(),
            appended: Counter::default(),
            read_bytes: Counter::default(),
            created: Counter::default(),
            created_bytes: Counter::default(),
            sent_bytes: Counter::default(),
        }
    }
}

/// Count a request by its route, never by its path: paths hold names.
pub async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().as_str().to_owned();
    let route =
        request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    tracing::debug!(method, route, status, ms = start.elapsed().as_secs_f64() * 1e3, "request");
    app.metrics.seconds.observe(start.elapsed().as_secs_f64());
    app.metrics.requests.get_or_create(&Labels { method, route, status }).inc();
    response
}

/// Answer with all counts.
///
/// # Errors
/// 403 without the grant.
pub async fn metrics(State(app): State<App>, Extension(principal): Extension<Principal>) -> Answer {
    principal.may(Action::Admin, Kind::Topic, "*")?;
    let mut registry = Registry::with_prefix("falaj_server");
    let counts = &app.metrics;
    registry.register("requests", "Requests by route and status", counts.requests.clone());
    registry.register("request_seconds", "Time to the head of an answer", counts.seconds.clone());
    registry.register("connections", "Open connections", counts.connections.clone());
    registry.register("appended_records", "Records appended", counts.appended.clone());
    registry.register("read_bytes", "Bytes of values read", counts.read_bytes.clone());
    let of_place = [
        ("place_created_objects", "Objects created in the place", &counts.created),
        ("place_created_bytes", "Bytes of objects created in the place", &counts.created_bytes),
        ("place_read_bytes", "Bytes of objects read from the place", &counts.sent_bytes),
    ];
    for (name, help, count) in of_place {
        registry.register(name, help, count.clone());
    }
    let gauge = |value: usize| {
        let gauge = Gauge::<i64, AtomicI64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    let followers = app.config.limits.followers as usize - app.followers.available_permits();
    registry.register("followers", "Requests that wait for new records", gauge(followers));
    registry.register("members", "Members of groups that clients hold", gauge(app.sessions.len()));
    registry.register(
        "watched_partitions",
        "Partitions with followers",
        gauge(app.served.watcher.partitions()),
    );
    registry.register(
        "waiting_appends",
        "Requests that wait to append",
        gauge(app.served.appends.waiting()),
    );
    registry.register(
        "bytes_in_flight",
        "Bytes of bodies and answers in memory",
        gauge(app.served.reads.in_flight()),
    );
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|_| Box::new(Problem::busy("the metrics could not be written")))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
