//! The description of the API, as OpenAPI.
//!
//! The document is a file beside this one. A test sends requests that it allows, and looks that answers are as it says.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};

/// The document.
const DOCUMENT: &str = include_str!("openapi.json");

/// Answer with the document. It tells nothing of the store, so it needs no token.
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
