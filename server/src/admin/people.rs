//! Users, clients and keys from the command line.

use anyhow::{Context as _, Result, bail};
use identity::client::{AuthMethod, Client, GrantType, ResponseType};
use identity::password;
use identity::redirect_uri::RegisteredRedirectUri;
use identity::scope::Scopes;
use identity::user::{Claims, User};
use serde::de::DeserializeOwned;

use super::{Event, Events, Services};
use crate::cli::{ClientCommand, KeysCommand, NewClient, NewUser, UserCommand};

/// `trefoil user …`
///
/// # Errors
/// What to change.
pub async fn user(services: &Services<'_>, command: UserCommand, events: Events<'_>) -> Result<()> {
    let (identity, now) = (services.identity, services.clock.now());
    let said = match command {
        UserCommand::Add(new) => {
            let user = identity.add_user(new_user(services, new)?, now).await?;
            format!("added user {} (sub {})", user.username, user.sub)
        }
        UserCommand::List => {
            for user in identity.users(now).await? {
                let mut marks = Vec::new();
                marks.extend(user.disabled.then_some("disabled"));
                marks.extend(user.administrator.then_some("administrator"));
                marks.extend(user.demo.then_some("demo"));
                let marks =
                    if marks.is_empty() { String::new() } else { format!("  [{}]", marks.join(", ")) };
                let name = user.claims.name.unwrap_or_default();
                events(Event::Line(format!("{}  {}  {name}{marks}", user.username, user.sub)));
            }
            return Ok(());
        }
        UserCommand::SetPassword { name, password } => {
            let phc = password::hash(&password, &*services.clock.random)?;
            // Who knew the old password may hold sessions and tokens: they end with it.
            let change = |user: &mut User| (user.password, user.epoch) = (Some(phc.clone()), user.epoch + 1);
            identity.change_user(&name, now, change).await?;
            format!("set the password of {name}; all sessions and tokens have ended")
        }
        UserCommand::Disable { name } => {
            // What was issued before does not come back with `enable`.
            identity
                .change_user(&name, now, |user| (user.disabled, user.epoch) = (true, user.epoch + 1))
                .await?;
            format!("disabled {name}; all sessions and tokens have ended")
        }
        UserCommand::Enable { name } => {
            identity.change_user(&name, now, |user| user.disabled = false).await?;
            format!("enabled {name}")
        }
        UserCommand::Delete { name } => {
            identity.delete_user(&name, now).await?;
            format!("deleted {name}")
        }
        UserCommand::SignOut { name } => {
            identity.sign_out_everywhere(&name, now).await?;
            format!("signed {name} out everywhere")
        }
    };
    events(Event::Line(said));
    Ok(())
}

fn new_user(services: &Services<'_>, new: NewUser) -> Result<User> {
    let password = password::hash(&new.password, &*services.clock.random)?;
    Ok(User {
        sub: String::new(),
        claims: Claims {
            name: new.name,
            given_name: new.given_name,
            family_name: new.family_name,
            preferred_username: Some(new.username.clone()),
            email: new.email,
            email_verified: None,
            phone_number: new.phone_number,
            phone_number_verified: None,
        },
        username: new.username,
        allowed_scopes: Scopes::parse(&new.allowed_scopes)?,
        fhir_user: new.fhir_user,
        administrator: new.administrator,
        password: Some(password),
        disabled: false,
        epoch: 0,
        demo: false,
    })
}

/// `trefoil client …`
///
/// # Errors
/// What to change.
pub async fn client(services: &Services<'_>, command: ClientCommand, events: Events<'_>) -> Result<()> {
    let (identity, now) = (services.identity, services.clock.now());
    let unknown = |id: &str| format!("there is no client '{id}'; `trefoil client list` shows all");
    match command {
        ClientCommand::Add(new) => {
            let mut client = new_client(new)?;
            let secret = needs_secret(&client).then(|| services.clock.random.secret());
            client.secret_digests = secret.iter().map(|secret| Client::secret_digest(secret)).collect();
            identity.add_client(&client, now).await?;
            events(Event::Line(format!("added client {}", client.client_id)));
            if let Some(secret) = secret {
                events(Event::Line(format!("client_secret {secret}")));
                events(Event::Line(
                    "keep it now: it is stored as a digest and cannot be shown again".to_owned(),
                ));
            }
        }
        ClientCommand::List => {
            for client in identity.clients(now).await? {
                let demo = if client.demo { "  [demo]" } else { "" };
                events(Event::Line(format!(
                    "{}  {}  {}{demo}",
                    client.client_id, client.name, client.scopes
                )));
            }
        }
        ClientCommand::Show { id } => {
            let client = identity.clients(now).await?.into_iter().find(|client| client.client_id == id);
            let mut shown = serde_json::to_value(client.with_context(|| unknown(&id))?)?;
            // Digests are no secrets, but nobody needs to see them.
            if let Some(shown) = shown.as_object_mut() {
                let secrets =
                    shown.remove("secret_digests").and_then(|digests| digests.as_array().map(Vec::len));
                shown.insert("secrets".to_owned(), secrets.unwrap_or_default().into());
            }
            events(Event::Line(serde_json::to_string_pretty(&shown)?));
        }
        ClientCommand::RotateSecret { id } => {
            let secret = identity.rotate_secret(&id, now).await?.with_context(|| unknown(&id))?;
            events(Event::Line(format!("client_secret {secret}")));
        }
        ClientCommand::Delete { id } => {
            if !identity.delete_client(&id, now).await? {
                bail!(unknown(&id));
            }
            events(Event::Line(format!("deleted client {id}; its tokens do not work")));
        }
    }
    Ok(())
}

