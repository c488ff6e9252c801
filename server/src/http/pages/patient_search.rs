//! Finds the patients that a user may choose: by id, record number, name and birth date, with the search
//! index.

use identity::model::user::User;
use jiff::civil::Date;
use resources::filter::TypeFilter;
use resources::{CompartmentView, ResourceError, Restriction, StoredResource};
use serde::Deserialize;

use crate::http::extract::RequestContext;
use crate::http::fhir::search::{signed_cursor, verified_cursor};
use crate::http::problem::Problem;

/// Number of Patients on a page.
const PAGE: usize = 20;

/// A Patient as the pages name it.
pub struct NamedPatient {
    pub id: String,
    /// First name of the resource; the id if it has none.
    pub name: String,
    /// Birth date; empty if the resource has none.
    pub birth_date: String,
}

#[derive(Default)]
pub struct PatientPage {
    pub patients: Vec<NamedPatient>,
    /// Cursor of the next page. `None` if everything was searched.
    pub next: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PatientSummary {
    name: Vec<HumanName>,
    birth_date: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HumanName {
    text: Option<String>,
    given: Vec<String>,
    family: String,
}

impl From<StoredResource> for NamedPatient {
    fn from(resource: StoredResource) -> Self {
        let patient: PatientSummary = serde_json::from_slice(&resource.bytes).unwrap_or_default();
        let name = patient.name.first().map(|name| match &name.text {
            Some(text) => text.clone(),
            None => format!("{} {}", name.given.join(" "), name.family).trim().to_owned(),
        });
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| resource.id.clone());
        Self { name, id: resource.id, birth_date: patient.birth_date }
    }
}

impl NamedPatient {
    /// A Patient of which only the id is known.
    pub fn unknown(id: &str) -> Self {
        Self { id: id.to_owned(), name: id.to_owned(), birth_date: String::new() }
    }
}

/// The Patients whom the user may choose.
fn permitted_patients<'a>(context: &'a RequestContext, user: &User) -> CompartmentView<'a> {
    let restriction = match user.sees_patients() {
        true => Restriction::None,
        false => Restriction::patients(user.patients()),
    };
    context.app.resources.restricted_to(restriction)
}

/// Reads a Patient, if it exists and the user may choose it.
///
/// # Errors
/// A problem if the store cannot be read.
pub async fn read_patient(
    context: &RequestContext,
    user: &User,
    id: &str,
) -> Result<Option<NamedPatient>, Problem> {
    if !fhir::is_id(id) || !user.may_see_patient(id) {
        return Ok(None);
    }
    match context.app.resources.read("Patient", id).await {
        Ok(resource) => Ok(Some(resource.into())),
        Err(ResourceError::Store(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Finds Patients by a text: the Patient with this id, those with this identifier, and those whose names
/// begin with its words and whose birth date is in it. Without a text, all Patients are found. `cursor` is
/// the [`PatientPage::next`] of the page before.
///
/// # Errors
/// A problem if the cursor is not from this server, or if the store cannot be read.
pub async fn find_patients(
    context: &RequestContext,
    user: &User,
    text: &str,
    cursor: Option<&str>,
) -> Result<PatientPage, Problem> {
    let view = permitted_patients(context, user);
    let mut page = PatientPage::default();
    if cursor.is_none() && !text.is_empty() {
        if let Some(exact) = read_patient(context, user, text).await? {
            page.patients.push(exact);
        }
        let by_identifier = filter(context, &[("identifier", text.to_owned())]);
        if let Some(filter) = by_identifier {
            let search_page = view.search("Patient", Some(&filter), None, PAGE).await?;
            page.add(search_page.resources);
        }
    }
    let filter = match text.is_empty() {
        true => None,
        false => {
            let Some(filter) = filter(context, &words(text)) else { return Ok(page) };
            Some(filter)
        }
    };
    let cursor = cursor.map(|signed| verified_cursor(context, "Patient", signed)).transpose()?;
    let search_page = view.search("Patient", filter.as_ref(), cursor.as_deref(), PAGE).await?;
    page.next = search_page.next.map(|cursor| signed_cursor(context, "Patient", &cursor));
    page.add(search_page.resources);
    Ok(page)
}

impl PatientPage {
    fn add(&mut self, resources: Vec<StoredResource>) {
        for resource in resources {
            if !self.patients.iter().any(|patient| patient.id == resource.id) {
                self.patients.push(resource.into());
            }
        }
    }
}

/// The search of Patients with these parameters, or `None` if a value cannot be searched for.
fn filter(context: &RequestContext, parameters: &[(&str, String)]) -> Option<TypeFilter> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        query.append_pair(name, &escaped(value));
    }
    let search = format!("Patient?{}", query.finish());
    TypeFilter::read(&search, &context.app.address.fhir_base, context.now).ok()
}

/// A search value in which the separators of FHIR have no meaning (R4, search, escaping).
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '|' | '$') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The parameters for the words of a text: a date is a birth date, any other word the beginning of a name.
fn words(text: &str) -> Vec<(&'static str, String)> {
    let words = text.split([' ', ',', '\t']).filter(|word| !word.is_empty());
    words
        .map(|word| match birth_date(word) {
            Some(date) => ("birthdate", date),
            None => ("name", word.to_owned()),
        })
        .collect()
}

/// A date of FHIR, or a day as it is written in German (`31.12.1970`) and American English (`12/31/1970`).
fn birth_date(word: &str) -> Option<String> {
    let parts = |separator| {
        let parts: Vec<_> = word.split(separator).map(|part: &str| part.parse::<i16>().ok()).collect();
        <[Option<i16>; 3]>::try_from(parts).ok().map(|[a, b, c]| (a, b, c))
    };
    let day = |year: i16, month: i16, day: i16| {
        let date = Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()?;
        Some(date.to_string())
    };
    if let Some((Some(d), Some(month), Some(year))) = parts('.') {
        return day(year, month, d);
    }
    if let Some((Some(month), Some(d), Some(year))) = parts('/') {
        return day(year, month, d);
    }
    let is_date = word.len() >= 4
        && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        && fhir::instant::parse_partial(word).is_ok();
    is_date.then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_among_the_words_are_birth_dates() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let words: Vec<_> =
                words(text).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(words.join(" "), expected, "{text}");
        }
        check("Anna Meyer", "name=Anna name=Meyer");
        check("Meyer, Anna 1970-12-31", "name=Meyer name=Anna birthdate=1970-12-31");
        check("31.12.1970", "birthdate=1970-12-31");
        check("12/31/1970", "birthdate=1970-12-31");
        check("1970-12", "birthdate=1970-12");
        check("31.13.1970", "name=31.13.1970");
        check("123", "name=123");
    }

    #[test]
    fn separators_of_searches_are_escaped() {
        assert_eq!(escaped(r"a,b|c$d\e"), r"a\,b\|c\$d\\e");
    }
}
