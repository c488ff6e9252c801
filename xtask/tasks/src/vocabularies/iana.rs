//! The table of subtags of languages, from IANA's registry.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::source_packages::{npm_file, table};

/// A record of IANA's registry (RFC 5646, section 3.1).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SubtagRecord {
    #[serde(rename = "Type")]
    kind: String,
    subtag: Option<String>,
    tag: Option<String>,
    description: Vec<String>,
    deprecated: Option<String>,
    #[serde(rename = "Preferred-Value")]
    preferred: Option<String>,
    #[serde(default)]
    prefix: Vec<String>,
}

/// The table of subtags: kind, subtag or tag, names that are separated by `|`, `deprecated` or nothing, the
/// preferred value, and for an extended language the language that precedes it.
pub(super) fn subtags() -> Result<String> {
    let read =
        |name: &str| std::fs::read_to_string(npm_file(&format!("language-subtag-registry/data/json/{name}")));
    let meta: serde_json::Value = serde_json::from_str(&read("meta.json")?)?;
    let date = meta["File-Date"].as_str().context("meta.json has no File-Date")?;
    let records: Vec<SubtagRecord> = serde_json::from_str(&read("registry.json")?)?;
    let mut rows: Vec<String> = Vec::new();
    for record in records {
        let Some(subtag) = record.subtag.or(record.tag) else { continue };
        // Ranges for private use are rules of the grammar, and a redundant tag consists of registered
        // subtags.
        if subtag.contains("..") || record.kind == "redundant" {
            continue;
        }
        anyhow::ensure!(!record.description.is_empty(), "a record has no description");
        let names = record.description.join("|");
        let deprecated = if record.deprecated.is_some() { "deprecated" } else { "" };
        let preferred = record.preferred.filter(|preferred| *preferred != subtag).unwrap_or_default();
        let prefix = if record.kind == "extlang" { record.prefix.join(" ") } else { String::new() };
        let row = [&record.kind, &subtag, &names, deprecated, &preferred, &prefix].join("\t");
        rows.push(row.trim_end_matches('\t').to_owned());
    }
    rows.sort_unstable();
    Ok(table(&format!("IANA Language Subtag Registry of {date}"), &rows))
}
