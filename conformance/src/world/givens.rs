//! The states that cases begin from. Each is made anew for a case that may spend it; what nobody can
//! spend is made once for a run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use super::browser::{self, Person, address, answer_param, random};
use super::client::{self, Code, backend_token, member, person, unexpected};
use super::server::Server;
use super::target::{Cookies, Target};
use super::{Trouble, World, jose, page};
use crate::run::dpop;
use crate::run::vars::Vars;
use crate::spec::row::Proof;

/// Every state that can be given.
pub const NAMES: &[&str] = &[
    "admin-token",
    "administrator-token",
    "aged-code",
    "aged-session",
    "assertions",
    "basic-client",
    "browser-at-sign-in",
    "client-of-a-group",
    "code",
    "confidential-code",
    "declared-codes",
    "deleted-user",
    "demo-data",
    "device-code",
    "disabled-user",
    "dpop-key",
    "dpop-token",
    "expired-code",
    "expired-device-code",
    "expired-token",
    "export",
    "failed-export",
    "fresh-clinician",
    "fresh-export",
    "fresh-patient",
    "fresh-token",
    "fresh-user",
    "grace-token",
    "guide-3",
    "implicit-token",
    "keyed-assertions",
    "lasting-token",
    "lone-user",
    "narrow-token",
    "notes-token",
    "openid-token",
    "own-user",
    "plain-code",
    "providers",
    "refresh-token",
    "releases",
    "signed-addresses",
    "signed-in",
    "signed-in-anew",
    "system-token",
    "token",
    "turned-keys",
    "would-be-administrator",
    "writing-client",
    "writing-client-of-a-group",
    "writing-token",
];

/// How long a back-end token is used before a new one is got; it lives 300 s.
const BACKEND_TOKEN_USE: Duration = Duration::from_secs(200);

