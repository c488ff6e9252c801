//! A compiled code system as a thing of its own: made from a resource or a release, saved, read back, and put in
//! place by [`Change::Index`](crate::Change::Index).

use std::io;
use std::sync::Arc;

use crate::Subsumption;
use crate::code_system::CodeSystem;
use crate::wire::Header;

/// The index of one code system version. Clones share it.
#[derive(Debug, Clone)]
pub struct Index(pub(crate) Arc<CodeSystem>);

impl From<CodeSystem> for Index {
    fn from(system: CodeSystem) -> Self {
        Self(Arc::new(system))
    }
}

impl Index {
    /// Compiles a CodeSystem resource.
    ///
    /// # Errors
    /// Says in one line what was wrong with the resource.
    pub fn from_resource(json: &[u8]) -> Result<Self, String> {
        let header: Header = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if header.resource_type != "CodeSystem" {
            return Err(format!("it is a {}, not a CodeSystem", header.resource_type));
        }
        CodeSystem::compile(&header, json).map(Self::from)
    }

    /// Saves it.
    ///
    /// # Errors
    /// The file's.
    pub fn save(&self, out: impl io::Write) -> io::Result<()> {
        self.0.save(out)
    }

    /// Reads what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The file's; `InvalidData` for a file that is no index, of another format or machine, or damaged.
    pub fn read(input: impl io::Read) -> io::Result<Self> {
        CodeSystem::read(input).map(Self::from)
    }

    /// Canonical URL.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Version of the code system.
    pub fn version(&self) -> Option<&str> {
        self.0.version.as_deref()
    }

    /// How many concepts there are.
    pub fn concepts(&self) -> usize {
        self.0.len()
    }

    /// How the first code stands to the second; `None` where one of them is not there or the hierarchy runs in a
    /// circle. The rules of `$subsumes` are [`Terminology::subsumes`](crate::Terminology::subsumes).
    pub fn subsumes(&self, a: &str, b: &str) -> Option<Subsumption> {
        let [a, b] = self.0.locate_all([a, b]);
        let (a, b) = (a?, b?);
        let hierarchy = self.0.hierarchy();
        hierarchy.circle().is_empty().then(|| Subsumption::of(hierarchy, a, b))
    }

    /// The codes of one circle of the hierarchy, the first again at the end, if there is any.
    pub fn circle(&self) -> Option<Vec<String>> {
        self.0.circle()
    }

    /// The same of a CodeSystem resource. It is compiled only where it speaks of parents or children by property:
    /// nesting alone makes no circle. A resource that cannot be read has none.
    pub fn circle_in(json: &[u8]) -> Option<Vec<String>> {
        let says = |word: &str| json.windows(word.len()).any(|at| at == word.as_bytes());
        if !(says("parent") || says("child") || says("subsumedBy")) {
            return None;
        }
        Self::from_resource(json).ok()?.circle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_in_a_resource_is_found_without_the_index() {
        let circle = |concepts: &str| {
            let json = format!(
                r#"{{"resourceType":"CodeSystem","url":"urn:a","status":"active","content":"complete","concept":[{concepts}]}}"#
            );
            Index::circle_in(json.as_bytes()).map(|codes| codes.join(" > "))
        };
        assert_eq!(circle(r#"{"code":"a","concept":[{"code":"b"}]}"#), None);
        assert_eq!(
            circle(r#"{"code":"a","property":[{"code":"parent","valueCode":"b"}]},{"code":"b"}"#),
            None
        );
        // Nesting says that b is below a, the property that a is below b.
        let both = r#"{"code":"a","property":[{"code":"parent","valueCode":"b"}],"concept":[{"code":"b"}]}"#;
        assert_eq!(circle(both).as_deref(), Some("b > a > b"));
    }

    #[test]
    fn an_index_comes_back_as_it_was() {
        let json = r#"{"resourceType":"CodeSystem","url":"urn:a","version":"2","status":"active","content":"complete",
            "caseSensitive":false,"hierarchyMeaning":"is-a","valueSet":"urn:all","language":"en",
            "property":[{"code":"n","uri":"urn:n","type":"integer"}],
            "concept":[{"code":"A","display":"Eins","designation":[{"language":"de","value":"eins",
                "use":{"system":"urn:u","code":"s","display":"Synonym"}}],"concept":[{"code":"b",
                "property":[{"code":"n","valueInteger":7},{"code":"inactive","valueBoolean":true}]}]}]}"#;
        let index = Index::from_resource(json.as_bytes()).unwrap();
        let mut file = Vec::new();
        index.save(&mut file).unwrap();
        let back = Index::read(&file[..]).unwrap();
        for at in (0..file.len()).step_by(5) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x20;
            assert!(Index::read(&damaged[..]).is_err(), "byte {at} is damaged");
        }
        assert_eq!((back.url(), back.version(), back.concepts()), ("urn:a", Some("2"), 2));
        let (was, is) = (&index.0, &back.0);
        for code in ["a", "A", "b", "B", "c"] {
            assert_eq!(was.locate(code), is.locate(code), "{code}");
        }
        let (a, b) = (is.find("a").unwrap(), is.find("b").unwrap());
        assert!(is.hierarchy().is_a(b, a) && is.is_inactive(b) && !is.is_inactive(a));
        assert_eq!(is.properties(b).collect::<Vec<_>>(), [("n", "7"), ("inactive", "true")]);
        let designation = is.designations(a).next().unwrap();
        assert_eq!((designation.language, designation.value), (Some("de"), "eins"));
        assert_eq!(designation.usage, Some(["urn:u", "s", "Synonym"]));
        assert_eq!(is.of_all.as_ref().map(|set| set.url.as_str()), Some("urn:all"));
        assert_eq!(is.header.property[0].uri.as_deref(), Some("urn:n"));
    }
}
