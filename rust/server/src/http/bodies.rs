//! The records that a body holds, in each of its forms.
//!
//! | `Content-Type` | the records |
//! |---|---|
//! | `application/x-ndjson` | each line is a value: a JSON document |
//! | `application/vnd.falaj.records+ndjson` | each line is an object as `falaj cat --json` prints it |
//! | `text/plain` | each line is a value |
//! | `application/json` | the body is a value: a JSON document |
//! | any other, or none | the body is a value |
//!
//! A record is kept by its places in the body. Text with escapes and Base64 are decoded first, into memory that
//! counts against the budget as the body does.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj::NewRecord;
use falaj::internals::format::address::align;
use falaj::internals::format::block::MAX_HEADER_LEN;
use falaj::internals::format::record::BodyWriter;
use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::body::{Members, Whole};
use super::documents::{self, Origin};
use super::problem::{Answer, Problem};
use super::shape::parse_iso;
use crate::config::Limits;
use crate::config::units::Bytes;

/// Most headers of one record.
const HEADERS: usize = 1_000;

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One value.
    Raw,
    /// One JSON document.
    Json,
    /// A JSON document a line.
    JsonLines,
    /// A record a line.
    Objects,
    /// A value a line.
    TextLines,
}

impl Form {
    /// The form of a content type.
    pub fn of(content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| kind.eq_ignore_ascii_case(name);
        if is("application/x-ndjson") {
            Self::JsonLines
        } else if is("application/vnd.falaj.records+ndjson") {
            Self::Objects
        } else if is("text/plain") {
            Self::TextLines
        } else if is("application/json") {
            Self::Json
        } else {
            Self::Raw
        }
    }

    /// The codec of a topic that has none yet.
    pub fn codec(self) -> &'static str {
        match self {
            Self::Raw | Self::Objects => "bytes",
            Self::Json | Self::JsonLines => "json",
            Self::TextLines => "str",
        }
    }

    fn is_lines(self) -> bool {
        matches!(self, Self::JsonLines | Self::Objects | Self::TextLines)
    }
}

/// A place in the bytes of [`Records`].
type Place = Range<usize>;

/// The records of a request.
#[derive(Debug)]
pub struct Records {
    held: Whole,
    /// Values without anything else.
    values: Vec<Place>,
    all: Vec<Parsed>,
    headers: Vec<(String, Option<Place>)>,
    common: Common,
}

/// The parts that the headers of a request set for all its records.
#[derive(Debug, Default)]
pub struct Common {
    /// The key of records that have none.
    pub key: Option<Vec<u8>>,
    /// The headers of records that have none.
    pub headers: Vec<(String, Vec<u8>)>,
    /// A header that each record gets besides its own.
    pub besides: Option<(String, Vec<u8>)>,
}

/// A record of a request.
#[derive(Debug, Default)]
struct Parsed {
    value: Option<Place>,
    key: Option<Place>,
    headers: Range<usize>,
    time_ns: Option<i64>,
    partition: Option<u32>,
}

