//! Compressed answers: those with records, where the client takes it.
//!
//! A whole answer is compressed at once, on the pool, before its first byte is sent. So it never applies to streams, and
//! delays no event. Both forms of an answer count against the budget until the first one is dropped. Few
//! answers are compressed at the same time; beyond that, and where it saves nothing, an answer is sent as it is.

use std::io::{self, Write};

use axum::http::{HeaderMap, HeaderValue, header};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::App;
use super::problem::Answer;
use super::read::Page;
use crate::store::read::blocking;

/// Smaller answers are sent as they are.
const LEAST: usize = 1 << 10;
/// The fastest level of both: a server's time is dearer than the last percents.
const LEVEL: u8 = 1;
/// Most answers that are compressed at the same time: each takes a megabyte beside its bytes.
pub const AT_ONCE: usize = 8;

/// A coding of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// Choose the best coding that a client takes, by its `Accept-Encoding`.
    pub fn accepted(headers: &HeaderMap) -> Option<Self> {
        let all = headers.get_all(header::ACCEPT_ENCODING).iter();
        let all = all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
        all.filter_map(|one| {
            let (name, weight) = one.split_once(';').unwrap_or((one, ""));
            let weight = weight.trim().strip_prefix("q=").unwrap_or("1").parse::<f32>().ok()?;
            let coding = match name.trim().to_ascii_lowercase().as_str() {
                "zstd" => Self::Zstd,
                "gzip" | "x-gzip" => Self::Gzip,
                _ => return None,
            };
            (weight > 0.0).then_some(coding)
        })
        .max_by_key(|coding| *coding == Self::Zstd)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Compress, to fewer bytes than there are; `None` where it would take more.
    fn pack(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let into = Bounded { bytes: Vec::new(), most: bytes.len() };
        let level = i32::from(LEVEL);
        let packed = match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(into, Compression::new(u32::from(LEVEL)));
                encoder.write_all(bytes).and_then(|()| encoder.finish())
            }
            Self::Zstd => zstd::Encoder::new(into, level).and_then(|mut encoder| {
                encoder.set_pledged_src_size(Some(bytes.len() as u64))?;
                encoder.write_all(bytes)?;
                encoder.finish()
            }),
        };
        packed.ok().map(|into| into.bytes)
    }
}

/// Takes fewer bytes than a limit.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.bytes.len() + bytes.len();
        if len >= self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if len > self.bytes.capacity() {
            // Never to more than the limit, which the share counts.
            let capacity = (2 * len).min(self.most);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compress an answer where the client takes it and it is worth it; return the headers that say so.
///
/// # Errors
/// 503 where the call did not end in order.
pub(super) async fn compressed(
    app: &App,
    coding: Option<Coding>,
    mut page: Page,
) -> Answer<(Page, HeaderMap)> {
    let mut headers = HeaderMap::new();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let coding = coding.filter(|_| page.text.len() >= LEAST);
    let (Some(coding), Ok(_permit)) = (coding, app.compressions.try_acquire()) else {
        return Ok((page, headers));
    };
    let whole = page.text.capacity() + page.text.len();
    if !page.share.as_mut().is_some_and(|share| share.grow_to(whole)) {
        return Ok((page, headers));
    }
    let (packed, mut page) = blocking(move || Ok((coding.pack(&page.text), page))).await?;
    if let Some(packed) = packed {
        page.text = packed;
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    Ok((page, headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_a_coding_that_it_takes_and_the_best_of_them() {
        for (accepted, coding) in [
            ("gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("zstd;q=0, GZIP ; q=0.5", Some(Coding::Gzip)),
            ("zstd;q=0.0", None),
            ("br", None),
            ("*", None),
            ("", None),
            ("gzip;q=x", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(Coding::accepted(&headers), coding, "{accepted}");
        }
    }

    #[test]
    fn bytes_that_cannot_be_compressed_are_sent_as_they_are() {
        let mut random = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        })
        .take(100_000)
        .collect();
        for coding in [Coding::Gzip, Coding::Zstd] {
            assert_eq!(coding.pack(&noise), None);
            let packed = coding.pack(&[7; 100_000]).unwrap();
            assert!(packed.capacity() < 100_000 && packed.len() < 1_000, "{}", packed.len());
        }
    }
}
