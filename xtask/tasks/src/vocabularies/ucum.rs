//! The table of units, from the definitions of UCUM (`ucum-essence.xml`).

use anyhow::{Context as _, Result};
use quick_xml::events::{BytesStart, Event};

use super::source_packages::{python_file, table};

/// The table of prefixes, base units with the quantity that they measure, and units with their flags (`m`
/// metric, `s` special, `a` arbitrary) and the unit that defines them. Names come last.
pub(super) fn units() -> Result<String> {
    let text = std::fs::read_to_string(python_file("ucumvert/vendor/ucum-essence.xml"))?;
    let mut reader = quick_xml::Reader::from_str(&text);
    let (mut source, mut rows, mut element) = (String::new(), Vec::new(), String::new());
    let (mut code, mut flags, mut definition) = (String::new(), String::new(), String::new());
    let mut name = String::new();
    loop {
        let (event, is_empty) = match reader.read_event()? {
            Event::Eof => break,
            Event::Empty(start) => (Event::Start(start), true),
            event => (event, false),
        };
        match event {
            Event::Start(start) => {
                element = start.name().as_ref().to_owned();
                if element == "name" && !name.is_empty() {
                    element.clear();
                }
                match &*element {
                    "root" => {
                        let [version, date] =
                            [attribute(&start, "version")?, attribute(&start, "revision-date")?];
                        source = format!("UCUM {version} of {date} (ucum-essence.xml)");
                    }
                    "prefix" | "base-unit" => code = attribute(&start, "Code")?,
                    "unit" => {
                        code = attribute(&start, "Code")?;
                        flags.clear();
                        for (flag, name) in [('m', "isMetric"), ('s', "isSpecial"), ('a', "isArbitrary")] {
                            if start.try_get_attribute(name)?.is_some_and(|value| &*value.value == "yes") {
                                flags.push(flag);
                            }
                        }
                    }
                    // The function of a special unit follows the value, and has the unit without its scale.
                    "value" | "function" if start.try_get_attribute("Unit")?.is_some() => {
                        definition = attribute(&start, "Unit")?;
                    }
                    _ => {}
                }
                if is_empty {
                    element.clear();
                }
            }
            // Among the base units, the element `property` precedes the value.
            Event::Text(text) if element == "property" && definition.is_empty() => {
                definition.push_str(&text.xml10_content());
            }
            // The first of several names is the usual one. A letter with an accent is an event of its own.
            Event::Text(text) if element == "name" => name.push_str(&text.xml10_content()),
            Event::GeneralRef(letter) if element == "name" => {
                let letter = letter.resolve_char_ref()?.context("a name has an unknown entity")?;
                name.push(if letter == '\u{a0}' { ' ' } else { letter });
            }
            Event::End(end) => {
                match end.name().as_ref() {
                    "prefix" => rows.push(["prefix", &code, &name].join("\t")),
                    "base-unit" => rows.push(["base", &code, &definition, &name].join("\t")),
                    "unit" => rows.push(["unit", &code, &flags, &definition, &name].join("\t")),
                    _ => {}
                }
                if matches!(end.name().as_ref(), "prefix" | "base-unit" | "unit") {
                    definition.clear();
                    name.clear();
                }
                element.clear();
            }
            _ => {}
        }
    }
    Ok(table(&source, &rows))
}

fn attribute(element: &BytesStart, name: &str) -> Result<String> {
    let attribute = element.try_get_attribute(name)?;
    Ok(attribute.with_context(|| format!("an element has no attribute '{name}'"))?.value.into_owned())
}
