//! Classifications in ClaML (EN 14463), the format of ICD-10 and its national editions: classes with their
//! superclasses and rubrics, and the codes that modifiers make.

mod modifiers;

use quick_xml::events::BytesStart;
use terminology::indexing::{
    ConceptDesignation, ContentMode, HierarchyMeaning, IndexBuilder, PropertyDefinition, ResourceHeader,
};

use self::modifiers::{ClamlClass, ClamlModifiers, ModifiedBy, ModifierClass};
use crate::error::ImportError;
use crate::release_reader::{ReleaseReader, only};
use crate::release_source::{ReleaseSource, base_name};
use crate::xml_events::{self, XmlEvent, attribute, in_one_line};

/// Classifications with a canonical URL in FHIR, by the start of their name in lower case.
const KNOWN: [(&str, &str); 5] = [
    ("icd-10-gm", "http://fhir.de/CodeSystem/bfarm/icd-10-gm"),
    ("ops", "http://fhir.de/CodeSystem/bfarm/ops"),
    ("icd-o-3", "http://terminology.hl7.org/CodeSystem/icd-o-3"),
    ("icd-10-am", "http://hl7.org/fhir/sid/icd-10-am"),
    ("icd-10", "http://hl7.org/fhir/sid/icd-10"),
];

/// The file with a ClaML file name, if there is exactly one.
pub(super) fn key_file(source: &ReleaseSource) -> Option<String> {
    only(candidates(source))
}

fn candidates(source: &ReleaseSource) -> Vec<String> {
    let is_one = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.ends_with(".xml") && (name.contains("claml") || name.contains("icd") || name.contains("ops"))
            || name.ends_with(".claml")
    };
    source.files_named(is_one)
}

pub(super) fn input_files(source: &ReleaseSource) -> Vec<String> {
    key_file(source).into_iter().collect()
}

/// State of the reader at the current position in the file.
#[derive(Default)]
struct ClamlReader {
    class: Option<ClamlClass>,
    ending: Option<ModifierClass>,
    modified_by: Option<ModifiedBy>,
    modifiers: ClamlModifiers,
    rubric: Option<String>,
    /// Text and language of the open label.
    label: Option<(String, Option<String>)>,
}

/// Reads the file.
///
/// # Errors
/// [`ImportError`] if the file is not valid ClaML or not a known classification.
pub(super) fn read_release(reader: &mut ReleaseReader<'_, '_>) -> Result<IndexBuilder, ImportError> {
    let file = candidates(reader.source).remove(0);
    let mut builder = None;
    let mut state = ClamlReader::default();
    xml_events::for_each_event(reader.source, &file, |piece| {
        match (piece, &mut builder) {
            (XmlEvent::Start(start), None) if start.local_name().as_ref() == "Title" => {
                builder = Some(IndexBuilder::new(&code_system_header(start, base_name(&file))?)?);
            }
            (XmlEvent::Start(start), Some(builder)) => state.begin_element(builder, start)?,
            (XmlEvent::Text(text), _) => state.add_text(text),
            (XmlEvent::End(name), Some(builder)) => state.end_element(builder, name)?,
            _ => {}
        }
        Ok(())
    })?;
    let mut builder =
        builder.ok_or_else(|| ImportError::in_file(&file, "it is not ClaML: it has no Title"))?;
    state.modifiers.add_codes(&mut builder).map_err(|reason| ImportError::in_file(&file, reason))?;
    Ok(builder)
}

fn code_system_header(title: &BytesStart<'_>, file: &str) -> Result<ResourceHeader, String> {
    let name = attribute(title, "name")?.unwrap_or_default();
    let lower = name.to_lowercase();
    let (_, url) = KNOWN.iter().find(|(begin, _)| lower.starts_with(begin)).ok_or_else(|| {
        let kinds = KNOWN.map(|(name, _)| name).join(", ");
        format!("the classification '{name}' of {file} has no known canonical URL; supported are {kinds}")
    })?;
    let property = |code: &str| PropertyDefinition { code: code.to_owned(), ..PropertyDefinition::default() };
    Ok(ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        url: Some((*url).to_owned()),
        version: attribute(title, "version")?,
        name: Some(name.clone()),
        title: Some(name),
        status: Some("active".to_owned()),
        content: Some(ContentMode::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        property: vec![property("kind")],
        ..ResourceHeader::default()
    })
}

