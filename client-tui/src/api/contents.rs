//! The contents of a server: its software, groups, code systems and value sets, and the place of a concept.

use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;

use super::{Api, ApiError, Bearer, ConceptLabel, ConceptSearch, ExpandedCode, HierarchyQuery};

/// Maximum number of resources of one kind that are listed.
pub const CONTENTS_COUNT: usize = 50;
/// Maximum number of concurrent searches for one text.
const CONCURRENT_SEARCHES: usize = 8;
/// Maximum number of levels above a concept that are looked up.
const MAX_ANCESTORS: usize = 12;

/// A kind of resources that the Home screen lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the titles describe the kinds")]
pub enum ContentKind {
    Groups,
    CodeSystems,
    ValueSets,
}

/// The resources of one kind, at most [`CONTENTS_COUNT`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentList {
    /// In the order of their titles.
    pub entries: Vec<ContentEntry>,
    /// Whether the server has more.
    pub has_more: bool,
}

/// A resource that the server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentEntry {
    pub kind: ContentKind,
    pub id: String,
    /// Canonical URL; empty for a Group.
    pub url: String,
    pub title: String,
    pub version: Option<String>,
    /// Number of concepts or members, if the resource states it.
    pub count: Option<u64>,
    /// Whether the server has the concepts of a code system.
    has_concepts: bool,
}

/// Facts about a server, which it states without a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSummary {
    /// Name and version of the software.
    pub software: String,
    pub fhir_version: String,
    /// Seconds by which the clock of this machine is ahead of that of the server.
    pub clock_skew_s: Option<i64>,
    /// End of the validity of the server's certificate, if TLS is used.
    pub certificate_ends_at: Option<Timestamp>,
}

/// The place of a concept in the hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConceptPlace {
    /// Concepts above, the most general one first. Where a concept has several parents, it is the first one.
    pub ancestors: Vec<ConceptLabel>,
    /// Number of direct parents besides the last of the ancestors.
    pub other_parents: usize,
    pub children: Vec<ConceptLabel>,
    pub definition: Option<String>,
}

impl ContentKind {
    pub const ALL: [Self; 3] = [Self::Groups, Self::CodeSystems, Self::ValueSets];

    pub fn title(self) -> &'static str {
        match self {
            Self::Groups => "Groups",
            Self::CodeSystems => "Code systems",
            Self::ValueSets => "Value sets",
        }
    }

    /// The things that the number of an entry counts.
    pub fn counted(self) -> &'static str {
        if self == Self::Groups { "members" } else { "concepts" }
    }

    fn resource_type(self) -> &'static str {
        match self {
            Self::Groups => "Group",
            Self::CodeSystems => "CodeSystem",
            Self::ValueSets => "ValueSet",
        }
    }

    /// Returns whether FHIR R4 has a search parameter for the titles of these resources.
    pub fn has_title_search(self) -> bool {
        self != Self::Groups
    }

    /// The elements that a list needs.
    fn elements(self) -> &'static str {
        match self {
            Self::Groups => "name,quantity",
            Self::CodeSystems => "url,name,title,version,content,count",
            Self::ValueSets => "url,name,title,version",
        }
    }
}

impl ContentEntry {
    fn read(kind: ContentKind, resource: &Value) -> Self {
        let text = |name: &str| resource[name].as_str().filter(|text| !text.is_empty());
        let id = text("id").unwrap_or_default();
        let url = text("url").unwrap_or_default();
        let title = text("title").or(text("name")).or(Some(url).filter(|url| !url.is_empty())).unwrap_or(id);
        let content = text("content");
        Self {
            kind,
            id: id.to_owned(),
            url: url.to_owned(),
            title: title.to_owned(),
            version: text("version").map(str::to_owned),
            count: resource["count"].as_u64().or(resource["quantity"].as_u64()),
            has_concepts: !matches!(content, Some("not-present" | "supplement")),
        }
    }

    /// Returns whether concepts of this code system can be searched.
    pub fn is_searchable(&self) -> bool {
        self.kind == ContentKind::CodeSystems && self.has_concepts && !self.url.is_empty()
    }
}

