//! Authorization at the FHIR endpoints, by the SMART scopes of the token: per resource type, and per patient.

use std::sync::{Arc, LazyLock};

use fhir::IssueCode;
use fhir::patient_references::{self, WithoutPatient, without_patient};
use http::StatusCode;
use identity::model::scope::{ScopeContext, ScopePermissions, Scopes};
use identity::tokens::access_token::{GranularAccess, ResourceAccess, TokenAccess};
use resources::filter::TypeFilter;
use resources::referenced::is_read_by_reference;
use resources::{CompartmentView, ContextRestrictions, OtherTypes, PatientSet, Restriction, ViewPart};

use super::binary::BINARY;
use super::check_accept;
use super::missing_scope::{NeededAccess, missing_scope};
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;

/// Authenticates the access token of a FHIR request.
///
/// # Errors
/// A 401 problem if the token is missing or not valid.
pub async fn authenticate(context: &RequestContext) -> Result<Arc<TokenAccess>, Problem> {
    let Some(credentials) = context.credentials()? else {
        let text = "send an access token as 'Authorization: Bearer TOKEN'";
        return Err(Problem::fhir(StatusCode::UNAUTHORIZED, IssueCode::Login, text));
    };
    Ok(context.authenticate_token(&credentials).await?)
}

/// Types of resources that everyone may read if terminology requests need no token, with the scopes for it.
const OPEN_TYPES: [&str; 3] = ["CodeSystem", "ValueSet", "ConceptMap"];
static OPEN_SCOPES: LazyLock<Scopes> = LazyLock::new(|| {
    let scopes = OPEN_TYPES.map(|kind| format!("system/{kind}.rs")).join(" ");
    Scopes::parse(&scopes).expect("the scopes of resource types are valid")
});

