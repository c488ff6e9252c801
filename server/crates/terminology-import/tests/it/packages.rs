//! Packages of SNOMED CT that a test writes.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A folder to which packages are written.
pub struct Packages(TempDir);

/// Rows of the files of a package. Spaces separate the fields.
#[derive(Default)]
pub struct Rows<'a> {
    pub depends: &'a [&'a str],
    pub concepts: &'a [&'a str],
    pub descriptions: &'a [&'a str],
    pub relationships: &'a [&'a str],
    /// Rows of language reference sets.
    pub languages: &'a [&'a str],
}

impl Packages {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a package whose name is `name_DATE`, and returns its path.
    pub fn write(&self, name: &str, rows: &Rows<'_>) -> PathBuf {
        let folder = self.0.path().join(format!("SnomedCT_{name}"));
        for (file, columns, rows) in [
            (
                "Refset/Metadata/der2_ssRefset_ModuleDependencySnapshot",
                "id effectiveTime active moduleId refsetId referencedComponentId sourceEffectiveTime targetEffectiveTime",
                rows.depends,
            ),
            (
                "Terminology/sct2_Concept_Snapshot",
                "id effectiveTime active moduleId definitionStatusId",
                rows.concepts,
            ),
            (
                "Terminology/sct2_Description_Snapshot-en",
                "id effectiveTime active moduleId conceptId languageCode typeId term caseSignificanceId",
                rows.descriptions,
            ),
            (
                "Terminology/sct2_Relationship_Snapshot",
                "id effectiveTime active moduleId sourceId destinationId relationshipGroup typeId \
                 characteristicTypeId modifierId",
                rows.relationships,
            ),
            (
                "Refset/Language/der2_cRefset_LanguageSnapshot-en",
                "id effectiveTime active moduleId refsetId referencedComponentId acceptabilityId",
                rows.languages,
            ),
        ] {
            let path = folder.join("Snapshot").join(format!("{file}_{name}.txt"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let lines = std::iter::once(&columns).chain(rows);
            let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join("\t") + "\r\n");
            fs::write(&path, lines.collect::<String>()).unwrap();
        }
        folder
    }

    /// Writes a base with the concept 138875005, its child 11000006, and the child 12000003 of that concept.
    pub fn base(&self) -> PathBuf {
        self.write(
            "INT_20250101",
            &Rows {
                depends: &[
                    "00000000-0000-4000-8000-000000000001 20250101 1 900000000000207008 900000000000534007 \
                     900000000000012004 20250101 20250101",
                ],
                concepts: &[
                    "138875005 20250101 1 900000000000207008 900000000000074008",
                    "116680003 20250101 1 900000000000012004 900000000000074008",
                    "11000006 20250101 1 900000000000207008 900000000000074008",
                    "12000003 20250101 1 900000000000207008 900000000000074008",
                ],
                descriptions: &["21000001 20250101 1 900000000000207008 11000006 en 900000000000013009 Tree x"],
                relationships: &[
                    "31000002 20250101 1 900000000000207008 11000006 138875005 0 116680003 900000000000011006 x",
                    "32000004 20250101 1 900000000000207008 12000003 11000006 0 116680003 900000000000011006 x",
                ],
                ..Rows::default()
            },
        )
    }
}

/// Returns a row of the module dependency reference set. It states that a module depends on another one, each
/// with its date.
pub fn depends(number: u8, [module, date]: [&str; 2], [on, of]: [&str; 2]) -> String {
    format!(
        "00000000-0000-4000-8000-0000000001{number:02} {date} 1 {module} 900000000000534007 {on} {date} {of}"
    )
}

pub const CORE: [&str; 2] = ["900000000000207008", "20250101"];
pub const MODEL: [&str; 2] = ["900000000000012004", "20250101"];
pub const LAND: [&str; 2] = ["41000005", "20250201"];
pub const TOWN: [&str; 2] = ["42000007", "20250301"];
pub const OTHER: [&str; 2] = ["43000009", "20250201"];