impl ClamlReader {
    fn begin_element(&mut self, builder: &mut IndexBuilder, start: &BytesStart<'_>) -> Result<(), String> {
        let required = |name: &str| {
            attribute(start, name)?.ok_or_else(|| {
                format!("a {} has no attribute {name}", start.local_name().as_ref().escape_debug())
            })
        };
        match start.local_name().as_ref() {
            "Class" => {
                let code = required("code")?;
                let (number, is_new) = builder.add_concept(&code)?;
                if !is_new {
                    return Err(format!("the class {code} occurs twice"));
                }
                let kind = attribute(start, "kind")?.unwrap_or_default();
                if !kind.is_empty() {
                    builder.add_property(number, "kind", &kind)?;
                }
                self.class = Some(ClamlClass { number, code, kind, ..ClamlClass::default() });
            }
            "ModifierClass" => {
                let (modifier, code) = (required("modifier")?, required("code")?);
                self.ending = Some(ModifierClass { modifier, code, ..ModifierClass::default() });
            }
            // The super class of a modifier class is a modifier or one of its classes, and not a concept.
            "SuperClass" => {
                let code = required("code")?;
                if let Some(class) = &mut self.class {
                    builder.add_property(class.number, "parent", &code)?;
                    class.parents.push(code);
                } else if let Some(ending) = &mut self.ending {
                    ending.parent = code;
                }
            }
            "SubClass" => {
                let code = required("code")?;
                if let Some(class) = &mut self.class {
                    builder.add_property(class.number, "child", &code)?;
                    class.children.push(code);
                }
            }
            "ModifiedBy" => {
                let only_valid = attribute(start, "all")?.as_deref() == Some("false");
                let modifier = required("code")?;
                self.modified_by = Some(ModifiedBy { modifier, only_valid, valid: Vec::new() });
            }
            "ValidModifierClass" => {
                let code = required("code")?;
                self.modified_by.iter_mut().for_each(|modified| modified.valid.push(code.clone()));
            }
            "ExcludeModifier" => {
                let code = required("code")?;
                self.class.iter_mut().for_each(|class| class.excluded.push(code.clone()));
            }
            "Meta" => {
                let is_exclusion = attribute(start, "name")?.as_deref() == Some("excludeOnPrecedingModifier");
                let value = attribute(start, "value")?.unwrap_or_default();
                if let (true, Some(ending)) = (is_exclusion, &mut self.ending) {
                    let (modifier, code) = value.split_once(' ').ok_or_else(|| {
                        format!("excludeOnPrecedingModifier is '{value}'; write a modifier and a code, as in 'S04E10_4 .0'")
                    })?;
                    ending.not_after.push([modifier.to_owned(), code.trim().to_owned()]);
                }
            }
            "Rubric" => self.rubric = attribute(start, "kind")?,
            "Label" => self.label = Some((String::new(), attribute(start, "xml:lang")?)),
            _ => {}
        }
        Ok(())
    }

    /// Adds text to the open label, including text of nested elements.
    fn add_text(&mut self, text: &str) {
        if let Some((label, _)) = &mut self.label {
            label.push_str(text);
        }
    }

    fn end_element(&mut self, builder: &mut IndexBuilder, name: &str) -> Result<(), String> {
        match name {
            "Class" => self.modifiers.classes.extend(self.class.take()),
            "ModifierClass" => self.modifiers.modifier_classes.extend(self.ending.take()),
            "ModifiedBy" => {
                let modified = self.modified_by.take();
                self.class.iter_mut().for_each(|class| class.modified_by.extend(modified.clone()));
            }
            "Rubric" => self.rubric = None,
            "Label" => {
                let (Some((text, language)), Some(rubric)) = (self.label.take(), &self.rubric) else {
                    return Ok(());
                };
                let text = in_one_line(&text);
                // Modifier classes are not concepts: their labels end those of the classes that they modify.
                if let Some(ending) = &mut self.ending {
                    if rubric == "preferred" && ending.label.is_empty() {
                        ending.label = text;
                    }
                    return Ok(());
                }
                let Some(class) = &mut self.class else { return Ok(()) };
                let (number, text) = (class.number, text.as_str());
                match rubric.as_str() {
                    "preferred" if !builder.has_display(number) => {
                        text.clone_into(&mut class.label);
                        builder.set_display(number, text)?;
                    }
                    "preferred" | "preferredLong" | "inclusion" => {
                        let language = language.as_deref();
                        builder.add_designation(
                            number,
                            ConceptDesignation { language, value: text, ..ConceptDesignation::default() },
                        )?;
                    }
                    "definition" => builder.set_definition(number, text)?,
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}
