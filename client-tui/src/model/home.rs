//! State of the Home screen: the contents of the server, and the results of a search in all of them.

use jiff::Timestamp;

use super::answer::Answer;
use crate::api::{
    ConceptPlace, ContentEntry, ContentKind, ContentList, ExpandedCode, HierarchyQuery, ServerSummary,
};
use crate::form::{Form, FormField};
use crate::fuzzy;

/// Maximum number of code systems in which a text is searched.
const SEARCHED_SYSTEMS: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeScreen {
    /// The line that searches everything.
    pub search: Form,
    /// The lists of the server, in the order of [`ContentKind::ALL`].
    pub contents: [Answer<ContentList>; ContentKind::ALL.len()],
    pub summary: Answer<ServerSummary>,
    /// The code system to which the search is limited.
    pub scope: Option<ContentEntry>,
    /// The code systems that are searched for the text, with the results.
    pub found: Vec<SystemMatches>,
    /// The kinds whose lists are incomplete, with the resources whose titles contain the text.
    pub titled: Vec<(ContentKind, Answer<ContentList>)>,
    /// Index of the selected row in [`Self::rows`].
    pub selected: usize,
    /// The place of the selected concept.
    pub place: Option<(FoundConcept, Answer<ConceptPlace>)>,
    /// The first code of a question to `$subsumes`, if it is chosen.
    pub first_code: Option<FoundConcept>,
    /// Id of the last requests for contents.
    contents_id: u64,
    search_id: u64,
    /// Id of the last question for a place.
    place_id: u64,
}

/// The concepts that were found in a code system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemMatches {
    /// Canonical URL of the code system.
    pub system: String,
    pub title: String,
    pub answer: Answer<Vec<ExpandedCode>>,
}

/// A concept of a code system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundConcept {
    /// Canonical URL of the code system.
    pub system: String,
    pub system_title: String,
    pub code: String,
    pub display: String,
}

/// A row that can be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the types describe the rows")]
pub enum HomeRow {
    Concept(FoundConcept),
    Content(ContentEntry),
}

impl FoundConcept {
    pub fn query(&self) -> HierarchyQuery {
        HierarchyQuery { system: self.system.clone(), version: String::new(), code: self.code.clone() }
    }
}

impl HomeRow {
    /// The row as a text.
    pub fn text(&self) -> String {
        match self {
            Self::Concept(concept) => {
                format!("{}  {}  {}", concept.code, concept.display, concept.system_title)
            }
            Self::Content(entry) => format!("{}  {}  {}", entry.title, entry.id, entry.url),
        }
    }
}

impl Default for HomeScreen {
    fn default() -> Self {
        let search = FormField::new("search", "a word, a code, a group, a value set", "");
        Self {
            search: Form::new(vec![search]),
            contents: Default::default(),
            summary: Answer::None,
            scope: None,
            found: Vec::new(),
            titled: Vec::new(),
            selected: 0,
            place: None,
            first_code: None,
            contents_id: 0,
            search_id: 0,
            place_id: 0,
        }
    }
}

impl HomeScreen {
    /// The text that is searched.
    pub fn text(&self) -> String {
        self.search.value("search")
    }

    /// Returns whether concepts are shown, or only the lists of the server.
    pub fn is_searching(&self) -> bool {
        self.scope.is_some() || !self.text().is_empty()
    }

    /// Returns whether a list, a search or a place is awaited.
    pub fn is_waiting(&self) -> bool {
        self.contents.iter().any(Answer::is_waiting)
            || self.found.iter().any(|matches| matches.answer.is_waiting())
            || self.titled.iter().any(|(_, list)| list.is_waiting())
            || self.place.as_ref().is_some_and(|(_, place)| place.is_waiting())
    }

    /// Ends the waiting.
    pub fn cancel(&mut self) {
        self.contents.iter_mut().for_each(Answer::cancel);
        self.found.iter_mut().for_each(|matches| matches.answer.cancel());
        self.titled.iter_mut().for_each(|(_, list)| list.cancel());
        if let Some((_, place)) = &mut self.place {
            place.cancel();
        }
    }

    /// The list of one kind.
    pub fn list(&self, kind: ContentKind) -> &Answer<ContentList> {
        &self.contents[kind as usize]
    }

    /// The rows that can be selected: those that match the text, or everything that the server has.
    pub fn rows(&self) -> Vec<HomeRow> {
        let text = self.text();
        let mut rows: Vec<_> = self.found_concepts(&text).into_iter().map(HomeRow::Concept).collect();
        if self.scope.is_none() {
            let unlisted =
                self.unlisted().filter(|entry| !self.entries().any(|entry_of_list| entry_of_list == *entry));
            let entries = self.entries().chain(unlisted).cloned().map(HomeRow::Content);
            rows.extend(fuzzy::matching(&text, entries, HomeRow::text));
        }
        rows
    }

    pub fn selected_row(&self) -> Option<HomeRow> {
        self.rows().into_iter().nth(self.selected)
    }

    pub fn selected_concept(&self) -> Option<FoundConcept> {
        match self.selected_row()? {
            HomeRow::Concept(concept) => Some(concept),
            HomeRow::Content(_) => None,
        }
    }

