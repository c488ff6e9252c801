//! Membership in value sets: the search for one code, and the list of all codes.

pub(crate) mod imports;
pub(crate) mod member_part;
pub(crate) mod members;
mod part_union;
pub(crate) mod search;
pub(crate) mod version_pins;
