//! Users and clients that are created for a case.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::context::CaseContext;
use crate::environment::applications;
use crate::environment::cookies::CookieJar;
use crate::environment::credentials::Credentials;
use crate::environment::{SetupError, TestEnvironment};
use crate::wire::random::random_text;

/// Creates a user for the case and signs in the user in the browser of the case: `$fresh_user`,
/// `$fresh_password`.
pub(super) async fn fresh_user(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    flags: &[&str],
) -> Result<(), SetupError> {
    let server = &environment.local()?.server;
    let name = format!("guest-{}", random_text().to_lowercase());
    let person = Credentials { username: name.clone(), password: random_text() };
    server.admin(&[&["user", "add", &name], flags].concat(), &person.password).await?;
    applications::code(&environment.target, &mut context.cookies, &person, "public", true, &[]).await?;
    context.vars.set("fresh_user", name);
    context.vars.set("fresh_password", person.password);
    Ok(())
}

/// Invites a user for the case, and returns the name and the key of the one-time link.
pub(super) async fn invited_user(environment: &TestEnvironment) -> Result<Value, SetupError> {
    let name = format!("guest-{}", random_text().to_lowercase());
    let output = environment.local()?.server.admin(&["user", "add", &name, "--invite"], "").await?;
    let key = output.lines().find_map(|line| line.split_once("?key=")).map(|(_, key)| key);
    let key = key.ok_or_else(|| SetupError::Failed("the command printed no link".to_owned()))?;
    Ok(json!({ "username": name, "key": key }))
}

/// Creates a user for the case, requests a token and returns the name of the user.
pub(super) async fn own_user(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<String, SetupError> {
    let name = format!("short-stay-{}", Timestamp::now().as_nanosecond());
    let person = Credentials { username: name.clone(), password: random_text() };
    environment.local()?.server.admin(&["user", "add", &name], &person.password).await?;
    let tokens = applications::tokens(&environment.target, &mut CookieJar::new(), &person, "openid").await?;
    context.set_tokens(&tokens);
    Ok(name)
}

/// Creates a user for the case, requests a token, and then disables or deletes the user.
pub(super) async fn removed_user(
    environment: &TestEnvironment,
    context: &mut CaseContext,
    how: &str,
) -> Result<(), SetupError> {
    let name = own_user(environment, context).await?;
    environment.local()?.server.admin(&["user", how, &name], "").await.map(drop)
}

/// Registers a client of the case that authenticates by `client_secret_basic` only.
pub(super) async fn basic_client(
    environment: &TestEnvironment,
    scope: &str,
    more: &[&str],
) -> Result<Value, SetupError> {
    let id = format!("basic-{}", Timestamp::now().as_nanosecond());
    let add = ["client", "add", &id, "--auth-method", "client_secret_basic", "--scope", scope];
    let output = environment.local()?.server.admin(&[&add, more].concat(), "").await?;
    let secret = output.lines().find_map(|line| line.strip_prefix("client_secret "));
    let secret = secret.ok_or_else(|| SetupError::Failed("the command printed no secret".to_owned()))?;
    // RFC 6749 2.3.1: client id and secret are form-encoded. This encodes every character of the secret,
    // which is allowed.
    let encoded: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let basic = |secret: &str| STANDARD.encode(format!("{id}:{secret}"));
    Ok(json!({
        "client_id": id,
        "client_secret": secret,
        "basic": basic(secret),
        "encoded": basic(&encoded),
        "wrong": basic("wrong"),
    }))
}
