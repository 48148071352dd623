//! Health: whether the process lives, and whether it can serve.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::App;

/// Answer while the process lives. It touches neither the store nor a lock that an append may hold.
pub async fn healthz() -> Json<serde_json::Value> {
    Json(json!({ "status": "alive" }))
}

/// Answer 200 while requests are served. A server that ends, or whose store was removed or moved away, is not ready, so
/// that a balancer sends it no more.
pub async fn readyz(State(app): State<App>) -> Response {
    let not_ready = |status: &str| {
        (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": status }))).into_response()
    };
    if app.is_draining() {
        return not_ready("ending");
    }
    let served = std::sync::Arc::clone(&app.served);
    if !tokio::task::spawn_blocking(move || served.is_there()).await.unwrap_or(false) {
        return not_ready("store removed");
    }
    let mode = if app.served.is_read_only() { "read-only" } else { "read-write" };
    Json(json!({ "status": "ready", "store": mode })).into_response()
}
