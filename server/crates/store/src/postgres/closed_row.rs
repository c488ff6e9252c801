//! The row of the table `writer` that closes a database (see [`super::closing`]).

/// Condition that no row closes the database. It is part of the first statement of each round.
pub(super) const IS_OPEN: &str = "NOT EXISTS (SELECT 1 FROM writer WHERE \
     id = '00000000-0000-0000-0000-000000000000' AND used_at > now() - interval '30 seconds')";
/// Whether the content is in another store now.
pub(super) const HAS_MOVED: &str = "SELECT EXISTS (SELECT 1 FROM writer WHERE \
     id = '00000000-0000-0000-0000-000000000000' AND used_at = 'infinity')";