/// What one case acts with.
pub struct Scene {
    /// Its variables.
    pub vars: Vars,
    /// Its browser's cookies.
    pub cookies: Cookies,
    /// A server of its own, where it needs one.
    pub own: Option<Arc<(Server, Target)>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Scene {
    /// What every case has.
    pub fn new(world: &World) -> Self {
        Self { vars: world.target.vars(), cookies: Cookies::new(), own: None, guard: None }
    }

    /// Keeps those tokens of a token endpoint's answer that there are.
    fn set_tokens(&mut self, tokens: &Value) {
        for (name, member) in
            [("token", "access_token"), ("id_token", "id_token"), ("refresh_token", "refresh_token")]
        {
            if let Some(value) = tokens[member].as_str() {
                self.vars.set(name, value);
            }
        }
    }

    fn set_code(&mut self, code: Code) {
        self.vars.set("code", code.code);
        self.vars.set("redirect_uri", code.redirect_uri);
        // Also where there is no challenge: somebody may send a verifier nevertheless.
        self.vars.set("verifier", code.verifier.unwrap_or_else(random));
    }
}

/// What is made once for a run.
#[derive(Default)]
pub struct Shared {
    session: OnceCell<Cookies>,
    token: OnceCell<Value>,
    openid: OnceCell<Value>,
    notes: OnceCell<Value>,
    implicit: OnceCell<Value>,
    export: OnceCell<Value>,
    admin: OnceCell<String>,
    writing: OnceCell<String>,
    system: Mutex<Option<(Instant, String)>>,
    /// A server that has loaded releases. It is not the one that the other rows ask: some of them want their systems
    /// to be unknown.
    releases: OnceCell<Arc<(Server, Target)>>,
    /// A server that speaks version 3.0.0 of the guide and reads Groups within Groups.
    guide_3: OnceCell<Arc<(Server, Target)>>,
    /// A server whose files are reached by signed addresses.
    signed_addresses: OnceCell<Arc<(Server, Target)>>,
    /// Held by whoever signs the lone user out everywhere.
    lone: Arc<Mutex<()>>,
}

/// Makes a state: sets variables and cookies of the scene.
///
/// # Errors
/// [`Trouble`]: the target lacks what is needed, or did something else than it should.
pub async fn make(world: &World, name: &str, scene: &mut Scene) -> Result<(), Trouble> {
    let (shared, target) = (&world.shared, &world.target);
    match name {
        "demo-data" => demo_data(target)?,
        "providers" => scene.vars.set("providers", world.local()?.providers.vars()),
        "browser-at-sign-in" => at_sign_in(target, scene).await?,
        "signed-in" => scene.cookies = first_session(world).await?,
        "signed-in-anew" => scene.cookies = session(target, "users.1").await?,
        "lone-user" => lone_user(world, scene).await?,
        "code" => scene.set_code(code(world, &scene.vars, "public", true).await?),
        "plain-code" => scene.set_code(code(world, &scene.vars, "public", false).await?),
        "confidential-code" => scene.set_code(code(world, &scene.vars, "confidential", false).await?),
        "token" => scene.set_tokens(shared.token.get_or_try_init(|| tokens(world, name)).await?),
        "openid-token" => scene.set_tokens(shared.openid.get_or_try_init(|| tokens(world, name)).await?),
        "notes-token" => scene.set_tokens(shared.notes.get_or_try_init(|| tokens(world, name)).await?),
        "implicit-token" => scene.set_tokens(shared.implicit.get_or_try_init(|| implicit(world)).await?),
        "fresh-token" => scene.set_tokens(&tokens(world, name).await?),
        "refresh-token" => {
            let code = code(world, &scene.vars, "confidential", false).await?;
            scene.set_tokens(&client::redeem(target, "confidential", &code).await?);
        }
        "dpop-key" => dpop_key(scene)?,
        "dpop-token" => dpop_token(world, scene).await?,
        "fresh-user" => fresh_user(world, scene, &[]).await?,
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
            scene.set_tokens(&client::redeem(target, "retrying", &code).await?);
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
            scene.set_code(client::code(target, &mut cookies, &person, "declared.admin", true, &more).await?);
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
        "assertions" => scene.vars.set("assertion", client::assertions(target)?),
        "system-token" => scene.vars.set("system_token", system_token(world).await?),
        "writing-client" => {
            scene.vars.set("basic_client", basic_client(world, "system/*.cruds", &[]).await?);
        }
        "writing-token" => {
            let made = shared.writing.get_or_try_init(|| writing_token(world)).await?;
            scene.vars.set("writing_token", made.as_str());
        }
        "narrow-token" => {
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
        "disabled-user" => removed_user(world, scene, "disable").await?,
        "deleted-user" => removed_user(world, scene, "delete").await?,
        // Codes live 300 s and tokens 3600 s; half a minute is left for the way there.
        "aged-code" => aged(world, scene, 270).await?,
        "aged-session" => aged(world, scene, 60).await?,
        "expired-code" => aged(world, scene, 301).await?,
        "lasting-token" => aged(world, scene, 3570).await?,
        "expired-token" => aged(world, scene, 3601).await?,
        "device-code" => device_code(&world.target, scene).await?,
        "expired-device-code" => aged(world, scene, 601).await?,
        _ => return Err(Trouble::Failed("nobody can make this".to_owned())),
    }
    Ok(())
}

fn demo_data(target: &Target) -> Result<(), Trouble> {
    if json!(target.profile).to_string().contains("https://trefoil.example/fhir/CodeSystem/care-aids") {
        return Ok(());
    }
    Err(Trouble::Lacking("the target does not hold the demo project".to_owned()))
}

/// Cookies of a browser that a user has signed in with.
async fn session(target: &Target, user: &str) -> Result<Cookies, Trouble> {
    let mut cookies = Cookies::new();
    client::code(target, &mut cookies, &person(&target.vars(), user)?, "public", true, &[]).await?;
    Ok(cookies)
}

/// Those of the first user, made once.
async fn first_session(world: &World) -> Result<Cookies, Trouble> {
    let made = world.shared.session.get_or_try_init(|| session(&world.target, "user"));
    Ok(made.await?.clone())
}

/// A browser that stands at the sign-in page: the inputs of its form, `$csrf` and `$continue` among
/// them.
async fn at_sign_in(target: &Target, scene: &mut Scene) -> Result<(), Trouble> {
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
    let sent = browser::get(address(&format!("{}/oauth2/authorize?{query}", target.base_url))?);
    let answer = target.send(&sent, &mut scene.cookies).await?;
    let to = answer.location().ok_or_else(|| unexpected("the authorize endpoint", &answer))?;
    let answer = target.send(&browser::get(to), &mut scene.cookies).await?;
    for input in page::inputs(&answer.text()) {
        scene.vars.set(input.name, input.value);
    }
    Ok(())
}

/// A code of the first user, for the scene's `$nonce`.
async fn code(world: &World, vars: &Vars, client: &str, with_pkce: bool) -> Result<Code, Trouble> {
    let mut cookies = first_session(world).await?;
    let more = [("scope", "openid email"), ("nonce", vars.text("nonce")?)];
    client::code(&world.target, &mut cookies, &person(vars, "user")?, client, with_pkce, &more).await
}

/// Tokens of the first user by the code flow of the public client.
async fn tokens(world: &World, kind: &str) -> Result<Value, Trouble> {
    let vars = world.target.vars();
    let words = |path: &str| -> Vec<&str> {
        let list = vars.get(path).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let custom = words("public.custom_scopes");
    let scope = match kind {
        "openid-token" => "openid".to_owned(),
        "notes-token" => custom.first().copied().unwrap_or_default().to_owned(),
        _ => [words("public.scopes"), custom].concat().join(" "),
    };
    let mut cookies = first_session(world).await?;
    client::tokens(&world.target, &mut cookies, &person(&vars, "user")?, &scope).await
}

/// Tokens of the first user by the token flow.
async fn implicit(world: &World) -> Result<Value, Trouble> {
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

/// A token of the first back-end client with all its scopes, the same for some time.
async fn system_token(world: &World) -> Result<String, Trouble> {
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

/// A finished export of the first Group: `$bulk.status_url`, `$bulk.request`, `$bulk.manifest`.
async fn export(world: &World) -> Result<Value, Trouble> {
    let vars = world.target.vars();
    let group = member(&vars, "groups.0")?;
    let request = format!("{}/Group/{group}/$export?_outputFormat=ndjson", world.target.fhir_base);
    let token = system_token(world).await?;
    let (status_url, answer) = client::export(&world.target, &token, &request).await?;
    match (answer.status.as_u16(), answer.json()) {
        (200, Some(manifest)) => {
            Ok(json!({ "request": request, "status_url": status_url, "manifest": manifest }))
        }
        _ => Err(unexpected("the status URL", &answer)),
    }
}

fn not_started(error: anyhow::Error) -> Trouble {
    Trouble::Failed(format!("{error:#}"))
}

/// An export of a server of the case's own, whose folder for export files cannot be written.
async fn failed_export(world: &World, scene: &mut Scene) -> Result<(), Trouble> {
    world.local()?;
    let server = Server::start("").await.map_err(not_started)?;
    server.block_exports().map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let token = backend_token(&target, 0, None).await?;
    let request = format!("{}/$export?_type=Patient", target.fhir_base);
    let (status_url, _) = client::export(&target, &token, &request).await?;
    scene.vars = target.vars();
    scene.vars.set("bulk", json!({ "request": request, "status_url": status_url }));
    scene.vars.set("system_token", token);
    scene.own = Some(Arc::new((server, target)));
    Ok(())
}

/// A fresh session and token of the last user, who can be signed out everywhere: nobody else uses
/// them while the case runs.
async fn lone_user(world: &World, scene: &mut Scene) -> Result<(), Trouble> {
    scene.guard = Some(world.shared.lone.clone().lock_owned().await);
    let person = person(&scene.vars, "users.2")?;
    let tokens = client::tokens(&world.target, &mut scene.cookies, &person, "openid profile").await?;
    scene.set_tokens(&tokens);
    Ok(())
}

/// A key for DPoP proofs: `$dpop_key`, and `$jkt`, its thumbprint.
fn dpop_key(scene: &mut Scene) -> Result<(), Trouble> {
    let key = jose::fresh_key("case").map_err(|error| Trouble::Failed(error.to_string()))?;
    scene.vars.set("jkt", dpop::thumbprint(&key));
    scene.vars.set(dpop::KEY, key);
    Ok(())
}

/// Tokens of the first user that are bound to the case's key.
async fn dpop_token(world: &World, scene: &mut Scene) -> Result<(), Trouble> {
    dpop_key(scene)?;
    let target = &world.target;
    let mut cookies = first_session(world).await?;
    let person = person(&scene.vars, "user")?;
    let scope = [("scope", "openid email offline_access user/ValueSet.rs user/CodeSystem.rs")];
    let code = client::code(target, &mut cookies, &person, "bound", true, &scope).await?;
    let mut sent = browser::post(
        address(&format!("{}/oauth2/token", target.base_url))?,
        &[
            ("grant_type", "authorization_code"),
            ("client_id", member(&scene.vars, "bound.client_id")?),
            ("code", &code.code),
            ("redirect_uri", &code.redirect_uri),
            ("code_verifier", code.verifier.as_deref().unwrap_or_default()),
        ],
    );
    let proof = dpop::headers(&Proof::default(), &sent.method, &sent.url, &scene.vars);
    for (name, value) in proof.map_err(Trouble::Failed)? {
        sent.headers.append(name, value.parse().map_err(|_| Trouble::Failed("a bad proof".to_owned()))?);
    }
    let answer = target.send(&sent, &mut Cookies::new()).await?;
    match (answer.status.as_u16(), answer.json()) {
        (200, Some(tokens)) => scene.set_tokens(&tokens),
        _ => return Err(unexpected("the token endpoint", &answer)),
    }
    Ok(())
}

/// A user of the case's own, signed in in the scene's browser: `$fresh_user`, `$fresh_password`.
async fn fresh_user(world: &World, scene: &mut Scene, flags: &[&str]) -> Result<(), Trouble> {
    let server = &world.local()?.server;
    let name = format!("guest-{}", random().to_lowercase());
    let person = Person { username: name.clone(), password: random() };
    server.admin(&[&["user", "add", &name], flags].concat(), &person.password).await?;
    client::code(&world.target, &mut scene.cookies, &person, "public", true, &[]).await?;
    scene.vars.set("fresh_user", name);
    scene.vars.set("fresh_password", person.password);
    Ok(())
}

/// A user of the case's own with a token; gives the name.
async fn own_user(world: &World, scene: &mut Scene) -> Result<String, Trouble> {
    let name = format!("short-stay-{}", Timestamp::now().as_nanosecond());
    let person = Person { username: name.clone(), password: random() };
    world.local()?.server.admin(&["user", "add", &name], &person.password).await?;
    let tokens = client::tokens(&world.target, &mut Cookies::new(), &person, "openid").await?;
    scene.set_tokens(&tokens);
    Ok(name)
}

/// A user of the case's own who got a token and was then disabled or deleted.
async fn removed_user(world: &World, scene: &mut Scene, how: &str) -> Result<(), Trouble> {
    let name = own_user(world, scene).await?;
    world.local()?.server.admin(&["user", how, &name], "").await.map(drop)
}

/// A client of the case's own that authenticates with its secret in the header and in no other way.
async fn basic_client(world: &World, scope: &str, more: &[&str]) -> Result<Value, Trouble> {
    let id = format!("basic-{}", Timestamp::now().as_nanosecond());
    let add = ["client", "add", &id, "--auth-method", "client_secret_basic", "--scope", scope];
    let said = world.local()?.server.admin(&[&add, more].concat(), "").await?;
    let secret = said.lines().find_map(|line| line.strip_prefix("client_secret "));
    let secret = secret.ok_or_else(|| Trouble::Failed("the command told no secret".to_owned()))?;
    // RFC 6749 2.3.1: each half is form-encoded, and any character may be.
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

/// A token of a back-end client for the admin API.
async fn admin_token(world: &World) -> Result<String, Trouble> {
    let client = basic_client(world, "trefoil/admin", &[]).await?;
    let form = [("grant_type", "client_credentials"), ("scope", "trefoil/admin")];
    let tokens = client::token_request(&world.target, &form, client["basic"].as_str()).await?;
    let token = tokens["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| Trouble::Failed("the token endpoint gave no access token".to_owned()))
}

/// A token of a back-end client that may read and write every type.
async fn writing_token(world: &World) -> Result<String, Trouble> {
    let client = basic_client(world, "system/*.cruds", &[]).await?;
    let form = [("grant_type", "client_credentials"), ("scope", "system/*.cruds")];
    let tokens = client::token_request(&world.target, &form, client["basic"].as_str()).await?;
    let token = tokens["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| Trouble::Failed("the token endpoint gave no access token".to_owned()))
}

/// A token of the administrator among the users, by the declared application for administration.
async fn administrator(world: &World, scene: &mut Scene) -> Result<(), Trouble> {
    world.local()?;
    scene.guard = Some(world.shared.lone.clone().lock_owned().await);
    let (target, person) = (&world.target, person(&scene.vars, "users.2")?);
    let more = [("scope", "openid trefoil/admin")];
    let code = client::code(target, &mut Cookies::new(), &person, "declared.admin", true, &more).await?;
    scene.set_tokens(&client::redeem(target, "declared.admin", &code).await?);
    Ok(())
}

/// A code for each declared application: `$codes.es256.code`, `$codes.es256.verifier` and so on.
async fn declared_codes(world: &World, scene: &mut Scene) -> Result<(), Trouble> {
    world.local()?;
    let (target, person) = (&world.target, person(&scene.vars, "user")?);
    let mut codes = Map::new();
    for name in ["es256", "es384", "eddsa"] {
        let mut cookies = first_session(world).await?;
        let (client, more) = (format!("declared.{name}"), [("scope", "openid")]);
        let code = client::code(target, &mut cookies, &person, &client, true, &more).await?;
        codes.insert(name.to_owned(), json!({ "code": code.code, "verifier": code.verifier }));
    }
    scene.vars.set("codes", codes);
    Ok(())
}

/// A server where everybody may ask, with the releases of `fixtures/releases`.
async fn releases(world: &World) -> Result<Arc<(Server, Target)>, Trouble> {
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/releases");
    world.local()?;
    if !Path::new(FOLDER).is_dir() {
        return Err(Trouble::Lacking("fixtures/releases is not there".to_owned()));
    }
    let server = Server::start("[terminology]\nanonymous = true\n").await.map_err(not_started)?;
    server.admin(&["import", FOLDER], "").await?;
    let target = server.target().await.map_err(not_started)?;
    Ok(Arc::new((server, target)))
}

/// A server with settings of its own.
async fn configured(world: &World, config: &str) -> Result<Arc<(Server, Target)>, Trouble> {
    world.local()?;
    let server = Server::start(config).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    Ok(Arc::new((server, target)))
}

/// Makes such a server the one that is asked, by `$system_token` and by `$narrow_token`.
async fn ask_of(server: Arc<(Server, Target)>, scene: &mut Scene) -> Result<(), Trouble> {
    scene.vars = server.1.vars();
    scene.vars.set("system_token", backend_token(&server.1, 0, None).await?);
    scene.vars.set("narrow_token", backend_token(&server.1, 0, Some("system/Patient.rs")).await?);
    scene.own = Some(server);
    Ok(())
}

/// A server of the case's own that gave a token, turned its keys and was started again: `$kids.retired`
/// signed the token, `$kids.next` will sign.
async fn turned_keys(world: &World, scene: &mut Scene) -> Result<(), Trouble> {
    world.local()?;
    let server = Server::start("").await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let person = person(&target.vars(), "user")?;
    let tokens = client::tokens(&target, &mut Cookies::new(), &person, "openid").await?;
    let kid = async |stage: &str| -> Result<String, Trouble> {
        let listed = server.admin(&["keys", "list"], "").await?;
        let line = listed.lines().find(|line| line.contains("access-token") && line.contains(stage));
        let kid = line.and_then(|line| line.split_whitespace().next()).map(str::to_owned);
        kid.ok_or_else(|| Trouble::Failed(format!("no key for access tokens is {stage}")))
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

/// A code and a token that were issued some time ago: by a server of the case's own, which was
/// started again with its clock moved.
async fn aged(world: &World, scene: &mut Scene, age_s: i64) -> Result<(), Trouble> {
    world.local()?;
    let server = Server::start("").await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    let mut cookies = Cookies::new();
    let person = person(&target.vars(), "user")?;
    let code = client::code(&target, &mut cookies, &person, "public", true, &[("scope", "openid")]).await?;
    let tokens = client::tokens(&target, &mut cookies, &person, "openid").await?;
    device_code(&target, scene).await?;
    let device_code = scene.vars.text("device_code")?.to_owned();
    let server = server.restart(age_s).await.map_err(not_started)?;
    let target = server.target().await.map_err(not_started)?;
    scene.vars = target.vars();
    scene.cookies = cookies;
    scene.set_code(code);
    scene.set_tokens(&tokens);
    scene.vars.set("device_code", device_code);
    scene.own = Some(Arc::new((server, target)));
    Ok(())
}

/// A device that shows its code: `$device_code`, `$user_code`.
async fn device_code(target: &Target, scene: &mut Scene) -> Result<(), Trouble> {
    let vars = target.vars();
    let form = [("client_id", member(&vars, "device.client_id")?), ("scope", "openid email")];
    let sent = browser::post(address(&format!("{}/oauth2/device_authorization", target.base_url))?, &form);
    let answer = target.send(&sent, &mut Cookies::new()).await?;
    let Some(begun) = answer.json().filter(|_| answer.status.is_success()) else {
        return Err(unexpected("the device authorization endpoint", &answer));
    };
    for name in ["device_code", "user_code"] {
        scene.vars.set(name, begun[name].clone());
    }
    Ok(())
}
