//! Records of a topic as Arrow record batches: what Spark, Polars, DuckDB and pandas read.
//!
//! | module | owns |
//! |---|---|
//! | [`columns`] | which columns there are, their Arrow types, which of them somebody wants |
//! | [`bytes`] | columns of byte strings: copied, or as views of the mapped segments |
//! | [`filter`] | which records are wanted: times, keys |
//! | [`fill`] | one batch: from blocks to columns |
//! | [`reader`] | one batch after the other, over ranges of partitions |
//! | `ahead` | threads that fill batches before they are asked for |
//! | [`rows`] | batches that somebody gives, as records of a job |
//! | [`import`] | such batches by the C interfaces |
//! | [`export`] | batches that somebody makes, by the C stream interface |
//!
//! Nothing here knows Python: the Arrow C stream interface hands a [`reader::Reader`] to any caller.

mod ahead;
pub mod bytes;
pub mod columns;
pub mod export;
pub mod fill;
pub mod filter;
pub mod import;
pub mod reader;
pub mod rows;
