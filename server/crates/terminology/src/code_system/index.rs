//! The public handle of a compiled code system: built from a resource or a release, saved, loaded, and stored
//! with [`TerminologyChange::Index`](crate::TerminologyChange::Index).

use std::io;
use std::sync::Arc;

use serde_json::json;

use super::columns::{FORMAT, IndexReader};
use super::concept_attribute::AttributeValue;
use super::{CodeSystem, Subsumption};
use crate::model::known_systems::SNOMED_CT;
use crate::model::resource_json::{ContentMode, HierarchyMeaning, ResourceHeader};

/// SNOMED CT's reference set of the modules on which others depend, and the module of the International
/// Edition.
const MODULE_DEPENDENCY: &str = "900000000000534007";
const CORE_MODULE: &str = "900000000000207008";

/// The code system of a saved index, read without its concepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDescription {
    /// Canonical URL.
    pub url: String,
    /// Version.
    pub version: Option<String>,
    /// Title or name of the code system.
    pub title: Option<String>,
}

impl IndexDescription {
    /// Reads the beginning of a file that [`CodeSystemIndex::save`] wrote.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be read, of the kind `InvalidData` if it is not an index, or
    /// has another format or byte order.
    pub fn read(file: impl io::Read) -> io::Result<Self> {
        let header = CodeSystem::read_header(&mut IndexReader::begin(file)?)?;
        let title = header.title.or(header.name);
        Ok(Self { url: header.url.unwrap_or_default(), version: header.version, title })
    }
}

/// The index of one code system version. Clones share the content.
#[derive(Debug, Clone)]
pub struct CodeSystemIndex(pub(crate) Arc<CodeSystem>);

impl From<CodeSystem> for CodeSystemIndex {
    fn from(mut system: CodeSystem) -> Self {
        // Earlier versions of the program did not record it at the import.
        if system.header.extensions.international_base.is_none() {
            system.header.extensions.international_base = international_base(&system);
        }
        Self(Arc::new(system))
    }
}

/// Version of the International Edition of which a release of SNOMED CT is composed, by its module dependency
/// reference set (Release File Specification, 5.2.4.2); `None` of that edition itself.
fn international_base(system: &CodeSystem) -> Option<String> {
    let version = system.version.as_deref().filter(|_| system.url == SNOMED_CT)?;
    let table = system.member_table(MODULE_DEPENDENCY)?;
    let date = table.field("targetEffectiveTime")?;
    let core = table.rows_of(system.find(CORE_MODULE)?).filter(|row| table.facts(*row).is_active);
    let dates = core.filter_map(|row| match table.value(row, date)? {
        AttributeValue::Literal(date) => Some(date),
        AttributeValue::Concept(_) => None,
    });
    let base = format!("{SNOMED_CT}/{CORE_MODULE}/version/{}", dates.max()?);
    (!version.contains(CORE_MODULE)).then_some(base)
}

impl CodeSystemIndex {
    /// Compiles a CodeSystem resource.
    ///
    /// # Errors
    /// Returns a message of one line if the resource is invalid.
    pub fn from_resource(json: &[u8]) -> Result<Self, String> {
        let header: ResourceHeader = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if header.resource_type != "CodeSystem" {
            return Err(format!("resourceType is '{}', not 'CodeSystem'", header.resource_type));
        }
        CodeSystem::compile(&header, json).map(Self::from)
    }

    /// Saves the index.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be written.
    pub fn save(&self, out: impl io::Write) -> io::Result<()> {
        self.0.save(out)
    }

    /// Loads an index that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// Returns [`io::Error`] if the file cannot be read, of the kind `InvalidData` if it is not an index, is
    /// corrupt, or has another format or byte order.
    pub fn read(input: impl io::Read) -> io::Result<Self> {
        CodeSystem::read(input).map(Self::from)
    }

    /// Returns whether the index was read from a file of an older format, so that saving it again makes the
    /// next start faster.
    pub fn is_updated(&self) -> bool {
        self.0.is_updated
    }

