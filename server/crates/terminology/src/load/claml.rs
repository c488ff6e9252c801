//! Classifications in ClaML (EN 14463), as ICD-10 and its national editions are published: classes with their superclasses
//! and rubrics. Modifiers are not multiplied out.

use quick_xml::events::BytesStart;

use super::source::base;
use super::xml::{self, Piece, attribute, in_one_line};
use super::{LoadError, Reading, Source, only};
use crate::code_system::builder::{Builder, Designation, Number};
use crate::wire::{Content, Header, Meaning, PropertyDefinition};

/// Classifications that FHIR has an address for, by the beginning of their name in lower case.
const KNOWN: [(&str, &str); 5] = [
    ("icd-10-gm", "http://fhir.de/CodeSystem/bfarm/icd-10-gm"),
    ("ops", "http://fhir.de/CodeSystem/bfarm/ops"),
    ("icd-o-3", "http://terminology.hl7.org/CodeSystem/icd-o-3"),
    ("icd-10-am", "http://hl7.org/fhir/sid/icd-10-am"),
    ("icd-10", "http://hl7.org/fhir/sid/icd-10"),
];

/// Is there a file that by its name may be one?
pub(super) fn key(source: &Source) -> Option<String> {
    only(candidates(source))
}

fn candidates(source: &Source) -> Vec<String> {
    let is_one = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.ends_with(".xml") && (name.contains("claml") || name.contains("icd") || name.contains("ops"))
            || name.ends_with(".claml")
    };
    source.named(is_one)
}

/// The file that is read.
pub(super) fn reads(source: &Source) -> Vec<String> {
    key(source).into_iter().collect()
}

/// What is being read at the moment.
#[derive(Default)]
struct State {
    class: Option<Number>,
    /// Kind of the rubric within the class.
    rubric: Option<String>,
    /// Text and language of its label.
    label: Option<(String, Option<String>)>,
}

/// Reads the file.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(reading: &mut Reading<'_, '_>) -> Result<Builder, LoadError> {
    let file = candidates(reading.source).remove(0);
    let mut builder = None;
    let mut state = State::default();
    xml::each(reading.source, &file, |piece| {
        match (piece, &mut builder) {
            (Piece::Start(start), None) if start.local_name().as_ref() == "Title" => {
                builder = Some(Builder::new(&header(start, base(&file))?)?);
            }
            (Piece::Start(start), Some(builder)) => state.begin(builder, start)?,
            (Piece::Text(text), _) => state.text(text),
            (Piece::End(name), Some(builder)) => state.end(builder, name)?,
            _ => {}
        }
        Ok(())
    })?;
    builder.ok_or_else(|| LoadError::in_file(&file, "it is no ClaML: there is no Title"))
}

fn header(title: &BytesStart<'_>, file: &str) -> Result<Header, String> {
    let name = attribute(title, "name")?.unwrap_or_default();
    let lower = name.to_lowercase();
    let (_, url) = KNOWN.iter().find(|(begin, _)| lower.starts_with(begin)).ok_or_else(|| {
        let known = KNOWN.map(|(name, _)| name).join(", ");
        format!("there is no address known for the classification '{name}' of {file}; known are {known}")
    })?;
    let property = |code: &str| PropertyDefinition { code: code.to_owned(), ..PropertyDefinition::default() };
    Ok(Header {
        resource_type: "CodeSystem".to_owned(),
        url: Some((*url).to_owned()),
        version: attribute(title, "version")?,
        name: Some(name.clone()),
        title: Some(name),
        status: Some("active".to_owned()),
        content: Some(Content::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(Meaning::IsA),
        property: vec![property("kind")],
        ..Header::default()
    })
}

impl State {
    fn begin(&mut self, builder: &mut Builder, start: &BytesStart<'_>) -> Result<(), String> {
        let code = || attribute(start, "code")?.ok_or_else(|| "a class has no code".to_owned());
        match start.local_name().as_ref() {
            "Class" => {
                let (number, is_new) = builder.concept(&code()?)?;
                if !is_new {
                    return Err(format!("the class {} stands there twice", code()?));
                }
                if let Some(kind) = attribute(start, "kind")? {
                    builder.property(number, "kind", &kind)?;
                }
                self.class = Some(number);
            }
            "SuperClass" => {
                if let Some(class) = self.class {
                    builder.property(class, "parent", &code()?)?;
                }
            }
            "SubClass" => {
                if let Some(class) = self.class {
                    builder.property(class, "child", &code()?)?;
                }
            }
            "Rubric" => self.rubric = attribute(start, "kind")?,
            "Label" => self.label = Some((String::new(), attribute(start, "xml:lang")?)),
            _ => {}
        }
        Ok(())
    }

    /// Text within a label counts, whatever elements it stands in.
    fn text(&mut self, text: &str) {
        if let Some((label, _)) = &mut self.label {
            label.push_str(text);
        }
    }

    fn end(&mut self, builder: &mut Builder, name: &str) -> Result<(), String> {
        match name {
            "Class" => self.class = None,
            "Rubric" => self.rubric = None,
            "Label" => {
                let (Some((text, language)), Some(class), Some(rubric)) =
                    (self.label.take(), self.class, &self.rubric)
                else {
                    return Ok(());
                };
                let text = in_one_line(&text);
                let text = text.as_str();
                match rubric.as_str() {
                    "preferred" if !builder.has_display(class) => builder.display(class, text)?,
                    "preferred" | "preferredLong" | "inclusion" => {
                        let language = language.as_deref();
                        builder.designation(
                            class,
                            Designation { language, value: text, ..Designation::default() },
                        )?;
                    }
                    "definition" => builder.definition(class, text)?,
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}
