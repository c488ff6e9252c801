//! POST {fhir_base}/$closure (FHIR R4): begins a table of codes, adds codes to it, or repeats what was added.

use ::terminology::{Budget, ClosureRequest, ClosureTable, MAX_BATCH_ITEMS, TxError};
use fhir::{Coding, IssueCode, Parameters, Value, instant};
use http::StatusCode;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use serde_json::value::RawValue;
use store::StoreError;

use super::{access, check_accept, json_body};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::byte_budget::BudgetExhausted;
use crate::node::closure_tables::{self, MAX_TABLES, TableKey};

/// Maximum length of the name of a table in bytes.
const MAX_NAME: usize = 200;
/// Number of attempts while other requests change the same table.
const ATTEMPTS: u32 = 8;

/// A request to a table.
#[derive(Debug, Clone)]
enum ClosureCall {
    Begin,
    Add(Vec<Coding>),
    Since(u64),
}

/// Answers `$closure` with a ConceptMap of the new relations.
///
/// A token is required even if terminology is open to everyone, because a table belongs to a user and a
/// client.
pub async fn maintain_closure(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let access = access::require_all(context, "CodeSystem", ScopePermissions::GET).await?;
    check_accept(context, &[])?;
    let body = json_body(context, body).await?;
    let body = Parameters::from_json(&body).map_err(|error| {
        let text = format!("the body is not a Parameters resource: {error}");
        Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Structure, text)
    })?;
    let (name, call) = read_call(&body)?;
    let key = TableKey { sub: &access.token.sub, client_id: &access.token.client_id, name: &name };
    context.app.terminology_sync.apply_changes().await?;
    let (store, now) = (&context.app.store, context.now);
    for _ in 0..ATTEMPTS {
        let record = closure_tables::read(store, key, now).await?;
        let table = match (&call, &record) {
            (ClosureCall::Begin, Some(_)) => ClosureTable::default(),
            (ClosureCall::Begin, None) => {
                check_count(context, key).await?;
                ClosureTable::default()
            }
            (_, Some(record)) => record.table.clone(),
            (_, None) => return Err(unknown_table(&name)),
        };
        if let ClosureCall::Since(version) = call
            && version > table.version
        {
            return Err(newer_than_table(&name, version, table.version));
        }
        let is_changing = !matches!(call, ClosureCall::Since(_));
        let (changed, answer) = answer(context, &access, &name, table.clone(), call.clone()).await?;
        if is_changing && (changed != table || matches!(call, ClosureCall::Begin)) {
            match closure_tables::write(store, key, &changed, record.as_ref(), now).await {
                // Another request has changed the table: the codes are added to what is there now.
                Err(StoreError::Conflict { .. }) => continue,
                written => written?,
            }
        }
        return Ok(answer);
    }
    let text = "other requests change this closure table; try again later";
    Err(Problem::fhir(StatusCode::CONFLICT, IssueCode::Conflict, text))
}

/// Computes the table and the answer on a thread of the pool.
async fn answer(
    context: &RequestContext,
    access: &TokenAccess,
    name: &str,
    table: ClosureTable,
    call: ClosureCall,
) -> Result<(ClosureTable, Response), Problem> {
    let mut memory = AnswerMemory::new(context, Some(access));
    let (terminology, now, name) =
        (context.app.terminology.clone(), instant::format(context.now), name.to_owned());
    let execute = move |budget: &Budget<'_>| {
        let request = match &call {
            ClosureCall::Begin => ClosureRequest::Since(0),
            ClosureCall::Add(codings) => ClosureRequest::Add(codings),
            ClosureCall::Since(version) => ClosureRequest::Since(*version),
        };
        let response = terminology.closure(&name, &table, request, now, budget);
        let length = response.as_ref().map_or(0, |(_, map)| map.get().len());
        memory.hold_now(length)?;
        Ok::<_, BudgetExhausted>((response, memory))
    };
    let (answer, memory) = Box::pin(context.app.capacity.questions.run(execute)).await??;
    let (table, map): (ClosureTable, Box<RawValue>) =
        answer.map_err(|error: TxError| Problem::from(error))?;
    let map = String::from(Box::<str>::from(map)).into_bytes();
    Ok((table, reply::body(StatusCode::OK, reply::FHIR_JSON, memory.attach(map))))
}

/// Reads the name of the table, and the codes or the version.
fn read_call(body: &Parameters) -> Result<(String, ClosureCall), Problem> {
    let malformed = |text: String| Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Invalid, text);
    let name = body.text("name").filter(|name| !name.is_empty()).ok_or_else(|| {
        let text = "parameter 'name' is required: it names the closure table";
        Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Required, text)
    })?;
    if name.len() > MAX_NAME {
        return Err(malformed(format!("parameter 'name': it is longer than {MAX_NAME} bytes")));
    }
    let concepts = body.all("concept").map(|parameter| match &parameter.value {
        Some(Value::Coding(coding)) => Ok(coding.clone()),
        _ => Err(malformed("parameter 'concept': send it as valueCoding".to_owned())),
    });
    let concepts: Vec<Coding> = concepts.collect::<Result<_, _>>()?;
    if concepts.len() > MAX_BATCH_ITEMS {
        let text = format!("{} codes are more than {MAX_BATCH_ITEMS}; divide the request", concepts.len());
        return Err(Problem::fhir(StatusCode::UNPROCESSABLE_ENTITY, IssueCode::TooCostly, text));
    }
    let call = match (body.get("version"), concepts.is_empty()) {
        (None, true) => ClosureCall::Begin,
        (None, false) => ClosureCall::Add(concepts),
        (Some(_), false) => {
            let text = "send either 'concept', which adds codes, or 'version', which repeats what is newer";
            return Err(malformed(text.to_owned()));
        }
        (Some(_), true) => {
            let version = body.text("version").and_then(|version| version.parse().ok());
            let text = "parameter 'version': send the version of an earlier answer, such as 3";
            ClosureCall::Since(version.ok_or_else(|| malformed(text.to_owned()))?)
        }
    };
    Ok((name.to_owned(), call))
}

/// Checks that the user may begin another table.
async fn check_count(context: &RequestContext, key: TableKey<'_>) -> Result<(), Problem> {
    if !closure_tables::has_all_permitted(&context.app.store, key.sub, context.now).await? {
        return Ok(());
    }
    let text =
        format!("this user or client has {MAX_TABLES} closure tables, the maximum; use one of them again");
    Err(Problem::fhir(StatusCode::UNPROCESSABLE_ENTITY, IssueCode::TooCostly, text))
}

fn unknown_table(name: &str) -> Problem {
    let text = format!(
        "this user and client have no closure table '{name}'; begin it by a request with the name alone"
    );
    Problem::fhir(StatusCode::NOT_FOUND, IssueCode::NotFound, text)
}

/// The version that a client sends may be newer if the server was restored from a backup.
fn newer_than_table(name: &str, version: u64, own: u64) -> Problem {
    let text = format!(
        "version {version} is newer than the closure table '{name}', which has the version {own}; begin the table again, by a \
         request with the name alone"
    );
    Problem::fhir(StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing, text)
}
