//! One coding against one value set.

use fhir::{Coding, Severity};

use super::request::{Place, Request};
use crate::built_in::{self, Grammar};
use crate::catalog::Catalog;
use crate::code_system::{CodeSystem, Display};
use crate::display::{self, Languages, TextKind, Verdict};
use crate::messages::Note;
use crate::places::Places;
use crate::texts::{self, Supplement};
use crate::value_set::ValueSet;
use crate::value_set::imports::{Home, pinned};
use crate::value_set::members::WORD_OF_GRAMMAR;
use crate::value_set::search::{Asked, Found, Member, Search};
use crate::wire::Content;
use crate::{Budget, TxError, version};

/// Steps that judging a coding takes beside the search: texts are put together for people.
const CODING_STEPS: usize = 50;

/// What all codings of one request are held against.
pub(super) struct Judge<'a, 'r> {
    pub(super) catalog: &'a Catalog,
    pub(super) budget: &'r Budget<'r>,
    pub(super) request: &'r Request<'r>,
    pub(super) set: &'a ValueSet,
    /// The resource that the set stands in: itself, or the one that contains it.
    pub(super) home: &'a ValueSet,
    /// The one code system asked about; `None` where the value set decides.
    pub(super) system: Option<&'a CodeSystem>,
    pub(super) supplements: Vec<Supplement<'a>>,
    pub(super) languages: Languages,
}

/// The verdict on one coding.
#[derive(Debug)]
pub(super) struct Judged<'q> {
    pub(super) coding: &'q Coding,
    /// Is the code in the value set, as far as it is allowed there?
    pub(super) in_set: bool,
    pub(super) display: Option<String>,
    /// Version of the code system that decided.
    pub(super) version: Option<String>,
    pub(super) normalized_code: Option<String>,
    pub(super) inactive: bool,
    pub(super) status: Option<String>,
    /// Systems that are not known here, as canonicals.
    pub(super) missing: Vec<String>,
    /// The value set needs one of them, so that it cannot be told whether the code is in it.
    pub(super) undecided: bool,
    pub(super) notes: Vec<Note>,
}

impl Judged<'_> {
    pub(super) fn has_no_error(&self) -> bool {
        self.notes.iter().all(|note| note.issue.severity != Severity::Error)
    }

    pub(super) fn is_valid(&self) -> bool {
        self.in_set && self.has_no_error()
    }

    /// Errors become warnings: another coding has decided.
    pub(super) fn only_warn(&mut self) {
        let errors = self.notes.iter_mut().filter(|note| note.issue.severity == Severity::Error);
        errors.for_each(|note| note.issue.severity = Severity::Warning);
    }
}

