//! The HTTP door: its routes, and what all handlers share.
//!
//! ```text
//! connection --hyper--> gate (Host, Origin, token) --> handler --> store/ (append threads, watcher, readers)
//! ```
//!
//! Each refusal is a problem document ([`problem`]). A handler checks its principal's grants before it touches the store.

mod append;
mod asked;
mod bodies;
pub mod body;
mod compress;
mod documents;
mod events;
pub(crate) mod foreign;
mod frame;
mod gate;
pub mod groups;
pub mod guarded;
mod health;
pub mod listen;
pub mod metrics;
mod openapi;
mod overview;
mod page;
mod place;
pub mod problem;
mod queue_admin;
mod queue_settle;
mod queues;
mod read;
mod shape;
mod together;
mod topics;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use crate::access::{Access, Browser};
use crate::config::Config;
use crate::place::Place;
use crate::store::Served;
use problem::Problem;

/// The state that all handlers share. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

/// The contents of an [`App`].
#[derive(Debug)]
pub struct Shared {
    /// The store.
    pub served: Arc<Served>,
    /// Objects of other machines' stores, if a place is served.
    pub place: Option<Arc<Place>>,
    /// The configuration.
    pub config: Config,
    /// Names and origins that requests may have.
    pub browser: Browser,
    /// Requests that may wait for new records.
    pub followers: Arc<Semaphore>,
    /// The last look at the whole store.
    pub looks: overview::Looks,
    /// Members of groups that clients hold.
    pub sessions: Arc<groups::Sessions>,
    /// Answers that may be compressed now.
    pub compressions: Semaphore,
    /// Counts of what happened.
    pub metrics: metrics::Metrics,
    access: RwLock<Arc<Access>>,
    draining: AtomicBool,
    drained: tokio::sync::watch::Sender<bool>,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    /// Put together the state that the handlers share.
    pub fn new(
        served: Arc<Served>,
        place: Option<Arc<Place>>,
        config: Config,
        access: Access,
        browser: Browser,
    ) -> Self {
        problem::hide(served.store().path());
        let followers = usize::try_from(config.limits.followers)
            .unwrap_or(usize::MAX)
            .min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Shared {
            served,
            place,
            browser,
            followers: Arc::new(Semaphore::new(followers)),
            looks: overview::Looks::default(),
            sessions: Arc::default(),
            compressions: Semaphore::new(compress::AT_ONCE),
            metrics: metrics::Metrics::default(),
            access: RwLock::new(Arc::new(access)),
            draining: AtomicBool::new(false),
            drained: tokio::sync::watch::channel(false).0,
            config,
        }))
    }

    /// The permissions of now.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replace the permissions; requests in flight keep theirs.
    pub fn replace_access(&self, access: Access) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// Begin to end: requests that wait for new records are answered with what there is.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drained.send_replace(true);
    }

    /// True once the server is asked to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Wait until the server is asked to end.
    pub async fn until_drained(&self) {
        // The sender lives as long as `self`.
        let _ = self.drained.subscribe().wait_for(|drained| *drained).await;
    }

    /// All routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(page::index))
            .route("/page/{file}", get(page::file))
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(metrics::metrics))
            .route("/openapi.json", get(openapi::openapi))
            .route("/v1/append", post(together::append))
            .route("/v1/store", get(overview::overview))
            .route("/v1/logs/{log}", get(overview::log))
            .route("/v1/place", get(place::list).post(place::act))
            .route("/v1/place/{*key}", get(place::get).put(place::create).delete(place::delete))
            .route("/v1/groups", get(groups::list))
            .route("/v1/groups/{group}", get(groups::describe).delete(groups::delete))
            .route("/v1/groups/{group}/poll", post(groups::poll))
            .route("/v1/groups/{group}/commit", post(groups::commit))
            .route("/v1/groups/{group}/seek", post(groups::seek))
            .route("/v1/groups/{group}/leave", post(groups::leave))
            .route("/v1/groups/{group}/forget", post(groups::forget))
            .route("/v1/queues", get(queue_admin::list))
            .route(
                "/v1/queues/{queue}",
                get(queue_admin::describe).put(queue_admin::create).delete(queue_admin::delete),
            )
            .route("/v1/queues/{queue}/put", post(queue_admin::put))
            .route("/v1/queues/{queue}/take", post(queues::take))
            .route("/v1/queues/{queue}/ack", post(queue_settle::ack))
            .route("/v1/queues/{queue}/nack", post(queue_settle::nack))
            .route("/v1/queues/{queue}/extend", post(queue_settle::extend))
            .route("/v1/queues/{queue}/redrive", post(queue_admin::redrive))
            .route("/v1/topics", get(topics::list))
            .route(
                "/v1/topics/{topic}",
                get(topics::describe)
                    .put(topics::create)
                    .patch(topics::change)
                    .delete(topics::delete)
                    .post(topics::act),
            )
            .route("/v1/topics/{topic}/count", get(topics::count))
            .route("/v1/topics/{topic}/records", get(read::read).post(append::append))
            .fallback(unknown)
            .method_not_allowed_fallback(not_allowed)
            .layer(middleware::from_fn_with_state(self.clone(), gate::gate))
            .layer(middleware::from_fn_with_state(self.clone(), metrics::count))
            .with_state(self)
    }
}

async fn unknown(uri: axum::http::Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown-path",
        format!("there is nothing at {}", uri.path()),
    )
    .remedy("see /openapi.json")
}

async fn not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    let detail = format!("{method} is not a request that {} takes", uri.path());
    // The router has one path for a topic and for what is done to it, and would name the methods of both.
    let topic = uri.path().strip_prefix("/v1/topics/").filter(|rest| !rest.contains('/'));
    let problem = match topic {
        Some(name) if name.contains(':') => Problem::not_allowed(detail, "POST"),
        Some(_) => Problem::not_allowed(detail, topics::METHODS),
        None => Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail),
    };
    problem.remedy("see /openapi.json")
}
