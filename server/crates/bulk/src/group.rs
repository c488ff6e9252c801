//! Members of a Group (DESIGN, export): Patients, not inactive, whose period is not over.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::Deserialize;

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    member: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    entity: Option<Reference>,
    #[serde(default)]
    inactive: bool,
    period: Option<Period>,
}

#[derive(Deserialize)]
struct Reference {
    reference: Option<String>,
}

#[derive(Deserialize)]
struct Period {
    end: Option<String>,
}

/// The ids of the Patients that are members at this moment, sorted, each once. A reference is
/// relative, or absolute below `fhir_base`: a patient of another server is nobody here, whatever
/// the id.
///
/// # Errors
/// Says what in the Group could not be read.
pub fn members(group: &[u8], fhir_base: &str, at: Timestamp) -> Result<Vec<String>, String> {
    let group: Group =
        serde_json::from_slice(group).map_err(|error| format!("the Group cannot be read: {error}"))?;
    let mut ids = Vec::new();
    for member in group.member.into_iter().filter(|member| !member.inactive) {
        let reference = member.entity.and_then(|entity| entity.reference).unwrap_or_default();
        let local = match reference.strip_prefix(fhir_base).and_then(|rest| rest.strip_prefix('/')) {
            Some(local) => local,
            None if reference.contains("://") => continue,
            None => &reference,
        };
        let Some(("Patient", id)) = resources::compartment::target(local) else { continue };
        if let Some(end) = member.period.and_then(|period| period.end) {
            let ends = end_of(&end)
                .ok_or_else(|| format!("the period of Patient/{id} has no readable end: '{end}'"))?;
            if ends <= at {
                continue;
            }
        }
        ids.push(id.to_owned());
    }
    ids.sort();
    ids.dedup();
    Ok(ids)
}

/// When a period that names this end is over: a year, month or day lasts until the next one begins.
fn end_of(end: &str) -> Option<Timestamp> {
    let first = fhir::instant::parse_partial(end).ok()?;
    let span = match end.len() {
        4 => Span::new().years(1),
        7 => Span::new().months(1),
        10 => Span::new().days(1),
        _ => Span::new(),
    };
    Some(first.to_zoned(TimeZone::UTC).checked_add(span).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "https://here.example/fhir/R4";

    #[test]
    fn a_named_end_lasts_until_it_is_over() {
        for (end, over) in [
            ("2025", "2026-01-01T00:00:00Z"),
            ("2024", "2025-01-01T00:00:00Z"),
            ("2026-02", "2026-03-01T00:00:00Z"),
            ("2026-02-28", "2026-03-01T00:00:00Z"),
            ("2026-02-28T10:00:00+01:00", "2026-02-28T09:00:00Z"),
        ] {
            assert_eq!(end_of(end), Some(fhir::instant::parse(over).unwrap()), "{end}");
        }
        assert_eq!(end_of("soon"), None);
    }

    #[test]
    fn only_present_patients_are_members() {
        let group = serde_json::json!({ "resourceType": "Group", "member": [
            { "entity": { "reference": "Patient/b" } },
            { "entity": { "reference": "https://here.example/fhir/R4/Patient/a" } },
            { "entity": { "reference": "Patient/b" }, "period": { "start": "2020" } },
            { "entity": { "reference": "Patient/gone" }, "inactive": true },
            { "entity": { "reference": "Patient/past" }, "period": { "end": "2026-01-30" } },
            { "entity": { "reference": "Patient/today" }, "period": { "end": "2026-01-31" } },
            { "entity": { "reference": "Group/other" } },
            { "entity": { "reference": "https://elsewhere.example/fhir/R4/Patient/stranger" } },
            { "entity": { "reference": "https://here.example/fhir/R40/Patient/stranger" } },
            { "entity": { "display": "nobody" } },
        ]});
        let at = fhir::instant::parse("2026-01-31T12:00:00Z").unwrap();
        assert_eq!(members(group.to_string().as_bytes(), BASE, at).unwrap(), ["a", "b", "today"]);
        assert!(members(br#"{"resourceType":"Group"}"#, BASE, at).unwrap().is_empty());
        assert!(members(br#"{"member":{}}"#, BASE, at).is_err());
    }
}
