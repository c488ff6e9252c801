//! POST {fhir_base}: a Bundle of requests (FHIR R4, batch and transaction).

use std::sync::Arc;

use ::terminology::TerminologyOperation;
use bytes::Bytes;
use fhir::{IssueCode, OperationOutcome};
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Collected};
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use percent_encoding::percent_decode_str;
use resources::{
    BundleOperation, BundleSearch, ContextRestrictions, DeleteResult, EntryAction, EntryRead, EntryResult,
    PlannedEntry, ResourceError, Restriction, StoredResource, TransactionPlan,
};
use serde_json::{Value, json};
use store::cpu_budget;
use tokio::sync::mpsc;
use warp::Reply as _;

use super::binary::BINARY;
use super::operation::{self, BundledAnswer};
use super::{access, check_accept, json_body, recording, search};
use crate::clock::resource_id;
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Dialect, Problem};
use crate::http::reply::{self, Response};
use crate::node::byte_budget::BudgetExhausted;
use crate::records::audit::rest::RestInteraction;
use crate::records::audit::{AuditCaller, NotRecorded};

/// Number of audit events that are held in memory before they are written.
const RECORDED_TOGETHER: usize = 1_000;

/// Executes a Bundle. All entries are authorized before the first one is executed. The operations of a batch
/// follow its other entries, so that they take its writes into account.
pub async fn execute_bundle(
    context: &Arc<RequestContext>,
    request_body: &mut RequestBody,
) -> Result<Response, Problem> {
    // Without a token, only terminology operations are allowed, if the settings allow these.
    let is_open = context.app.settings().anonymous_terminology;
    let token = match is_open && context.credentials()?.is_none() {
        true => None,
        false => Some(access::authenticate(context).await?),
    };
    check_accept(context, &[])?;
    let body = json_body(context, request_body).await?;
    request_body.reserve_entries(&body).await?;
    let random = context.app.clock.random.clone();
    let mut plan = context.app.resources.plan(&body, || resource_id(&*random), context.now)?;
    drop(body);
    let operations = std::mem::take(&mut plan.operations);
    let searches = std::mem::take(&mut plan.searches);
    let mut types: Vec<_> = operations.iter().filter_map(operation_type).collect();
    types.sort_unstable();
    types.dedup();
    // The proof of a DPoP-bound token is spent, so the token that was authenticated above is checked.
    if let Some(token) = token.as_deref().filter(|_| !is_open) {
        for kind in types {
            access::check_all(context, token, kind, ScopePermissions::GET).await?;
        }
    }
    let kind = if plan.is_transaction { "transaction-response" } else { "batch-response" };
    let has_only_operations = plan.entries.is_empty() && searches.is_empty() && !operations.is_empty();
    let token = match (has_only_operations, token) {
        (false, None) => Some(access::authenticate(context).await?),
        (_, token) => token,
    };
    let entries = match &token {
        Some(token) if !has_only_operations => execute_plan(context, token, plan).await?,
        _ => Vec::new(),
    };
    let positions: Vec<usize> = operations.iter().map(|operation| operation.position).collect();
    let memory = AnswerMemory::new(context, token.as_deref());
    let (answers, memory) = match operations.is_empty() {
        true => (Vec::new(), memory),
        false => operation::answer_bundle(context, token.as_deref(), operations, memory).await?,
    };
    let answers = positions.into_iter().zip(answers.into_iter().map(operation_response));
    let searches = searches.into_iter().map(|search| (search.position, ResponseEntry::Search(search)));
    let mut others: Vec<_> = answers.chain(searches).collect();
    others.sort_by_key(|(position, _)| *position);
    let entries = merge_entries(entries, others.into_iter());
    let head = format!("{{\"resourceType\":\"Bundle\",\"type\":\"{kind}\",\"entry\":[");
    let has_reads = entries.iter().any(|entry| !matches!(entry, ResponseEntry::Ready(_)));
    let response = match token {
        Some(token) if has_reads => {
            let is_of_binary =
                |entry: &ResponseEntry| matches!(entry, ResponseEntry::Read(read) if read.kind() == BINARY);
            let contexts = match entries.iter().any(is_of_binary) {
                true => Some(access::context_restrictions(context, &token, ScopePermissions::GET).await?),
                false => None,
            };
            let reader = EntryReader { context: Arc::clone(context), token, contexts };
            stream_entries(reader, head, entries, memory)
        }
        _ => {
            let mut pieces = vec![Bytes::from(head)];
            for (index, entry) in entries.into_iter().enumerate() {
                if let ResponseEntry::Ready(text) = entry {
                    pieces.extend((index > 0).then_some(Bytes::from_static(b",")));
                    pieces.push(text);
                }
            }
            pieces.push(Bytes::from_static(b"]}"));
            memory.respond(reply::FHIR_JSON, pieces)
        }
    };
    Ok(reply::no_store(response))
}

