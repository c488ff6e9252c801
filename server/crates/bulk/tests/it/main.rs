//! Tests of exports with an in-memory store and real files. An export contains exactly the selected resources
//! as of its kick-off, regardless of later events.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod associated;
mod bucket;
mod downloads;
mod guide_3;
mod increments;
mod jobs;
mod mirror;
mod parts;
mod power_cut;
mod selection;
mod space;
mod support;
