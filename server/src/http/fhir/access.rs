//! Authorization at the FHIR endpoints, by the SMART scopes of the token: per resource type, and per patient.

use std::sync::Arc;

use fhir::IssueCode;
use http::StatusCode;
use identity::model::scope::{ScopeContext, ScopePermissions};
use identity::tokens::access_token::{GranularAccess, ResourceAccess, TokenAccess};
use resources::filter::TypeFilter;
use resources::referenced::is_read_by_reference;
use resources::{CompartmentView, Restriction, ViewPart};

use super::check_accept;
use super::missing_scope::{NeededAccess, missing_scope};
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;

/// Authenticates the access token of a FHIR request.
///
/// # Errors
/// A 401 problem if the token is missing or not valid.
pub async fn authenticate(context: &RequestContext) -> Result<Arc<TokenAccess>, Problem> {
    let Some(sent) = context.credentials()? else {
        let text = "send an access token as 'Authorization: Bearer TOKEN'";
        return Err(Problem::fhir(StatusCode::UNAUTHORIZED, IssueCode::Login, text));
    };
    Ok(context.authenticate_token(&sent).await?)
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
    Ok(context.app.resources.restricted_to_parts(parts))
}

/// The restriction of a request on a type: the access that the scopes grant and, for a client with `groups`,
/// only the compartments of the current members of these Groups. Granular scopes grant nothing here. Such a
/// client can read its Groups but not write them, because they determine its access.
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
    let client = context.app.identity.clients.active_client(&access.token.client_id, context.now).await?;
    let Some(groups) = client.and_then(|client| client.groups) else {
        return match reach {
            ResourceAccess::All => Ok(Restriction::None),
            ResourceAccess::Patients(ids) => of_patients(context, kind, Restriction::patients(ids)).await,
            ResourceAccess::Nothing => Ok(Restriction::patients([])),
        };
    };
    if kind == "Group" && reach == ResourceAccess::All {
        return Ok(Restriction::read_only(groups));
    }
    let is_of_compartments = kind == "Patient" || !fhir::patient_compartment::paths(kind).is_empty();
    if reach == ResourceAccess::All && !is_of_compartments {
        return Ok(Restriction::None);
    }
    let app = &context.app;
    let members = app.group_members.compartments(&groups, &app.store, &app.bulk, context.now).await?;
    Ok(match reach {
        ResourceAccess::All => Restriction::Compartments(members),
        ResourceAccess::Nothing => Restriction::patients([]),
        ResourceAccess::Patients(ids) => {
            let is_member = |id: &&str| members.binary_search(&format!("Patient/{id}")).is_ok();
            of_patients(context, kind, Restriction::patients(ids.into_iter().filter(is_member))).await?
        }
    })
}

/// The restriction of a request on a type for some Patients. Types outside of all compartments can be read as
/// far as the resources of the Patients refer to them.
async fn of_patients(
    context: &RequestContext,
    kind: &str,
    patients: Restriction,
) -> Result<Restriction, Problem> {
    match patients {
        Restriction::Compartments(compartments) if is_read_by_reference(kind) => {
            let ids = context.app.resources.referenced_ids(&compartments, kind).await?;
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
    let access = authenticate(context).await?;
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
        _ => Err(missing_scope(context, access, kind, permissions, NeededAccess::All).await),
    }
}

/// Checks that the token grants `permissions` on some resources of the type, and that the id is one. Returns
/// the access.
pub(super) async fn check_addressed(
    context: &RequestContext,
    kind: &str,
    id: &str,
    permissions: ScopePermissions,
) -> Result<Arc<TokenAccess>, Problem> {
    let access = require_some(context, kind, permissions).await?;
    check_accept(context, &[])?;
    if fhir::is_id(id) {
        return Ok(access);
    }
    let text = "an id has 1 to 64 letters, digits, '-' and '.', but not '.' or '..'";
    Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text))
}
