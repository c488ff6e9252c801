//! The tabular list (`icd10cm_tabular_2025.xml`): chapters contain sections, sections contain categories
//! (`diag`), and categories contain subcategories and codes.
//!
//! Chapters and sections are abstract concepts, whose codes are their number or range. Of the notes, only
//! inclusion terms become designations. A seventh character that a category defines (`sevenChrDef`) applies
//! to all codes below it that do not define their own, at the seventh position; shorter codes are padded with
//! X.

use terminology::indexing::{ConceptDesignation, ConceptNumber, IndexBuilder};

use crate::error::ImportError;
use crate::release_source::ReleaseSource;
use crate::xml_events::{self, XmlEvent};

/// Number of characters before the seventh one, including the point.
const BEFORE_SEVENTH: usize = 7;

/// A chapter, section or category whose end tag is not read yet.
#[derive(Default)]
struct OpenElement {
    is_diag: bool,
    code: String,
    /// Concept of the element, once its code is known.
    number: Option<ConceptNumber>,
    description: String,
    sevenths: Vec<(String, String)>,
    has_codes_below: bool,
}

/// State of the reader at the current position in the file.
struct TabularReader<'b> {
    builder: &'b mut IndexBuilder,
    /// Whether the order file is absent, so that codes with a seventh character are generated.
    is_alone: bool,
    open: Vec<OpenElement>,
    in_inclusion_term: bool,
    /// Seventh character whose meaning is being read.
    seventh: Option<String>,
    text: String,
}

/// Reads the file.
///
/// # Errors
/// [`ImportError`] if the file is not a valid tabular list.
pub(super) fn read_tabular_list(
    source: &mut ReleaseSource<'_>,
    file: &str,
    builder: &mut IndexBuilder,
    is_alone: bool,
) -> Result<(), ImportError> {
    let mut state = TabularReader {
        builder,
        is_alone,
        open: Vec::new(),
        in_inclusion_term: false,
        seventh: None,
        text: String::new(),
    };
    xml_events::for_each_event(source, file, |piece| match piece {
        XmlEvent::Start(start) => {
            state.text.clear();
            match start.local_name().as_ref() {
                "section" => state.begin_section(xml_events::attribute(start, "id")?)?,
                "chapter" => state.begin_element(false),
                "diag" => state.begin_element(true),
                "inclusionTerm" => state.in_inclusion_term = true,
                "extension" => state.seventh = xml_events::attribute(start, "char")?,
                _ => {}
            }
            Ok(())
        }
        XmlEvent::Text(text) => {
            state.text.push_str(text);
            Ok(())
        }
        XmlEvent::End(name) => state.end_element(name),
    })?;
    match builder.concept_count() {
        0 => Err(ImportError::in_file(file, "this is not a tabular list of ICD-10-CM: it has no categories")),
        _ => Ok(()),
    }
}

impl TabularReader<'_> {
    fn begin_element(&mut self, is_diag: bool) {
        if let Some(above) = self.open.last_mut() {
            above.has_codes_below |= is_diag;
        }
        self.open.push(OpenElement { is_diag, ..OpenElement::default() });
    }

    fn begin_section(&mut self, id: Option<String>) -> Result<(), String> {
        let id = id.ok_or("a section has no id")?;
        self.begin_element(false);
        // The id of a section with one category may be the code of that category, which is another concept.
        self.set_code(if id.contains('-') { id } else { format!("{id}-{id}") })
    }

    /// Sets the code of the innermost open element.
    fn set_code(&mut self, code: String) -> Result<(), String> {
        let Some((level, above)) = self.open.split_last_mut() else { return Ok(()) };
        let (number, is_new) = self.builder.add_concept(&code)?;
        if !is_new {
            return Err(format!("{code} occurs twice"));
        }
        if !level.is_diag {
            self.builder.add_property(number, "notSelectable", "true")?;
        }
        if let Some(parent) = above.last().and_then(|above| above.number) {
            self.builder.add_parent(number, parent);
        }
        level.code = code;
        level.number = Some(number);
        Ok(())
    }

    fn end_element(&mut self, element: &str) -> Result<(), String> {
        let text = xml_events::in_one_line(&self.text);
        self.text.clear();
        match element {
            "name" => return self.set_code(text),
            "chapter" | "section" | "diag" => return self.close_element(),
            "inclusionTerm" => self.in_inclusion_term = false,
            _ => {}
        }
        let Some(level) = self.open.last_mut() else { return Ok(()) };
        match (element, level.number) {
            ("desc", Some(number)) => {
                self.builder.set_display(number, &text)?;
                level.description = text;
            }
            ("note", Some(number)) if self.in_inclusion_term => {
                let designation = ConceptDesignation {
                    language: Some("en"),
                    value: &text,
                    ..ConceptDesignation::default()
                };
                self.builder.add_designation(number, designation)?;
            }
            ("extension", _) => {
                let seventh = self.seventh.take().ok_or("an extension has no char")?;
                level.sevenths.push((seventh, text));
            }
            ("desc", None) => return Err("a desc precedes the name".to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Closes a chapter, section or category.
    fn close_element(&mut self) -> Result<(), String> {
        let nearest = self.open.iter().rposition(|level| !level.sevenths.is_empty());
        let Some(level) = self.open.pop() else { return Ok(()) };
        let number = level.number.ok_or("a chapter or category has no name")?;
        if !(self.is_alone && level.is_diag) {
            return Ok(());
        }
        let sevenths = match nearest.filter(|_| !level.has_codes_below && level.code.len() <= BEFORE_SEVENTH)
        {
            Some(index) => self.open.get(index).map_or(&level.sevenths, |above| &above.sevenths),
            None => &Vec::new(),
        };
        let is_billable = !level.has_codes_below && sevenths.is_empty();
        self.builder.add_property(number, "billable", if is_billable { "true" } else { "false" })?;
        for (seventh, meaning) in sevenths {
            let (code, is_new) = self.builder.add_concept(&lengthened(&level.code, seventh))?;
            if is_new {
                self.builder.set_display(code, &format!("{}, {meaning}", level.description))?;
                self.builder.add_property(code, "billable", "true")?;
                self.builder.add_parent(code, number);
            }
        }
        Ok(())
    }
}

/// A code with its seventh character.
fn lengthened(code: &str, seventh: &str) -> String {
    let point = if code.len() == 3 { "." } else { "" };
    format!("{:X<BEFORE_SEVENTH$}{seventh}", format!("{code}{point}"))
}
