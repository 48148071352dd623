//! Bodies of requests: read within limits of bytes and time, and decompressed within limits.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::App;
use super::problem::{Answer, Problem};
use crate::config::units::Bytes;
use crate::store::read::{Share, blocking};

/// Bytes that are set aside for a body of an announced length when its first bytes arrive, at most.
const BEGIN: usize = 16 << 10;

/// A body in memory, and its share of the budget of bytes.
#[derive(Debug)]
pub struct Whole {
    /// Its bytes, decompressed.
    pub bytes: Vec<u8>,
    share: Share,
}

impl Whole {
    /// Bytes with their share.
    pub fn new(bytes: Vec<u8>, share: Share) -> Self {
        Self { bytes, share }
    }

    /// Memory for what is decoded from it: it has a share of its own.
    ///
    /// # Errors
    /// 503 where the budget is used up.
    pub fn beside(&self) -> Answer<Self> {
        let share = self.share.beside().ok_or_else(used_up)?;
        Ok(Self { bytes: Vec::new(), share })
    }

    /// Append bytes, within the budget; return where they are.
    ///
    /// # Errors
    /// 503 where the budget is used up.
    pub fn put(&mut self, more: &[u8]) -> Answer<Range<usize>> {
        let begin = self.bytes.len();
        append(&mut self.bytes, more, Bytes(u64::MAX), &mut self.share, 0, 0)?;
        Ok(begin..self.bytes.len())
    }

    /// Count so many other bytes beside its own.
    ///
    /// # Errors
    /// 503 where the budget is used up.
    pub fn count(&mut self, others: usize) -> Answer<()> {
        let all = self.bytes.capacity() + others;
        if self.share.grow_to(all) { Ok(()) } else { Err(used_up()) }
    }
}

/// Read a JSON object.
///
/// # Errors
/// 400 for what is none, or has other members.
pub fn object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Answer<T> {
    let read = match bytes.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(bytes)
            .map_err(|error| format!("the body cannot be used: {error}")),
        // An array would count as the members in their order.
        _ => Err("the body must be a JSON object".to_owned()),
    };
    read.map_err(|why| Box::new(Problem::bad_request(why)))
}

/// A JSON object within a body. An array would count as the members in their order.
#[derive(Clone, Debug)]
pub struct Members<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(OfObject(PhantomData))
    }
}

struct OfObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfObject<T> {
    type Value = Members<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Members)
    }
}

/// How a body is compressed.
#[derive(Clone, Copy)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

/// Read the body of a request.
///
/// # Errors
/// 408, 413, 415 and 503.
pub async fn read(app: &App, headers: &HeaderMap, body: Body) -> Answer<Whole> {
    let coding = coding(headers)?;
    let limits = &app.config.limits;
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|len| len > limits.body.0) {
        return Err(too_large("the body", "limits.body", limits.body));
    }
    let mut share = app.served.reads.take(1).await;
    // A first piece of the memory for it comes with its first bytes.
    let expected = usize::try_from(declared.unwrap_or(0)).unwrap_or(usize::MAX);
    let receive = receive(app, body, expected, &mut share);
    let sent = tokio::time::timeout(limits.body_timeout.0, receive).await.map_err(|_| {
        let detail =
            format!("the body did not arrive within limits.body_timeout, {}", limits.body_timeout);
        Box::new(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", detail))
    })??;
    if matches!(coding, Coding::Identity) {
        return Ok(Whole { bytes: sent, share });
    }
    let limit = limits.decoded_body;
    let decoding = blocking(move || {
        Ok(decode(coding, &sent, sent.capacity(), limit, &mut share).map(|bytes| (bytes, share)))
    });
    let (bytes, share) = decoding.await??;
    Ok(Whole { bytes, share })
}

async fn receive(app: &App, mut body: Body, expected: usize, share: &mut Share) -> Answer<Vec<u8>> {
    let limit = app.config.limits.body;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Box::new(Problem::bad_request(format!("the body broke off: {error}")))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if (bytes.len() + data.len()) as u64 > limit.0 {
            return Err(too_large("the body", "limits.body", limit));
        }
        append(&mut bytes, &data, limit, share, 0, expected)?;
    }
    Ok(bytes)
}

/// Append bytes as they arrive. A slow client holds no more than twice what it sent; one that announced so many bytes
/// holds no more than four times of that, or [`BEGIN`]. The budget counts the memory that is set aside, beside so many
/// other bytes.
fn append(
    bytes: &mut Vec<u8>,
    more: &[u8],
    limit: Bytes,
    share: &mut Share,
    others: usize,
    announced: usize,
) -> Answer<()> {
    let needed = bytes.len() + more.len();
    if needed > bytes.capacity() {
        let most = usize::try_from(limit.0).unwrap_or(usize::MAX);
        let capacity = match announced >= needed {
            true => announced.min(BEGIN.max(needed.saturating_mul(4))),
            false => needed.max(most.min(bytes.capacity() * 2)),
        };
        if !share.grow_to(others + capacity) {
            return Err(used_up());
        }
        bytes.reserve_exact(capacity - bytes.len());
    }
    bytes.extend_from_slice(more);
    Ok(())
}

pub(super) fn coding(headers: &HeaderMap) -> Answer<Coding> {
    let mut all = headers.get_all(header::CONTENT_ENCODING).iter();
    let coding = match (all.next().map(|value| value.as_bytes().to_ascii_lowercase()), all.next()) {
        (None, _) => Some(Coding::Identity),
        (Some(one), None) => match one.as_slice() {
            b"identity" => Some(Coding::Identity),
            b"gzip" | b"x-gzip" => Some(Coding::Gzip),
            b"zstd" => Some(Coding::Zstd),
            _ => None,
        },
        _ => None,
    };
    coding.ok_or_else(|| {
        let detail = "Content-Encoding must be gzip, zstd or identity, and only one of them";
        Box::new(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown-coding", detail))
    })
}

/// Decompress, while the body as it was sent takes `held` bytes of the share.
pub(super) fn decode(
    coding: Coding,
    sent: &[u8],
    held: usize,
    limit: Bytes,
    share: &mut Share,
) -> Answer<Vec<u8>> {
    let invalid = |error: std::io::Error| {
        Box::new(Problem::bad_request(format!("the body is not compressed as it says: {error}")))
    };
    let mut decoder: Box<dyn Read> = match coding {
        Coding::Identity => Box::new(sent),
        Coding::Gzip => Box::new(flate2::read::MultiGzDecoder::new(sent)),
        Coding::Zstd => {
            let mut decoder = zstd::Decoder::new(sent).map_err(invalid)?;
            // A frame may ask for a window of gigabytes.
            decoder.window_log_max(27).map_err(invalid)?;
            Box::new(decoder)
        }
    };
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let got = decoder.read(&mut piece).map_err(invalid)?;
        if got == 0 {
            return Ok(bytes);
        }
        if (bytes.len() + got) as u64 > limit.0 {
            return Err(too_large("the body, once decompressed,", "limits.decoded_body", limit));
        }
        append(&mut bytes, &piece[..got], limit, share, held, 0)?;
    }
}

pub(super) fn used_up() -> Box<Problem> {
    Box::new(Problem::busy(
        "the bodies of all requests together take all memory that limits.bytes_in_flight allows",
    ))
}

pub(super) fn too_large(what: &str, setting: &str, limit: Bytes) -> Box<Problem> {
    let detail = format!("{what} is larger than {setting} allows, {limit}");
    let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail);
    Box::new(problem.with("limit", limit.0).remedy("send it in smaller requests"))
}
