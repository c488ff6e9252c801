//! The demo project: planted once in a folder by `serve --demo`, usable only while serving so.
//!
//! Passwords, secrets and keys are made at random for each folder. They stand in `DIR/demo.json`
//! (readable by the owner alone) and nowhere else.

use anyhow::{Context as _, Result};
use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use identity::client::{Client, ResponseType};
use identity::password;
use identity::redirect_uri::RegisteredRedirectUri;
use identity::scope::Scopes;
use identity::user::{Claims, User, UserError};
use resources::Resources;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::{Expect, Ledger as _, LedgerWrite};
use trefoil_fixtures as fixtures;

use crate::app::App;
use crate::clock::resource_id;
use crate::tls::write_private;

/// Says in the ledger that the project was planted, whole.
const PLANTED: &str = "demo/planted";

/// Adds the demo project unless it was added before.
///
/// # Errors
/// The store's; a user or client of the same name that is not of the demo.
pub async fn plant(app: &App) -> Result<()> {
    let path = app.data.join("demo.json");
    let now = app.clock.now();
    if path.exists() && app.store.get(PLANTED, now).await?.is_some() {
        return Ok(());
    }
    // A plant that was cut off, or a file that was lost: its secrets cannot be shown again, so all
    // are made anew.
    uproot(app).await?;
    let project = fixtures::project();
    let mut users = Vec::new();
    for user in &project.users {
        users.push(plant_user(app, user).await?);
    }
    let clients = plant_clients(app, &project.clients).await?;
    plant_resources(app, &project).await?;
    let mut demo = json!({
        "user": users[0],
        "users": users,
        "groups": project.groups.iter().map(|group| &group.id).collect::<Vec<_>>(),
        "value_sets": terminology(&project.value_sets),
        "code_systems": terminology(&project.code_systems),
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
    write_private(&path, &serde_json::to_string_pretty(&demo)?).context("failed to write demo.json")?;
    let write = LedgerWrite::put(PLANTED, Bytes::from_static(b"true"), Expect::Any);
    app.store.write(vec![write], now).await?;
    Ok(())
}

/// All resources in one transaction.
async fn plant_resources(app: &App, project: &fixtures::Project) -> Result<()> {
    let entries: Vec<String> = project
        .resources()
        .map(|resource| {
            let (kind, id, json) = (&resource.kind, &resource.id, resource.json);
            format!(r#"{{"resource":{json},"request":{{"method":"PUT","url":"{kind}/{id}"}}}}"#)
        })
        .collect();
    let bundle =
        format!(r#"{{"resourceType":"Bundle","type":"transaction","entry":[{}]}}"#, entries.join(","));
    // The operator's limits are for what comes from outside.
    let resources = Resources::at(app.store.clone(), &app.fhir_base);
    let plan = resources.plan(bundle.as_bytes(), || resource_id(&*app.clock.random), app.clock.now())?;
    resources.carry_out(plan, app.clock.now()).await?;
    app.follow().await?;
    Ok(())
}

async fn uproot(app: &App) -> Result<()> {
    let now = app.clock.now();
    for user in app.identity.users(now).await?.into_iter().filter(|user| user.demo) {
        app.identity.delete_user(&user.username, now).await?;
    }
    for client in app.identity.clients(now).await?.into_iter().filter(|client| client.demo) {
        app.identity.delete_client(&client.client_id, now).await?;
    }
    Ok(())
}

fn terminology(resources: &[fixtures::Resource]) -> Vec<Value> {
    resources.iter().map(|resource| json!({ "id": resource.id, "url": resource.url })).collect()
}

async fn plant_user(app: &App, user: &fixtures::User) -> Result<Value> {
    let secret = app.clock.random.id();
    let (plain, random) = (secret.clone(), app.clock.random.clone());
    let phc = app.hashing.run(move || password::hash(&plain, &*random)).await;
    let record = User {
        sub: String::new(),
        username: user.username.clone(),
        claims: Claims {
            name: Some(user.name.clone()),
            given_name: Some(user.given_name.clone()),
            family_name: Some(user.family_name.clone()),
            preferred_username: Some(user.preferred_username.clone()),
            email: Some(user.email.clone()),
            email_verified: Some(true),
            phone_number: Some(user.phone_number.clone()),
            phone_number_verified: Some(true),
        },
        email_verified_by: None,
        allowed_scopes: user.allowed_scopes.iter().map(String::as_str).collect(),
        fhir_user: user.fhir_user.clone(),
        administrator: user.administrator,
        password: Some(phc),
        disabled: false,
        epoch: 0,
        demo: true,
    };
    let record = match app.identity.add_user(record, app.clock.now()).await {
        Ok(record) => record,
        Err(UserError::Exists(name)) => {
            anyhow::bail!(
                "a user '{name}' who is not of the demo stands in its way; delete or choose another --data"
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

async fn plant_clients(app: &App, clients: &fixtures::Clients) -> Result<Vec<(&'static str, Value)>> {
    let mut planted = Vec::new();
    for (name, client) in clients.named() {
        planted.push((name, plant_client(app, client).await?));
    }
    let mut backends = Vec::new();
    for client in &clients.backend {
        backends.push(plant_client(app, client).await?);
    }
    planted.push(("backend", backends.into()));
    Ok(planted)
}

async fn plant_client(app: &App, client: &fixtures::Client) -> Result<Value> {
    let mut shown = json!({
        "client_id": client.client_id,
        "redirect_uris": client.redirect_uris,
        "scopes": client.scopes,
        "custom_scopes": client.custom_scopes,
        "auth_methods": client.auth_methods,
        "pkce_required": client.pkce_required,
    });
    let has_secret = client.auth_methods.iter().any(|method| method.starts_with("client_secret"));
    let secret = has_secret.then(|| app.clock.random.secret());
    if let Some(secret) = &secret {
        shown["client_secret"] = secret.as_str().into();
    }
    let mut jwks = Vec::new();
    if let Some(alg) = &client.alg {
        let private = if alg == "ES384" { ec_key(&client.client_id)? } else { rsa_key(&client.client_id)? };
        jwks.push(public_half(&private));
        shown["alg"] = alg.as_str().into();
        shown["jwk"] = private;
        // A backend has no reserved scopes: all that it may ask for is one list.
        shown["scopes"] = json!(client.scopes.iter().chain(&client.custom_scopes).collect::<Vec<_>>());
    }
    let response_types: Vec<ResponseType> = words(&client.response_types);
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
        // "implicit" is no grant of the token endpoint.
        grant_types: words(&client.grant_types),
        auth_methods: words(&client.auth_methods),
        secret_digests: secret.iter().map(|secret| Client::secret_digest(secret)).collect(),
        jwks,
        scopes: client.scopes.iter().chain(&client.custom_scopes).map(String::as_str).collect::<Scopes>(),
        pkce_required: client.pkce_required,
        native: client.native,
        always_refresh: has_secret,
        consent: client.consent,
        require_par: client.require_par,
        dpop_bound: client.dpop_bound,
        refresh_grace_s: client.refresh_grace_s,
        introspects: client.introspects,
        demo: true,
        ..Client::new(&client.client_id)
    };
    app.identity.add_client(&record, app.clock.now()).await?;
    Ok(shown)
}

/// The words of an enum that it knows.
fn words<T: DeserializeOwned>(texts: &[String]) -> Vec<T> {
    texts.iter().filter_map(|text| serde_json::from_value(Value::from(text.as_str())).ok()).collect()
}

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A private JWK for ES384.
fn ec_key(name: &str) -> Result<Value> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING)?;
    // An uncompressed point: 0x04, then x and y.
    let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
    let d = pair.private_key().as_be_bytes()?;
    Ok(json!({
        "kty": "EC", "crv": "P-384", "alg": "ES384", "use": "sig", "kid": format!("{name}-1"),
        "key_ops": ["sign"], "x": b64(x), "y": b64(y), "d": b64(d.as_ref()),
    }))
}

/// A private JWK for RS384.
fn rsa_key(name: &str) -> Result<Value> {
    use aws_lc_rs::encoding::AsDer as _;
    let pkcs8 = RsaKeyPair::generate(KeySize::Rsa2048)?.as_der()?;
    let numbers = rsa_numbers(pkcs8.as_ref()).context("a fresh RSA key has the standard encoding")?;
    let mut jwk = json!({
        "kty": "RSA", "alg": "RS384", "use": "sig", "kid": format!("{name}-1"), "key_ops": ["sign"],
    });
    for (member, number) in ["n", "e", "d", "p", "q", "dp", "dq", "qi"].into_iter().zip(numbers) {
        jwk[member] = b64(number).into();
    }
    Ok(jwk)
}

/// The integers of a PKCS#8 RSA key in their order: n, e, d, p, q, dp, dq, qi (RFC 8017 A.1.2).
fn rsa_numbers(pkcs8: &[u8]) -> Option<Vec<&[u8]>> {
    let outer = der(&mut { pkcs8 }, 0x30)?;
    let mut rest = outer;
    der(&mut rest, 0x02)?; // version
    der(&mut rest, 0x30)?; // algorithm
    let mut key = der(&mut { der(&mut rest, 0x04)? }, 0x30)?;
    der(&mut key, 0x02)?; // version
    (0..8)
        .map(|_| {
            let number = der(&mut key, 0x02)?;
            Some(number.strip_prefix(&[0]).unwrap_or(number))
        })
        .collect()
}

/// Takes one DER value of this tag off the front.
fn der<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&[found, first], rest) = input.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    let (value, rest) = rest.split_at_checked(length)?;
    *input = rest;
    (found == tag).then_some(value)
}

/// A JWK without its private members.
fn public_half(jwk: &Value) -> Value {
    let public = ["kty", "crv", "alg", "use", "kid", "x", "y", "n", "e"];
    let members = jwk.as_object().into_iter().flatten().filter(|(name, _)| public.contains(&name.as_str()));
    Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
}
