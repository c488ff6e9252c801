//! Separate servers: with other settings, with other data, or at a later time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::context::CaseContext;
use super::tokens::{device_code, pushed_request};
use crate::environment::applications::{self, backend_token, person};
use crate::environment::cookies::CookieJar;
use crate::environment::server::{OwnServer, OwnStore, own_store};
use crate::environment::target::TestTarget;
use crate::environment::{SetupError, TestEnvironment, pauses};
use crate::wire::jose;

pub(super) fn not_started(error: anyhow::Error) -> SetupError {
    SetupError::Failed(format!("{error:#}"))
}

/// Starts a server with anonymous terminology and the releases of `fixtures/releases`.
pub(super) async fn releases(
    environment: &TestEnvironment,
) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/releases");
    environment.local()?;
    if !Path::new(FOLDER).is_dir() {
        return Err(SetupError::Lacking("fixtures/releases does not exist".to_owned()));
    }
    let server = configured(environment, "[terminology]\nanonymous = true\n").await?;
    server.0.admin(&["import", FOLDER], "").await?;
    Ok(server)
}

/// Starts a separate server with additional settings.
pub(super) async fn configured(
    environment: &TestEnvironment,
    config: &str,
) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    started(environment, config).await.map(Arc::new)
}

/// The same as [`configured`], for a server that is restarted later.
pub(super) async fn started(
    environment: &TestEnvironment,
    config: &str,
) -> Result<(OwnServer, TestTarget), SetupError> {
    environment.local()?;
    let server = OwnServer::start(config).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    Ok((server, target))
}

/// Restarts a server with its clock set ahead, as if this time had passed.
pub(super) async fn restarted(
    server: OwnServer,
    ahead_s: i64,
) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    if own_store() == OwnStore::Memory {
        return Err(SetupError::Lacking("a server whose store is in memory cannot be restarted".to_owned()));
    }
    let server = server.restart(ahead_s).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    Ok(Arc::new((server, target)))
}

/// Starts a server with a name, a logo and colours of its own.
pub(super) async fn branded_pages(
    environment: &TestEnvironment,
) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    environment.local()?;
    let folder = tempfile::tempdir().map_err(|error| not_started(error.into()))?;
    let logo = folder.path().join("leaf.svg");
    let image =
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4"/></svg>"#;
    std::fs::write(&logo, image).map_err(|error| not_started(error.into()))?;
    let settings = format!(
        "[pages]\nname = \"Garden Health\"\nlogo = \"{}\"\ncolor = \"#20409A\"\ndark_color = \"#9db8ff\"\n",
        logo.display()
    );
    // The server reads the logo at its start.
    configured(environment, &settings).await
}

/// Makes this server the target of the case, with `$system_token` and `$narrow_token`.
pub(super) async fn ask_of(
    server: Arc<(OwnServer, TestTarget)>,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    context.vars = server.1.vars();
    context.vars.set("system_token", backend_token(&server.1, 0, None).await?);
    context.vars.set("narrow_token", backend_token(&server.1, 0, Some("system/Patient.rs")).await?);
    context.own = Some(server);
    Ok(())
}

/// Starts a separate server that issues a token, rotates its keys and is restarted. `$kids.retired` is the
/// key that signed the token, and `$kids.next` is the key that will sign after the next rotation.
pub(super) async fn turned_keys(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    let (server, target) = started(environment, "").await?;
    let person = person(&target.vars(), "user")?;
    let tokens = applications::tokens(&target, &mut CookieJar::new(), &person, "openid").await?;
    let kid = async |stage: &str| -> Result<String, SetupError> {
        let list = server.admin(&["keys", "list"], "").await?;
        let line = list.lines().find(|line| line.contains("access-token") && line.contains(stage));
        let kid = line.and_then(|line| line.split_whitespace().next()).map(str::to_owned);
        kid.ok_or_else(|| SetupError::Failed(format!("no key for access tokens is {stage}")))
    };
    let retired = kid("active").await?;
    server.admin(&["keys", "rotate", "--now"], "").await?;
    let next = kid("next").await?;
    let server = restarted(server, 0).await?;
    context.vars = server.1.vars();
    context.vars.set("kids", json!({ "retired": retired, "next": next }));
    context.set_tokens(&tokens);
    context.own = Some(server);
    Ok(())
}

/// Sets up a code and a token that were issued `age_s` seconds ago. A separate server issues them and is
/// restarted with its clock moved forward.
pub(super) async fn aged(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    age_s: i64,
) -> Result<(), SetupError> {
    let (server, target) = started(environment, "").await?;
    let mut cookies = CookieJar::new();
    let person = person(&target.vars(), "user")?;
    let code =
        applications::code(&target, &mut cookies, &person, "public", true, &[("scope", "openid")]).await?;
    let tokens = applications::tokens(&target, &mut cookies, &person, "openid").await?;
    device_code(&target, context).await?;
    let device_code = context.vars.text("device_code")?.to_owned();
    let request_uri = pushed_request(&target).await?;
    let server = restarted(server, age_s).await?;
    context.vars = server.1.vars();
    context.cookies = cookies;
    context.set_code(code);
    context.set_tokens(&tokens);
    context.vars.set("device_code", device_code);
    context.vars.set("request_uri", request_uri);
    context.own = Some(server);
    Ok(())
}

/// Signs in the second user some time before the case. `$auth_time` is the time of the sign-in according to
/// an ID token that was issued then. The clock of a separate server is set ahead; on a server that the suite
/// did not start, the time passes.
pub(super) async fn earlier_sign_in(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    if environment.local.is_none() {
        sign_in_at_a_known_time(&environment.target, context).await?;
        return pauses::let_time_pass(Duration::from_secs(3), environment.target.max_wait).await;
    }
    let (server, target) = started(environment, "").await?;
    sign_in_at_a_known_time(&target, context).await?;
    let auth_time = context.vars.get("auth_time").cloned();
    let server = restarted(server, 60).await?;
    context.vars = server.1.vars();
    context.vars.set("auth_time", auth_time.unwrap_or_default());
    context.own = Some(server);
    Ok(())
}

async fn sign_in_at_a_known_time(target: &TestTarget, context: &mut CaseContext) -> Result<(), SetupError> {
    let person = person(&target.vars(), "users.1")?;
    // A request with `max_age` makes the claim mandatory (OpenID Connect Core 1.0, section 2).
    let more = [("scope", "openid"), ("max_age", "600")];
    let code = applications::code(target, &mut context.cookies, &person, "public", true, &more).await?;
    let tokens = applications::redeem(target, "public", &code).await?;
    let id_token = tokens["id_token"].as_str().and_then(jose::parts);
    let auth_time = id_token.map(|token| token.claims["auth_time"].clone()).unwrap_or_default();
    if !auth_time.is_number() {
        return Err(SetupError::Failed("the ID token has no auth_time although max_age was sent".to_owned()));
    }
    context.vars.set("auth_time", auth_time);
    Ok(())
}
