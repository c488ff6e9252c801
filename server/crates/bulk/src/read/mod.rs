//! Reads the resources of a job from the store, in an order fixed by the snapshot.

pub(crate) mod delete_bundle;
pub(crate) mod read_ahead;
pub(crate) mod selection;
pub(crate) mod supporting_comparison;