    /// Returns whether the file of an index has the present format. Reads its first bytes only.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read, of the kind `InvalidData` if it is not an index, or one that
    /// this program does not read.
    pub fn has_present_format(file: impl io::Read) -> io::Result<bool> {
        Ok(IndexReader::begin(file)?.format == FORMAT)
    }

    /// Returns the canonical URL.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Returns the version of the code system.
    pub fn version(&self) -> Option<&str> {
        self.0.version.as_deref()
    }

    /// Returns a CodeSystem resource that describes the code system without its concepts, with this id.
    pub fn description(&self, id: &str) -> serde_json::Value {
        let header = &self.0.header;
        let mut out = json!({
            "resourceType": "CodeSystem",
            "id": id,
            "extension": header.extensions.to_json(),
            "url": header.url,
            "version": header.version,
            "name": header.name,
            "title": header.title,
            "status": header.status.as_deref().unwrap_or("active"),
            "date": header.date,
            "language": header.language,
            "description": self.summary(),
            "caseSensitive": header.case_sensitive,
            "valueSet": header.value_set,
            "hierarchyMeaning": header.hierarchy_meaning.map(HierarchyMeaning::name),
            "content": ContentMode::NotPresent.name(),
            "count": self.concepts(),
            "property": header.property.iter().map(|property| json!({
                "code": property.code,
                "uri": property.uri,
                "description": property.description,
                "type": property.r#type.as_deref().unwrap_or("string"),
            })).collect::<Vec<_>>(),
        });
        remove_absent(&mut out);
        out
    }

    fn summary(&self) -> String {
        let languages = self.languages();
        let mut text = "A release that was imported; this resource has no concepts.".to_owned();
        if !languages.is_empty() {
            text.push_str(&format!(" Languages: {}.", languages.join(", ")));
        }
        let dialects = self.language_reference_sets();
        if !dialects.is_empty() {
            text.push_str(&format!(" Language reference sets: {}.", dialects.join(", ")));
        }
        text
    }

    /// Returns the title or name of the code system.
    pub fn title(&self) -> Option<&str> {
        self.0.header.title.as_deref().or(self.0.header.name.as_deref())
    }

    /// Returns the language reference sets of a release of SNOMED CT that have a term, sorted.
    pub fn language_reference_sets(&self) -> Vec<&str> {
        self.0.language_reference_sets()
    }

    /// Returns the languages of the designations, sorted.
    pub fn languages(&self) -> Vec<&str> {
        self.0.designation_languages()
    }

    /// Returns the number of concepts.
    pub fn concepts(&self) -> usize {
        self.0.len()
    }

    /// Returns the relation of the first code to the second; `None` if one of them does not exist or the
    /// hierarchy has a cycle. The operation implements the rules of `$subsumes`.
    pub fn subsumes(&self, a: &str, b: &str) -> Option<Subsumption> {
        let [a, b] = self.0.locate_all([a, b]);
        let (a, b) = (a?, b?);
        let hierarchy = self.0.hierarchy();
        hierarchy.cycle().is_empty().then(|| Subsumption::between(hierarchy, a, b))
    }

    /// Returns the codes of one cycle of the hierarchy, with the first code at the end again; `None` if there
    /// is no cycle.
    pub fn cycle(&self) -> Option<Vec<String>> {
        self.0.cycle()
    }

    /// Returns the faults of the source that do not prevent its use, in words: codes that occur twice or
    /// differ by case only in a code system that ignores case, and parents and children that do not exist. An
    /// index that was read from a file has none.
    pub fn faults(&self) -> &[String] {
        &self.0.faults
    }

    /// Returns the codes of one cycle in the hierarchy of a CodeSystem resource, as [`cycle`](Self::cycle)
    /// does; `None` if there is no cycle or the resource is invalid. The resource is compiled only if it
    /// contains properties for parents or children, because nesting alone cannot form a cycle.
    pub fn cycle_in(json: &[u8]) -> Option<Vec<String>> {
        let says = |word: &str| json.windows(word.len()).any(|index| index == word.as_bytes());
        if !(says("parent") || says("child") || says("subsumedBy")) {
            return None;
        }
        Self::from_resource(json).ok()?.cycle()
    }
}

