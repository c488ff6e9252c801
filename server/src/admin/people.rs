//! Users, clients and keys from the command line.

use anyhow::{Context as _, Result, bail};
use identity::client::Client;
use identity::directory::OtherMethods;
use identity::password;
use identity::scope::Scopes;
use identity::sign_in_methods::{MethodsToRemove, SignInMethods};
use identity::user::{Claims, User, UserError};

use super::{Event, Events, Services};
use crate::cli::{ClientCommand, KeysCommand, MethodArgs, NewClient, NewUser, UserCommand};
use crate::registration::{Registration, needs_secret};

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
        UserCommand::Show { name } => {
            let user = user_named(services, &name).await?;
            let methods = identity.sign_in_methods(&user.sub, now).await?;
            for line in describe(&user, &methods) {
                events(Event::Line(line));
            }
            return Ok(());
        }
        UserCommand::SetPassword { name, keep_other_methods, password } => {
            services.passwords.check(&password, &name, &identity.issuer)?;
            let phc = password::hash(&password, &*services.clock.random);
            let user = user_named(services, &name).await?;
            let (others, said) = match keep_other_methods {
                true => (OtherMethods::Keep, "other ways to sign in were kept"),
                false => (OtherMethods::Remove, "passkeys, recovery codes and linked accounts were removed"),
            };
            // An attacker who knew the old password may hold sessions and tokens: they end with it.
            identity.reset_password(&user.sub, None, &phc, others, now).await?;
            format!("set the password of {name}; all sessions and tokens have ended, {said}")
        }
        UserCommand::RemoveMethods { name, methods } => {
            let user = user_named(services, &name).await?;
            let methods = match methods {
                MethodArgs { passkey: Some(id), .. } => MethodsToRemove::Passkey(id),
                MethodArgs { linked_account: Some(id), .. } => MethodsToRemove::LinkedAccount(id),
                MethodArgs { recovery_codes: true, .. } => MethodsToRemove::RecoveryCodes,
                MethodArgs { .. } => MethodsToRemove::All,
            };
            if !identity.remove_sign_in_methods(&user.sub, &methods, now).await? {
                bail!("{name} has no such way to sign in; `trefoil user show {name}` lists all");
            }
            format!("removed; all sessions and tokens of {name} have ended")
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

async fn user_named(services: &Services<'_>, name: &str) -> Result<User> {
    let found = services.identity.user_named(name, services.clock.now()).await?;
    Ok(found.ok_or_else(|| UserError::Unknown(name.to_owned()))?)
}

/// The lines of `trefoil user show`.
fn describe(user: &User, methods: &SignInMethods) -> Vec<String> {
    let at = fhir::instant::format;
    let yes = |it: bool| if it { "yes" } else { "no" };
    let mut lines = vec![
        format!("user            {}", user.username),
        format!("sub             {}", user.sub),
        format!("name            {}", user.claims.name.as_deref().unwrap_or("-")),
        format!("allowed scopes  {}", user.allowed_scopes),
        format!("disabled        {}", yes(user.disabled)),
        format!("administrator   {}", yes(user.administrator)),
        format!("password        {}", yes(user.password.is_some())),
    ];
    for passkey in &methods.passkeys {
        let used =
            passkey.last_used.map_or("never used".to_owned(), |used| format!("last used {}", at(used)));
        lines.push(format!(
            "passkey         {}  {}  since {}, {used}",
            passkey.id,
            passkey.name,
            at(passkey.since)
        ));
    }
    lines.push(format!("recovery codes  {}", methods.recovery_codes));
    for link in &methods.linked_accounts {
        lines.push(format!(
            "linked account  {}  {} at {}  since {}",
            link.id,
            link.label,
            link.provider,
            at(link.since)
        ));
    }
    lines
}

fn new_user(services: &Services<'_>, new: NewUser) -> Result<User> {
    services.passwords.check(&new.password, &new.username, &services.identity.issuer)?;
    let password = password::hash(&new.password, &*services.clock.random);
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
        email_verified_by: None,
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
                let mark = match (client.demo, client.declared) {
                    (true, _) => "  [demo]",
                    (false, true) => "  [declared]",
                    (false, false) => "",
                };
                events(Event::Line(format!(
                    "{}  {}  {}{mark}",
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

fn new_client(new: NewClient) -> Result<Client> {
    let jwks = new.jwks_text.as_deref().map(serde_json::from_str).transpose();
    let registration = Registration {
        client_id: new.id,
        client_name: new.name,
        redirect_uris: new.redirect_uris,
        post_logout_redirect_uris: new.post_logout_redirect_uris,
        response_types: new.response_types,
        grant_types: new.grant_types,
        auth_methods: new.auth_methods,
        assertion_algs: new.assertion_algs,
        scope: Some(new.scope),
        jwks: jwks.context("the JWK Set is not JSON")?,
        jwks_uri: new.jwks_uri,
        secret: None,
        id_token_alg: new.id_token_alg,
        native: new.native,
        pkce_optional: new.pkce_optional,
        first_party: new.first_party,
        always_refresh: new.always_refresh,
        refresh_grace_s: new.refresh_grace_s,
        require_par: new.require_par,
        dpop_bound: new.dpop_bound,
        introspects: new.introspects,
        groups: new.groups,
    };
    Ok(registration.client()?)
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
                    "{}  {}  {}  {}  made {}{gone}",
                    key.kid,
                    purpose.as_str().unwrap_or_default(),
                    key.alg.name(),
                    stage.as_str().unwrap_or_default(),
                    fhir::instant::format(key.created),
                )));
            }
        }
        KeysCommand::Rotate { server_secret: true, .. } => {
            // A running server has derived the key that signs addresses of export files.
            if services.app.is_some() {
                bail!("a server runs on this folder; stop it to rotate the server secret");
            }
            identity.rotate_server_secret(now).await?;
            events(Event::Line(
                "rotated the server secret: sign-ins under way, known browsers, user codes of devices, search cursors \
                 and signed addresses of export files are no longer valid"
                    .to_owned(),
            ));
        }
        KeysCommand::Rotate { now: at_once, .. } => {
            identity.rotate_keys(at_once, now).await?;
            events(Event::Line(
                "rotated: the next keys sign from now, the old ones are published for an hour more"
                    .to_owned(),
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
