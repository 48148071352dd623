//! The path and the query of a request, with refusals that are problem documents.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The query of a request. A parameter that does not exist is refused, not ignored.
#[derive(Debug)]
pub struct Asked<T>(pub T);

/// The names in the path of a request.
#[derive(Debug)]
pub struct Named<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|error| refused("the query", &error))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        path.map(|Path(named)| Self(named)).map_err(|error| refused("the path", &error))
    }
}

/// The innermost error says what is wrong; those around it say only where it was found.
fn refused(what: &str, error: &dyn std::error::Error) -> Problem {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    Problem::bad_request(format!("{what} cannot be used: {innermost}"))
}
