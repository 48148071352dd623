//! The path, the query and single headers of a request, with refusals that are problem documents.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use falaj::{Error, Topic};
use serde::de::DeserializeOwned;

use super::problem::{Answer, Problem};
use crate::store::Served;

/// The header that says which topic of a name a request means.
const GENERATION: &str = "falaj-generation";

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

/// A header, if there is one. Sent twice it says two things.
///
/// # Errors
/// 400 for one that was sent twice.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Answer<Option<&'a HeaderValue>> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (_, Some(_)) => {
            let detail = format!("the header {name} was sent twice: send it once");
            Err(Box::new(Problem::bad_request(detail)))
        }
        (value, None) => Ok(value),
    }
}

/// A whole number in digits alone: a sign is no part of it.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| text.parse().ok()).flatten()
}

/// The topic that a request means: the one that has the name now, or only that of a generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meant(Option<u64>);

impl Meant {
    /// Read the header.
    ///
    /// # Errors
    /// 400 for one that is no generation.
    pub(super) fn by(headers: &HeaderMap) -> Answer<Self> {
        let Some(value) = one(headers, GENERATION)? else { return Ok(Self(None)) };
        Self::of(Some(value.to_str().unwrap_or_default()))
    }

    /// Read a generation as `GET /v1/topics/{topic}` shows it.
    ///
    /// # Errors
    /// 400 for a text that is none.
    pub(super) fn of(text: Option<&str>) -> Answer<Self> {
        let Some(text) = text else { return Ok(Self(None)) };
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        let number = number.ok_or_else(|| {
            let detail = format!("{text:?} is no generation: it has 16 hexadecimal digits");
            Problem::bad_request(detail)
        })?;
        Ok(Self(Some(number)))
    }

    /// True if the request means a topic that there is already.
    pub(super) fn is_given(self) -> bool {
        self.0.is_some()
    }

    /// Refuse a topic that only has the name of the one that is meant.
    ///
    /// # Errors
    /// 410.
    pub(super) fn expect(self, name: &str, generation: &[u8; 16]) -> Answer<()> {
        match self.0 {
            Some(meant) if generation[..8] != meant.to_be_bytes() => Err(gone(name)),
            _ => Ok(()),
        }
    }

    /// Open the topic that is meant. Blocks. Nothing done with the handle reaches another topic.
    ///
    /// # Errors
    /// 410 where there is another topic of this name, or none; those of the engine.
    pub(super) fn find(self, served: &Served, name: &str) -> Answer<Topic> {
        let topic = served.topic(name).map_err(|error| self.refused(name, error))?;
        self.expect(name, &topic.settings().generation)?;
        Ok(topic)
    }

    /// The refusal for an error: without a topic of this name, the one that is meant was deleted.
    pub(super) fn refused(self, name: &str, error: Error) -> Box<Problem> {
        match error {
            Error::UnknownTopic { .. } if self.is_given() => gone(name),
            error => error.into(),
        }
    }
}

fn gone(name: &str) -> Box<Problem> {
    let detail = format!("the topic {name} of this generation was deleted; nothing was done");
    let problem = Problem::new(StatusCode::GONE, "topic-deleted", detail);
    Box::new(problem.remedy("open the topic again, which finds the one that has the name now"))
}

/// The innermost error says what is wrong; those around it say only where it was found.
fn refused(what: &str, error: &dyn std::error::Error) -> Problem {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    Problem::bad_request(format!("{what} cannot be used: {innermost}"))
}
