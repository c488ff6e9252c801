//! Exports: completed, failed and expired.

use serde_json::{Value, json};

use super::context::CaseContext;
use super::servers::{configured, not_started, restarted, started};
use super::tokens::system_token;
use crate::environment::applications::{self, backend_token, member, unexpected};
use crate::environment::{SetupError, TestEnvironment};

/// Runs an export of the first Group: `$bulk.status_url`, `$bulk.request`, `$bulk.manifest`.
pub(super) async fn export(environment: &TestEnvironment) -> Result<Value, SetupError> {
    let vars = environment.target.vars();
    let group = member(&vars, "groups.0")?;
    let request = format!("{}/Group/{group}/$export?_outputFormat=ndjson", environment.target.fhir_base()?);
    let token = system_token(environment).await?;
    let (status_url, answer) = applications::export(&environment.target, &token, &request).await?;
    match (answer.status.as_u16(), answer.json()) {
        (200, Some(manifest)) => {
            Ok(json!({ "request": request, "status_url": status_url, "manifest": manifest }))
        }
        _ => Err(unexpected("the status URL", &answer)),
    }
}

/// Starts an export on a separate server whose folder for export files cannot be written.
pub(super) async fn failed_export(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    let own_server = configured(environment, "").await?;
    let (server, target) = &*own_server;
    server.block_exports().map_err(not_started)?;
    let token = backend_token(target, 0, None).await?;
    let request = format!("{}/$export?_type=Patient", target.fhir_base()?);
    let (status_url, _) = applications::export(target, &token, &request).await?;
    context.vars = target.vars();
    context.vars.set("bulk", json!({ "request": request, "status_url": status_url }));
    context.vars.set("system_token", token);
    context.own = Some(own_server);
    Ok(())
}

/// Completes an export on a separate server with additional settings, and restarts the server with its clock
/// 61 s ahead.
pub(super) async fn minute_old_export(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    config: &str,
) -> Result<(), SetupError> {
    let (server, target) = started(environment, config).await?;
    let token = backend_token(&target, 0, None).await?;
    let request = format!("{}/$export?_type=Patient", target.fhir_base()?);
    let (status_url, answer) = applications::export(&target, &token, &request).await?;
    let manifest = answer.json().ok_or_else(|| unexpected("the status URL", &answer))?;
    let server = restarted(server, 61).await?;
    context.vars = server.1.vars();
    context.vars.set("bulk", json!({ "request": request, "status_url": status_url, "manifest": manifest }));
    context.vars.set("system_token", token);
    context.own = Some(server);
    Ok(())
}