impl<'a> Judge<'a, '_> {
    /// Looks for a code of a system in the value set.
    pub(super) fn search(&self, system: &str, coding: &Coding) -> Result<Found<'a>, TxError> {
        let code = coding.code.as_deref().unwrap_or_default();
        let asked = Asked { system, version: coding.version.as_deref(), code };
        let trust_lists = !self.request.ecosystem;
        Search::new(self.catalog, asked, &self.request.pins, trust_lists, self.budget)
            .run(Home { home: self.home, set: self.set })
    }

    /// Judges a coding.
    ///
    /// # Errors
    /// When the question cannot be judged at all.
    pub(super) fn coding<'q>(&self, coding: &'q Coding, place: Place) -> Result<Judged<'q>, TxError> {
        let mut out = Judged {
            coding,
            in_set: false,
            display: None,
            version: None,
            normalized_code: None,
            inactive: false,
            status: None,
            missing: Vec::new(),
            undecided: false,
            notes: Vec::new(),
        };
        self.budget.spend(CODING_STEPS)?;
        let Some(system) = coding.system.as_deref().filter(|system| !system.is_empty()) else {
            out.notes.extend(self.not_in_set(coding, place));
            out.notes.push(Note::no_system().at(place.whole()));
            return Ok(out);
        };
        if Grammar::of(system).is_some() {
            self.budget.words(WORD_OF_GRAMMAR, true)?;
        }
        let mut found = match self.system {
            Some(only) => self.in_system(only, coding),
            None => self.search(system, coding)?,
        };
        if self.request.active_only {
            let is_inactive =
                |m: &Member<'_>| m.system.zip(m.concept).is_some_and(|(s, at)| s.is_inactive(at));
            let (inactive, active): (Vec<_>, Vec<_>) = found.members.into_iter().partition(is_inactive);
            found.members = active;
            found.inactive.extend(inactive);
        }
        if let Some(member) = self.best(&found.members, coding)? {
            out.in_set = true;
            self.member(member, coding, place, &mut out)?;
        } else if let Some((system, wanted)) = found.unknown.into_iter().next() {
            self.cannot_tell(&system, wanted.as_deref(), place, &mut out)?;
        } else if let Some(member) = found.inactive.first() {
            out.notes
                .push(Note::not_active(coding.code.as_deref().unwrap_or_default()).at(place.member("code")));
            out.notes.extend(self.not_in_set(coding, place));
            self.member(member, coding, place, &mut out)?;
        } else {
            out.notes.extend(self.not_in_set(coding, place));
            self.outside(system, place, &mut out)?;
        }
        Ok(out)
    }

    /// The code in the one system asked about, which stands for a set of all its codes.
    fn in_system(&self, system: &'a CodeSystem, coding: &Coding) -> Found<'a> {
        let concept = coding.code.as_deref().and_then(|code| system.find(code));
        let is_in = concept.is_some() || system.content != Content::Complete;
        let member = || self.own_member(system, concept);
        Found::of(is_in.then(member))
    }

    /// A concept by its system alone, whatever the value set says.
    fn own_member(&self, system: &'a CodeSystem, concept: Option<u32>) -> Member<'a> {
        let (set, via) = (self.set, Vec::new());
        Member { system: Some(system), concept, listed: None, set, written_version: None, via }
    }

    /// What is said of a code that is not in the value set; nothing, where there is none.
    fn not_in_set(&self, coding: &Coding, place: Place) -> Option<Note> {
        if self.system.is_some() {
            return None;
        }
        let system = version::join(coding.system.as_deref().unwrap_or_default(), coding.version.as_deref());
        let mut named = format!("{system}#{}", coding.code.as_deref().unwrap_or_default());
        if let Some(display) = &coding.display {
            named.push_str(&format!(" ('{display}')"));
        }
        let set = version::join(&self.set.url, self.set.version.as_deref());
        let one_of_several = matches!(place, Place::Concept(_));
        Some(Note::not_in_value_set(&named, &set, one_of_several).at(place.member("code")))
    }

    /// The member that fits the coding best: of the version it names, then one that knows the
    /// code, then with the display it gives, then the newest.
    fn best<'m>(
        &self,
        members: &'m [Member<'a>],
        coding: &Coding,
    ) -> Result<Option<&'m Member<'a>>, TxError> {
        if let [only] = members {
            return Ok(Some(only));
        }
        let fit = |member: &'m Member<'a>| {
            let named = coding.version.is_some() && member.version() == coding.version.as_deref();
            let shown = match coding.display.as_deref() {
                Some(given) => {
                    display::judge(given, &self.displays(member)?, &self.languages) == Verdict::Right
                }
                None => false,
            };
            Ok::<_, TxError>(((named, member.concept.is_some(), shown), member))
        };
        let fits = members.iter().map(fit).collect::<Result<Vec<_>, _>>()?;
        let best = fits.into_iter().max_by(|(a, one), (b, other)| {
            let version = |member: &'m Member<'a>| member.version().unwrap_or_default();
            a.cmp(b).then_with(|| version::compare(version(one), version(other)))
        });
        Ok(best.map(|(_, member)| member))
    }

    /// All displays of a member, the default first: what the set says of it, then the system, then the
    /// supplements. Definitions are none.
    fn displays(&self, member: &Member<'a>) -> Result<Vec<Display<'a>>, TxError> {
        let mut out: Vec<Display<'a>> = Vec::new();
        let mut places = Places::default();
        let known = member.system.zip(member.concept);
        let listed = member.listed.map(|listed| (listed, member.set.language.as_deref()));
        let of_set = listed.into_iter().flat_map(|(listed, _)| &listed.designations);
        let of_set = of_set.map(|d| Display { kind: d.kind, ..Display::own(&d.text, d.language.as_deref()) });
        let added = known.into_iter().flat_map(|(s, at)| texts::additions(&self.supplements, s, at));
        let of_systems = known.into_iter().chain(added).flat_map(|(s, at)| s.displays(at));
        let all = texts::default(known, listed).into_iter().chain(of_set).chain(of_systems);
        for display in all.filter(|display| display.kind != TextKind::Definition) {
            self.budget.spend(1 + self.languages.steps())?;
            match places.find(display.text) {
                // The set often repeats the system's display without a language.
                Some(at) => {
                    let other = &mut out[at];
                    other.language = other.language.or(display.language);
                    other.kind = other.kind.min(display.kind);
                }
                None => {
                    places.push(display.text);
                    out.push(display);
                }
            }
        }
        Ok(out)
    }

    /// Everything there is to say of a code that is in the set.
    fn member(
        &self,
        member: &Member<'a>,
        coding: &Coding,
        place: Place,
        out: &mut Judged<'_>,
    ) -> Result<(), TxError> {
        let code = coding.code.as_deref().unwrap_or_default();
        let url = coding.system.as_deref().unwrap_or_default();
        out.version = member.version().map(String::from);
        let Some(system) = member.system else {
            out.notes.push(Note::taken_on_trust(url).at(place.member("system")));
            return self.check_display(member, coding, place, out);
        };
        self.check_version(system, member, coding, place, out);
        match member.concept {
            Some(at) => self.concept(system, at, member, coding, place, out),
            None => {
                let note = Note::unknown_code_in_fragment(code, url, system.version.as_deref());
                out.notes.push(note.at(place.member("code")));
            }
        }
        self.check_display(member, coding, place, out)?;
        self.system_status(system, member, out);
        Ok(())
    }

    fn concept(
        &self,
        system: &CodeSystem,
        at: u32,
        member: &Member<'a>,
        coding: &Coding,
        place: Place,
        out: &mut Judged<'_>,
    ) {
        let code = coding.code.as_deref().unwrap_or_default();
        let right = system.code(at);
        let canonical = version::join(&system.url, system.version.as_deref());
        if right != code {
            out.normalized_code = Some(right.to_owned());
            out.notes.push(Note::case_difference(code, right, &canonical).at(place.member("code")));
        }
        if system.is_abstract(at) && !self.request.abstract_allowed {
            out.in_set = false;
            out.notes.push(Note::abstract_code(&system.url, code).at(place.member("code")));
            out.notes.extend(self.not_in_set(coding, place));
        }
        if system.is_inactive(at) {
            out.inactive = true;
            out.status = system.concept_status(at).filter(|status| *status != "inactive").map(String::from);
            out.notes.push(Note::inactive(code, out.status.as_deref()).at(place.whole()));
        } else if system.is_deprecated(at) {
            out.status = Some("deprecated".to_owned());
            out.notes.push(Note::deprecated(code).at(place.whole()));
        }
        if member.listed.is_some_and(|listed| listed.deprecated) {
            let set = version::join(&member.set.url, member.set.version.as_deref());
            let note = Note::deprecated_in_value_set(code, &system.url, &set);
            out.notes.push(note.at(place.member("code")));
        }
    }

    fn check_version(
        &self,
        system: &CodeSystem,
        member: &Member<'a>,
        coding: &Coding,
        place: Place,
        out: &mut Judged<'_>,
    ) {
        let means = system.version.as_deref().unwrap_or_default();
        if let Some(required) = pinned(&self.request.pins.check, &system.url)
            && !version::matches(required, means)
        {
            let note = Note::version_check(&system.url, means, required);
            out.notes.push(note.at(place.member("version")));
        }
        let Some(given) = coding.version.as_deref().filter(|given| !version::matches(given, means)) else {
            return;
        };
        let is_known = self.catalog.code_system(&system.url, Some(given)).is_some();
        let written = member.written_version;
        let note = match (self.request.pins.replacing(&system.url, written), written) {
            (Some(pin), _) => {
                Note::version_mismatch(&system.url, pin, Some(written.unwrap_or_default()), given)
            }
            (None, None) if is_known => Note::version_mismatch(&system.url, means, None, given),
            (None, None) => Note::default_version_mismatch(&system.url, means, given),
            (None, Some(written)) => Note::version_mismatch(&system.url, written, None, given),
        };
        out.notes.push(note.at(place.member("version")));
        if !is_known {
            self.unknown_version(&system.url, given, place, out);
        }
    }

    fn unknown_version(&self, system: &str, wanted: &str, place: Place, out: &mut Judged<'_>) {
        let known = self.catalog.code_system_versions(system);
        let note = Note::unknown_code_system(system, Some(wanted), &known);
        out.notes.push(note.at(place.member("system")));
        out.missing.push(version::join(system, Some(wanted)));
    }

    fn check_display(
        &self,
        member: &Member<'a>,
        coding: &Coding,
        place: Place,
        out: &mut Judged<'_>,
    ) -> Result<(), TxError> {
        let displays = self.displays(member)?;
        out.display = self.languages.choose(&displays).map(String::from);
        let Some(given) = coding.display.as_deref().filter(|_| !displays.is_empty()) else {
            return Ok(());
        };
        let code = coding.code.as_deref().unwrap_or_default();
        let named = format!("{}#{code}", coding.system.as_deref().unwrap_or_default());
        let note = match display::judge(given, &displays, &self.languages) {
            Verdict::Right => return Ok(()),
            // Of a code that is not in the set, only what is wrong is told.
            Verdict::RightByDefault { .. } if !out.in_set => return Ok(()),
            Verdict::RightByDefault { languages } => Note::display_by_default(given, &named, &languages),
            Verdict::Retired { right } => Note::retired_display(given, code, &right),
            Verdict::WrongByDefault { languages, default } => {
                Note::wrong_display_by_default(given, &named, &languages, default)
            }
            Verdict::Wrong { whitespace, languages, right } => {
                Note::wrong_display(given, &named, whitespace, &right, &languages)
            }
        };
        let soften = self.request.lenient_display && note.issue.severity == Severity::Error;
        let note = if soften { note.softened() } else { note };
        out.notes.push(note.at(place.member("display")));
        Ok(())
    }

    /// A remark on the value set itself, where it is not, or no longer, meant for use.
    pub(super) fn set_status(&self) -> Option<Note> {
        let canonical = version::join(&self.set.url, self.set.version.as_deref());
        let status = State::of_set(self.set).remark(&State::of_set(self.set))?;
        Some(Note::status(status, "ValueSet", &canonical))
    }

    /// Remarks on the code system and the imported sets, where they are not, or no longer, meant
    /// for use.
    fn system_status(&self, system: &CodeSystem, member: &Member<'_>, out: &mut Judged<'_>) {
        let source = State::of_set(member.set);
        let of_system = State::of_system(system);
        if let Some(status) = of_system.remark(&source) {
            let canonical = version::join(&system.url, system.version.as_deref());
            out.notes.push(Note::status(status, "CodeSystem", &canonical));
        }
        let own = State::of_set(self.set);
        for set in &member.via {
            if let Some(status) = State::of_set(set).remark(&own) {
                let canonical = version::join(&set.url, set.version.as_deref());
                out.notes.push(Note::status(status, "ValueSet", &canonical));
            }
        }
    }

    /// The set needs a system, or a version of it, that is not here.
    fn cannot_tell(
        &self,
        system: &str,
        wanted: Option<&str>,
        place: Place,
        out: &mut Judged<'_>,
    ) -> Result<(), TxError> {
        let given = out.coding.version.as_deref();
        if let (Some(wanted), Some(given)) = (wanted, given)
            && wanted != given
        {
            let note = Note::version_mismatch(system, wanted, None, given);
            out.notes.push(note.at(place.member("version")));
        }
        let known = self.catalog.code_system_versions(system);
        let note = Note::unknown_code_system(system, wanted, &known);
        out.notes.push(note.at(place.member("system")));
        out.undecided = true;
        out.missing.push(version::join(system, wanted.filter(|_| !known.is_empty())));
        if let Some(resource) = self.catalog.code_system(system, self.wanted_version(system, given)) {
            let system = resource.get(self.budget)?;
            out.version = system.version.clone();
            let concept = out.coding.code.as_deref().and_then(|code| system.find(code));
            out.display = concept.and_then(|at| system.display(at)).map(String::from);
        }
        Ok(())
    }

    /// The code is not in the set: what does its own system say of it?
    fn outside(&self, system: &str, place: Place, out: &mut Judged<'_>) -> Result<(), TxError> {
        if self.request.membership_only {
            return Ok(());
        }
        let coding = out.coding;
        let wanted = self.wanted_version(system, coding.version.as_deref());
        let code = coding.code.as_deref().unwrap_or_default();
        let Some(resource) = self.catalog.code_system_for(system, wanted, code) else {
            return self.outside_unknown(system, wanted, place, out);
        };
        let found = resource.get(self.budget)?;
        out.version = found.version.clone();
        match found.find(code) {
            Some(at) => {
                let member = self.own_member(found, Some(at));
                self.check_display(&member, coding, place, out)?;
                self.system_status(found, &member, out);
            }
            None if found.content == Content::Complete => {
                let note = Note::unknown_code(code, system, found.version.as_deref());
                out.notes.push(note.at(place.member("code")));
                if let Some(why) = built_in::fault(system, code).filter(|_| self.catalog.is_endless(system)) {
                    out.notes.push(Note::not_in_grammar(code, &why).at(place.member("code")));
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The version of a coding's own system to look at.
    fn wanted_version<'v>(&'v self, system: &str, given: Option<&'v str>) -> Option<&'v str> {
        let pins = &self.request.pins;
        pinned(&pins.force, system).or(given).or_else(|| pins.replacing(system, None))
    }

    fn outside_unknown(
        &self,
        system: &str,
        wanted: Option<&str>,
        place: Place,
        out: &mut Judged<'_>,
    ) -> Result<(), TxError> {
        let at = place.member("system");
        if let Some(version) = wanted.filter(|_| self.catalog.code_system(system, None).is_some()) {
            self.unknown_version(system, version, place, out);
        } else if let Some(supplement) = self.catalog.supplement(system) {
            let version = supplement.header().and_then(|header| header.version.as_deref());
            out.notes.push(Note::system_is_supplement(&version::join(system, version)).at(at));
        } else if self.catalog.value_set(system, None, self.budget)?.is_some() {
            out.notes.push(Note::system_is_value_set(system).at(at));
        } else if !system.contains(':') && !matches!(place, Place::Code) {
            out.notes.push(Note::relative_system().at(at));
        } else {
            let note = match wanted {
                None if system.contains(':') => Note::foreign_code_system(system),
                _ => Note::unknown_code_system(system, wanted, &[]),
            };
            out.notes.push(note.at(at));
            out.missing.push(system.to_owned());
        }
        Ok(())
    }
}

/// How far a resource is meant for use.
pub(crate) struct State<'s> {
    standards_status: Option<&'s str>,
    status: Option<&'s str>,
    experimental: bool,
}

impl<'s> State<'s> {
    pub(crate) fn of_set(set: &'s ValueSet) -> Self {
        let (standards_status, status) = (set.standards_status.as_deref(), set.status.as_deref());
        Self { standards_status, status, experimental: set.experimental }
    }

    pub(crate) fn of_system(system: &'s CodeSystem) -> Self {
        let (standards_status, status) = (system.standards_status.as_deref(), system.status.as_deref());
        Self { standards_status, status, experimental: system.experimental }
    }

    fn is_draft(&self) -> bool {
        self.status == Some("draft") || self.standards_status == Some("draft")
    }

    /// What deserves a remark where the resource is used by `source`: a draft may well draw on
    /// drafts and an experiment on experiments, but what is out of use is always told.
    pub(crate) fn remark(&self, source: &State<'_>) -> Option<&'s str> {
        match (self.standards_status, self.status) {
            (Some(status @ ("deprecated" | "withdrawn")), _) => Some(status),
            (_, Some(status @ "retired")) => Some(status),
            _ if self.experimental && !source.experimental => Some("experimental"),
            _ if self.is_draft() && !source.is_draft() => Some("draft"),
            _ => None,
        }
    }
}
