//! The row of the table `writer` that closes a database (see [`super::closing`]).

/// Condition for the row, which has an id of zeros.
macro_rules! closed_row {
    () => {
        "id = '00000000-0000-0000-0000-000000000000'"
    };
}
pub(super) use closed_row;

/// Condition that no row closes the database. It is part of the first statement of each round.
pub(super) const IS_OPEN: &str = concat!(
    "NOT EXISTS (SELECT 1 FROM writer WHERE ",
    closed_row!(),
    " AND used_at > now() - interval '30 seconds')"
);
/// Query whether the content is in another store now.
pub(super) const HAS_MOVED: &str =
    concat!("SELECT EXISTS (SELECT 1 FROM writer WHERE ", closed_row!(), " AND used_at = 'infinity')");
