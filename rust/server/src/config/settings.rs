//! The settings: their types, their defaults, and a line of help for each.

use serde::{Deserialize, Serialize};

use super::units::{Bytes, Span};

/// All settings of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Directory of the store.
    pub store: String,
    /// Directory of a place for the stores of other machines; empty: none.
    pub place: String,
    /// Address of the HTTP door, or `off`.
    pub http: String,
    /// True to let every program on this machine in without a token.
    pub open: bool,
    /// True to serve an address beyond loopback without TLS.
    pub plaintext: bool,
    /// True to open the store for reading only.
    pub read_only: bool,
    /// How records are read.
    pub reading: Reading,
    /// How long requests in flight may take once the server is asked to end.
    pub drain: Span,
    /// Certificates.
    pub tls: Tls,
    /// Permissions.
    pub access: Access,
    /// Limits on what a client may ask for.
    pub limits: Limits,
    /// The log lines of the server.
    pub log: Logging,
}

/// How records get from their files to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// Segments are mapped.
    Mmap,
    /// Segments are read by `pread`: slower, but a failing disk is an error and no signal.
    Pread,
}

/// Certificates of the doors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// PEM file of the certificate chain; empty: no TLS.
    pub certificate: String,
    /// PEM file of its private key.
    pub key: String,
}

/// Permissions of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// TOML file of principals and their grants; empty: only the store's own token is known.
    pub principals: String,
    /// Names besides those of the listening address that a request's `Host` may have.
    pub hosts: Vec<String>,
    /// Origins of web pages, as `https://app.example`, that may send requests.
    pub origins: Vec<String>,
}

/// Limits, each with a clear refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a request's body, as they are sent.
    pub body: Bytes,
    /// Bytes of a request's body after it is decompressed.
    pub decoded_body: Bytes,
    /// Bytes of one record.
    pub record: Bytes,
    /// Records of one request.
    pub batch: u64,
    /// Connections at the same time.
    pub connections: u64,
    /// Requests at the same time that wait for new records.
    pub followers: u64,
    /// Members of consumer groups that clients hold at the same time.
    pub members: u64,
    /// Workers of queues whose last take the server knows.
    pub workers: u64,
    /// Bytes of bodies and answers that are in memory at the same time.
    pub bytes_in_flight: Bytes,
    /// Time to send the head of a request.
    pub header_timeout: Span,
    /// Time to send the body of a request.
    pub body_timeout: Span,
    /// Time that a client may leave an answer unread.
    pub write_timeout: Span,
    /// Time between signs of life on a stream of events that has none.
    pub ping: Span,
    /// Streams that an HTTP/2 client may reset before the server closes its connection.
    pub resets: u64,
}

/// The log lines of the server, on standard error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Logging {
    /// Text for people or JSON for collectors.
    pub format: LogFormat,
    /// Least severe level that is written, or directives such as `warn,falaj_server=debug`.
    pub level: String,
}

/// Form of the log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line of text.
    Text,
    /// A JSON object a line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: String::new(),
            place: String::new(),
            http: "127.0.0.1:4437".to_owned(),
            open: false,
            plaintext: false,
            read_only: false,
            reading: Reading::Mmap,
            drain: Span::s(5),
            tls: Tls::default(),
            access: Access::default(),
            limits: Limits::default(),
            log: Logging::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: Bytes::mib(64),
            decoded_body: Bytes::mib(64),
            record: Bytes::mib(16),
            batch: 100_000,
            connections: 32_768,
            followers: 32_768,
            members: 1_024,
            workers: 4_096,
            bytes_in_flight: Bytes::mib(128),
            header_timeout: Span::s(10),
            body_timeout: Span::s(60),
            write_timeout: Span::s(30),
            ping: Span::s(60),
            resets: 100,
        }
    }
}

impl Default for Logging {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// Each setting and what it does, in the order of `--help`.
pub(super) const HELP: &[(&str, &str)] = &[
    ("store", "directory of the store; the first argument says the same"),
    ("place", "directory where other machines keep copies of their stores; empty for none"),
    ("http", "address of the HTTP door, or \"off\"; port 0 takes a free one"),
    ("open", "let every local user and program in without a token"),
    ("plaintext", "serve an address beyond loopback without TLS, behind a proxy that has it"),
    ("read_only", "open the store for reading only"),
    ("reading", "\"mmap\", or \"pread\" to get an error and no signal from a failing disk"),
    ("drain", "time for requests in flight once the server is asked to end"),
    (
        "tls.certificate",
        "PEM file of the certificate chain; the server reads it again when it changes",
    ),
    ("tls.key", "PEM file of the certificate's private key"),
    ("access.principals", "TOML file of principals, their tokens' hashes and grants"),
    ("access.hosts", "further names that the Host of a request may have"),
    ("access.origins", "origins of web pages that may send requests, as https://app.example"),
    ("limits.body", "most bytes of a request's body as sent"),
    ("limits.decoded_body", "most bytes of a request's body after it is decompressed"),
    ("limits.record", "most bytes of one record"),
    ("limits.batch", "most records of one request"),
    ("limits.connections", "most connections at the same time"),
    ("limits.followers", "most requests at the same time that wait for new records"),
    ("limits.members", "most members of consumer groups that clients hold at the same time"),
    ("limits.workers", "most workers of queues at the same time"),
    ("limits.bytes_in_flight", "most bytes of bodies and answers in memory at the same time"),
    ("limits.header_timeout", "time to send the head of a request"),
    ("limits.body_timeout", "time to send the body of a request"),
    ("limits.write_timeout", "time that a client may leave an answer unread"),
    ("limits.ping", "time between signs of life on a stream of events that has none"),
    ("limits.resets", "streams that an HTTP/2 client may reset before its connection is closed"),
    ("log.format", "\"text\" or \"json\""),
    ("log.level", "error, warn, info, debug or trace, or directives by module"),
];
