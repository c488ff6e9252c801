//! Suggestions for names with typing errors.

/// Returns the known name that is most similar to `name`, or `None` if none is similar.
pub fn nearest_name<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|names| (strsim::normalized_damerau_levenshtein(name, names), names))
        .filter(|(similarity, _)| *similarity > 0.5)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, names)| names)
}
