//! Parameters of a kick-off and their checks (Bulk Data Access 2.0.0 and 3.0.0, query parameters).

use fhir::patient_compartment::contains_type;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::request::kick_off::{ExportLevel, KickOff, KickOffError, KickOffMethod};
use crate::request::parameter_table::ExportParameter;
use crate::{Format, GuideVersion};
use resources::filter::{self, TypeFilter};
use resources::references::local;
use resources::result::elements::check_element;

/// Maximum number of Patients in the parameter `patient`.
pub const MAX_PATIENTS: usize = 10_000;
/// Maximum number of searches in `_typeFilter`.
pub const MAX_TYPE_FILTERS: usize = 100;

/// The checked parameters of a kick-off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportParameters {
    /// Types to export, sorted. `None` means all types.
    pub types: Option<Vec<String>>,
    /// Export only resources that changed after this time.
    pub since: Option<Timestamp>,
    /// Export only resources that changed before this time.
    pub until: Option<Timestamp>,
    /// Top-level elements to export, as `Type.element` or `element`. Empty means all elements.
    #[serde(default)]
    pub elements: Vec<String>,
    /// Ids of the Patients whose compartments are exported, sorted.
    #[serde(default)]
    pub patients: Option<Vec<String>>,
    /// Provenance to export. `None` means that the export level decides.
    #[serde(default)]
    pub provenance: Option<ProvenanceScope>,
    /// `true` if resources that the exported ones refer to are also exported (see `plan::supporting`).
    #[serde(default)]
    pub supporting: bool,
    /// Searches as `Type?query`. Each restricts the resources of its type.
    #[serde(default)]
    pub filters: Vec<String>,
    /// Format of output files.
    #[serde(default)]
    pub format: Format,
    /// In exports of an earlier version only: the type of the resources by which their files are organized.
    /// Such an export cannot be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organize_by: Option<String>,
    /// `true` if the manifest may have pages that are available before the export is complete (guide 3.0.0).
    #[serde(default)]
    pub partial_manifests: bool,
    /// One text for each parameter or value that was omitted under `handling=lenient`.
    pub notes: Vec<String>,
}

impl ExportParameters {
    /// `true` if an earlier version accepted them, and their files can no longer be written.
    pub(crate) fn are_former(&self) -> bool {
        self.format == Format::Former || self.organize_by.is_some()
    }
}

/// Values of `includeAssociatedData` for Provenance. The later variant includes the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProvenanceScope {
    /// The latest Provenance of each exported resource.
    Latest,
    /// All Provenance of each exported resource.
    Relevant,
}

/// Settings that the checks depend on, and the time of the request.
#[derive(Debug, Clone, Copy)]
pub struct ParameterRules<'a> {
    /// Base URL of the FHIR interface.
    pub fhir_base: &'a str,
    /// Version of the guide.
    pub guide: GuideVersion,
    /// `true` if exports of Groups without `_type` contain supporting resources.
    pub supporting: bool,
    /// Time of the request.
    pub now: Timestamp,
}

/// Checks the parameters of a kick-off. Under `handling=lenient`, unsupported parameters are omitted and
/// noted. Invalid values, such as a malformed time, are always rejected.
///
/// # Errors
/// Returns [`KickOffError`] with the parameter and the remedy.
pub fn check_parameters(
    request: &KickOff,
    rules: ParameterRules<'_>,
) -> Result<ExportParameters, KickOffError> {
    let mut checking =
        ParameterChecker { request, rules, out: ExportParameters::default(), types: None, open: Vec::new() };
    let mut names_so_far = Vec::new();
    for (name, value) in &request.parameters {
        let repeats =
            ExportParameter::named(name, rules.guide).is_none_or(|candidate| candidate.row().repeats);
        if !repeats && names_so_far.contains(&name) {
            return Err(wrong(name, "it occurs more than once"));
        }
        names_so_far.push(name);
        checking.parameter(name, value)?;
    }
    checking.finish()
}

fn wrong(name: &str, reason: impl Into<String>) -> KickOffError {
    KickOffError::Parameter { name: name.to_owned(), reason: reason.into() }
}

struct ParameterChecker<'a> {
    request: &'a KickOff,
    rules: ParameterRules<'a>,
    out: ExportParameters,
    /// Values of `_type`, if it was sent.
    types: Option<Vec<String>>,
    /// Types with a search that was omitted. These types are exported without any restriction by searches.
    open: Vec<&'a str>,
}