/// Authenticates the access token of a FHIR request to a type of resources. Reading terminology needs none if
/// terminology requests are anonymous.
///
/// # Errors
/// A 401 problem if the token is missing or not valid.
pub async fn authenticate_for(
    context: &RequestContext,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<Arc<TokenAccess>, Problem> {
    let is_read = permissions == ScopePermissions::GET || permissions == ScopePermissions::SEARCH;
    let is_open = is_read && OPEN_TYPES.contains(&kind) && context.app.settings().anonymous_terminology;
    if is_open && context.credentials()?.is_none() {
        let base = &context.app.address.fhir_base;
        return Ok(Arc::new(TokenAccess::of_everyone(base, OPEN_SCOPES.clone())));
    }
    authenticate(context).await
}

/// The resources of a type that the token grants access to.
pub fn resource_access<'a>(
    context: &RequestContext,
    access: &'a TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> ResourceAccess<'a> {
    if access.token.is_for_audience(&context.app.address.fhir_base) {
        access.resource_access(kind, permissions)
    } else {
        ResourceAccess::Nothing
    }
}

/// Returns whether the token grants `permissions` on at least some resources of a type.
pub fn has_access(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> bool {
    resource_access(context, access, kind, permissions) != ResourceAccess::Nothing
        || !granular_access(context, access, kind, permissions).is_empty()
}

fn granular_access<'a>(
    context: &RequestContext,
    access: &'a TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> Vec<GranularAccess<'a>> {
    match access.token.is_for_audience(&context.app.address.fhir_base) {
        true => access.granular_access(kind, permissions),
        false => Vec::new(),
    }
}

/// The view of a request on a type: the resources under the [`restriction`], and those that match the query
/// of a granular scope.
///
/// # Errors
/// A 500 problem if a Group cannot be read.
pub async fn permitted_view<'a>(
    context: &'a RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<CompartmentView<'a>, Problem> {
    let granular = granular_access(context, access, kind, permissions);
    let reach = resource_access(context, access, kind, permissions);
    let mut parts = Vec::new();
    if granular.is_empty() || reach != ResourceAccess::Nothing {
        let restriction = reach_restriction(context, access, kind, reach).await?;
        parts.push(ViewPart { restriction, filter: None });
    }
    for GranularAccess { query, access: reach } in granular {
        let filter =
            TypeFilter::read(&format!("{kind}?{query}"), &context.app.address.fhir_base, context.now);
        // A scope is granted only if its query is supported.
        if let Ok(filter) = filter {
            let restriction = reach_restriction(context, access, kind, reach).await?;
            parts.push(ViewPart { restriction, filter: Some(filter) });
        }
    }
    let view = context.app.resources.restricted_to_parts(parts);
    let only_reads = ScopePermissions::READ.contains_all(permissions);
    match kind == BINARY && only_reads {
        true => Ok(view.by_security_context(context_restrictions(context, access, permissions).await?)),
        false => Ok(view),
    }
}

/// The restrictions of the token by type, for resources to which the `securityContext` of a Binary refers.
pub async fn context_restrictions(
    context: &RequestContext,
    access: &TokenAccess,
    permissions: ScopePermissions,
) -> Result<Arc<ContextRestrictions>, Problem> {
    let groups = ClientGroups::of(context, access, true).await?;
    let restricted = fhir::RESOURCE_TYPES.iter().filter_map(|&kind| {
        match resource_access(context, access, kind, permissions) {
            ResourceAccess::Nothing => None,
            reach => Some((kind, groups.restriction(kind, reach))),
        }
    });
    Ok(Arc::new(restricted.collect()))
}

/// The restriction of a request on a type: the access that the scopes grant and, for a client with
/// `groups`, only the resources that refer to current members of these Groups. Granular scopes grant
/// nothing here. Such a client can read its Groups but not write them, because they determine its access.
///
/// # Errors
/// A 500 problem if a Group cannot be read.
pub async fn restriction(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<Restriction, Problem> {
    reach_restriction(context, access, kind, resource_access(context, access, kind, permissions)).await
}

async fn reach_restriction(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &str,
    reach: ResourceAccess<'_>,
) -> Result<Restriction, Problem> {
    let is_of_patients = matches!(reach, ResourceAccess::Patients(_));
    let needs_members = is_of_patients || kind != "Group" && is_limited(kind);
    let restriction = ClientGroups::of(context, access, needs_members).await?.restriction(kind, reach);
    if matches!(restriction, Restriction::Patients { .. }) {
        check_assigned(context, kind)?;
    }
    match is_of_patients {
        true => of_patients(context, kind, restriction).await,
        false => Ok(restriction),
    }
}

/// `true` if a client with `groups` may access only some resources of the type.
fn is_limited(kind: &str) -> bool {
    without_patient(kind) != WithoutPatient::Visible || !patient_references::paths(kind).is_empty()
}

/// Checks that the stored resources of a type are assigned to Patients. After an upgrade, this takes some
/// time.
fn check_assigned(context: &RequestContext, kind: &str) -> Result<(), Problem> {
    if without_patient(kind) != WithoutPatient::ByReference || context.app.patient_assignment.is_complete() {
        return Ok(());
    }
    let text = format!(
        "{kind} resources are not available to this client yet: after an upgrade, the server still determines to which \
         patients they belong; try again in a minute"
    );
    Err(Problem::fhir_later(text, "60"))
}

/// The Groups that limit a client.
struct ClientGroups {
    /// Ids of the Groups, and their current members. `None` if the client is not limited.
    limits: Option<(Vec<String>, Arc<PatientSet>)>,
}

impl ClientGroups {
    /// The limits of the client of a token. The members are read only if they are needed: a request that they
    /// do not limit succeeds even if a Group is not valid.
    async fn of(
        context: &RequestContext,
        access: &TokenAccess,
        needs_members: bool,
    ) -> Result<Self, Problem> {
        let app = &context.app;
        let client = app.identity.clients.active_client(&access.token.client_id, context.now).await?;
        let Some(groups) = client.and_then(|client| client.groups.clone()) else {
            return Ok(Self { limits: None });
        };
        let members = match needs_members {
            true => app.group_members.patients(&groups, &app.store, &app.bulk, context.now).await?,
            false => Arc::default(),
        };
        Ok(Self { limits: Some((groups, members)) })
    }

    /// The restriction of a request on a type. Types that are read by reference are not considered.
    fn restriction(&self, kind: &str, reach: ResourceAccess<'_>) -> Restriction {
        let Some((groups, members)) = &self.limits else {
            return match reach {
                ResourceAccess::All => Restriction::None,
                ResourceAccess::Patients(ids) => Restriction::patients(ids),
                ResourceAccess::Nothing => Restriction::patients([]),
            };
        };
        match reach {
            ResourceAccess::All if kind == "Group" => Restriction::read_only(groups.clone()),
            ResourceAccess::All if !is_limited(kind) => Restriction::None,
            ResourceAccess::All => {
                Restriction::Patients { patients: Arc::clone(members), others: OtherTypes::Visible }
            }
            ResourceAccess::Nothing => Restriction::patients([]),
            ResourceAccess::Patients(ids) => {
                let is_member = |id: &&str| members.has(&format!("Patient/{id}"));
                Restriction::patients(ids.into_iter().filter(is_member))
            }
        }
    }
}

/// The restriction of a request on a type for some Patients. Resources of some types that are not about
/// Patients can be read as far as the resources of the Patients refer to them.
async fn of_patients(
    context: &RequestContext,
    kind: &str,
    restriction: Restriction,
) -> Result<Restriction, Problem> {
    match restriction {
        Restriction::Patients { patients, .. } if is_read_by_reference(kind) => {
            let ids = context.app.resources.referenced_ids(&patients, kind).await?;
            Ok(Restriction::read_only(ids))
        }
        other => Ok(other),
    }
}

/// Returns whether the token allows a backend client to export a type.
pub fn may_export(context: &RequestContext, access: &TokenAccess, kind: &str) -> bool {
    access.token.is_for_audience(&context.app.address.fhir_base)
        && access.scopes.allow_access(ScopeContext::System, kind, ScopePermissions::READ)
}

/// Checks that the token grants `permissions` on at least some resources of a type.
///
/// # Errors
/// A 401 problem without a valid token, and a 403 problem without the scope.
pub async fn require_some(
    context: &RequestContext,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<Arc<TokenAccess>, Problem> {
    let access = authenticate_for(context, kind, permissions).await?;
    if has_access(context, &access, kind, permissions) {
        return Ok(access);
    }
    Err(missing_scope(context, &access, kind, permissions, NeededAccess::Some).await)
}

/// Checks that the token grants `permissions` on all resources of a type.
///
/// # Errors
/// A 401 problem without a valid token, and a 403 problem without the scope.
pub async fn require_all(
    context: &RequestContext,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<Arc<TokenAccess>, Problem> {
    let access = authenticate(context).await?;
    check_all(context, &access, kind, permissions).await?;
    Ok(access)
}

/// Checks that an authenticated token grants `permissions` on all resources of a type.
pub async fn check_all(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<(), Problem> {
    match resource_access(context, access, kind, permissions) {
        ResourceAccess::All => Ok(()),
        _ => Err(Box::pin(missing_scope(context, access, kind, permissions, NeededAccess::All)).await),
    }
}

/// Checks that the token grants `permissions` on some resources of the type, that the client accepts FHIR
/// JSON, and that the id is one. Returns the access.
pub(super) async fn check_addressed(
    context: &RequestContext,
    kind: &str,
    id: &str,
    permissions: ScopePermissions,
) -> Result<Arc<TokenAccess>, Problem> {
    let access = authorize_addressed(context, kind, id, permissions).await?;
    check_accept(context, &[])?;
    Ok(access)
}

/// Like [`check_addressed`], for responses that are not always FHIR JSON.
pub(super) async fn authorize_addressed(
    context: &RequestContext,
    kind: &str,
    id: &str,
    permissions: ScopePermissions,
) -> Result<Arc<TokenAccess>, Problem> {
    let access = require_some(context, kind, permissions).await?;
    if fhir::is_id(id) {
        return Ok(access);
    }
    let text = "an id has 1 to 128 letters, digits, '-' and '.', but not '.' or '..'";
    Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text))
}
