//! POST {base}/oauth2/launch: a portal creates the context of an EHR launch (SMART App Launch 2.2). The
//! caller sends a token with the scope `trefoil/launch`; a user's token binds the context to this user.

use std::sync::Arc;

use http::{StatusCode, header};
use identity::authorize::launch::LaunchContext;
use identity::lifetimes;
use identity::model::scope::NamedScope;
use identity::tokens::access_token::TokenAccess;
use resources::{ResourceError, Restriction, references};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::FORM_LIMIT;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};

/// Maximum number of further resources of a context, and length of its reason.
const MAX_CONTEXT_ITEMS: usize = 20;
const MAX_INTENT_BYTES: usize = 200;

fn invalid(text: &str) -> Problem {
    Problem::oauth(StatusCode::BAD_REQUEST, "invalid_request", text)
}

const fn default_banner() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLaunch {
    client_id: String,
    /// Subject of the user. With a user's token, that user.
    sub: Option<String>,
    patient: Option<String>,
    encounter: Option<String>,
    /// Further resources: objects with `reference`, `canonical` or `identifier`.
    #[serde(default, rename = "fhirContext")]
    fhir_context: Vec<Map<String, Value>>,
    /// Reason of the launch, which the application understands.
    intent: Option<String>,
    #[serde(default = "default_banner")]
    need_patient_banner: bool,
}

/// Stores a launch context, and responds with its id.
pub async fn create_launch(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let access = authenticate_portal(context).await?;
    let user = access.user.clone();
    if context.content_type().as_deref() != Some("application/json") {
        return Err(invalid("the body must be application/json"));
    }
    let new: NewLaunch = serde_json::from_slice(&body.bytes(FORM_LIMIT).await?)
        .map_err(|error| invalid(&format!("the body is not valid: {error}")))?;
    let identity = &context.app.identity;
    if identity.clients.active_client(&new.client_id, context.now).await?.is_none() {
        return Err(invalid("client_id is not a registered client"));
    }
    let is_other = |sub: &String| user.as_ref().is_some_and(|user| user.sub != *sub);
    if new.sub.as_ref().is_some_and(is_other) {
        return Err(invalid("sub must be the user of the token"));
    }
    check_resources(context, &access, new.patient.as_deref(), new.encounter.as_deref()).await?;
    check_fhir_context(&new.fhir_context)?;
    if new.intent.as_ref().is_some_and(|intent| intent.is_empty() || intent.len() > MAX_INTENT_BYTES) {
        return Err(invalid("intent must have 1 to 200 bytes"));
    }
    let sub = user.map(|user| user.sub).or(new.sub);
    let launch = LaunchContext {
        client_id: new.client_id,
        sub,
        patient: new.patient,
        encounter: new.encounter,
        fhir_context: new.fhir_context.into_iter().map(Value::Object).collect(),
        intent: new.intent,
        need_patient_banner: new.need_patient_banner,
    };
    let id = identity.authorization.create_launch(&launch, context.now).await?;
    let response = json!({ "launch": id, "expires_in": lifetimes::LAUNCH.as_secs() });
    Ok(reply::no_store(reply::json(StatusCode::CREATED, &response)))
}

/// Checks the further resources of a context (SMART App Launch 2.2, `fhirContext`). The patient and the
/// encounter have members of their own.
fn check_fhir_context(items: &[Map<String, Value>]) -> Result<(), Problem> {
    let text =
        |item: &Map<String, Value>, name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    if items.len() > MAX_CONTEXT_ITEMS {
        return Err(invalid("fhirContext must have at most 20 items"));
    }
    for item in items {
        let reference = text(item, "reference");
        let is_reference =
            reference.as_deref().is_some_and(|reference| references::target(reference).is_some());
        let is_named =
            text(item, "canonical").is_some() || item.get("identifier").is_some_and(Value::is_object);
        if !(is_reference || reference.is_none() && is_named) {
            return Err(invalid(
                "an item of fhirContext must have reference (such as ImagingStudy/1), canonical or identifier",
            ));
        }
        let is_own = |kind: &str| reference.as_deref().is_some_and(|reference| reference.starts_with(kind));
        if text(item, "role").is_none() && (is_own("Patient/") || is_own("Encounter/")) {
            return Err(invalid("the Patient and the Encounter of the launch are in patient and encounter"));
        }
    }
    Ok(())
}

/// Authenticates the token of the portal.
async fn authenticate_portal(context: &RequestContext) -> Result<Arc<TokenAccess>, Problem> {
    let Some(credentials) = context.credentials()? else {
        let text = "send an access token with the scope trefoil/launch";
        let response = problem::oauth_error(StatusCode::UNAUTHORIZED, "invalid_request", Some(text));
        return Err(reply::with(response, header::WWW_AUTHENTICATE, "Bearer").into());
    };
    let identity = &context.app.identity;
    let access = context.authenticate_token(&credentials).await?;
    if access.scopes.has(NamedScope::CreateLaunch) && access.token.is_for_audience(&identity.issuer) {
        return Ok(access);
    }
    let text = "the token lacks the scope trefoil/launch";
    let response = problem::oauth_error(StatusCode::FORBIDDEN, "insufficient_scope", Some(text));
    let challenge = problem::bearer_challenge("insufficient_scope", text);
    Err(reply::with(response, header::WWW_AUTHENTICATE, &challenge).into())
}

/// Checks that the patient exists, that the user may see it, that a client with `groups` may see it, and that
/// the encounter is one of the patient.
async fn check_resources(
    context: &RequestContext,
    access: &TokenAccess,
    patient: Option<&str>,
    encounter: Option<&str>,
) -> Result<(), Problem> {
    let Some(patient) = patient else {
        return match encounter {
            None => Ok(()),
            Some(_) => Err(invalid("encounter requires the patient of the encounter")),
        };
    };
    let view = context.app.resources.restricted_to(Restriction::patients([patient]));
    let exists = async |kind, id: &str| match view.read(kind, id).await {
        Ok(_) => Ok(true),
        Err(ResourceError::Store(error)) => Err(Problem::from(error)),
        Err(_) => Ok(false),
    };
    let mut is_visible = access.user.as_ref().is_none_or(|user| user.may_see_patient(patient));
    let app = &context.app;
    let client = app.identity.clients.active_client(&access.token.client_id, context.now).await?;
    if let Some(groups) = client.and_then(|client| client.groups) {
        let members = app.group_members.patients(&groups, &app.store, &app.bulk, context.now).await?;
        is_visible &= members.has(&format!("Patient/{patient}"));
    }
    if !is_visible || !exists("Patient", patient).await? {
        return Err(invalid("patient is not the id of a Patient"));
    }
    match encounter {
        Some(id) if !exists("Encounter", id).await? => {
            Err(invalid("encounter is not the id of an Encounter of the patient"))
        }
        _ => Ok(()),
    }
}
