//! `cargo xtask gen-vocabularies`: writes or compares the tables of languages and currencies that are generated from
//! the registries of IANA and ISO. The registries come in packages that the tests of real clients install:
//! `language-subtag-registry` of npm and `iso4217` of PyPI.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use quick_xml::events::Event;
use serde::Deserialize;

use crate::{root, target_dir};

const LANGUAGES: &str = "server/crates/terminology/data/language-subtags.tsv";
const CURRENCIES: &str = "server/crates/terminology/data/currencies.tsv";
const NPM: &str = "server/tests/it/clients/node_modules/language-subtag-registry/data/json";

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

/// Writes the tables, or compares them with the files of the workspace. Returns the reasons for tables that were left
/// out, because their registry is not installed.
///
/// # Errors
/// Returns an error if a compared table differs, or if no registry is installed and tables must be written.
pub fn run(only_compare: bool) -> Result<Vec<String>> {
    let iso = target_dir().join("python/iso4217/table.xml");
    let tables: [(&str, PathBuf, Generator); 2] =
        [(LANGUAGES, root().join(NPM), languages), (CURRENCIES, iso, currencies)];
    let mut left_out = Vec::new();
    for (path, source, generate) in tables {
        if !source.exists() {
            left_out.push(format!("{path}: {} is not installed; .ci/run installs it", source.display()));
            continue;
        }
        let generated = generate(&source).with_context(|| format!("failed to read {}", source.display()))?;
        let file = root().join(path);
        if only_compare {
            if std::fs::read_to_string(&file)? != generated {
                bail!("{path} differs from {}; run 'cargo xtask gen-vocabularies'", source.display());
            }
        } else {
            std::fs::write(&file, generated)?;
            println!("wrote {path}");
        }
    }
    if !only_compare && left_out.len() == 2 {
        bail!(left_out.join("\n"));
    }
    Ok(left_out)
}

type Generator = fn(&Path) -> Result<String>;

/// Returns the table of subtags: kind, subtag or tag, name, `deprecated` or nothing, the preferred value, and for an
/// extended language the language that precedes it.
fn languages(folder: &Path) -> Result<String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name));
    let meta: serde_json::Value = serde_json::from_str(&read("meta.json")?)?;
    let date = meta["File-Date"].as_str().context("meta.json has no File-Date")?;
    let records: Vec<SubtagRecord> = serde_json::from_str(&read("registry.json")?)?;
    let mut rows: Vec<String> = Vec::new();
    for record in records {
        let Some(subtag) = record.subtag.or(record.tag) else { continue };
        // Ranges for private use are rules of the grammar, and a redundant tag consists of registered subtags.
        if subtag.contains("..") || record.kind == "redundant" {
            continue;
        }
        let name = record.description.first().context("a record has no description")?;
        let deprecated = if record.deprecated.is_some() { "deprecated" } else { "" };
        let preferred = record.preferred.filter(|preferred| *preferred != subtag).unwrap_or_default();
        let prefix = if record.kind == "extlang" { record.prefix.join(" ") } else { String::new() };
        let row = [&record.kind, &subtag, name, deprecated, &preferred, &prefix].join("\t");
        rows.push(row.trim_end_matches('\t').to_owned());
    }
    rows.sort_unstable();
    Ok(format!("# IANA Language Subtag Registry of {date}\n{}\n", rows.join("\n")))
}

/// Returns the table of currencies: code, number and name.
fn currencies(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file)?;
    let mut reader = quick_xml::Reader::from_str(&text);
    let (mut date, mut element, mut rows) = (String::new(), String::new(), Vec::new());
    let (mut name, mut code, mut number) = (String::new(), String::new(), String::new());
    loop {
        match reader.read_event()? {
            Event::Eof => break,
            Event::Start(start) => {
                element = start.name().as_ref().to_owned();
                if element == "ISO_4217" {
                    let published = start.try_get_attribute("Pblshd")?.context("the list has no date")?;
                    date = published.value.into_owned();
                }
            }
            Event::Text(text) => {
                let text = text.xml10_content();
                match &*element {
                    "CcyNm" => name.push_str(&text),
                    "Ccy" => code.push_str(&text),
                    "CcyNbr" => number.push_str(&text),
                    _ => {}
                }
            }
            Event::End(end) => {
                if end.name().as_ref() == "CcyNtry" {
                    // Some territories have no currency.
                    if !code.is_empty() {
                        rows.push([code.trim(), number.trim(), name.trim()].join("\t"));
                    }
                    [&mut name, &mut code, &mut number].into_iter().for_each(String::clear);
                }
                element.clear();
            }
            _ => {}
        }
    }
    rows.sort_unstable();
    rows.dedup();
    Ok(format!("# ISO 4217, list one of {date}\n{}\n", rows.join("\n")))
}
