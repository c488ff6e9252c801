//! `{base}/admin/releases`: the imported releases of code systems. Releases are imported with
//! `trefoil import`.

use http::StatusCode;
use serde_json::json;

use super::{check_administrator, invalid_request, json};
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::releases::{Releases, RemoveReleaseError};

/// The releases of this server. `None` if it imports none, because its store is in memory.
fn releases(context: &RequestContext) -> Option<Releases<'_>> {
    let indexes = context.app.terminology_sync.indexes().cloned()?;
    Some(Releases { indexes, resources: &context.app.resources })
}

fn unknown_release() -> Problem {
    Problem::no_such("release")
}

/// GET {base}/admin/releases: lists the releases.
pub async fn list_releases(context: &RequestContext) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let all = match releases(context) {
        Some(releases) => releases.list().await.map_err(|error| failed(&error))?,
        None => Vec::new(),
    };
    Ok(json(StatusCode::OK, &json!({ "releases": all })))
}

/// GET {base}/admin/releases/{id}: shows a release, and the stored value sets that name its version.
pub async fn read_release(context: &RequestContext, id: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let releases = releases(context).ok_or_else(unknown_release)?;
    let release_names = releases.show(&id).await.map_err(|error| failed(&error))?;
    let (release, named_by) = release_names.ok_or_else(unknown_release)?;
    let mut shown = json!(release);
    shown["named_by"] = json!(named_by);
    Ok(json(StatusCode::OK, &shown))
}

/// DELETE {base}/admin/releases/{id}: removes a release from all nodes.
pub async fn remove_release(context: &RequestContext, id: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let params = context.params();
    if let Some(defect) = params.defect() {
        return Err(invalid_request(&defect.to_string()));
    }
    let is_forced = match params.get("force") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(invalid_request("force must be true or false")),
    };
    let app = &context.app;
    let releases = releases(context).ok_or_else(unknown_release)?;
    let removed = releases.remove(&id, is_forced, Some(app), &app.logs.audit, &app.clock).await;
    match removed {
        Ok(()) => Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT))),
        Err(RemoveReleaseError::Unknown(_)) => Err(unknown_release()),
        Err(RemoveReleaseError::Failed(error)) => Err(failed(&error)),
        Err(error) => Err(Problem::admin(StatusCode::CONFLICT, "in_use", &error.to_string())),
    }
}

/// The problem of a failure of the data folder or the store, whose reason is in the log.
fn failed(error: &anyhow::Error) -> Problem {
    tracing::error!("the releases cannot be read or changed: {error:#}");
    let text = "the releases cannot be read or changed; the server's log has the reason";
    Problem::admin(StatusCode::INTERNAL_SERVER_ERROR, "server_error", text)
}