impl<'a> ParameterChecker<'a> {
    fn parameter(&mut self, name: &'a str, value: &'a str) -> Result<(), KickOffError> {
        let Some(parameter) = ExportParameter::named(name, self.rules.guide) else {
            if !self.request.lenient {
                return Err(KickOffError::Unsupported { name: name.to_owned() });
            }
            self.out.notes.push(format!("parameter '{name}' is not supported and was left out"));
            return Ok(());
        };
        match parameter {
            ExportParameter::OutputFormat => {
                self.out.format = Format::read(value).ok_or_else(|| {
                    wrong(name, format!("'{value}' is not supported; use application/fhir+ndjson"))
                })?;
            }
            ExportParameter::Since => {
                self.out.since = Some(fhir::instant::parse(value).map_err(|reason| wrong(name, reason))?)
            }
            ExportParameter::Until => {
                self.out.until = Some(fhir::instant::parse(value).map_err(|reason| wrong(name, reason))?)
            }
            // A repeated parameter means the same as a comma-separated list of values.
            ExportParameter::Type => {
                self.types.get_or_insert_default();
                for kind in value.split(',') {
                    self.kind(name, kind.trim())?;
                }
            }
            ExportParameter::Elements => {
                for element in value.split(',').map(str::trim) {
                    match check_element(element) {
                        Ok(()) => self.out.elements.push(element.to_owned()),
                        Err(reason) => self.note(name, reason)?,
                    }
                }
            }
            ExportParameter::IncludeAssociatedData => {
                for value in value.split(',').map(str::trim) {
                    self.associated(name, value)?;
                }
            }
            ExportParameter::TypeFilter => {
                for text in filter::list(value) {
                    self.filter(name, text.trim())?;
                }
            }
            ExportParameter::Patient => self.patient(name, value)?,
            ExportParameter::AllowPartialManifests => match value {
                "true" => self.out.partial_manifests = true,
                "false" => self.out.partial_manifests = false,
                _ => return Err(wrong(name, "it must be true or false")),
            },
            ExportParameter::AnswerFormat => {}
        }
        Ok(())
    }

    /// Rejects the parameter. Under `handling=lenient`, omits it and adds a note instead.
    fn note(&mut self, name: &str, reason: impl Into<String>) -> Result<(), KickOffError> {
        let reason = reason.into();
        if !self.request.lenient {
            return Err(wrong(name, reason));
        }
        self.out.notes.push(format!("{name}: {reason}; it was left out"));
        Ok(())
    }

    /// Adds a type to export. Rejects a type that the token does not grant access to, even under
    /// `handling=lenient`.
    fn kind(&mut self, name: &str, kind: &str) -> Result<(), KickOffError> {
        if fhir::resource_type(kind).is_none() {
            return self.note(name, fhir::not_a_type(kind));
        }
        self.allowed(kind)?;
        self.types.get_or_insert_default().push(kind.to_owned());
        Ok(())
    }

    fn allowed(&self, kind: &str) -> Result<(), KickOffError> {
        if self.request.types.has(kind) {
            Ok(())
        } else {
            Err(KickOffError::Forbidden { kind: kind.to_owned() })
        }
    }

    fn associated(&mut self, name: &str, value: &str) -> Result<(), KickOffError> {
        let provenance = match value {
            "LatestProvenanceResources" => ProvenanceScope::Latest,
            "RelevantProvenanceResources" => ProvenanceScope::Relevant,
            "_supporting" => {
                self.out.supporting = true;
                return Ok(());
            }
            _ => return self.note(name, format!("'{value}' is not supported")),
        };
        self.allowed("Provenance")?;
        // If both values are requested, the one that includes more applies.
        self.out.provenance = self.out.provenance.max(Some(provenance));
        Ok(())
    }

    fn filter(&mut self, name: &str, text: &'a str) -> Result<(), KickOffError> {
        match TypeFilter::read(text, self.rules.fhir_base, self.rules.now) {
            Ok(filter) => {
                self.allowed(filter.kind)?;
                if self.out.filters.len() == MAX_TYPE_FILTERS {
                    return Err(wrong(name, format!("there are more than {MAX_TYPE_FILTERS} filters")));
                }
                self.out.filters.push(text.to_owned());
            }
            Err(reason) => {
                self.note(name, reason)?;
                self.open.extend(text.split_once('?').map(|(kind, _)| kind));
            }
        }
        Ok(())
    }

