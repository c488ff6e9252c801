//! The tabular list (`icd10cm_tabular_2025.xml`): chapters hold sections, sections hold categories (`diag`), and those
//! hold subcategories and codes.
//!
//! Chapters and sections are abstract concepts, by their number and their range. Of the notes only the inclusion terms
//! are names of a concept. A seventh character that a category defines (`sevenChrDef`) holds for every code below
//! it that has none of its own, at the seventh place: shorter codes are filled up with X.

use crate::code_system::builder::{Builder, Designation, Number};
use crate::load::LoadError;
use crate::load::source::Source;
use crate::load::xml::{self, Piece};

/// The characters of a code before the seventh, with the point.
const BEFORE_SEVENTH: usize = 7;

/// A chapter, section or category that is open.
#[derive(Default)]
struct Level {
    is_diag: bool,
    code: String,
    /// Its concept, once the code is known.
    number: Option<Number>,
    description: String,
    /// Seventh characters and their meanings.
    sevenths: Vec<(String, String)>,
    has_codes_below: bool,
}

/// Where the reader stands.
struct State<'b> {
    builder: &'b mut Builder,
    /// Is there no order file, so that codes with a seventh character are made here?
    is_alone: bool,
    open: Vec<Level>,
    in_inclusion_term: bool,
    /// The seventh character that is being explained.
    seventh: Option<String>,
    text: String,
}

/// Reads the file.
///
/// # Errors
/// [`LoadError`].
pub(super) fn read(
    source: &mut Source<'_>,
    file: &str,
    builder: &mut Builder,
    is_alone: bool,
) -> Result<(), LoadError> {
    let mut state = State {
        builder,
        is_alone,
        open: Vec::new(),
        in_inclusion_term: false,
        seventh: None,
        text: String::new(),
    };
    xml::each(source, file, |piece| match piece {
        Piece::Start(start) => {
            state.text.clear();
            match start.local_name().as_ref() {
                "section" => state.begin_section(xml::attribute(start, "id")?)?,
                "chapter" => state.begin(false),
                "diag" => state.begin(true),
                "inclusionTerm" => state.in_inclusion_term = true,
                "extension" => state.seventh = xml::attribute(start, "char")?,
                _ => {}
            }
            Ok(())
        }
        Piece::Text(text) => {
            state.text.push_str(text);
            Ok(())
        }
        Piece::End(name) => state.end(name),
    })?;
    match builder.len() {
        0 => Err(LoadError::in_file(file, "it is no tabular list of ICD-10-CM: there are no categories")),
        _ => Ok(()),
    }
}

impl State<'_> {
    fn begin(&mut self, is_diag: bool) {
        if let Some(above) = self.open.last_mut() {
            above.has_codes_below |= is_diag;
        }
        self.open.push(Level { is_diag, ..Level::default() });
    }

    fn begin_section(&mut self, id: Option<String>) -> Result<(), String> {
        let id = id.ok_or("a section has no id")?;
        self.begin(false);
        // A section of one category may be called like that, which is a concept of its own.
        self.name(if id.contains('-') { id } else { format!("{id}-{id}") })
    }

    /// The code of what was opened last.
    fn name(&mut self, code: String) -> Result<(), String> {
        let Some((level, above)) = self.open.split_last_mut() else { return Ok(()) };
        let (number, is_new) = self.builder.concept(&code)?;
        if !is_new {
            return Err(format!("{code} stands there twice"));
        }
        if !level.is_diag {
            self.builder.property(number, "notSelectable", "true")?;
        }
        if let Some(parent) = above.last().and_then(|above| above.number) {
            self.builder.link(number, parent);
        }
        level.code = code;
        level.number = Some(number);
        Ok(())
    }

    fn end(&mut self, element: &str) -> Result<(), String> {
        let text = xml::in_one_line(&self.text);
        self.text.clear();
        match element {
            "name" => return self.name(text),
            "chapter" | "section" | "diag" => return self.close(),
            "inclusionTerm" => self.in_inclusion_term = false,
            _ => {}
        }
        let Some(level) = self.open.last_mut() else { return Ok(()) };
        match (element, level.number) {
            ("desc", Some(number)) => {
                self.builder.display(number, &text)?;
                level.description = text;
            }
            ("note", Some(number)) if self.in_inclusion_term => {
                let said = Designation { language: Some("en"), value: &text, ..Designation::default() };
                self.builder.designation(number, said)?;
            }
            ("extension", _) => {
                let seventh = self.seventh.take().ok_or("an extension has no char")?;
                level.sevenths.push((seventh, text));
            }
            ("desc", None) => return Err("a desc stands before the name".to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Ends a chapter, section or category.
    fn close(&mut self) -> Result<(), String> {
        let nearest = self.open.iter().rposition(|level| !level.sevenths.is_empty());
        let Some(level) = self.open.pop() else { return Ok(()) };
        let number = level.number.ok_or("a chapter or category has no name")?;
        if !(self.is_alone && level.is_diag) {
            return Ok(());
        }
        let sevenths = match nearest.filter(|_| !level.has_codes_below && level.code.len() <= BEFORE_SEVENTH)
        {
            Some(at) => self.open.get(at).map_or(&level.sevenths, |above| &above.sevenths),
            None => &Vec::new(),
        };
        let is_billable = !level.has_codes_below && sevenths.is_empty();
        self.builder.property(number, "billable", if is_billable { "true" } else { "false" })?;
        for (seventh, meaning) in sevenths {
            let (code, is_new) = self.builder.concept(&lengthened(&level.code, seventh))?;
            if is_new {
                self.builder.display(code, &format!("{}, {meaning}", level.description))?;
                self.builder.property(code, "billable", "true")?;
                self.builder.link(code, number);
            }
        }
        Ok(())
    }
}

/// A code with a seventh character.
fn lengthened(code: &str, seventh: &str) -> String {
    let point = if code.len() == 3 { "." } else { "" };
    format!("{:X<BEFORE_SEVENTH$}{seventh}", format!("{code}{point}"))
}