impl Records {
    /// Read a body of this form for a topic of this codec.
    ///
    /// # Errors
    /// 400 with the number of the line, 413, 415 and 503.
    pub fn read(body: Whole, form: Form, codec: &str, limits: &Limits) -> Answer<Self> {
        if !matches!(codec, "bytes" | "str" | "json") && !matches!(form, Form::Raw | Form::Objects)
        {
            let detail = format!(
                "the topic holds {codec} values: send one as the whole body, or as value_base64"
            );
            return Err(Box::new(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unknown-values",
                detail,
            )));
        }
        let mut reader = Reader {
            form,
            codec,
            limits,
            is_text: false,
            decoded: None,
            values: Vec::new(),
            all: Vec::new(),
            headers: Vec::new(),
        };
        if form == Form::Objects {
            reader.decoded = Some(body.beside()?);
        }
        if !form.is_lines() {
            let whole = 0..body.bytes.len();
            reader.value(&body.bytes, whole).map_err(|wrong| wrong.told("the body"))?;
            return reader.end(body);
        }
        // A line of a text is a text: the bytes between two line feeds.
        reader.is_text = std::str::from_utf8(&body.bytes).is_ok();
        for (number, place) in lines(&body.bytes).enumerate() {
            let line = &body.bytes[place.clone()];
            let text = match form {
                Form::TextLines => line,
                _ => line.trim_ascii_end(),
            };
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let place = place.start..place.start + text.len();
            if text.is_empty() && form != Form::TextLines {
                continue;
            }
            if (reader.values.len() + reader.all.len()) as u64 == limits.batch {
                let detail =
                    format!("the body has more records than limits.batch allows, {}", limits.batch);
                let problem =
                    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "batch-too-large", detail);
                return Err(Box::new(
                    problem.with("limit", limits.batch).remedy("send them in several requests"),
                ));
            }
            let read = match form {
                Form::Objects => reader.object(text),
                _ => reader.value(&body.bytes, place),
            };
            read.map_err(|wrong| wrong.told(&format!("line {}", number + 1)))?;
        }
        reader.end(body)
    }

    /// Read records that stand in a JSON array, each as an object.
    ///
    /// # Errors
    /// 400 with the place of the record, 413 and 503.
    pub fn of_array(array: &str, beside: Whole, codec: &str, limits: &Limits) -> Answer<Self> {
        let (values, all, headers) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader = Reader {
            form: Form::Objects,
            codec,
            limits,
            is_text: true,
            decoded: Some(beside),
            values,
            all,
            headers,
        };
        let mut refused = None;
        let read = each_of(array, limits.batch, |place, text| {
            reader.object(text.as_bytes()).map_err(|wrong| {
                refused = Some(wrong.told(&format!("record {place}")));
                String::new()
            })
        });
        refused.map_or(read, Err)?;
        match reader.decoded.take() {
            Some(decoded) => reader.end(decoded),
            None => Err(Box::new(Problem::bad_request("there are no records"))),
        }
    }

    /// Give each record what the request's headers set for all.
    #[must_use]
    pub fn filled(self, common: Common) -> Self {
        Self { common, ..self }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len() + self.all.len()
    }

    /// Return the values of records that have nothing else: no key, no header, no time and no partition.
    pub fn alone(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let Common { key, headers, besides } = &self.common;
        let is_alone =
            self.all.is_empty() && key.is_none() && headers.is_empty() && besides.is_none();
        is_alone.then(|| self.values.iter().map(|place| &self.held.bytes[place.clone()]))
    }

    /// Return the bytes that an append of them to one partition takes in a log.
    pub fn bytes_in_a_log(&self) -> u64 {
        let mut body = BodyWriter::default();
        body.begin(false, None);
        let Ok(()) = self.each(|record, _| {
            body.push_any(record);
            Ok::<_, Infallible>(())
        });
        align((MAX_HEADER_LEN + body.body().len()) as u64)
    }

    /// Return a partition that a record names, and that is another one than this.
    pub fn names_other_than(&self, partition: u32) -> Option<u32> {
        self.all.iter().filter_map(|one| one.partition).find(|named| *named != partition)
    }

    /// Call with each record, and the partition that it names.
    pub fn each<E>(
        &self,
        mut take: impl FnMut(&NewRecord<'_>, Option<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let part = |place: &Option<Place>| place.clone().map(|place| &self.held.bytes[place]);
        let common = self.common.headers.iter();
        let common: Vec<_> =
            common.map(|(name, value)| (name.as_str(), Some(&value[..]))).collect();
        let besides = self.common.besides.iter();
        let besides = besides.map(|(name, value)| (name.as_str(), Some(&value[..])));
        let key = self.common.key.as_deref();
        let all: Vec<_> = common.iter().copied().chain(besides.clone()).collect();
        for place in &self.values {
            let value = Some(&self.held.bytes[place.clone()]);
            take(&NewRecord { value, key, headers: &all, event_time_ns: None }, None)?;
        }
        let mut headers = Vec::new();
        for one in &self.all {
            headers.clear();
            let its = &self.headers[one.headers.clone()];
            headers.extend(its.iter().map(|(name, value)| (name.as_str(), part(value))));
            if its.is_empty() {
                headers.extend_from_slice(&common);
            }
            headers.extend(besides.clone());
            let record = NewRecord {
                value: part(&one.value),
                key: part(&one.key).or(key),
                headers: &headers,
                event_time_ns: one.time_ns,
            };
            take(&record, one.partition)?;
        }
        Ok(())
    }
}

/// Why a record cannot be used.
enum Wrong {
    Because(String),
    /// It has more bytes than this.
    TooLarge(usize, Bytes),
    Refused(Box<Problem>),
}

impl<T: Into<String>> From<T> for Wrong {
    fn from(why: T) -> Self {
        Self::Because(why.into())
    }
}