/// The resource type of the operation that an entry calls, if it is an operation of this server.
fn operation_type(entry: &BundleOperation) -> Option<&'static str> {
    let path = percent_decode_str(&entry.path).decode_utf8_lossy();
    TerminologyOperation::at_path(&path).map(|(operation, _)| operation.row().resource_type)
}

/// Authorizes and executes the entries that read or write a resource.
async fn execute_plan(
    context: &RequestContext,
    token: &TokenAccess,
    plan: TransactionPlan,
) -> Result<Vec<ResponseEntry>, Problem> {
    for kind in plan.searched_types() {
        check_all_of_type(context, token, kind, ScopePermissions::SEARCH).await?;
    }
    for entry in plan.entries.iter().flatten() {
        let permissions = match entry.action {
            EntryAction::Create => ScopePermissions::CREATE,
            EntryAction::Update => ScopePermissions::UPDATE,
            EntryAction::Delete => ScopePermissions::DELETE,
            EntryAction::Read => ScopePermissions::GET,
        };
        let permissions = match entry.is_conditional() {
            true => [permissions, ScopePermissions::SEARCH],
            false => [permissions; 2],
        };
        for permission in permissions {
            check_all_of_type(context, token, entry.kind, permission).await?;
        }
    }
    let mut remarks = defects_of_entries(context, &plan);
    let answers = context.app.resources.carry_out(plan, context.now).await?;
    for (index, entry_result) in answers.iter().enumerate() {
        if let Ok(entry_result) = entry_result {
            recording::bundle_entry(context, token, entry_result);
        }
        if index % RECORDED_TOGETHER == RECORDED_TOGETHER - 1 {
            context.app.logs.audit.flush().await;
        }
    }
    context.app.terminology_sync.apply_changes().await?;
    remarks.resize(answers.len(), None);
    Ok(answers.into_iter().zip(remarks).map(|(answer, remarks)| response_entry(answer, remarks)).collect())
}

/// The defects with which the resources of the entries are accepted, if the client prefers to know them
/// (`Prefer: return=OperationOutcome`).
fn defects_of_entries(context: &RequestContext, plan: &TransactionPlan) -> Vec<Option<OperationOutcome>> {
    if context.preference("return") != Some("OperationOutcome") {
        return Vec::new();
    }
    let defects = plan.entries.iter().map(|entry| entry.as_ref().ok().and_then(PlannedEntry::defects));
    let outcomes = defects.map(|defects| Some(OperationOutcome::new(problem::resource_issues(defects?))));
    outcomes.collect()
}

/// Inserts the responses of operations at their positions in the Bundle, which ascend.
fn merge_entries(
    entries: Vec<ResponseEntry>,
    operations: impl ExactSizeIterator<Item = (usize, ResponseEntry)>,
) -> Vec<ResponseEntry> {
    let mut merged = Vec::with_capacity(entries.len() + operations.len());
    let mut entries = entries.into_iter();
    for (position, response) in operations {
        while merged.len() < position
            && let Some(entry) = entries.next()
        {
            merged.push(entry);
        }
        merged.push(response);
    }
    merged.extend(entries);
    merged
}

/// Checks that the token grants a permission on all resources of a type. Bundles require this; restricted
/// clients send one resource at a time.
async fn check_all_of_type(
    context: &RequestContext,
    token: &TokenAccess,
    kind: &'static str,
    permission: ScopePermissions,
) -> Result<(), Problem> {
    match access::restriction(context, token, kind, permission).await? {
        Restriction::None => Ok(()),
        _ => {
            access::check_all(context, token, kind, permission).await?;
            let text = format!("the client may access only {kind} resources of the members of its Groups");
            Err(Problem::insufficient_scope(&text, None))
        }
    }
}

