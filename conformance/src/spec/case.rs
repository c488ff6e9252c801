//! Cases: requests, and the expected responses.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::expectation::{Expectation, FhirError};
use super::operation::{self, Operation};
use super::permits::Permit;
use super::request::{Request, one_or_many};
use super::uses::{self, Use};

/// Preconditions that provide the bearer token of operations, and the variable that each sets.
const BEARERS: [(&str, &str); 2] = [("system-token", "$system_token"), ("token", "$token")];

/// A case, which tests one or more requirements.
#[derive(Debug, Clone)]
pub struct Case {
    /// Id of the case: the id of its first requirement, followed by a slug.
    pub id: String,
    /// Table and line of the row.
    pub place: TablePlace,
    /// Text of the row in the table.
    pub row: String,
    /// Ids of the requirements that it tests.
    pub covers: Vec<String>,
    /// Names of the preconditions that are set up before the first request.
    pub given: Vec<String>,
    /// Requests in order; there is at least one.
    pub steps: Vec<Step>,
    /// Whether the steps are independent: a step that fails does not end the case.
    pub independent: bool,
    /// Whether the case is about a connection by TLS.
    pub over_tls: bool,
    /// Features of the server that the case uses.
    pub uses: Vec<Use>,
}

impl Case {
    /// The first two parts of the id, which name the section in reports.
    pub fn section(&self) -> &str {
        section_of(&self.id)
    }
}

/// The first two parts of an id.
pub fn section_of(id: &str) -> &str {
    match id.match_indices('/').nth(1) {
        Some((at, _)) => &id[..at],
        None => id,
    }
}

/// A line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePlace {
    /// Path of the file: below `specs/`, or the path of a table that was added.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A request and the expected response.
#[derive(Debug, Clone)]
pub struct Step {
    /// Request that the step sends.
    pub request: Request,
    /// Expectation with which the response is compared.
    pub expect: Expectation,
    /// Further expectation that the rules of Trefoil state; other servers are not compared with it.
    pub house: Option<Expectation>,
    /// Whether the step has no other expectation, so that other servers are not asked at all.
    pub only_house: bool,
    /// Source of a part that other servers may leave out of the response. The rest of the case tests this
    /// part.
    pub needs: Option<String>,
    /// Requirements that this step tests.
    pub covers: Vec<String>,
    /// Parts of the response that are stored as variables: name and [source](crate::wire::answer_part).
    pub capture: BTreeMap<String, String>,
    /// Choices of the server that the row permits and the expectation is about.
    pub permits: Vec<Permit>,
}

/// A case in the form of the tables.
#[derive(Debug, Deserialize)]
pub(super) struct CaseRow {
    id: Spanned<String>,
    covers: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    given: Vec<String>,
    #[serde(default)]
    steps: Vec<StepRow>,
    #[serde(default)]
    each: Vec<StepRow>,
    #[serde(default)]
    over_tls: bool,
    #[serde(default, deserialize_with = "one_or_many")]
    uses: Vec<Use>,
    #[serde(default, deserialize_with = "one_or_many")]
    permits: Vec<Permit>,
    /// Step of a case without `steps`.
    #[serde(flatten)]
    step: StepRow,
}

