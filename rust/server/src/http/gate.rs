//! Checks before each handler: Host, Origin, token. Each answer gets its security headers here.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::App;
use super::page;
use super::problem::Problem;
use crate::access::Principal;

/// Paths that need no token: they tell nothing of the store.
const PUBLIC: [&str; 4] = ["/healthz", "/readyz", "/openapi.json", "/"];

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // A value that is no text counts as one that is not allowed.
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// Refuse what must not come in; find the principal of the rest.
pub async fn gate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let origin = text(request.headers(), &header::ORIGIN).map(str::to_owned);
    let version = request.version();
    let mut response = match admit(&app, &mut request) {
        Ok(Admitted::Preflight) => StatusCode::NO_CONTENT.into_response(),
        Ok(Admitted::Yes) => caught(next.run(request)).await,
        Err(problem) => {
            tracing::debug!(detail = problem.detail(), "refused");
            problem.into_response()
        }
    };
    let headers = response.headers_mut();
    // Answers are data: a browser neither guesses their type nor shows them in a frame of another page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if app.is_draining() && version <= Version::HTTP_11 {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(origin) = origin.filter(|origin| app.browser.knows_origin(origin))
        && let Ok(origin) = HeaderValue::from_str(&origin)
    {
        allow_origin(headers, origin);
    }
    response
}

/// Answer in the place of a handler that panicked: its client must hear that the outcome is unknown.
async fn caught(handling: impl Future<Output = Response>) -> Response {
    let mut handling = pin!(handling);
    let polled = poll_fn(|cx| {
        let poll = AssertUnwindSafe(|| handling.as_mut().poll(cx));
        match std::panic::catch_unwind(poll) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        }
    });
    polled.await.unwrap_or_else(|| {
        tracing::error!("a request was not handled in order: this is a fault of the server");
        let detail = "the server failed at this request, and cannot say whether anything changed";
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail);
        problem
            .remedy("look what is there, and report the fault with the server's log")
            .into_response()
    })
}

enum Admitted {
    Yes,
    Preflight,
}

fn admit(app: &App, request: &mut Request) -> Result<Admitted, Box<Problem>> {
    let headers = request.headers();
    // HTTP/2 has the host in the address of the request.
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = authority.as_deref().or_else(|| text(headers, &header::HOST));
    if !app.browser.allows_host(host) {
        let detail =
            format!("this server does not answer to the name {:?}", host.unwrap_or_default());
        let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host", detail);
        return Err(Box::new(problem.remedy("use its address, or add the name to access.hosts")));
    }
    let origin = text(headers, &header::ORIGIN);
    let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    let site = text(headers, &HeaderName::from_static("sec-fetch-site"));
    if !is_read && !app.browser.allows_write(host, origin, site) {
        let detail =
            format!("pages of {} may not send requests here", origin.unwrap_or("another site"));
        let problem = Problem::new(StatusCode::FORBIDDEN, "foreign-origin", detail);
        return Err(Box::new(problem.remedy("add the origin to access.origins")));
    }
    if request.method() == Method::OPTIONS
        && origin.is_some_and(|origin| app.browser.knows_origin(origin))
    {
        return Ok(Admitted::Preflight);
    }
    let path = request.uri().path();
    if PUBLIC.contains(&path) || path.starts_with(page::FILES) {
        return Ok(Admitted::Yes);
    }
    let token = bearer(headers)?;
    let principal: Principal = app.access().authenticate(token).map_err(|refusal| match token {
        Some(_) => unknown_token(),
        None => refusal.into(),
    })?;
    request.extensions_mut().insert(principal);
    Ok(Admitted::Yes)
}

fn unknown_token() -> Box<Problem> {
    let detail = "this server does not know the token";
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail);
    Box::new(
        problem.remedy(
            "on the server's machine its own token lies in the file server/token of the store",
        ),
    )
}

/// The token of a request. More than one header, or another scheme, is a mistake and not a request without one.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Box<Problem>> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    let words = value.to_str().ok().and_then(|text| text.split_once(' '));
    match words {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && all.next().is_none() => {
            Ok(Some(token.trim()))
        }
        _ => Err(Box::new(Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "the Authorization header must be one, of the form: Bearer <token>",
        ))),
    }
}

fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let all = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, if-next, falaj-generation, falaj-key, falaj-producer, falaj-sequence, last-event-id",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_for_by_a_problem_document() {
        let answer = caught(async {
            tokio::task::yield_now().await;
            panic!("planted")
        });
        let answer = answer.await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/problem+json");
        let answer = caught(async { StatusCode::NO_CONTENT.into_response() }).await;
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    }
}
