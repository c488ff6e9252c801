//! The demo project: added once to a data folder by `serve --demo`, and usable only while the server runs
//! with `--demo`.
//!
//! Passwords, secrets and keys are generated for each folder and stored only in `DIR/demo.json`, which only
//! its owner can read. [`guide`] is what a person reads first.

pub mod guide;

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use identity::directory::user_directory::{AccountsOfDeleted, UserError};
use identity::model::client::{Client, ResponseType};
use identity::model::redirect_uri::RegisteredRedirectUri;
use identity::model::scope::Scopes;
use identity::model::user::{StandardClaims, User};
use identity::sign_in::password;
use jiff::SignedDuration;
use resources::Resources;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::{Expect, Ledger as _, LedgerWrite, StoreError};
use trefoil_fixtures as fixtures;

use crate::administration::client_keys::{KeyAlgorithm, generate_key, public_members};
use crate::clock::resource_id;
use crate::node::app::App;
use crate::node::development_certificate::write_private;

/// Ledger key that marks a store to which the whole project was added. In a shared store, its value is
/// `demo.json`.
const SEEDED_KEY: &str = "demo/seeded";
/// Ledger key that is present while a node adds the project to a shared store, and the time that this may
/// take.
const SEEDING_KEY: &str = "demo/seeding";
const SEEDING_TIME: SignedDuration = SignedDuration::from_secs(60);

/// Adds the demo project unless it was added before.
///
/// # Errors
/// An error if the store fails, or if a user or client of the same name exists that does not belong to the
/// demo.
pub async fn seed_demo(app: &App) -> Result<()> {
    let path = app.config.data.join("demo.json");
    let now = app.clock.now();
    if let Some(demo) = seeded_by_any_node(app).await? {
        if !path.exists() {
            write_private(&path, &demo).context("failed to write demo.json")?;
        }
        return Ok(());
    }
    if path.exists() && !app.store.is_shared() && app.store.get(SEEDED_KEY, now).await?.is_some() {
        return Ok(());
    }
    // The project was added only in part, or `demo.json` was lost. Its secrets cannot be shown again, so
    // everything is generated again.
    remove_seed(app).await?;
    let project = fixtures::project();
    let mut users = Vec::new();
    for user in &project.users {
        users.push(seed_user(app, user).await?);
    }
    let clients = seed_clients(app, &project.clients).await?;
    seed_resources(app, &project).await?;
    let mut demo = json!({
        "user": users[0],
        "users": users,
        "groups": project.groups.iter().map(|group| &group.id).collect::<Vec<_>>(),
        "value_sets": list_resources(&project.value_sets),
        "code_systems": list_resources(&project.code_systems),
        "members": project.expected.members.iter().map(|fact| json!({
            "value_set": fact.value_set, "system": fact.system, "code": fact.code,
            "member": fact.member, "display": fact.display,
        })).collect::<Vec<_>>(),
        "subsumptions": project.expected.subsumptions.iter().map(|fact| json!({
            "system": fact.system, "codeA": fact.code_a, "codeB": fact.code_b, "outcome": fact.outcome,
        })).collect::<Vec<_>>(),
    });
    for (name, client) in clients {
        demo[name] = client;
    }
    let demo = serde_json::to_string_pretty(&demo)?;
    write_private(&path, &demo).context("failed to write demo.json")?;
    let value = if app.store.is_shared() { Bytes::from(demo) } else { Bytes::from_static(b"true") };
    app.store.write(vec![LedgerWrite::put(SEEDED_KEY, value, Expect::Any)], now).await?;
    Ok(())
}

