//! The table of currencies, from the list that ISO publishes.

use anyhow::{Context as _, Result};
use quick_xml::events::Event;

use super::source_packages::{python_file, table};

/// The table of currencies: code, number and name.
pub(super) fn currencies() -> Result<String> {
    let text = std::fs::read_to_string(python_file("iso4217/table.xml"))?;
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
    Ok(table(&format!("ISO 4217, list one of {date}"), &rows))
}