enum ResponseEntry {
    Ready(Bytes),
    /// A resource that is read when the client has received the entries before it.
    Read(EntryRead),
    /// A search, which is done at the same time.
    Search(BundleSearch),
}

fn response_entry(
    result: Result<EntryResult, ResourceError>,
    remarks: Option<OperationOutcome>,
) -> ResponseEntry {
    let is_written = matches!(result, Ok(EntryResult::Created(_) | EntryResult::Updated(_)));
    let mut response = match result {
        Ok(EntryResult::Created(stored)) => stored_response("201 Created", &stored),
        Ok(EntryResult::Updated(stored) | EntryResult::Found(stored)) => stored_response("200 OK", &stored),
        Ok(EntryResult::Outdated(_)) => unreachable!("only an import keeps newer resources"),
        Ok(EntryResult::Read(read)) => return ResponseEntry::Read(read),
        Ok(EntryResult::Deleted(DeleteResult::Deleted(_) | DeleteResult::WasAbsent)) => {
            json!({ "status": "204 No Content" })
        }
        Err(error) => return ResponseEntry::Ready(failed_entry(&error)),
    };
    if let Some(remarks) = remarks.filter(|_| is_written) {
        response["outcome"] = json!(remarks);
    }
    ResponseEntry::Ready(json!({ "response": response }).to_string().into())
}

fn failed_entry(error: &ResourceError) -> Bytes {
    let (status, outcome) = problem::resource_outcome(error);
    json!({ "response": { "status": status.to_string(), "outcome": outcome } }).to_string().into()
}

/// The response to an operation. An outcome is also the resource of the entry, because it is the body of the
/// response.
fn operation_response(answer: BundledAnswer) -> ResponseEntry {
    let (resource, response) = match answer {
        Ok(json) => (json, json!({ "status": "200 OK" })),
        Err((status, outcome)) => {
            let resource = serde_json::to_vec(&outcome).expect("an outcome serialises to JSON");
            (resource, json!({ "status": status.to_string(), "outcome": outcome }))
        }
    };
    // The stored text: a `Value` would write its numbers in another way, and 1.10 is not 1.1 in FHIR.
    let response = response.to_string();
    let parts: [&[u8]; 4] = [b"{\"resource\":", &resource, b",\"response\":", response.as_bytes()];
    let mut text = parts.concat();
    text.push(b'}');
    ResponseEntry::Ready(text.into())
}

/// Reads the resources of the entries of a Bundle.
struct EntryReader {
    context: Arc<RequestContext>,
    token: Arc<TokenAccess>,
    /// The restrictions of the client by type, if the Bundle reads a Binary.
    contexts: Option<Arc<ContextRestrictions>>,
}

impl EntryReader {
    /// The resource of an entry, unless the `securityContext` of a Binary excludes the client. Scopes were
    /// checked before, but the context is known only now.
    async fn stored(&self, read: &EntryRead) -> Result<StoredResource, ResourceError> {
        let resources = &self.context.app.resources;
        let resource = resources.read_entry(read).await?;
        match &self.contexts {
            Some(contexts) if read.kind() == BINARY => {
                let view = resources.restricted_to(Restriction::None);
                view.by_security_context(Arc::clone(contexts)).check_context(resource).await
            }
            _ => Ok(resource),
        }
    }

    /// The pieces of the response to a read. An error of the read is the response; the outer error is one of
    /// the audit log, without which nothing may be read.
    async fn read(&self, read: &EntryRead) -> Result<Vec<Bytes>, NotRecorded> {
        let context = &self.context;
        let caller = AuditCaller::of_request(context.client_address, context.request_id.clone());
        let pieces = async {
            let mut memory = AnswerMemory::new(context, Some(&self.token));
            let read_entry = || async { Ok(self.stored(read).await) };
            let size =
                |read_result: &Result<StoredResource, _>| read_result.as_ref().map_or(0, |it| it.bytes.len());
            match memory.hold::<_, BudgetExhausted, _>(read_entry, size).await {
                Ok(Ok(read_entry)) => {
                    recording::version(context, &self.token, RestInteraction::Read, &read_entry);
                    let response = stored_response("200 OK", &read_entry);
                    vec![
                        Bytes::from_static(b"{\"resource\":"),
                        memory.attach(read_entry.bytes),
                        format!(",\"response\":{response}}}").into(),
                    ]
                }
                Ok(Err(error)) => vec![failed_entry(&error)],
                Err(BudgetExhausted) => {
                    let text = "the server has no memory for this resource at the moment; read it again";
                    let outcome = OperationOutcome::error(IssueCode::Throttled, text);
                    let status = StatusCode::SERVICE_UNAVAILABLE.to_string();
                    vec![json!({ "response": { "status": status, "outcome": outcome } }).to_string().into()]
                }
            }
        };
        let (pieces, recorded) = context.app.logs.audit.on_behalf(caller, pieces).await;
        recorded.map(|()| pieces)
    }
}

