//! Building a record to be written, from the values that a caller has.
//!
//! A record borrows all its parts: building one copies nothing and allocates nothing.

use std::time::SystemTime;

use super::NewRecord;

impl<'a> NewRecord<'a> {
    /// Make a record of a value.
    #[inline]
    pub fn new(value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { value: Some(value.as_ref()), ..Self::default() }
    }

    /// Make a tombstone: it says that what the key names is deleted. Compaction acts on it.
    #[inline]
    pub fn tombstone(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: Some(key.as_ref()), ..Self::default() }
    }

    /// Give it a key. Records with the same key go to the same partition and stay in order.
    #[inline]
    #[must_use]
    pub fn key(self, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: Some(key.as_ref()), ..self }
    }

    /// Give it headers: names and values in order. A name may appear twice, a value may be missing.
    #[inline]
    #[must_use]
    pub fn headers(self, headers: &'a [(&'a str, Option<&'a [u8]>)]) -> Self {
        Self { headers, ..self }
    }

    /// Set the time when it happened. By default it is the time of the append. A time outside the
    /// years 1677 to 2262 becomes the nearest one that a record can have.
    #[must_use]
    pub fn timestamp(self, time: SystemTime) -> Self {
        Self { event_time_ns: Some(ns_since_1970(time)), ..self }
    }
}

/// Convert a time to nanoseconds since 1970, clamped to what records can have.
pub fn ns_since_1970(time: SystemTime) -> i64 {
    let after = time.duration_since(SystemTime::UNIX_EPOCH);
    let before = |error: std::time::SystemTimeError| {
        i64::try_from(error.duration().as_nanos()).map_or(i64::MIN, |ns| -ns)
    };
    after.map_or_else(before, |past| i64::try_from(past.as_nanos()).unwrap_or(i64::MAX))
}

impl<'a> From<&NewRecord<'a>> for NewRecord<'a> {
    #[inline]
    fn from(record: &NewRecord<'a>) -> Self {
        *record
    }
}

impl<'a> From<&'a [u8]> for NewRecord<'a> {
    #[inline]
    fn from(value: &'a [u8]) -> Self {
        Self::new(value)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for NewRecord<'a> {
    #[inline]
    fn from(value: &'a [u8; N]) -> Self {
        Self::new(value)
    }
}

impl<'a> From<&'a Vec<u8>> for NewRecord<'a> {
    #[inline]
    fn from(value: &'a Vec<u8>) -> Self {
        Self::new(value)
    }
}

impl<'a> From<&'a str> for NewRecord<'a> {
    #[inline]
    fn from(value: &'a str) -> Self {
        Self::new(value)
    }
}

impl<'a> From<&'a String> for NewRecord<'a> {
    #[inline]
    fn from(value: &'a String) -> Self {
        Self::new(value)
    }
}