impl Api {
    /// The resources of one kind. A server that has code systems without resources names them in its
    /// TerminologyCapabilities.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn contents(&self, kind: ContentKind, bearer: &Bearer) -> Result<ContentList, ApiError> {
        match self.search_contents(kind, None, bearer).await {
            Ok(list) if !list.entries.is_empty() || kind != ContentKind::CodeSystems => Ok(list),
            other if kind == ContentKind::CodeSystems => {
                let announced = self.announced_code_systems(bearer).await.unwrap_or_default();
                if announced.entries.is_empty() { other } else { Ok(announced) }
            }
            other => other,
        }
    }

    /// The resources of one kind whose titles contain a text.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn contents_with_title(
        &self,
        kind: ContentKind,
        text: &str,
        bearer: &Bearer,
    ) -> Result<ContentList, ApiError> {
        self.search_contents(kind, Some(text), bearer).await
    }

    async fn search_contents(
        &self,
        kind: ContentKind,
        title: Option<&str>,
        bearer: &Bearer,
    ) -> Result<ContentList, ApiError> {
        let url = format!("{}/{}", self.profile().fhir_base, kind.resource_type());
        let count = CONTENTS_COUNT.to_string();
        let mut parameters = vec![("_elements", kind.elements()), ("_count", count.as_str())];
        parameters.extend(title.map(|title| ("title:contains", title)));
        let bundle = self.ask(self.http().get(&url).query(&parameters), &url, bearer).await?;
        Ok(content_list(kind, &bundle))
    }

    /// The code systems in the TerminologyCapabilities of the server.
    async fn announced_code_systems(&self, bearer: &Bearer) -> Result<ContentList, ApiError> {
        let url = format!("{}/metadata", self.profile().fhir_base);
        let request = self.http().get(&url).query(&[("mode", "terminology")]);
        let capabilities = self.ask(request, &url, bearer).await?;
        let systems = capabilities["codeSystem"].as_array().into_iter().flatten();
        let resources = systems.filter_map(|system| {
            let url = system["uri"].as_str()?;
            let title = url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or(url);
            Some(serde_json::json!({ "url": url, "title": title, "version": system["version"][0]["code"] }))
        });
        Ok(listed(ContentKind::CodeSystems, resources.collect::<Vec<_>>().iter()))
    }

    /// Facts about the server, by its CapabilityStatement.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn server_summary(&self) -> Result<ServerSummary, ApiError> {
        let url = format!("{}/metadata", self.profile().fhir_base);
        let accept = HeaderValue::from_static("application/fhir+json, application/json");
        let response =
            self.fetch(&url, HeaderMap::from_iter([(HeaderName::from_static("accept"), accept)])).await?;
        let statement = response.exact_json(&url)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, version) = (text(&statement["software"]["name"]), text(&statement["software"]["version"]));
        Ok(ServerSummary {
            software: format!("{name} {version}").trim().to_owned(),
            fhir_version: text(&statement["fhirVersion"]),
            clock_skew_s: response.clock_skew_s(),
            certificate_ends_at: response.certificate_ends_at,
        })
    }

    /// Searches several code systems for a text, and passes on the result of each one.
    pub async fn search_systems(
        &self,
        text: &str,
        systems: Vec<String>,
        bearer: &Bearer,
        on_result: impl Fn(String, Result<Vec<ExpandedCode>, ApiError>),
    ) {
        let searches = systems.into_iter().map(async |system| {
            let search = ConceptSearch { system, text: text.to_owned(), ..ConceptSearch::default() };
            let codes = self.search_concepts(&search, bearer).await;
            (search.system, codes)
        });
        let mut results = stream::iter(searches).buffer_unordered(CONCURRENT_SEARCHES);
        while let Some((system, codes)) = results.next().await {
            on_result(system, codes);
        }
    }

    /// The place of a concept in the hierarchy of its code system.
    ///
    /// # Errors
    /// The error of a request.
    pub async fn concept_place(
        &self,
        query: &HierarchyQuery,
        bearer: &Bearer,
    ) -> Result<ConceptPlace, ApiError> {
        let concept = self.concept(query, bearer).await?;
        let other_parents = concept.parents.len().saturating_sub(1);
        let mut ancestors: Vec<ConceptLabel> = Vec::new();
        let mut above = concept.parents.into_iter().next();
        while let Some(parent) = above {
            let is_cycle =
                parent.code == query.code || ancestors.iter().any(|ancestor| ancestor.code == parent.code);
            if is_cycle || ancestors.len() == MAX_ANCESTORS {
                break;
            }
            let next = HierarchyQuery { code: parent.code.clone(), ..query.clone() };
            let looked_up = self.concept(&next, bearer).await?;
            let display = parent.display.or(looked_up.display);
            ancestors.push(ConceptLabel { code: parent.code, display });
            above = looked_up.parents.into_iter().next();
        }
        ancestors.reverse();
        Ok(ConceptPlace {
            ancestors,
            other_parents,
            children: concept.children,
            definition: concept.definition,
        })
    }
}

/// The resources of a Bundle. An outcome in it is not content.
fn content_list(kind: ContentKind, bundle: &Value) -> ContentList {
    let entries = bundle["entry"].as_array().into_iter().flatten().map(|entry| &entry["resource"]);
    let mut list = listed(kind, entries.filter(|resource| resource["resourceType"] == kind.resource_type()));
    let links = bundle["link"].as_array().into_iter().flatten();
    list.has_more |= links.into_iter().any(|link| link["relation"] == "next");
    list
}

fn listed<'a>(kind: ContentKind, resources: impl Iterator<Item = &'a Value>) -> ContentList {
    let mut entries: Vec<_> = resources.map(|resource| ContentEntry::read(kind, resource)).collect();
    entries.sort_by_key(|entry| entry.title.to_lowercase());
    let has_more = entries.len() > CONTENTS_COUNT;
    entries.truncate(CONTENTS_COUNT);
    ContentList { entries, has_more }
}