/// A step in the form of the tables: `request` and `expect`, or the short form of an operation.
#[derive(Debug, Deserialize)]
struct StepRow {
    needs: Option<String>,
    /// Requirements that this step tests; a case with one step names them itself.
    #[serde(default, rename = "shows")]
    covers: Vec<String>,
    request: Option<Request>,
    op: Option<String>,
    by: Option<String>,
    bearer: Option<String>,
    #[serde(default)]
    with: Vec<String>,
    #[serde(default, rename = "in")]
    input: Map<String, Value>,
    out: Option<Map<String, Value>>,
    error: Option<FhirError>,
    expect: Option<Expectation>,
    house: Option<Expectation>,
    #[serde(default)]
    capture: BTreeMap<String, String>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl CaseRow {
    /// Converts the row to a case. `text` is the text of the table.
    pub fn into_case(self, file: &str, text: &str) -> Result<Case, String> {
        let line = 1 + text[..self.id.span().start].matches('\n').count();
        let id = self.id.into_inner();
        let fault = |error: String| format!("{file}:{line}: {id}: {error}");
        let independent = !self.each.is_empty();
        let steps = match (self.steps.is_empty(), self.each.is_empty(), self.step.is_empty()) {
            (true, true, false) => vec![self.step],
            (false, true, true) => self.steps,
            (true, false, true) => self.each,
            _ => return Err(fault("a case has either one step, or 'steps', or 'each'".to_owned())),
        };
        if independent && steps.iter().any(|step| !step.capture.is_empty()) {
            return Err(fault("the steps of 'each' are independent and capture nothing".to_owned()));
        }
        let mut steps: Vec<Step> = steps
            .into_iter()
            .map(|step| step.into_step(&self.given))
            .collect::<Result<_, _>>()
            .map_err(fault)?;
        let mut covers = self.covers;
        for requirement in steps.iter().flat_map(|step| &step.covers) {
            if !covers.contains(requirement) {
                covers.push(requirement.clone());
            }
        }
        for permit in self.permits {
            let mut compared = steps
                .iter_mut()
                .filter(|step| !step.only_house && permit.concerns(&step.request, &step.expect))
                .peekable();
            if compared.peek().is_none() {
                return Err(fault(format!("permits '{}', which no expectation is about", permit.name())));
            }
            compared.for_each(|step| step.permits.push(permit));
        }
        let mut uses = self.uses;
        for used in steps
            .iter()
            .filter(|step| !step.only_house)
            .flat_map(|step| uses::of_request(&step.request, &step.expect))
        {
            if !uses.contains(&used) {
                uses.push(used);
            }
        }
        let is_same_row = |line: &&str| !line.starts_with("[[") || line.starts_with("[[case.");
        let row = text.lines().skip(line - 1).take_while(is_same_row).collect::<Vec<_>>().join("\n");
        let place = TablePlace { file: file.to_owned(), line };
        let row = row.trim_end().to_owned();
        let (given, over_tls) = (self.given, self.over_tls);
        Ok(Case { id, place, row, covers, given, steps, independent, over_tls, uses })
    }
}

impl StepRow {
    fn is_empty(&self) -> bool {
        self.request.is_none() && self.op.is_none() && self.expect.is_none() && self.unknown.is_empty()
    }

    fn into_step(self, preconditions: &[String]) -> Result<Step, String> {
        if let Some(name) = self.unknown.keys().next() {
            return Err(format!("'{name}' is not a member of a case or a step"));
        }
        let expects = self.expect.is_some() || self.out.is_some() || self.error.is_some();
        let mut expect = self.expect.unwrap_or_default();
        if !expects && self.house.is_none() {
            return Err("a step needs 'expect', 'out', 'error' or 'house'".to_owned());
        }
        let mut house = self.house;
        if let Some(error) = self.error {
            error.add_to(self.op.is_some(), &mut expect, &mut house)?;
        }
        let request = match (self.request, self.op) {
            (Some(request), None) => {
                let has_others = self.by.is_some() || self.bearer.is_some() || self.out.is_some();
                if has_others || !self.with.is_empty() || !self.input.is_empty() {
                    return Err("'by', 'bearer', 'with', 'in' and 'out' belong to 'op'".to_owned());
                }
                request
            }
            (None, Some(op)) => {
                if let Some(out) = self.out {
                    operation::add_output(&op, out, &mut expect, &mut house)?;
                }
                let implied = BEARERS
                    .iter()
                    .find(|(name, _)| preconditions.iter().any(|precondition| precondition == name));
                let bearer = self.bearer.or_else(|| implied.map(|(_, variable)| (*variable).to_owned()));
                Operation { op, by: self.by, with: self.with, input: self.input, bearer }.into_request()?
            }
            _ => return Err("a step needs either 'request' or 'op'".to_owned()),
        };
        Ok(Step {
            request,
            expect,
            house,
            only_house: !expects,
            needs: self.needs,
            covers: self.covers,
            capture: self.capture,
            permits: Vec::new(),
        })
    }
}
