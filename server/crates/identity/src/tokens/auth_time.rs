//! The time of an authentication in records. An unknown time is stored as 1970: a node of an earlier version
//! reads it as too old for `max_age` and `prompt=login`, which is right.

use jiff::Timestamp;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// Writes the time.
#[expect(clippy::ref_option, reason = "serde requires the reference")]
pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.unwrap_or(Timestamp::UNIX_EPOCH).serialize(serializer)
}

/// Reads the time.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let time = Timestamp::deserialize(deserializer)?;
    Ok((time != Timestamp::UNIX_EPOCH).then_some(time))
}
