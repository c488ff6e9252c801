//! The columns that have a meaning. People write their headings in their languages.

/// A column that has a meaning, with its names. The first one is that of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column(pub &'static [&'static str]);

impl Column {
    /// The code of a concept.
    pub const CODE: Self = Self(&[
        "code",
        "kode",
        "codigo",
        "código",
        "codice",
        "schlüssel",
        "schluessel",
        "schlüsselnummer",
        "kürzel",
        "notation",
        "concept code",
        "atc code",
        "icd code",
        "ops code",
        "identifier",
    ]);
    /// The display of a concept.
    pub const DISPLAY: Self = Self(&[
        "display",
        "bezeichnung",
        "anzeige",
        "anzeigename",
        "text",
        "name",
        "titel",
        "title",
        "label",
        "libellé",
        "libelle",
        "intitulé",
        "désignation",
        "denominación",
        "descripción",
        "descrizione",
        "description",
        "beschreibung",
        "bedeutung",
        "atc bedeutung",
        "preferred term",
        "term",
    ]);
    /// The codes of the parents.
    pub const PARENT: Self = Self(&[
        "parent",
        "parents",
        "parent code",
        "oberbegriff",
        "oberbegriffe",
        "übergeordnet",
        "übergeordneter code",
        "eltern",
        "code parent",
        "padre",
        "superior",
        "broader",
    ]);
    /// The code system of a code.
    pub const SYSTEM: Self =
        Self(&["system", "code system", "codesystem", "kodiersystem", "codiersystem", "système", "sistema"]);
    /// The value set that a code is compared with.
    pub const URL: Self = Self(&["url", "value set", "valueset", "wertemenge"]);
}

/// A heading for comparison: in lower case, with one blank between words.
fn normal(heading: &str) -> String {
    let words = heading.trim_start_matches('\u{feff}').to_lowercase();
    words
        .split(|c: char| c.is_whitespace() || "_-.".contains(c))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The positions of these columns among the headings. If several headings name a column, it is the one whose
/// name is earlier in the list of the column.
pub fn find_columns<const N: usize>(headings: &[&str], columns: [Column; N]) -> [Option<usize>; N] {
    let headings: Vec<String> = headings.iter().map(|heading| normal(heading)).collect();
    columns.map(|column| column.0.iter().find_map(|name| headings.iter().position(|heading| heading == name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_headings_are_found_and_exact_ones_preferred() {
        let all = [Column::CODE, Column::DISPLAY, Column::PARENT];
        let columns = |headings: &[&str]| find_columns(headings, all);
        assert_eq!(
            columns(&["Schlüsselnummer", " BEZEICHNUNG ", "Oberbegriff"]),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(columns(&["name", "Display", "code"]), [Some(2), Some(1), None]);
        assert_eq!(columns(&["ATC-Code", "ATC-Bedeutung", "DDD"]), [Some(0), Some(1), None]);
        assert_eq!(columns(&["Concept_Code", "label"]), [Some(0), Some(1), None]);
        assert_eq!(columns(&["key", "value"]), [None, None, None]);
    }
}