/// Removes members that are null and lists that are empty.
fn remove_absent(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(members) => {
            members
                .retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
            members.values_mut().for_each(remove_absent);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(remove_absent),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_in_a_resource_is_found() {
        let cycle = |concepts: &str| {
            let json = format!(
                r#"{{"resourceType":"CodeSystem","url":"urn:a","status":"active","content":"complete","concept":[{concepts}]}}"#
            );
            CodeSystemIndex::cycle_in(json.as_bytes()).map(|codes| codes.join(" > "))
        };
        assert_eq!(cycle(r#"{"code":"a","concept":[{"code":"b"}]}"#), None);
        assert_eq!(
            cycle(r#"{"code":"a","property":[{"code":"parent","valueCode":"b"}]},{"code":"b"}"#),
            None
        );
        // Nesting makes `b` a child of `a`, and the property makes `a` a child of `b`.
        let both = r#"{"code":"a","property":[{"code":"parent","valueCode":"b"}],"concept":[{"code":"b"}]}"#;
        assert_eq!(cycle(both).as_deref(), Some("b > a > b"));
    }

    #[test]
    fn a_saved_index_is_loaded_unchanged() {
        let json = r#"{"resourceType":"CodeSystem","url":"urn:a","version":"2","status":"active","content":"complete",
            "caseSensitive":false,"hierarchyMeaning":"is-a","valueSet":"urn:all","language":"en",
            "property":[{"code":"n","uri":"urn:n","type":"integer"}],
            "concept":[{"code":"A","display":"Eins","designation":[{"language":"de","value":"eins",
                "use":{"system":"urn:u","code":"s","display":"Synonym"}}],"concept":[{"code":"b",
                "property":[{"code":"n","valueInteger":7},{"code":"inactive","valueBoolean":true}]}]}]}"#;
        let index = CodeSystemIndex::from_resource(json.as_bytes()).unwrap();
        let mut file = Vec::new();
        index.save(&mut file).unwrap();
        let back = CodeSystemIndex::read(&file[..]).unwrap();
        for position in (0..file.len()).step_by(5) {
            let mut damaged = file.clone();
            damaged[position] ^= 0x20;
            assert!(CodeSystemIndex::read(&damaged[..]).is_err(), "byte {position} is damaged");
        }
        assert_eq!((back.url(), back.version(), back.concepts()), ("urn:a", Some("2"), 2));
        let (was, is) = (&index.0, &back.0);
        for code in ["a", "A", "b", "B", "c"] {
            assert_eq!(was.locate(code), is.locate(code), "{code}");
        }
        let (a, b) = (is.find("a").unwrap(), is.find("b").unwrap());
        assert!(is.hierarchy().is_a(b, a) && is.is_inactive(b) && !is.is_inactive(a));
        assert_eq!(is.properties(b).collect::<Vec<_>>(), [("n", "7"), ("inactive", "true")]);
        // The older format differs by the words, which are built again. Its checksum covers the number.
        let mut older = file.clone();
        older[8..12].copy_from_slice(&11_u32.to_ne_bytes());
        let end = older.len() - 4;
        let sum = crc32fast::hash(&older[..end]);
        older[end..].copy_from_slice(&sum.to_ne_bytes());
        let updated = CodeSystemIndex::read(&older[..]).unwrap();
        assert!(updated.is_updated() && !back.is_updated());
        let mut again = Vec::new();
        updated.save(&mut again).unwrap();
        assert_eq!(again, file);
        let designation = is.designations(a).next().unwrap();
        assert_eq!((designation.language, designation.value), (Some("de"), "eins"));
        assert_eq!(designation.usage, Some(["urn:u", "s", "Synonym"]));
        assert_eq!(is.header.value_set.as_deref(), Some("urn:all"));
        assert_eq!(is.header.property[0].uri.as_deref(), Some("urn:n"));
    }
}
