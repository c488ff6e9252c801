//! Sets up the initial states of cases. A state that a case can change is set up for each case, and other states once
//! for a run.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use super::applications::{self, IssuedCode, backend_token, member, person, unexpected};
use super::browser::{self, Credentials, address, answer_param};
use super::cookies::CookieJar;
use super::passkeys;
use super::server::OwnServer;
use super::target::TestTarget;
use super::{SetupError, TestEnvironment};
use crate::spec::preconditions::{self, Precondition};
use crate::spec::request::DpopProof;
use crate::wire::random::random_text;
use crate::wire::variables::Variables;
use crate::wire::{adapt, dpop_proof, html_form, jose};

/// Time after which a new backend token is requested. Tokens live for 300 s.
const BACKEND_TOKEN_USE: Duration = Duration::from_secs(200);

/// State of one case.
pub struct CaseContext {
    /// Variables of the case.
    pub vars: Variables,
    /// Cookies of the simulated browser.
    pub cookies: CookieJar,
    /// A separate server, if the precondition needs one.
    pub own: Option<Arc<(OwnServer, TestTarget)>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl CaseContext {
    /// Creates the initial state of a case.
    pub fn new(world: &TestEnvironment) -> Self {
        Self { vars: world.target.vars(), cookies: CookieJar::new(), own: None, guard: None }
    }

    /// Returns the server that the case tests.
    pub fn target<'a>(&'a self, world: &'a TestEnvironment) -> &'a TestTarget {
        self.own.as_ref().map_or(&world.target, |own| &own.1)
    }

    /// Sets `$cookies` to the cookies of the browser, as the text of a header.
    pub fn set_cookies(&mut self, target: &TestTarget) {
        let url = url::Url::parse(&target.addresses.base_url).ok();
        let header = url.and_then(|url| self.cookies.header(&url));
        let cookies = header.as_ref().and_then(|header| header.to_str().ok()).unwrap_or_default();
        self.vars.set("cookies", cookies);
    }

    /// Sets the variables for the tokens that a response of the token endpoint contains.
    fn set_tokens(&mut self, tokens: &Value) {
        for (name, member) in
            [("token", "access_token"), ("id_token", "id_token"), ("refresh_token", "refresh_token")]
        {
            if let Some(value) = tokens[member].as_str() {
                self.vars.set(name, value);
            }
        }
    }

    fn set_code(&mut self, code: IssuedCode) {
        self.vars.set("code", code.code);
        self.vars.set("redirect_uri", code.redirect_uri);
        // The verifier is also set without a challenge, because a case may send one nevertheless.
        self.vars.set("verifier", code.verifier.unwrap_or_else(random_text));
    }
}

/// States that are set up once for a run.
#[derive(Default)]
pub struct SharedStates {
    session: OnceCell<CookieJar>,
    token: OnceCell<Value>,
    openid: OnceCell<Value>,
    notes: OnceCell<Value>,
    implicit: OnceCell<Value>,
    export: OnceCell<Value>,
    admin: OnceCell<String>,
    writing: OnceCell<String>,
    system: Mutex<Option<(Instant, String)>>,
    /// A server with imported releases. It is separate, because some rows require their code systems to be unknown.
    releases: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server that implements version 3.0.0 of the Bulk Data guide and exports members of nested Groups.
    branded_pages: OnceCell<Arc<(OwnServer, TestTarget)>>,
    guide_3: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server that returns signed URLs for its export files.
    signed_addresses: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server whose signed URLs expire after ten seconds.
    brief_addresses: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// Lock that is held while a case ends all sessions of the last user.
    lone: Arc<Mutex<()>>,
}

/// Sets up a state: variables and cookies of the case.
///
/// # Errors
/// Returns [`SetupError`] if the target lacks what is needed or does not behave as expected, or if a variable that
/// `preconditions.toml` names is not set.
pub async fn set_up(world: &TestEnvironment, name: &str, scene: &mut CaseContext) -> Result<(), SetupError> {
    static TABLE: LazyLock<Vec<Precondition>> = LazyLock::new(|| preconditions::load().unwrap_or_default());
    let done = perform(world, name, scene).await;
    if let Some(own) = &scene.own {
        world.target.secrets.add_server(&own.1.secrets);
    }
    done?;
    let sets = TABLE.iter().find(|row| row.name == name).map(|row| &*row.sets).unwrap_or_default();
    match sets.iter().find(|variable| scene.vars.get(variable).is_none()) {
        Some(missing) => Err(SetupError::Failed(format!("the setup did not set ${missing}"))),
        None => Ok(()),
    }
}

async fn perform(world: &TestEnvironment, name: &str, scene: &mut CaseContext) -> Result<(), SetupError> {
    let (shared, target) = (&world.shared, &world.target);
    match name {
        "demo-data" => demo_data(target)?,
        "providers" => scene.vars.set("providers", world.local()?.providers.vars()),
        "browser-at-sign-in" => at_sign_in(target, scene).await?,
        "signed-in" => scene.cookies = first_session(world).await?,
        "freshly-signed-in" => scene.cookies = session(target, "users.1").await?,
        "lone-user" => lone_user(world, scene).await?,
        "code" => scene.set_code(code(world, &scene.vars, "public", true).await?),
        "plain-code" if target.requires_pkce() => {
            return Err(SetupError::Lacking("the server may require code challenges (pkce)".to_owned()));
        }
        "plain-code" => scene.set_code(code(world, &scene.vars, "public", false).await?),
        "confidential-code" => confidential_code(world, scene).await?,
        "token" => scene.set_tokens(shared.token.get_or_try_init(|| tokens(world, name)).await?),
        "openid-token" => scene.set_tokens(shared.openid.get_or_try_init(|| tokens(world, name)).await?),
        "notes-token" => scene.set_tokens(shared.notes.get_or_try_init(|| tokens(world, name)).await?),
        "implicit-token" => scene.set_tokens(shared.implicit.get_or_try_init(|| implicit(world)).await?),
        "fresh-token" => scene.set_tokens(&tokens(world, name).await?),
        "refresh-token" => {
            let code = refreshable_code(world, &scene.vars).await?;
            scene.set_tokens(&applications::redeem(target, "confidential", &code).await?);
        }
        "dpop-key" => dpop_key(scene)?,
        "dpop-token" => dpop_token(world, scene).await?,
        "fresh-user" => fresh_user(world, scene, &[]).await?,
        "passkey" | "required-passkey" => {
            fresh_user(world, scene, &[]).await?;
            passkeys::set_up(target, scene, name == "required-passkey").await?;
        }
        "fresh-patient" => {
            let scopes = "openid profile offline_access user/ValueSet.rs patient/*.cud";
            fresh_user(world, scene, &["--fhir-user", "Patient/pat-01", "--allowed-scopes", scopes]).await?;
        }
        "fresh-clinician" => {
            let scopes = "openid profile offline_access user/*.cruds";
            fresh_user(world, scene, &["--fhir-user", "Practitioner/prac-1", "--allowed-scopes", scopes])
                .await?;
        }
        "grace-token" => {
            let code = code(world, &scene.vars, "retrying", false).await?;
            scene.set_tokens(&applications::redeem(target, "retrying", &code).await?);
        }
        "keyed-assertions" => {
            scene.vars.set("keyed", world.local()?.key_hosts.assertions(target)?);
        }
        "basic-client" => scene.vars.set("basic_client", basic_client(world, "system/*.rs", &[]).await?),
        "client-of-a-group" => {
            let group = member(&scene.vars, "groups.0")?.to_owned();
            scene.vars.set("basic_client", basic_client(world, "system/*.rs", &["--group", &group]).await?);
        }
        "writing-client-of-a-group" => {
            let group = member(&scene.vars, "groups.0")?.to_owned();
            let made = basic_client(world, "system/*.cruds", &["--group", &group]).await?;
            scene.vars.set("basic_client", made);
        }
        "admin-token" => {
            let made = shared.admin.get_or_try_init(|| admin_token(world)).await?;
            scene.vars.set("admin_token", made.as_str());
        }
        "administrator-token" => administrator(world, scene).await?,
        "would-be-administrator" => {
            let mut cookies = first_session(world).await?;
            let more = [("scope", "openid trefoil/admin")];
            let person = person(&scene.vars, "user")?;
            world.local()?;
            scene.set_code(
                applications::code(target, &mut cookies, &person, "declared.admin", true, &more).await?,
            );
        }
        "declared-codes" => declared_codes(world, scene).await?,
        "own-user" => {
            own_user(world, scene).await?;
        }
        "turned-keys" => turned_keys(world, scene).await?,
        "releases" => {
            let loaded = shared.releases.get_or_try_init(|| releases(world)).await?.clone();
            scene.vars = loaded.1.vars();
            scene.own = Some(loaded);
        }
        "branded-pages" => {
            let made = shared.branded_pages.get_or_try_init(|| branded_pages(world)).await?.clone();
            scene.vars = made.1.vars();
            scene.own = Some(made);
        }
        "guide-3" => {
            let config = "[bulk]\nguide = \"3.0.0\"\nnested_groups = true\nfile_size = 8192\n";
            let made = shared.guide_3.get_or_try_init(|| configured(world, config)).await?.clone();
            ask_of(made, scene).await?;
        }
        "signed-addresses" => {
            let config = "[bulk]\nsigned_url_s = 300\n";
            let made = shared.signed_addresses.get_or_try_init(|| configured(world, config)).await?.clone();
            ask_of(made, scene).await?;
        }
        "brief-addresses" => {
            let config = "[bulk]\nsigned_url_s = 10\n";
            let made = shared.brief_addresses.get_or_try_init(|| configured(world, config)).await?.clone();
            ask_of(made, scene).await?;
        }
        "assertions" => scene.vars.set("assertion", applications::assertions(target)?),
        "system-token" => scene.vars.set("system_token", system_token(world).await?),
        "writing-client" => {
            scene.vars.set("basic_client", basic_client(world, "system/*.cruds", &[]).await?);
        }
        "writing-token" => {
            let made = shared.writing.get_or_try_init(|| writing_token(world)).await?;
            scene.vars.set("writing_token", made.as_str());
        }
        "narrow-token" => {
            if answers_anyone(target) {
                return Err(SetupError::Lacking("the FHIR interface answers without a token".to_owned()));
            }
            scene.vars.set("narrow_token", backend_token(target, 0, Some("system/Patient.rs")).await?);
        }
        "export" | "fresh-export" => {
            let export = match name {
                "export" => shared.export.get_or_try_init(|| export(world)).await?.clone(),
                _ => export(world).await?,
            };
            scene.vars.set("bulk", export);
            scene.vars.set("system_token", system_token(world).await?);
        }
        "failed-export" => failed_export(world, scene).await?,
        "expired-export" => expired_export(world, scene).await?,
        "disabled-user" => removed_user(world, scene, "disable").await?,
        "deleted-user" => removed_user(world, scene, "delete").await?,
        // Codes are valid for 300 s and tokens for 3600 s. The case has 30 s to use them.
        "aged-code" => aged(world, scene, 270).await?,
        "aged-session" => aged(world, scene, 60).await?,
        "expired-code" => aged(world, scene, 301).await?,
        "lasting-token" => aged(world, scene, 3570).await?,
        "expired-token" => aged(world, scene, 3601).await?,
        "device-code" => device_code(&world.target, scene).await?,
        "expired-device-code" => aged(world, scene, 601).await?,
        _ => return Err(SetupError::Failed("no code is implemented for this precondition".to_owned())),
    }
    Ok(())
}

fn demo_data(target: &TestTarget) -> Result<(), SetupError> {
    if json!(target.profile).to_string().contains("https://trefoil.example/fhir/CodeSystem/care-aids") {
        return Ok(());
    }
    Err(SetupError::Lacking("the target does not have the demo project".to_owned()))
}

/// Signs in a user, and returns the cookies of the browser.
async fn session(target: &TestTarget, user: &str) -> Result<CookieJar, SetupError> {
    let mut cookies = CookieJar::new();
    applications::code(target, &mut cookies, &person(&target.vars(), user)?, "public", true, &[]).await?;
    Ok(cookies)
}

/// Returns the cookies of the first user, who is signed in on first use. A case may end the session of another one, for
/// example by a new sign-in, so on a server that is not ours each case has a session of its own.
async fn first_session(world: &TestEnvironment) -> Result<CookieJar, SetupError> {
    if !world.target.is_trefoil() {
        return session(&world.target, "user").await;
    }
    let made = world.shared.session.get_or_try_init(|| session(&world.target, "user"));
    Ok(made.await?.clone())
}

/// Opens the sign-in page in a browser and sets its inputs as variables, such as `$csrf` and `$continue`.
async fn at_sign_in(target: &TestTarget, scene: &mut CaseContext) -> Result<(), SetupError> {
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
    let sent = browser::get(address(&format!("{}?{query}", target.endpoint("authorize")?))?);
    let answer = target.send(&sent, &mut scene.cookies).await?;
    let to = answer.location().ok_or_else(|| unexpected("the authorize endpoint", &answer))?;
    let answer = target.send(&browser::get(to), &mut scene.cookies).await?;
    for input in html_form::form_inputs(&answer.text()) {
        scene.vars.set(input.name, input.value);
    }
    Ok(())
}

/// Returns a code of the first user, requested with the `$nonce` of the case.
async fn code(
    world: &TestEnvironment,
    vars: &Variables,
    client: &str,
    with_pkce: bool,
) -> Result<IssuedCode, SetupError> {
    let mut cookies = first_session(world).await?;
    let more = [("scope", "openid email"), ("nonce", vars.text("nonce")?)];
    applications::code(&world.target, &mut cookies, &person(vars, "user")?, client, with_pkce, &more).await
}

/// Sets a code of the confidential client that was requested without a code challenge, if the server allows that.
async fn confidential_code(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    let code = code(world, &scene.vars, "confidential", false).await?;
    if let Some(verifier) = &code.verifier {
        scene.vars.set(adapt::ADDED_VERIFIER, verifier.as_str());
    }
    scene.set_code(code);
    Ok(())
}

/// Returns a code of the confidential client whose tokens include a refresh token. Other servers may issue one only for
/// `offline_access` and a new consent (OpenID Connect Core 1.0, section 11).
async fn refreshable_code(world: &TestEnvironment, vars: &Variables) -> Result<IssuedCode, SetupError> {
    if world.target.is_trefoil() {
        return code(world, vars, "confidential", false).await;
    }
    let mut cookies = first_session(world).await?;
    let more = [("scope", "openid offline_access"), ("prompt", "consent")];
    let person = person(vars, "user")?;
    applications::code(&world.target, &mut cookies, &person, "confidential", true, &more).await
}

/// Returns whether the FHIR interface of a target needs no token.
fn answers_anyone(target: &TestTarget) -> bool {
    target.profile.get("anonymous").is_some_and(|anonymous| *anonymous == true)
}

/// Returns a token that the profile states instead of the means to request one.
fn stated_token<'a>(target: &'a TestTarget, kind: &str) -> Option<&'a str> {
    let stated = target.profile.get("tokens").and_then(|tokens| tokens[kind].as_str());
    stated.or(answers_anyone(target).then_some(""))
}