    fn patient(&mut self, name: &str, value: &str) -> Result<(), KickOffError> {
        if self.request.by == KickOffMethod::Get || self.request.level == ExportLevel::System {
            let reason = "it is accepted only by POST for Patient or Group";
            return self.note(name, reason);
        }
        let patients = self.out.patients.get_or_insert_default();
        for reference in value.split(',').map(str::trim) {
            match local(reference, self.rules.fhir_base) {
                Some(("Patient", id)) => patients.push(id.to_owned()),
                _ => {
                    return Err(wrong(name, format!("'{reference}' is not a reference such as Patient/123")));
                }
            }
        }
        if patients.len() > MAX_PATIENTS {
            return Err(wrong(name, format!("more than {MAX_PATIENTS} Patients; export a Group of them")));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ExportParameters, KickOffError> {
        if let Some(patients) = &mut self.out.patients {
            patients.sort();
            patients.dedup();
        }
        if let Some(mut types) = self.types.take() {
            types.sort();
            types.dedup();
            let is_inside = |kind: &String| contains_type(kind);
            let is_vain = !self.out.supporting && !types.iter().any(is_inside);
            if self.request.level != ExportLevel::System && is_vain {
                let reason =
                    "none of these types is in the compartment of a Patient; export them from the system";
                self.note(ExportParameter::Type.row().name, reason)?;
            }
            self.out.types = Some(types);
        }
        self.out.filters.retain(|text| !self.open.iter().any(|kind| text.starts_with(&format!("{kind}?"))));
        if let Some(types) = self.out.types.clone() {
            let vain = |text: &String| !types.iter().any(|kind| text.starts_with(&format!("{kind}?")));
            if let Some(text) = self.out.filters.iter().find(|text| vain(text)).cloned()
                && !self.out.supporting
            {
                let reason = format!("'{text}' has a type that _type does not name");
                self.note(ExportParameter::TypeFilter.row().name, reason)?;
            }
        }
        let is_group = matches!(self.request.level, ExportLevel::Group(_));
        self.out.supporting |= self.rules.supporting && is_group && self.out.types.is_none();
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TypeAccess;

    const BASE: &str = "https://here.example/fhir/R4";

    fn request(query: &[(&str, &str)], lenient: bool) -> KickOff {
        KickOff {
            level: ExportLevel::System,
            by: KickOffMethod::Get,
            parameters: query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            request_url: String::new(),
            client_id: "c".to_owned(),
            types: TypeAccess::only(["Patient", "Observation"]),
            groups: None,
            lenient,
        }
    }

    fn checked(request: &KickOff) -> Result<ExportParameters, KickOffError> {
        let rules = ParameterRules {
            fhir_base: BASE,
            guide: GuideVersion::V2,
            supporting: false,
            now: Timestamp::UNIX_EPOCH,
        };
        check_parameters(request, rules)
    }

    #[track_caller]
    fn check(query: &[(&str, &str)], lenient: bool, expected: Result<Option<&[&str]>, &str>) {
        match (checked(&request(query, lenient)), expected) {
            (Ok(got), Ok(types)) => {
                let types = types.map(|types| types.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
                assert_eq!(got.types, types, "{query:?}");
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{query:?}: {error}"),
            (got, expected) => panic!("{query:?}: {got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn parameters_are_accepted_or_rejected() {
        check(&[], false, Ok(None));
        for format in ["application/fhir+ndjson", "application/ndjson", "ndjson"] {
            check(&[("_outputFormat", format)], false, Ok(None));
        }
        check(&[("_outputFormat", "application/fhir ndjson")], false, Ok(None));
        check(&[("_outputFormat", "text/csv")], false, Err("'text/csv' is not supported"));
        check(&[("_outputFormat", "")], false, Err("is not supported"));
        check(
            &[("_outputFormat", "application/vnd.apache.parquet")],
            true,
            Err("'application/vnd.apache.parquet' is not supported"),
        );
        check(
            &[("_type", "Patient,Observation"), ("_type", "Patient")],
            false,
            Ok(Some(&["Observation", "Patient"])),
        );
        check(&[("_type", "Patient,Nonsense")], false, Err("'Nonsense' is not a resource type"));
        check(&[("_type", "Patient,Nonsense")], true, Ok(Some(&["Patient"])));
        check(&[("_type", "Condition")], true, Err("no scope to read Condition"));
        check(&[("_type", "")], false, Err("'' is not a resource type"));
        check(&[("_since", "2026-01-01T00:00:00 01:00")], false, Ok(None));
        check(&[("_since", "yesterday")], true, Err("is not an instant"));
        check(
            &[("_since", "2026-01-01T00:00:00Z"), ("_since", "2026-01-01T00:00:00Z")],
            false,
            Err("more than once"),
        );
        check(&[("_nonsense", "id")], false, Err("'_nonsense' is not supported"));
        check(&[("_nonsense", "id")], true, Ok(None));
        check(&[("_elements", "id,Patient.name"), ("_elements", "birthDate")], false, Ok(None));
        check(&[("_elements", "Patient.nome")], false, Err("'Patient.nome' is not a root element"));
        check(&[("_elements", "Patient.nome")], true, Ok(None));
        check(&[("includeAssociatedData", "_all")], false, Err("'_all' is not supported"));
        check(&[("includeAssociatedData", "_all,_supporting")], true, Ok(None));
        check(
            &[("includeAssociatedData", "LatestProvenanceResources")],
            true,
            Err("no scope to read Provenance"),
        );
        check(&[("_typeFilter", "Condition?code=x")], true, Err("no scope to read Condition"));
        check(&[("_typeFilter", "Patient?code=x")], false, Err("'code' is not a search parameter"));
        check(
            &[("_type", "Observation"), ("_typeFilter", "Patient?name=x")],
            false,
            Err("_type does not name"),
        );
        check(&[("patient", "Patient/p")], false, Err("it is accepted only by POST"));
        check(&[("organizeOutputBy", "Patient")], false, Err("'organizeOutputBy' is not supported"));
        check(&[("allowPartialManifests", "true")], false, Err("'allowPartialManifests' is not supported"));
    }

    #[test]
    fn guide_3_has_another_parameter() {
        let rules = ParameterRules {
            fhir_base: BASE,
            guide: GuideVersion::V3,
            supporting: false,
            now: Timestamp::UNIX_EPOCH,
        };
        let ask = |query, lenient| {
            let mut request = request(query, lenient);
            request.types = TypeAccess::only(["Patient", "Observation", "Location"]);
            check_parameters(&request, rules).map(|parameters| parameters.notes.len())
        };
        assert_eq!(ask(&[("allowPartialManifests", "true")], false).unwrap(), 0);
        assert!(ask(&[("allowPartialManifests", "maybe")], true).is_err());
        let twice = [("allowPartialManifests", "true"), ("allowPartialManifests", "true")];
        assert!(ask(&twice, true).unwrap_err().to_string().contains("more than once"));
    }

    #[test]
    fn patients_are_references_in_a_body() {
        let post = |level: ExportLevel, value: &str| {
            let mut request = request(&[("patient", value)], false);
            (request.level, request.by) = (level, KickOffMethod::Post);
            checked(&request).map(|parameters| parameters.patients.unwrap_or_default())
        };
        let absolute = format!("Patient/b,{BASE}/Patient/a,Patient/b");
        assert_eq!(post(ExportLevel::Patient, &absolute).unwrap(), ["a", "b"]);
        assert!(post(ExportLevel::System, "Patient/a").is_err());
        for bad in ["a", "Group/a", "https://elsewhere.example/fhir/Patient/a", ""] {
            assert!(
                post(ExportLevel::Patient, bad).unwrap_err().to_string().contains("is not a reference"),
                "{bad}"
            );
        }
        let many: Vec<String> = (0..=MAX_PATIENTS).map(|n| format!("Patient/{n}")).collect();
        assert!(
            post(ExportLevel::Patient, &many.join(",")).unwrap_err().to_string().contains("export a Group")
        );
    }

    #[test]
    fn the_more_inclusive_of_two_values_applies() {
        let both = [("includeAssociatedData", "RelevantProvenanceResources,LatestProvenanceResources")];
        let mut request = request(&both, false);
        request.types = TypeAccess::All;
        assert_eq!(checked(&request).unwrap().provenance, Some(ProvenanceScope::Relevant));
    }

    #[test]
    fn an_omitted_filter_does_not_restrict_its_type() {
        let query = [("_typeFilter", "Patient?name=x, Observation?status=final,Patient?shoe=1")];
        let parameters = checked(&request(&query, true)).unwrap();
        assert_eq!(parameters.filters, ["Observation?status=final"]);
        assert_eq!(parameters.notes.len(), 1);
    }
}
