//! The hierarchy of a code system: a concept with its neighbours, concepts by text, and the path between two
//! codes.
//!
//! Neighbours are the properties `parent` and `child` of `$lookup`, which FHIR R4 defines for all code
//! systems.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use serde_json::json;

use super::{Api, ApiError, Bearer, ExpandedCode, LookupQuery, SubsumesQuery};

/// Maximum number of concepts that one search by text returns.
pub const SEARCH_COUNT: u64 = 20;
/// Maximum number of levels that the search for a path ascends.
pub const PATH_MAX_DEPTH: usize = 64;
/// Maximum number of concepts that the search for a path looks up.
pub const PATH_MAX_LOOKUPS: usize = 200;
/// Maximum number of concurrent requests of the search for a path.
const PATH_CONCURRENT: usize = 4;

/// A concept to show with its neighbours. An empty version is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HierarchyQuery {
    /// Canonical URL of the code system.
    pub system: String,
    pub version: String,
    pub code: String,
}

/// A concept with its direct neighbours in the hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HierarchyConcept {
    pub code: String,
    pub display: Option<String>,
    pub name: Option<String>,
    /// Version of the code system that was used.
    pub version: Option<String>,
    pub definition: Option<String>,
    pub parents: Vec<ConceptLabel>,
    pub children: Vec<ConceptLabel>,
}

/// A code and its display, if it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConceptLabel {
    pub code: String,
    pub display: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConceptSearch {
    /// Canonical URL of the code system.
    pub system: String,
    /// Version of the code system; not sent if empty.
    pub version: String,
    pub text: String,
}

/// Question for the path between two codes. An empty version is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathQuery {
    /// Canonical URL of the code system.
    pub system: String,
    pub version: String,
    pub code_a: String,
    pub code_b: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HierarchyPath {
    /// Outcome of `$subsumes`.
    pub outcome: String,
    /// A shortest chain from the more general code to the more specific one; empty if there is none.
    pub chain: Vec<ConceptLabel>,
    /// Number of concepts that were looked up.
    pub lookups: usize,
    /// Whether the search ended at [`PATH_MAX_DEPTH`] or [`PATH_MAX_LOOKUPS`], so that a longer chain may
    /// exist.
    pub limit_reached: bool,
}

impl HierarchyPath {
    /// A sentence that explains the chain, or why there is none.
    pub fn sentence(&self) -> String {
        let lookups = self.lookups;
        match (self.outcome.as_str(), self.chain.len()) {
            (outcome, 0) if self.limit_reached => format!(
                "{outcome}, but no chain was found within {PATH_MAX_DEPTH} levels and {lookups} lookups; the search stopped at its limit"
            ),
            (outcome @ ("subsumes" | "subsumed-by"), 0) => {
                format!("{outcome}, but the parents that the server returns form no chain")
            }
            (outcome, 0) => format!("{outcome}; there is no path"),
            (outcome, count) => format!("{outcome}, {count} concepts, {lookups} lookups"),
        }
    }
}

impl Api {
    /// A concept with its neighbours, by `$lookup`.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn concept(
        &self,
        query: &HierarchyQuery,
        bearer: &Bearer,
    ) -> Result<HierarchyConcept, ApiError> {
        let HierarchyQuery { system, version, code } = query.clone();
        let properties = vec!["parent".to_owned(), "child".to_owned()];
        let response = self.lookup(&LookupQuery { system, version, code, properties }, bearer).await?;
        let (mut parents, mut children) = (Vec::new(), Vec::new());
        for property in response.properties {
            let neighbours = match property.code.as_str() {
                "parent" => &mut parents,
                "child" => &mut children,
                _ => continue,
            };
            neighbours.push(ConceptLabel { code: property.value, display: property.description });
        }
        Ok(HierarchyConcept {
            code: query.code.clone(),
            display: response.display,
            name: response.name,
            version: response.version,
            definition: response.definition,
            parents,
            children,
        })
    }

    /// Up to [`SEARCH_COUNT`] concepts of a code system, by `$expand` of a value set that contains all of it.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn search_concepts(
        &self,
        search: &ConceptSearch,
        bearer: &Bearer,
    ) -> Result<Vec<ExpandedCode>, ApiError> {
        let mut include = json!({ "system": search.system });
        if !search.version.is_empty() {
            include["version"] = search.version.as_str().into();
        }
        let all =
            json!({ "resourceType": "ValueSet", "status": "active", "compose": { "include": [include] } });
        let parameters = json!([
            { "name": "valueSet", "resource": all },
            { "name": "filter", "valueString": search.text },
            { "name": "count", "valueInteger": SEARCH_COUNT },
        ]);
        let url = self.operation("ValueSet", "", "$expand")?;
        let body = json!({ "resourceType": "Parameters", "parameter": parameters }).to_string();
        let request = self.http().post(&url).header("content-type", "application/fhir+json").body(body);
        let response = self.ask(request, &url, bearer).await?;
        Ok(Self::read_expansion(&response, &url)?.codes)
    }

    /// The path between two codes. `$subsumes` says which code is above the other; from the lower one, the
    /// parents are followed breadth first, within [`PATH_MAX_DEPTH`] and [`PATH_MAX_LOOKUPS`].
    ///
    /// # Errors
    /// The error of a request.
    pub async fn hierarchy_path(
        &self,
        query: &PathQuery,
        bearer: &Bearer,
    ) -> Result<HierarchyPath, ApiError> {
        let PathQuery { system, version, code_a, code_b } = query.clone();
        let question = SubsumesQuery { system, version, code_a, code_b, ..SubsumesQuery::default() };
        let outcome = self.subsumes(&question, bearer).await?.outcome;
        let (above, below) = match outcome.as_str() {
            "subsumes" => (&query.code_a, &query.code_b),
            "subsumed-by" => (&query.code_b, &query.code_a),
            "equivalent" => (&query.code_a, &query.code_a),
            _ => return Ok(HierarchyPath { outcome, ..HierarchyPath::default() }),
        };
        let mut ascent = Ascent::from(below);
        while ascent.continues(above) {
            let level = ascent.next_level();
            let concepts: Vec<_> = stream::iter(level)
                .map(|code| {
                    let query = HierarchyQuery { code, ..query.of_system() };
                    async move { self.concept(&query, bearer).await }
                })
                .buffered(PATH_CONCURRENT)
                .try_collect()
                .await?;
            ascent.add(concepts);
        }
        Ok(HierarchyPath {
            outcome,
            chain: ascent.chain(above),
            lookups: ascent.lookups,
            limit_reached: ascent.limit_reached,
        })
    }
}