impl EntryReader {
    /// The pieces of the response to a search, as [`EntryReader::read`] returns them.
    async fn search(&self, search: &BundleSearch) -> Result<Vec<Bytes>, NotRecorded> {
        let context = &self.context;
        let caller = AuditCaller::of_request(context.client_address, context.request_id.clone());
        let pieces = async {
            // The future of a search is large.
            let page = Box::pin(search::search_with(context, &self.token, search.kind, &search.query)).await;
            let (parts, body) = match page {
                Ok(response) => response.into_parts(),
                Err(problem) => problem.into_response(Dialect::Fhir).into_parts(),
            };
            // The body of this server's own response is in memory, so that reading it does not fail.
            let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
            let (start, status) = (Bytes::from_static(b"{\"resource\":"), parts.status.to_string());
            let end = match parts.status.is_success() {
                true => format!(",\"response\":{}}}", json!({ "status": status })),
                false => {
                    let outcome = String::from_utf8_lossy(&body);
                    format!(",\"response\":{{\"status\":{},\"outcome\":{outcome}}}}}", json!(status))
                }
            };
            vec![start, body, end.into()]
        };
        let (pieces, recorded) = context.app.logs.audit.on_behalf(caller, pieces).await;
        recorded.map(|()| pieces)
    }
}

/// A response that reads its resources while it is sent. It needs memory for one resource at a time, and the
/// reads end when the client leaves.
fn stream_entries(
    reader: EntryReader,
    head: String,
    entries: Vec<ResponseEntry>,
    memory: AnswerMemory,
) -> Response {
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, NotRecorded>>(1);
    // The entries are a part of the request, although its handler has returned.
    let budget = cpu_budget::current();
    let sending = async move {
        let send = async |piece: Bytes| sender.send(Ok(piece)).await;
        send(head.into()).await?;
        for (index, entry) in entries.into_iter().enumerate() {
            if index > 0 {
                send(Bytes::from_static(b",")).await?;
            }
            let pieces = match entry {
                ResponseEntry::Ready(text) => vec![text],
                ResponseEntry::Search(search) => tokio::select! {
                    pieces = reader.search(&search) => match pieces {
                        Ok(pieces) => pieces,
                        Err(error) => return sender.send(Err(error)).await,
                    },
                    () = sender.closed() => return Ok(()),
                },
                ResponseEntry::Read(read) => tokio::select! {
                    pieces = reader.read(&read) => match pieces {
                        Ok(pieces) => pieces,
                        // The client sees an incomplete body.
                        Err(error) => return sender.send(Err(error)).await,
                    },
                    () = sender.closed() => return Ok(()),
                },
            };
            for piece in pieces {
                send(piece).await?;
            }
        }
        send(memory.attach(Bytes::from_static(b"]}"))).await
    };
    tokio::spawn(async move {
        match budget {
            Some(budget) => Box::pin(budget.run(sending)).await,
            None => sending.await,
        }
    });
    let pieces = stream::poll_fn(move |context| receiver.poll_recv(context));
    let mut response = warp::reply::stream(pieces).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(reply::FHIR_JSON));
    response
}

fn stored_response(status: &str, resource: &StoredResource) -> Value {
    json!({
        "status": status,
        "location": format!("{}/{}/_history/{}", resource.kind, resource.id, resource.version),
        "etag": format!("W/\"{}\"", resource.version),
        "lastModified": fhir::instant::format(resource.updated),
    })
}
