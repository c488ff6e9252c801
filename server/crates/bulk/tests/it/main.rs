//! Exports over a memory store and real files: an export is its selection, no more and no less, at the
//! moment of its kick-off, whatever happens meanwhile.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod associated;
mod downloads;
mod guide_3;
mod increments;
mod jobs;
#[cfg(feature = "parquet")]
mod parquet;
mod parts;
mod selection;
mod space;
mod support;