/// The content of `demo.json` if another node has added the project to a shared store. If no node has, claims
/// the work for this node; if another one is at it, waits for it.
async fn seeded_by_any_node(app: &App) -> Result<Option<String>> {
    while app.store.is_shared() {
        let now = app.clock.now();
        if let Some(seeded) = app.store.get(SEEDED_KEY, now).await? {
            return Ok(Some(String::from_utf8(seeded.value.to_vec())?));
        }
        let claim = LedgerWrite::put(SEEDING_KEY, "", Expect::Absent).expiring(now + SEEDING_TIME);
        match app.store.write(vec![claim], now).await {
            Ok(_) => break,
            Err(StoreError::Conflict { .. }) => tokio::time::sleep(Duration::from_millis(200)).await,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Stores all resources in one transaction.
async fn seed_resources(app: &App, project: &fixtures::DemoProject) -> Result<()> {
    let entries: Vec<String> = project
        .resources()
        .map(|resource| {
            let (kind, id, json) = (&resource.kind, &resource.id, resource.json);
            format!(r#"{{"resource":{json},"request":{{"method":"PUT","url":"{kind}/{id}"}}}}"#)
        })
        .collect();
    let bundle =
        format!(r#"{{"resourceType":"Bundle","type":"transaction","entry":[{}]}}"#, entries.join(","));
    // The configured limits apply only to requests.
    let resources = Resources::at(app.store.clone(), &app.address.fhir_base);
    let plan = resources.plan(bundle.as_bytes(), || resource_id(&*app.clock.random), app.clock.now())?;
    resources.carry_out(plan, app.clock.now()).await?;
    app.terminology_sync.apply_changes().await?;
    Ok(())
}

async fn remove_seed(app: &App) -> Result<()> {
    let now = app.clock.now();
    for user in app.identity.users.all_users(now).await?.into_iter().filter(|user| user.demo) {
        app.identity.users.delete_user(&user.username, AccountsOfDeleted::Forget, now).await?;
    }
    for client in app.identity.clients.all_clients(now).await?.into_iter().filter(|client| client.demo) {
        app.identity.clients.delete_client(&client.client_id, now).await?;
    }
    Ok(())
}

fn list_resources(resources: &[fixtures::DemoResource]) -> Vec<Value> {
    resources.iter().map(|resource| json!({ "id": resource.id, "url": resource.url })).collect()
}

async fn seed_user(app: &App, user: &fixtures::DemoUser) -> Result<Value> {
    // Each demo has its own passwords, because its port may be reachable by other users of the machine.
    let secret = app.clock.random.id();
    let (plain, random) = (secret.clone(), app.clock.random.clone());
    let phc = app.capacity.hashing.run(move || password::hash_password(&plain, &*random)).await;
    #[allow(clippy::needless_update, reason = "a new claim needs no change here")]
    let claims = StandardClaims {
        name: Some(user.name.clone()),
        given_name: Some(user.given_name.clone()),
        family_name: Some(user.family_name.clone()),
        preferred_username: Some(user.preferred_username.clone()),
        email: Some(user.email.clone()),
        email_verified: Some(true),
        phone_number: Some(user.phone_number.clone()),
        phone_number_verified: Some(true),
        ..StandardClaims::default()
    };
    let record = User {
        username: user.username.clone(),
        claims,
        allowed_scopes: user.allowed_scopes.iter().map(String::as_str).collect(),
        fhir_user: user.fhir_user.clone(),
        administrator: user.administrator,
        password: Some(phc),
        demo: true,
        ..User::default()
    };
    let record = match app.identity.users.add_user(record, app.clock.now()).await {
        Ok(record) => record,
        Err(UserError::Exists(name)) => {
            anyhow::bail!(
                "user '{name}' already exists and is not a demo user; delete it or use another --data directory"
            )
        }
        Err(error) => return Err(error.into()),
    };
    let mut claims = serde_json::to_value(&record.claims)?;
    claims["sub"] = record.sub.into();
    Ok(json!({
        "username": user.username,
        "password": secret,
        "claims": claims,
        "fhir_user": user.fhir_user,
        "administrator": user.administrator,
    }))
}

async fn seed_clients(app: &App, clients: &fixtures::DemoClients) -> Result<Vec<(&'static str, Value)>> {
    let mut seeded = Vec::new();
    for (name, client) in clients.named() {
        seeded.push((name, seed_client(app, client).await?));
    }
    let mut backends = Vec::new();
    for client in &clients.backend {
        backends.push(seed_client(app, client).await?);
    }
    seeded.push(("backend", backends.into()));
    Ok(seeded)
}

async fn seed_client(app: &App, client: &fixtures::DemoClient) -> Result<Value> {
    let mut fields = json!({
        "client_id": client.client_id,
        "redirect_uris": client.redirect_uris,
        "post_logout_redirect_uris": client.redirect_uris,
        "scopes": client.scopes,
        "custom_scopes": client.custom_scopes,
        "auth_methods": client.auth_methods,
        "pkce_required": client.pkce_required,
    });
    let has_secret = client.auth_methods.iter().any(|method| method.starts_with("client_secret"));
    let secret = has_secret.then(|| app.clock.random.secret());
    if let Some(secret) = &secret {
        fields["client_secret"] = secret.as_str().into();
    }
    let mut jwks = Vec::new();
    if let Some(alg) = &client.alg {
        let alg_of_key = if alg == "ES384" { KeyAlgorithm::Es384 } else { KeyAlgorithm::Rs384 };
        let private = generate_key(alg_of_key, &format!("{}-1", client.client_id))?;
        jwks.push(public_members(&private));
        fields["alg"] = alg.as_str().into();
        fields["jwk"] = private;
        // A backend client has no reserved scopes, so its scopes are one list.
        fields["scopes"] = json!(client.scopes.iter().chain(&client.custom_scopes).collect::<Vec<_>>());
    }
    let response_types: Vec<ResponseType> = parse_variants(&client.response_types);
    let record = Client {
        name: client.name.clone(),
        redirect_uris: client
            .redirect_uris
            .iter()
            .map(|uri| RegisteredRedirectUri::parse(uri, client.native))
            .collect::<Result<_, _>>()?,
        post_logout_redirect_uris: client
            .redirect_uris
            .iter()
            .filter_map(|uri| RegisteredRedirectUri::parse(uri, client.native).ok())
            .collect(),
        response_types,
        // "implicit" is not a grant type of the token endpoint.
        grant_types: parse_variants(&client.grant_types),
        auth_methods: parse_variants(&client.auth_methods),
        secret_digests: secret.iter().map(|secret| Client::secret_digest(secret)).collect(),
        jwks,
        scopes: client.scopes.iter().chain(&client.custom_scopes).map(String::as_str).collect::<Scopes>(),
        pkce_required: client.pkce_required,
        native: client.native,
        always_refresh: has_secret,
        consent: client.consent,
        require_pushed_authorization_requests: client.require_par,
        dpop_bound_access_tokens: client.dpop_bound,
        refresh_grace_s: client.refresh_grace_s,
        introspects: client.introspects,
        demo: true,
        ..Client::new(&client.client_id)
    };
    app.identity.clients.add_client(&record, app.clock.now()).await?;
    Ok(fields)
}

/// Parses the texts that are variants of an enum, and drops the others.
fn parse_variants<T: DeserializeOwned>(texts: &[String]) -> Vec<T> {
    texts.iter().filter_map(|text| serde_json::from_value(Value::from(text.as_str())).ok()).collect()
}
