//! Sign-ins of users: sessions, and authorization codes of signed-in users.

use serde_json::{Map, json};

use super::context::CaseContext;
use crate::environment::applications::{self, IssuedCode, member, person, unexpected};
use crate::environment::browser::address;
use crate::environment::cookies::CookieJar;
use crate::environment::target::TestTarget;
use crate::environment::{SetupError, TestEnvironment};
use crate::wire::variables::Variables;
use crate::wire::{adapt, html_form};

/// Signs in a user, and returns the cookies of the browser.
pub(super) async fn session(target: &TestTarget, user: &str) -> Result<CookieJar, SetupError> {
    let mut cookies = CookieJar::new();
    applications::code(target, &mut cookies, &person(&target.vars(), user)?, "public", true, &[]).await?;
    Ok(cookies)
}

/// The cookies of the first user, who is signed in on first use. A case may end the session of another one,
/// for example by a new sign-in, so on a server that is not ours each case has a session of its own.
pub(super) async fn first_session(environment: &TestEnvironment) -> Result<CookieJar, SetupError> {
    if environment.target.treatment.is_shared {
        return session(&environment.target, "user").await;
    }
    let first = environment.shared.session.get_or_try_init(|| session(&environment.target, "user"));
    Ok(first.await?.clone())
}

/// Opens the sign-in page in a browser and sets its inputs as variables, such as `$csrf` and `$continue`.
pub(super) async fn at_sign_in(target: &TestTarget, context: &mut CaseContext) -> Result<(), SetupError> {
    let vars = &context.vars;
    let pairs = [
        ("response_type", "code"),
        ("client_id", member(vars, "public.client_id")?),
        ("redirect_uri", member(vars, "public.redirect_uris.0")?),
        ("scope", "openid"),
        ("state", vars.text("state")?),
        ("code_challenge", vars.text("pkce.challenge")?),
        ("code_challenge_method", "S256"),
    ];
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let request = crate::environment::page_request::get(address(&format!(
        "{}?{query}",
        target.endpoint("authorize")?
    ))?);
    let answer = target.send(&request, &mut context.cookies).await?;
    let to = answer.location().ok_or_else(|| unexpected("the authorize endpoint", &answer))?;
    let response = target.send(&crate::environment::page_request::get(to), &mut context.cookies).await?;
    for input in html_form::form_inputs(&response.text()) {
        context.vars.set(input.name, input.value);
    }
    Ok(())
}

/// A code of the first user, requested with the `$nonce` of the case.
pub(super) async fn code(
    environment: &TestEnvironment,
    vars: &Variables,
    client: &str,
    with_pkce: bool,
) -> Result<IssuedCode, SetupError> {
    let mut cookies = first_session(environment).await?;
    let more = [("scope", "openid email"), ("nonce", vars.text("nonce")?)];
    applications::code(&environment.target, &mut cookies, &person(vars, "user")?, client, with_pkce, &more)
        .await
}

/// Sets a code of the confidential client that was requested without a code challenge, if the server allows
/// that.
pub(super) async fn confidential_code(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    let code = code(environment, &context.vars, "confidential", false).await?;
    if let Some(verifier) = &code.verifier {
        context.vars.set(adapt::ADDED_VERIFIER, verifier.as_str());
    }
    context.set_code(code);
    Ok(())
}

/// A code of the confidential client whose tokens include a refresh token. Other servers may issue one only
/// for `offline_access` and a new consent (OpenID Connect Core 1.0, section 11).
pub(super) async fn refreshable_code(
    environment: &TestEnvironment,
    vars: &Variables,
) -> Result<IssuedCode, SetupError> {
    if environment.target.treatment.house_rules {
        return code(environment, vars, "confidential", false).await;
    }
    let mut cookies = first_session(environment).await?;
    let offered =
        environment.target.addresses.metadata.as_ref().map(|metadata| &metadata["scopes_supported"]);
    let offered = offered.and_then(|scopes| scopes.as_array());
    let is_offered = offered.is_none_or(|scopes| scopes.iter().any(|scope| scope == "offline_access"));
    let scope = if is_offered { "openid offline_access" } else { "openid" };
    let more = [("scope", scope), ("prompt", "consent")];
    let person = person(vars, "user")?;
    applications::code(&environment.target, &mut cookies, &person, "confidential", true, &more).await
}

/// Signs in the last user, whose sessions a case may end. No other case uses this user at the same time.
pub(super) async fn lone_user(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    context.guard = Some(environment.shared.lone.clone().lock_owned().await);
    let person = person(&context.vars, "users.2")?;
    let tokens =
        applications::tokens(&environment.target, &mut context.cookies, &person, "openid profile").await?;
    context.set_tokens(&tokens);
    Ok(())
}

/// Requests a token for the user who is an administrator, with the declared application for administration.
pub(super) async fn administrator(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    environment.local()?;
    context.guard = Some(environment.shared.lone.clone().lock_owned().await);
    let (target, person) = (&environment.target, person(&context.vars, "users.2")?);
    let more = [("scope", "openid trefoil/admin")];
    let code =
        applications::code(target, &mut CookieJar::new(), &person, "declared.admin", true, &more).await?;
    context.set_tokens(&applications::redeem(target, "declared.admin", &code).await?);
    Ok(())
}

/// Requests a code for each declared application: `$codes.es256.code`, `$codes.es256.verifier` and so on.
pub(super) async fn declared_codes(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    environment.local()?;
    let (target, person) = (&environment.target, person(&context.vars, "user")?);
    let mut codes = Map::new();
    for name in ["es256", "es384", "eddsa"] {
        let mut cookies = first_session(environment).await?;
        let (client, more) = (format!("declared.{name}"), [("scope", "openid")]);
        let code = applications::code(target, &mut cookies, &person, &client, true, &more).await?;
        codes.insert(name.to_owned(), json!({ "code": code.code, "verifier": code.verifier }));
    }
    context.vars.set("codes", codes);
    Ok(())
}