impl PathQuery {
    fn of_system(&self) -> HierarchyQuery {
        HierarchyQuery { system: self.system.clone(), version: self.version.clone(), code: String::new() }
    }
}

/// The ancestors of a code that were found so far.
#[derive(Default)]
struct Ascent {
    /// Known codes: their display, and the code below through which they were found first.
    known: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Codes that were found last, and are not looked up yet.
    level: Vec<String>,
    depth: usize,
    lookups: usize,
    limit_reached: bool,
}

impl Ascent {
    fn from(code: &str) -> Self {
        let concepts = BTreeMap::from([(code.to_owned(), (None, None))]);
        Self { known: concepts, level: vec![code.to_owned()], ..Self::default() }
    }

    /// Returns whether another level must be looked up to reach a code. The first level is always looked up,
    /// because it has the display of the start.
    fn continues(&mut self, to: &str) -> bool {
        if self.level.is_empty() || (self.depth > 0 && self.known.contains_key(to)) {
            return false;
        }
        self.limit_reached |= self.depth == PATH_MAX_DEPTH || self.lookups == PATH_MAX_LOOKUPS;
        !self.limit_reached
    }

    /// The codes to look up, as many as the limit allows.
    fn next_level(&mut self) -> Vec<String> {
        self.depth += 1;
        let mut level = std::mem::take(&mut self.level);
        let allowed = PATH_MAX_LOOKUPS - self.lookups;
        self.limit_reached |= level.len() > allowed;
        level.truncate(allowed);
        self.lookups += level.len();
        level
    }

    fn add(&mut self, concepts: Vec<HierarchyConcept>) {
        for concept in concepts {
            if let Some((display, _)) = self.known.get_mut(&concept.code) {
                *display = concept.display;
            }
            for parent in concept.parents {
                if !self.known.contains_key(&parent.code) {
                    self.known.insert(parent.code.clone(), (parent.display, Some(concept.code.clone())));
                    self.level.push(parent.code);
                }
            }
        }
    }

    /// The chain from a code down to the start; empty if the code was not reached.
    fn chain(&mut self, from: &str) -> Vec<ConceptLabel> {
        let mut chain = Vec::new();
        let mut next = Some(from.to_owned());
        while let Some(code) = next
            && let Some((display, below)) = self.known.get(&code)
        {
            chain.push(ConceptLabel { code, display: display.clone() });
            next = below.clone();
        }
        // A chain that was found is complete, even if a limit was reached at the same time.
        self.limit_reached &= chain.is_empty();
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concept(code: &str, parents: &[String]) -> HierarchyConcept {
        let parents = parents.iter().map(|code| ConceptLabel { code: code.clone(), display: None }).collect();
        HierarchyConcept { code: code.to_owned(), parents, ..HierarchyConcept::default() }
    }

    /// Ascends a hierarchy in which `parents` returns the parents of each code.
    fn ascend(from: &str, to: &str, parents: impl Fn(&str) -> Vec<String>) -> (Vec<String>, Ascent) {
        let mut ascent = Ascent::from(from);
        while ascent.continues(to) {
            let level = ascent.next_level();
            ascent.add(level.iter().map(|code| concept(code, &parents(code))).collect());
        }
        let chain = ascent.chain(to).into_iter().map(|concept| concept.code).collect();
        (chain, ascent)
    }

    #[test]
    fn the_chain_is_a_shortest_one() {
        let parents = |code: &str| match code {
            "d" => vec!["c".to_owned(), "a".to_owned()],
            "c" => vec!["b".to_owned()],
            "b" => vec!["a".to_owned()],
            _ => vec![],
        };
        let (chain, ascent) = ascend("d", "a", parents);
        assert_eq!((chain, ascent.lookups), (vec!["a".to_owned(), "d".to_owned()], 1));
        let (chain, ascent) = ascend("d", "elsewhere", parents);
        assert_eq!((chain.len(), ascent.lookups, ascent.limit_reached), (0, 4, false));
    }

    #[test]
    fn a_cycle_ends() {
        let (chain, ascent) = ascend("a", "c", |code| vec![if code == "a" { "b" } else { "a" }.to_owned()]);
        assert_eq!((chain.len(), ascent.limit_reached), (0, false));
    }

    #[test]
    fn the_limits_are_reported() {
        let (chain, ascent) = ascend("0", "x", |code| vec![(code.parse::<u64>().unwrap() + 1).to_string()]);
        assert_eq!((chain.len(), ascent.depth, ascent.limit_reached), (0, PATH_MAX_DEPTH, true));
        let wide = |code: &str| (0..30).map(|index| format!("{code}.{index}")).collect();
        let (_, ascent) = ascend("0", "x", wide);
        assert_eq!((ascent.lookups, ascent.limit_reached), (PATH_MAX_LOOKUPS, true));
    }
}