impl Wrong {
    /// Refuse the request because of the record at this place.
    fn told(self, place: &str) -> Box<Problem> {
        match self {
            Self::Because(why) => Box::new(Problem::bad_request(format!("{place} {why}"))),
            Self::TooLarge(bytes, limit) => {
                let detail = format!(
                    "{place} has a record of {bytes} bytes, more than limits.record allows, {limit}"
                );
                let problem =
                    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "append-too-large", detail);
                Box::new(problem.with("limit", limit.0).remedy("send smaller records"))
            }
            Self::Refused(problem) => problem,
        }
    }
}

/// Reads the records of a body.
struct Reader<'a> {
    form: Form,
    codec: &'a str,
    limits: &'a Limits,
    /// True if the whole body is UTF-8, so that none of its lines has to be looked at for that.
    is_text: bool,
    /// Decoded bytes: the records of objects are places in it.
    decoded: Option<Whole>,
    values: Vec<Place>,
    all: Vec<Parsed>,
    headers: Vec<(String, Option<Place>)>,
}

impl Reader<'_> {
    fn end(self, body: Whole) -> Answer<Records> {
        let (values, all, headers) = (self.values, self.all, self.headers);
        // The texts of objects are not needed any more.
        let mut held = self.decoded.unwrap_or(body);
        let places = values.capacity() * size_of::<Place>() + all.capacity() * size_of::<Parsed>();
        held.count(places + headers.capacity() * size_of::<(String, Option<Place>)>())?;
        Ok(Records { held, values, all, headers, common: Common::default() })
    }

    /// A value as it stands in the body.
    fn value(&mut self, bytes: &[u8], place: Place) -> Result<(), Wrong> {
        let text = &bytes[place.clone()];
        self.check_size(text.len())?;
        match self.codec {
            "json" => check("json", text, Origin::Value)?,
            // No program makes a value of it, so its syntax is all that the form says.
            _ if matches!(self.form, Form::Json | Form::JsonLines) => {
                documents::expect_json(utf8(text)?)?;
            }
            "str" if self.is_text => {}
            codec => check(codec, text, Origin::Value)?,
        }
        self.values.push(place);
        Ok(())
    }

    /// A record as `falaj cat --json` prints it.
    fn object(&mut self, line: &[u8]) -> Result<(), Wrong> {
        // An array of its members would do otherwise.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err("is no record: a record is a JSON object".into());
        }
        let object: Object<'_> =
            serde_json::from_slice(line).map_err(|error| format!("is no record: {error}"))?;
        let value = match (object.value, object.value_base64) {
            (None | Some(JsonText("null")), None) if object.tombstone => None,
            _ if object.tombstone => return Err("is a tombstone with a value".into()),
            (None, None) => return Err("has neither value nor value_base64".into()),
            (Some(_), Some(_)) => {
                return Err("has its value twice, as text and as Base64".into());
            }
            (None, Some(coded)) => Some(Cow::Owned(from_base64("value", &coded.0)?)),
            (Some(JsonText(text)), None) if self.codec == "json" => Some(text.as_bytes().into()),
            (Some(JsonText(text)), None) => {
                let text = serde_json::from_str::<Text<'_>>(text).ok();
                let text =
                    text.ok_or("has a value that is no text; only a topic of JSON takes it")?;
                field("value", Some(text), None)?
            }
        };
        let key = field("key", object.key, object.key_base64)?;
        if object.tombstone && key.is_none() {
            return Err("is a tombstone without a key".into());
        }
        if let Some(value) = &value {
            self.check_size(value.len())?;
            check(self.codec, value, Origin::Dump)?;
        }
        let time = |Text(text): Text<'_>| {
            parse_iso(&text).ok_or_else(|| format!("has no time that can be read: {text:?}"))
        };
        let time_ns = object.time.map(time).transpose()?;
        let first = self.headers.len();
        for header in object.headers.into_iter().flat_map(|headers| headers.0) {
            let value = field("header's value", header.value, header.value_base64)?;
            let value = value.map(|value| self.put(&value)).transpose()?;
            self.headers.push((header.name.into_owned(), value));
        }
        let value = value.map(|value| self.put(&value)).transpose()?;
        let key = key.map(|key| self.put(&key)).transpose()?;
        let headers = first..self.headers.len();
        self.all.push(Parsed { value, key, headers, time_ns, partition: object.partition });
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<Place, Wrong> {
        let decoded = self.decoded.as_mut().ok_or("is no object")?;
        decoded.put(bytes).map_err(Wrong::Refused)
    }

    fn check_size(&self, bytes: usize) -> Result<(), Wrong> {
        match bytes as u64 > self.limits.record.0 {
            true => Err(Wrong::TooLarge(bytes, self.limits.record)),
            false => Ok(()),
        }
    }
}

