//! Laws of bulk exports, on the first Group of the profile.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::{Just, any};
use proptest::sample::Index;
use serde_json::{Value, json};

use super::law_test::{Broken, LawTest, failure};
use crate::environment::preconditions::CaseContext;
use crate::run::verdict::{CaseFailure, ShownExchange};

/// Resources of an export by type, and the faults of its files.
struct Exported {
    ids: BTreeMap<String, BTreeSet<String>>,
    /// Time of the last change by type and id, of the resources that state it.
    updated: BTreeMap<String, Timestamp>,
    faults: Vec<String>,
    shown: Vec<ShownExchange>,
}

/// Exports the first Group and reads all files.
fn export(test: &LawTest<'_>, context: &mut CaseContext, query: &str) -> Result<Exported, Broken> {
    let token = context.vars.text("system_token").unwrap_or_default();
    let bearer = if token.is_empty() { Value::Null } else { "$system_token".into() };
    let kick_off = json!({ "get": format!("fhir/Group/$groups.0/$export{query}"), "bearer": bearer });
    let (started, first) = test.ask(context, kick_off)?;
    let status_url = started
        .header("content-location")
        .ok_or_else(|| Broken::Inconclusive(format!("the kick-off answers {}", started.status.as_u16())))?;
    let (ended, second) = test.ask(context, json!({ "get": status_url, "bearer": bearer, "poll": 202 }))?;
    let manifest = ended.json().unwrap_or_default();
    let mut exported = Exported {
        ids: BTreeMap::new(),
        updated: BTreeMap::new(),
        faults: Vec::new(),
        shown: vec![first, second],
    };
    for output in manifest["output"].as_array().into_iter().flatten() {
        let (kind, url) =
            (output["type"].as_str().unwrap_or_default(), output["url"].as_str().unwrap_or_default());
        let (file, shown) = test.ask(context, json!({ "get": url, "bearer": bearer }))?;
        let text = file.text();
        let before = exported.faults.len();
        let lines = text.lines().filter(|line| !line.is_empty()).count();
        // `count` may be missing (Bulk Data Access 2.0.0), but must be true.
        if output["count"].as_u64().is_some_and(|count| usize::try_from(count) != Ok(lines)) {
            exported.faults.push(format!("{url}: {lines} lines, and count is {}", output["count"]));
        }
        for line in text.lines().filter(|line| !line.is_empty()) {
            let resource: Value = serde_json::from_str(line).unwrap_or_default();
            let id = resource["id"].as_str().unwrap_or_default().to_owned();
            if resource["resourceType"] != kind {
                exported.faults.push(format!("{url}: {} in a file of {kind}", resource["resourceType"]));
            }
            let updated = resource["meta"]["lastUpdated"].as_str().and_then(|text| text.parse().ok());
            exported.updated.extend(updated.map(|updated| (format!("{kind}/{id}"), updated)));
            if !exported.ids.entry(kind.to_owned()).or_default().insert(id.clone()) {
                exported.faults.push(format!("{kind}/{id} occurs twice"));
            }
        }
        if exported.faults.len() > before {
            exported.shown.push(shown);
        }
    }
    Ok(exported)
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn no_duplicates(test: &LawTest<'_>) -> Result<(), Broken> {
    let mut context = test.given(&["system-token"])?;
    test.for_all(&Just(()), 60, |()| {
        let Exported { faults, shown, .. } = export(test, &mut context, "")?;
        Ok((!faults.is_empty()).then_some(CaseFailure { exchanges: shown, differences: faults }))
    })
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn types_add_up(test: &LawTest<'_>) -> Result<(), Broken> {
    let mut context = test.given(&["system-token"])?;
    test.for_all(&Just(()), 60, |()| {
        let all = export(test, &mut context, "")?;
        for (kind, ids) in &all.ids {
            let alone = export(test, &mut context, &format!("?_type={kind}"))?;
            let kind_alone = alone.ids.get(kind).cloned().unwrap_or_default();
            if kind_alone != *ids || alone.ids.len() > 1 {
                let missing: Vec<_> = ids.symmetric_difference(&kind_alone).take(5).collect();
                let kinds: Vec<_> = alone.ids.keys().collect();
                let difference = format!("_type={kind} exports {kinds:?}; the ids differ in {missing:?}");
                return Ok(Some(failure(alone.shown, difference)));
            }
        }
        Ok(None)
    })
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn increments_add_up(test: &LawTest<'_>) -> Result<(), Broken> {
    let mut context = test.given(&["system-token"])?;
    let all = export(test, &mut context, "")?;
    let times: Vec<Timestamp> = all.updated.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
    if times.is_empty() {
        return Err(Broken::Lacking("the resources of the export have no meta.lastUpdated".to_owned()));
    }
    test.for_all(&any::<Index>(), 20, |index| {
        let since = *index.get(&times);
        let increment = export(test, &mut context, &format!("?_since={since}"))?;
        // A resource that was changed at this very time may be in the export or not.
        let expected: BTreeSet<_> =
            all.updated.iter().filter(|(_, updated)| **updated > since).map(|(id, _)| id).collect();
        let at_the_time: BTreeSet<_> =
            all.updated.iter().filter(|(_, updated)| **updated == since).map(|(id, _)| id).collect();
        let ids: BTreeSet<_> = increment.updated.keys().collect();
        let missing: Vec<_> = expected.difference(&ids).take(5).collect();
        let surplus: Vec<_> =
            ids.iter().filter(|id| !expected.contains(*id) && !at_the_time.contains(*id)).take(5).collect();
        let is_right = missing.is_empty() && surplus.is_empty();
        let difference = format!("_since={since}: missing {missing:?}, not changed since {surplus:?}");
        Ok((!is_right).then(|| failure(increment.shown, difference)))
    })
}