/// Returns tokens of the first user, requested by the code flow of the public client.
async fn tokens(world: &TestEnvironment, kind: &str) -> Result<Value, SetupError> {
    if let Some(token) = world.target.profile.get("tokens").and_then(|tokens| tokens["user"].as_str()) {
        return Ok(json!({ "access_token": token }));
    }
    let vars = world.target.vars();
    let words = |path: &str| -> Vec<&str> {
        let list = vars.get(path).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let custom = words("public.custom_scopes");
    let scope = match kind {
        "openid-token" => "openid".to_owned(),
        "notes-token" => {
            let lacking = || SetupError::Lacking("the profile has no 'public.custom_scopes.0'".to_owned());
            (*custom.first().ok_or_else(lacking)?).to_owned()
        }
        _ => [words("public.scopes"), custom].concat().join(" "),
    };
    let mut cookies = first_session(world).await?;
    applications::tokens(&world.target, &mut cookies, &person(&vars, "user")?, &scope).await
}

/// Returns tokens of the first user, requested by the implicit flow.
async fn implicit(world: &TestEnvironment) -> Result<Value, SetupError> {
    let vars = world.target.vars();
    let params = [
        ("response_type", "token"),
        ("client_id", member(&vars, "public.client_id")?),
        ("redirect_uri", member(&vars, "public.redirect_uris.0")?),
        ("scope", "openid email"),
    ];
    let at = browser::authorize(&world.target, &mut first_session(world).await?, None, &params).await?;
    Ok(json!({
        "access_token": answer_param(&at, "access_token"),
        "id_token": answer_param(&at, "id_token"),
    }))
}

/// Returns a token of the first backend client with all its scopes. It is cached for some time.
async fn system_token(world: &TestEnvironment) -> Result<String, SetupError> {
    if let Some(token) = stated_token(&world.target, "system") {
        return Ok(token.to_owned());
    }
    let mut kept = world.shared.system.lock().await;
    if let Some((made, token)) = &*kept
        && made.elapsed() < BACKEND_TOKEN_USE
    {
        return Ok(token.clone());
    }
    let token = backend_token(&world.target, 0, None).await?;
    *kept = Some((Instant::now(), token.clone()));
    Ok(token)
}

/// Runs an export of the first Group: `$bulk.status_url`, `$bulk.request`, `$bulk.manifest`.
async fn export(world: &TestEnvironment) -> Result<Value, SetupError> {
    let vars = world.target.vars();
    let group = member(&vars, "groups.0")?;
    let request = format!("{}/Group/{group}/$export?_outputFormat=ndjson", world.target.fhir_base()?);
    let token = system_token(world).await?;
    let (status_url, answer) = applications::export(world, &world.target, &token, &request).await?;
    match (answer.status.as_u16(), answer.json()) {
        (200, Some(manifest)) => {
            Ok(json!({ "request": request, "status_url": status_url, "manifest": manifest }))
        }
        _ => Err(unexpected("the status URL", &answer)),
    }
}

fn not_started(error: anyhow::Error) -> SetupError {
    SetupError::Failed(format!("{error:#}"))
}

/// Starts an export on a separate server whose folder for export files cannot be written.
async fn failed_export(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    world.local()?;
    let server = OwnServer::start("").await.map_err(not_started)?;
    server.block_exports().map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let token = backend_token(&target, 0, None).await?;
    let request = format!("{}/$export?_type=Patient", target.fhir_base()?);
    let (status_url, _) = applications::export(world, &target, &token, &request).await?;
    scene.vars = target.vars();
    scene.vars.set("bulk", json!({ "request": request, "status_url": status_url }));
    scene.vars.set("system_token", token);
    scene.own = Some(Arc::new((server, target)));
    Ok(())
}

/// Completes an export on a separate server that keeps exports for a second, and waits until it has expired.
async fn expired_export(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    world.local()?;
    let server = OwnServer::start("[bulk]\nretention_s = 1\n").await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let token = backend_token(&target, 0, None).await?;
    let request = format!("{}/$export?_type=Patient", target.fhir_base()?);
    let (status_url, answer) = applications::export(world, &target, &token, &request).await?;
    let manifest = answer.json().ok_or_else(|| unexpected("the status URL", &answer))?;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    scene.vars = target.vars();
    scene.vars.set("bulk", json!({ "request": request, "status_url": status_url, "manifest": manifest }));
    scene.vars.set("system_token", token);
    scene.own = Some(Arc::new((server, target)));
    Ok(())
}

/// Signs in the last user, whose sessions a case may end. No other case uses this user at the same time.
async fn lone_user(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    scene.guard = Some(world.shared.lone.clone().lock_owned().await);
    let person = person(&scene.vars, "users.2")?;
    let tokens = applications::tokens(&world.target, &mut scene.cookies, &person, "openid profile").await?;
    scene.set_tokens(&tokens);
    Ok(())
}

/// Generates a key for DPoP proofs: `$dpop_key`, and its thumbprint `$jkt`.
fn dpop_key(scene: &mut CaseContext) -> Result<(), SetupError> {
    let key = jose::fresh_key("case").map_err(|error| SetupError::Failed(error.to_string()))?;
    scene.vars.set("jkt", dpop_proof::thumbprint(&key));
    scene.vars.set(dpop_proof::KEY_VARIABLE, key);
    Ok(())
}

/// Requests tokens of the first user that are bound to the DPoP key of the case.
async fn dpop_token(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    dpop_key(scene)?;
    let target = &world.target;
    let mut cookies = first_session(world).await?;
    let person = person(&scene.vars, "user")?;
    let scope = [("scope", "openid email offline_access user/ValueSet.rs user/CodeSystem.rs")];
    let code = applications::code(target, &mut cookies, &person, "bound", true, &scope).await?;
    let mut sent = browser::post(
        address(target.endpoint("token")?)?,
        &[
            ("grant_type", "authorization_code"),
            ("client_id", member(&scene.vars, "bound.client_id")?),
            ("code", &code.code),
            ("redirect_uri", &code.redirect_uri),
            ("code_verifier", code.verifier.as_deref().unwrap_or_default()),
        ],
    );
    let proof = dpop_proof::proof_headers(&DpopProof::default(), &sent.method, &sent.url, &scene.vars);
    for (name, value) in proof.map_err(SetupError::Failed)? {
        sent.headers.append(
            name,
            value
                .parse()
                .map_err(|_| SetupError::Failed("the DPoP proof is not valid in a header".to_owned()))?,
        );
    }
    let answer = target.send(&sent, &mut CookieJar::new()).await?;
    match (answer.status.as_u16(), answer.json()) {
        (200, Some(tokens)) => scene.set_tokens(&tokens),
        _ => return Err(unexpected("the token endpoint", &answer)),
    }
    Ok(())
}

/// Creates a user for the case and signs in the user in the browser of the case: `$fresh_user`, `$fresh_password`.
async fn fresh_user(
    world: &TestEnvironment,
    scene: &mut CaseContext,
    flags: &[&str],
) -> Result<(), SetupError> {
    let server = &world.local()?.server;
    let name = format!("guest-{}", random_text().to_lowercase());
    let person = Credentials { username: name.clone(), password: random_text() };
    server.admin(&[&["user", "add", &name], flags].concat(), &person.password).await?;
    applications::code(&world.target, &mut scene.cookies, &person, "public", true, &[]).await?;
    scene.vars.set("fresh_user", name);
    scene.vars.set("fresh_password", person.password);
    Ok(())
}

/// Creates a user for the case, requests a token and returns the name of the user.
async fn own_user(world: &TestEnvironment, scene: &mut CaseContext) -> Result<String, SetupError> {
    let name = format!("short-stay-{}", Timestamp::now().as_nanosecond());
    let person = Credentials { username: name.clone(), password: random_text() };
    world.local()?.server.admin(&["user", "add", &name], &person.password).await?;
    let tokens = applications::tokens(&world.target, &mut CookieJar::new(), &person, "openid").await?;
    scene.set_tokens(&tokens);
    Ok(name)
}

/// Creates a user for the case, requests a token, and then disables or deletes the user.
async fn removed_user(world: &TestEnvironment, scene: &mut CaseContext, how: &str) -> Result<(), SetupError> {
    let name = own_user(world, scene).await?;
    world.local()?.server.admin(&["user", how, &name], "").await.map(drop)
}

/// Registers a client of the case that authenticates by `client_secret_basic` only.
async fn basic_client(world: &TestEnvironment, scope: &str, more: &[&str]) -> Result<Value, SetupError> {
    let id = format!("basic-{}", Timestamp::now().as_nanosecond());
    let add = ["client", "add", &id, "--auth-method", "client_secret_basic", "--scope", scope];
    let said = world.local()?.server.admin(&[&add, more].concat(), "").await?;
    let secret = said.lines().find_map(|line| line.strip_prefix("client_secret "));
    let secret = secret.ok_or_else(|| SetupError::Failed("the command printed no secret".to_owned()))?;
    // RFC 6749 2.3.1: client id and secret are form-encoded. This encodes every character of the secret, which is
    // allowed.
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

/// Returns a token of a backend client for the admin API.
async fn admin_token(world: &TestEnvironment) -> Result<String, SetupError> {
    let client = basic_client(world, "trefoil/admin", &[]).await?;
    let form = [("grant_type", "client_credentials"), ("scope", "trefoil/admin")];
    let tokens = applications::token_request(&world.target, &form, client["basic"].as_str()).await?;
    let token = tokens["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| SetupError::Failed("the token endpoint returned no access token".to_owned()))
}

/// Returns a token of a backend client that may read and write every resource type.
async fn writing_token(world: &TestEnvironment) -> Result<String, SetupError> {
    let client = basic_client(world, "system/*.cruds", &[]).await?;
    let form = [("grant_type", "client_credentials"), ("scope", "system/*.cruds")];
    let tokens = applications::token_request(&world.target, &form, client["basic"].as_str()).await?;
    let token = tokens["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| SetupError::Failed("the token endpoint returned no access token".to_owned()))
}

/// Requests a token for the user who is an administrator, with the declared application for administration.
async fn administrator(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
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
async fn declared_codes(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
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

/// Starts a server with anonymous terminology and the releases of `fixtures/releases`.
async fn releases(world: &TestEnvironment) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/releases");
    world.local()?;
    if !Path::new(FOLDER).is_dir() {
        return Err(SetupError::Lacking("fixtures/releases does not exist".to_owned()));
    }
    let server = OwnServer::start("[terminology]\nanonymous = true\n").await.map_err(not_started)?;
    server.admin(&["import", FOLDER], "").await?;
    let target = server.target().await.map_err(not_started)?;
    Ok(Arc::new((server, target)))
}

/// Starts a separate server with additional settings.
async fn configured(
    world: &TestEnvironment,
    config: &str,
) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    world.local()?;
    let server = OwnServer::start(config).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    Ok(Arc::new((server, target)))
}

/// Starts a server with a name, a logo and colours of its own.
async fn branded_pages(world: &TestEnvironment) -> Result<Arc<(OwnServer, TestTarget)>, SetupError> {
    world.local()?;
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
    configured(world, &settings).await
}

/// Makes this server the target of the case, with `$system_token` and `$narrow_token`.
async fn ask_of(server: Arc<(OwnServer, TestTarget)>, scene: &mut CaseContext) -> Result<(), SetupError> {
    scene.vars = server.1.vars();
    scene.vars.set("system_token", backend_token(&server.1, 0, None).await?);
    scene.vars.set("narrow_token", backend_token(&server.1, 0, Some("system/Patient.rs")).await?);
    scene.own = Some(server);
    Ok(())
}

/// Starts a separate server that issues a token, rotates its keys and is restarted. `$kids.retired` is the key that
/// signed the token, and `$kids.next` is the key that will sign after the next rotation.
async fn turned_keys(world: &TestEnvironment, scene: &mut CaseContext) -> Result<(), SetupError> {
    world.local()?;
    let server = OwnServer::start("").await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let person = person(&target.vars(), "user")?;
    let tokens = applications::tokens(&target, &mut CookieJar::new(), &person, "openid").await?;
    let kid = async |stage: &str| -> Result<String, SetupError> {
        let listed = server.admin(&["keys", "list"], "").await?;
        let line = listed.lines().find(|line| line.contains("access-token") && line.contains(stage));
        let kid = line.and_then(|line| line.split_whitespace().next()).map(str::to_owned);
        kid.ok_or_else(|| SetupError::Failed(format!("no key for access tokens is {stage}")))
    };
    let retired = kid("active").await?;
    server.admin(&["keys", "rotate", "--now"], "").await?;
    let next = kid("next").await?;
    let server = server.restart(0).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    scene.vars = target.vars();
    scene.vars.set("kids", json!({ "retired": retired, "next": next }));
    scene.set_tokens(&tokens);
    scene.own = Some(Arc::new((server, target)));
    Ok(())
}

/// Sets up a code and a token that were issued `age_s` seconds ago. A separate server issues them and is restarted with
/// its clock moved forward.
async fn aged(world: &TestEnvironment, scene: &mut CaseContext, age_s: i64) -> Result<(), SetupError> {
    world.local()?;
    let server = OwnServer::start("").await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let mut cookies = CookieJar::new();
    let person = person(&target.vars(), "user")?;
    let code =
        applications::code(&target, &mut cookies, &person, "public", true, &[("scope", "openid")]).await?;
    let tokens = applications::tokens(&target, &mut cookies, &person, "openid").await?;
    device_code(&target, scene).await?;
    let device_code = scene.vars.text("device_code")?.to_owned();
    let request_uri = pushed_request(&target).await?;
    let server = server.restart(age_s).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    scene.vars = target.vars();
    scene.cookies = cookies;
    scene.set_code(code);
    scene.set_tokens(&tokens);
    scene.vars.set("device_code", device_code);
    scene.vars.set("request_uri", request_uri);
    scene.own = Some(Arc::new((server, target)));
    Ok(())
}

/// Pushes an authorization request of the public client, and returns its `request_uri`.
async fn pushed_request(target: &TestTarget) -> Result<Value, SetupError> {
    let vars = target.vars();
    let form = [
        ("client_id", member(&vars, "public.client_id")?),
        ("redirect_uri", member(&vars, "public.redirect_uris.0")?),
        ("response_type", "code"),
    ];
    let sent = browser::post(address(target.endpoint("par")?)?, &form);
    let answer = target.send(&sent, &mut CookieJar::new()).await?;
    match answer.json() {
        Some(pushed) if answer.status.is_success() => Ok(pushed["request_uri"].clone()),
        _ => Err(unexpected("the endpoint for pushed requests", &answer)),
    }
}

/// Starts a device authorization: `$device_code`, `$user_code`.
async fn device_code(target: &TestTarget, scene: &mut CaseContext) -> Result<(), SetupError> {
    let vars = target.vars();
    let form = [("client_id", member(&vars, "device.client_id")?), ("scope", "openid email")];
    let sent = browser::post(address(target.endpoint("device_authorization")?)?, &form);
    let answer = target.send(&sent, &mut CookieJar::new()).await?;
    let Some(begun) = answer.json().filter(|_| answer.status.is_success()) else {
        return Err(unexpected("the device authorization endpoint", &answer));
    };
    for name in ["device_code", "user_code"] {
        scene.vars.set(name, begun[name].clone());
    }
    Ok(())
}