    fn entries(&self) -> impl Iterator<Item = &ContentEntry> {
        let lists = self.contents.iter().filter_map(|list| match list {
            Answer::Done(list) => Some(&list.entries),
            _ => None,
        });
        lists.flatten()
    }

    /// The resources that were found by their titles.
    fn unlisted(&self) -> impl Iterator<Item = &ContentEntry> {
        let lists = self.titled.iter().filter_map(|(_, list)| match list {
            Answer::Done(list) => Some(&list.entries),
            _ => None,
        });
        lists.flatten()
    }

    /// The concepts that were found: first the code or the display that is the text, then displays that begin
    /// with it.
    fn found_concepts(&self, text: &str) -> Vec<FoundConcept> {
        let text = text.to_lowercase();
        let mut concepts: Vec<_> = self.found.iter().flat_map(SystemMatches::concepts).collect();
        concepts.sort_by_key(|concept| {
            let display = concept.display.to_lowercase();
            let is_same = display == text || concept.code.to_lowercase() == text;
            (!is_same, !display.starts_with(&text))
        });
        concepts
    }

    /// Registers that the lists were requested. Returns the id of the requests.
    pub fn send_contents(&mut self, now: Timestamp) -> u64 {
        self.contents_id += 1;
        for list in &mut self.contents {
            *list = Answer::Waiting { since: now };
        }
        self.summary = Answer::Waiting { since: now };
        self.contents_id
    }

    pub fn receive_list(&mut self, id: u64, kind: ContentKind, outcome: Answer<ContentList>) {
        if id == self.contents_id {
            self.contents[kind as usize] = outcome;
        }
    }

    pub fn receive_summary(&mut self, id: u64, outcome: Answer<ServerSummary>) {
        if id == self.contents_id {
            self.summary = outcome;
        }
    }

    /// Registers a search for the text in all code systems, or in that of the scope. Returns its id and the
    /// URLs of the code systems.
    pub fn send_search(&mut self, now: Timestamp) -> (u64, Vec<String>) {
        self.search_id += 1;
        self.selected = 0;
        let systems: Vec<ContentEntry> = match &self.scope {
            Some(entry) => vec![entry.clone()],
            None if self.text().is_empty() => Vec::new(),
            None => self.entries().filter(|entry| entry.is_searchable()).cloned().collect(),
        };
        let is_incomplete = |kind: &ContentKind| {
            kind.has_title_search() && matches!(self.list(*kind), Answer::Done(list) if list.has_more)
        };
        let incomplete: Vec<_> = match self.scope.is_none() && !self.text().is_empty() {
            true => ContentKind::ALL.into_iter().filter(is_incomplete).collect(),
            false => Vec::new(),
        };
        self.titled = incomplete.into_iter().map(|kind| (kind, Answer::Waiting { since: now })).collect();
        self.found.clear();
        for entry in systems {
            // A code system with several versions is searched once.
            let is_known = self.found.iter().any(|matches| matches.system == entry.url);
            if !is_known && self.found.len() < SEARCHED_SYSTEMS {
                let outcome = Answer::Waiting { since: now };
                self.found.push(SystemMatches { system: entry.url, title: entry.title, answer: outcome });
            }
        }
        (self.search_id, self.found.iter().map(|matches| matches.system.clone()).collect())
    }

    pub fn receive_found(&mut self, id: u64, system: &str, outcome: Answer<Vec<ExpandedCode>>) {
        let matches = self.found.iter_mut().find(|matches| matches.system == system);
        if let Some(matches) = matches.filter(|_| id == self.search_id) {
            matches.answer = outcome;
        }
    }

    pub fn receive_titled(&mut self, id: u64, kind: ContentKind, outcome: Answer<ContentList>) {
        let list = self.titled.iter_mut().find(|(awaited, _)| *awaited == kind);
        if let Some((_, list)) = list.filter(|_| id == self.search_id) {
            *list = outcome;
        }
    }

    /// Registers the question for the place of the selected concept, if it is another one than before.
    /// Returns the id and the question.
    pub fn send_place(&mut self, now: Timestamp) -> Option<(u64, HierarchyQuery)> {
        let selected = self.selected_concept();
        if self.place.as_ref().map(|(concept, _)| concept) == selected.as_ref() {
            return None;
        }
        self.place_id += 1;
        self.place = selected.map(|concept| (concept, Answer::Waiting { since: now }));
        self.place.as_ref().map(|(concept, _)| (self.place_id, concept.query()))
    }

    pub fn receive_place(&mut self, id: u64, outcome: Answer<ConceptPlace>) {
        if let Some((_, place)) = self.place.as_mut().filter(|_| id == self.place_id) {
            *place = outcome;
        }
    }
}

impl SystemMatches {
    fn concepts(&self) -> impl Iterator<Item = FoundConcept> {
        let codes = match &self.answer {
            Answer::Done(codes) => codes.as_slice(),
            _ => &[],
        };
        codes.iter().map(|code| FoundConcept {
            system: self.system.clone(),
            system_title: self.title.clone(),
            code: code.code.clone(),
            display: code.display.clone().unwrap_or_default(),
        })
    }
}