fn needs_secret(client: &Client) -> bool {
    let with_secret = [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost];
    client.auth_methods.iter().any(|method| with_secret.contains(method))
}

fn new_client(new: NewClient) -> Result<Client> {
    let mut auth_methods: Vec<AuthMethod> = words(&new.auth_methods, "--auth-method")?;
    if auth_methods.is_empty() {
        auth_methods.push(if new.jwks_text.is_some() { AuthMethod::PrivateKeyJwt } else { AuthMethod::None });
    }
    let public = auth_methods == [AuthMethod::None];
    if new.pkce_optional && public {
        bail!("a public client must use PKCE; leave --pkce-optional out");
    }
    let mut response_types: Vec<ResponseType> = words(&new.response_types, "--response-type")?;
    if response_types.is_empty() && !new.redirect_uris.is_empty() {
        response_types.push(ResponseType::Code);
    }
    let mut grant_types: Vec<GrantType> = words(&new.grant_types, "--grant-type")?;
    if grant_types.is_empty() {
        if response_types.contains(&ResponseType::Code) {
            grant_types.extend([GrantType::AuthorizationCode, GrantType::RefreshToken]);
        } else if !public {
            grant_types.push(GrantType::ClientCredentials);
        }
    }
    let register = |uris: &[String]| {
        uris.iter().map(|uri| RegisteredRedirectUri::parse(uri, new.native)).collect::<Result<Vec<_>, _>>()
    };
    let jwks = match &new.jwks_text {
        None => Vec::new(),
        Some(text) => {
            let set: serde_json::Value = serde_json::from_str(text).context("the JWK Set is not JSON")?;
            set["keys"].as_array().cloned().context("the JWK Set has no member 'keys'")?
        }
    };
    Ok(Client {
        name: new.name.clone().unwrap_or_else(|| new.id.clone()),
        redirect_uris: register(&new.redirect_uris)?,
        post_logout_redirect_uris: register(&new.post_logout_redirect_uris)?,
        response_types,
        grant_types,
        auth_methods,
        jwks,
        scopes: Scopes::parse(&new.scope)?,
        pkce_required: !new.pkce_optional,
        native: new.native,
        groups: (!new.groups.is_empty()).then_some(new.groups),
        ..Client::new(new.id)
    })
}

/// Reads the words of an enum as the standards spell them.
fn words<T: DeserializeOwned>(texts: &[String], flag: &str) -> Result<Vec<T>> {
    texts
        .iter()
        .map(|text| {
            let word = serde_json::from_value(serde_json::Value::from(text.as_str()));
            word.with_context(|| format!("{flag} '{text}' is not known"))
        })
        .collect()
}

/// `trefoil keys …`
///
/// # Errors
/// What to change.
pub async fn keys(services: &Services<'_>, command: KeysCommand, events: Events<'_>) -> Result<()> {
    let (identity, now) = (services.identity, services.clock.now());
    match command {
        KeysCommand::List => {
            for key in identity.list_keys(now).await? {
                let (purpose, stage) = (serde_json::to_value(key.purpose)?, serde_json::to_value(key.stage)?);
                let gone = key
                    .gone_at
                    .map(|at| format!(", gone at {}", fhir::instant::format(at)))
                    .unwrap_or_default();
                events(Event::Line(format!(
                    "{}  {}  {}  made {}{gone}",
                    key.kid,
                    purpose.as_str().unwrap_or_default(),
                    stage.as_str().unwrap_or_default(),
                    fhir::instant::format(key.created),
                )));
            }
        }
        KeysCommand::Rotate => {
            identity.rotate_keys(now).await?;
            events(Event::Line(
                "rotated: the next keys sign from now, the old ones are published for an hour".to_owned(),
            ));
        }
        KeysCommand::Revoke { kid } => {
            if !identity.revoke_key(&kid, now).await? {
                bail!("there is no key '{kid}'; `trefoil keys list` shows all");
            }
            events(Event::Line(format!("revoked {kid}: what it signed is worth nothing")));
        }
    }
    Ok(())
}
