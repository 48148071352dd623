//! A choice of the records of a lane.
//!
//! A [`Filter`] is applied as records are decoded, before any of their bytes go into a column. So a
//! record that it leaves out costs its header alone. Invariant: it is exact. A caller that asks for
//! times and keys gets all records that have them, and no others. The reader of the batches applies
//! all other conditions.

use std::ops::RangeInclusive;

/// The wanted times and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Microseconds since 1970, as the column `timestamp` has them.
    times: RangeInclusive<i64>,
    keys: Option<Keys>,
}

/// Some keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keys {
    /// In ascending order, each once.
    named: Vec<Vec<u8>>,
    /// Whether records without a key are wanted.
    none: bool,
}

impl Filter {
    /// The filter that leaves nothing out.
    pub const ALL: Self = Self { times: i64::MIN..=i64::MAX, keys: None };

    /// Make a filter for records of these times (microseconds since 1970) and, if `keys` is given,
    /// with one of these keys. `None` among them stands for records without a key.
    pub fn new(times: RangeInclusive<i64>, keys: Option<Vec<Option<Vec<u8>>>>) -> Self {
        let keys = keys.map(|keys| {
            let none = keys.contains(&None);
            let mut named: Vec<_> = keys.into_iter().flatten().collect();
            named.sort_unstable();
            named.dedup();
            Keys { named, none }
        });
        Self { times, keys }
    }

    /// Tell whether it leaves nothing out.
    pub fn is_all(&self) -> bool {
        self.keys.is_none() && self.times == Self::ALL.times
    }

    /// Tell whether records of this time may be wanted.
    #[inline]
    pub fn has_time(&self, us: i64) -> bool {
        self.times.contains(&us)
    }

    /// Tell whether records with this key may be wanted.
    #[inline]
    pub fn has_key(&self, key: Option<&[u8]>) -> bool {
        match (&self.keys, key) {
            (None, _) => true,
            (Some(keys), None) => keys.none,
            (Some(keys), Some(key)) => match &keys.named[..] {
                [one] => one == key,
                many => many.binary_search_by(|known| known.as_slice().cmp(key)).is_ok(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_had_by_its_bytes_and_none_is_a_key_of_its_own() {
        let named = |keys: &[Option<&str>]| {
            let keys = keys.iter().map(|key| key.map(|key| key.as_bytes().to_vec()));
            Filter::new(0..=9, Some(keys.collect()))
        };
        let some = named(&[Some("b"), None, Some("a"), Some("b"), Some("")]);
        assert!(["a", "b", ""].iter().all(|key| some.has_key(Some(key.as_bytes()))));
        assert!(some.has_key(None) && !some.has_key(Some(b"c")) && !some.has_key(Some(b"ab")));
        assert!(!named(&[Some("a")]).has_key(None) && !named(&[]).has_key(Some(b"")));
        assert!(Filter::ALL.is_all() && !some.is_all() && !Filter::new(0..=9, None).is_all());
        assert!(Filter::ALL.has_key(None) && Filter::ALL.has_time(i64::MIN));
        assert!(some.has_time(9) && !some.has_time(10) && !some.has_time(-1));
    }
}