/// The lines of a body, without their line feeds.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Place> {
    let mut begin = 0;
    let ends = memchr::memchr_iter(b'\n', bytes);
    let last = (!bytes.is_empty() && !bytes.ends_with(b"\n")).then_some(bytes.len());
    ends.chain(last).map(move |end| std::mem::replace(&mut begin, end + 1)..end)
}

/// Check that a topic of this codec may hold this value.
fn check(codec: &str, value: &[u8], origin: Origin) -> Result<(), String> {
    match codec {
        "str" => utf8(value).map(drop),
        "json" => documents::check(utf8(value)?, origin),
        _ => Ok(()),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {error}"))
}

/// A record in the form of `falaj cat --json`. Where it was does not matter: a topic and an offset are ignored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object<'a> {
    #[serde(borrow, default, deserialize_with = "as_written")]
    value: Option<JsonText<'a>>,
    #[serde(borrow, default)]
    value_base64: Option<Text<'a>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default)]
    key_base64: Option<Text<'a>>,
    #[serde(borrow, default)]
    headers: Option<Headers<'a>>,
    #[serde(borrow, default)]
    time: Option<Text<'a>>,
    #[serde(default)]
    tombstone: bool,
    #[serde(default)]
    partition: Option<u32>,
    #[serde(default, rename = "topic")]
    _topic: IgnoredAny,
    #[serde(default, rename = "offset")]
    _offset: IgnoredAny,
}

/// A JSON value as it was written.
#[derive(Clone, Copy)]
struct JsonText<'a>(&'a str);

/// As it was written, also where that is `null`.
fn as_written<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<JsonText<'a>>, D::Error> {
    <&'a RawValue>::deserialize(from).map(|raw| Some(JsonText(raw.get())))
}

/// A text, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<Text<'a>>,
    #[serde(borrow, default)]
    value_base64: Option<Text<'a>>,
}

/// Headers, not more than a record may have: a short text could name very many.
struct Headers<'a>(Vec<Header<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Headers<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Bounded).map(Self)
    }
}

struct Bounded;

impl<'de> Visitor<'de> for Bounded {
    type Value = Vec<Header<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {HEADERS} headers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut headers = Vec::new();
        while let Some(Members(header)) = from.next_element()? {
            if headers.len() == HEADERS {
                return Err(de::Error::invalid_length(headers.len() + 1, &self));
            }
            headers.push(header);
        }
        Ok(headers)
    }
}

/// A member that is text, or Base64 under the other name.
fn field<'a>(
    name: &str,
    text: Option<Text<'a>>,
    coded: Option<Text<'_>>,
) -> Result<Option<Cow<'a, [u8]>>, String> {
    match (text, coded) {
        (None, None) => Ok(None),
        (Some(Text(Cow::Borrowed(text))), None) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
        (Some(Text(Cow::Owned(text))), None) => Ok(Some(Cow::Owned(text.into_bytes()))),
        (None, Some(coded)) => from_base64(name, &coded.0).map(|bytes| Some(Cow::Owned(bytes))),
        (Some(_), Some(_)) => Err(format!("has its {name} twice, as text and as Base64")),
    }
}

fn from_base64(name: &str, coded: &str) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(coded)
        .map_err(|error| format!("has a {name}_base64 that is no Base64: {error}"))
}

/// Call with each element of a JSON array, one after the other: a list of them could be larger than the text.
///
/// # Errors
/// 400 for a text that is no array, for more elements than `most`, and for what `take` refuses.
pub fn each_of<'a>(
    array: &'a str,
    most: u64,
    take: impl FnMut(u64, &'a str) -> Result<(), String>,
) -> Answer<()> {
    let mut from = serde_json::Deserializer::from_str(array);
    from.deserialize_seq(Each { most, take }).map_err(|error| {
        Box::new(Problem::bad_request(format!("the body cannot be used: {error}")))
    })
}

struct Each<F> {
    most: u64,
    take: F,
}

impl<'de, F: FnMut(u64, &'de str) -> Result<(), String>> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {} elements", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut from: A) -> Result<(), A::Error> {
        let mut place = 0;
        while let Some(raw) = from.next_element::<&RawValue>()? {
            if place == self.most {
                return Err(de::Error::custom(format!("an array has more than {place} elements")));
            }
            (self.take)(place, raw.get()).map_err(de::Error::custom)?;
            place += 1;
        }
        Ok(())
    }
}
