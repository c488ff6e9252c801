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
pub(super) async fn first_session(world: &TestEnvironment) -> Result<CookieJar, SetupError> {
    if world.target.treatment.is_shared {
        return session(&world.target, "user").await;
    }
    let first = world.shared.session.get_or_try_init(|| session(&world.target, "user"));
    Ok(first.await?.clone())
}

/// Opens the sign-in page in a browser and sets its inputs as variables, such as `$csrf` and `$continue`.
pub(super) async fn at_sign_in(target: &TestTarget, scene: &mut CaseContext) -> Result<(), SetupError> {
    let vars = &scene.vars;
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
    let answer = target.send(&request, &mut scene.cookies).await?;
    let to = answer.location().ok_or_else(|| unexpected("the authorize endpoint", &answer))?;
    let answer = target.send(&crate::environment::page_request::get(to), &mut scene.cookies).await?;
    for input in html_form::form_inputs(&answer.text()) {
        scene.vars.set(input.name, input.value);
    }
    Ok(())
}

/// A code of the first user, requested with the `$nonce` of the case.
pub(super) async fn code(
    world: &TestEnvironment,
    vars: &Variables,
    client: &str,
    with_pkce: bool,
) -> Result<IssuedCode, SetupError> {
    let mut cookies = first_session(world).await?;
    let more = [("scope", "openid email"), ("nonce", vars.text("nonce")?)];
    applications::code(&world.target, &mut cookies, &person(vars, "user")?, client, with_pkce, &more).await
}

/// Sets a code of the confidential client that was requested without a code challenge, if the server allows
/// that.
pub(super) async fn confidential_code(
    world: &TestEnvironment,
    scene: &mut CaseContext,
) -> Result<(), SetupError> {
    let code = code(world, &scene.vars, "confidential", false).await?;
    if let Some(verifier) = &code.verifier {
        scene.vars.set(adapt::ADDED_VERIFIER, verifier.as_str());
    }
    scene.set_code(code);
    Ok(())
}

/// A code of the confidential client whose tokens include a refresh token. Other servers may issue one only
/// for `offline_access` and a new consent (OpenID Connect Core 1.0, section 11).
pub(super) async fn refreshable_code(
    world: &TestEnvironment,
    vars: &Variables,
) -> Result<IssuedCode, SetupError> {
    if world.target.treatment.house_rules {
        return code(world, vars, "confidential", false).await;
    }
    let mut cookies = first_session(world).await?;
    let offered = world.target.addresses.metadata.as_ref().map(|metadata| &metadata["scopes_supported"]);
    let offered = offered.and_then(|scopes| scopes.as_array());
    let is_offered = offered.is_none_or(|scopes| scopes.iter().any(|scope| scope == "offline_access"));
    let scope = if is_offered { "openid offline_access" } else { "openid" };
    let more = [("scope", scope), ("prompt", "consent")];
    let person = person(vars, "user")?;
    applications::code(&world.target, &mut cookies, &person, "confidential", true, &more).await
}

/// Signs in the last user, whose sessions a case may end. No other case uses this user at the same time.
pub(super) async fn lone_user(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    scene.guard = Some(world.shared.lone.clone().lock_owned().await);
    let person = person(&scene.vars, "users.2")?;
    let tokens = applications::tokens(&world.target, &mut scene.cookies, &person, "openid profile").await?;
    scene.set_tokens(&tokens);
    Ok(())
}

/// Requests a token for the user who is an administrator, with the declared application for administration.
pub(super) async fn administrator(
    world: &TestEnvironment,
    scene: &mut CaseContext,
) -> Result<(), SetupError> {
    world.local()?;
    scene.guard = Some(world.shared.lone.clone().lock_owned().await);
    let (target, person) = (&world.target, person(&scene.vars, "users.2")?);
    let more = [("scope", "openid trefoil/admin")];
    let code =
        applications::code(target, &mut CookieJar::new(), &person, "declared.admin", true, &more).await?;
    scene.set_tokens(&applications::redeem(target, "declared.admin", &code).await?);
    Ok(())
}

/// Requests a code for each declared application: `$codes.es256.code`, `$codes.es256.verifier` and so on.
pub(super) async fn declared_codes(
    world: &TestEnvironment,
    scene: &mut CaseContext,
) -> Result<(), SetupError> {
    world.local()?;
    let (target, person) = (&world.target, person(&scene.vars, "user")?);
    let mut codes = Map::new();
    for name in ["es256", "es384", "eddsa"] {
        let mut cookies = first_session(world).await?;
        let (client, more) = (format!("declared.{name}"), [("scope", "openid")]);
        let code = applications::code(target, &mut cookies, &person, &client, true, &more).await?;
        codes.insert(name.to_owned(), json!({ "code": code.code, "verifier": code.verifier }));
    }
    scene.vars.set("codes", codes);
    Ok(())
}
