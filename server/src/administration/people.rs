//! Commands for users, clients and signing keys.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Context as _, Result, bail};
use identity::directory::user_directory::UserError;
use identity::directory::user_directory::{AccountsOfDeleted, OtherMethods};
use identity::model::client::Client;
use identity::model::client_metadata::ClientMetadata;
use identity::model::members::ClaimValue;
use identity::model::provider::IdentityProvider;
use identity::model::user::User;
use identity::model::user_name;
use identity::sign_in::sign_in_methods::{MethodsToRemove, SignInMethods};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::protocol::{ClientCommand, CommandEvent, KeysCommand, RemovedMethods, UserCommand};
use super::registration_warnings::{client_warnings, user_warnings};
use super::services::{AdminServices, EventSink};
use super::user_change::{UserChange, new_user};

/// Executes `trefoil user …`.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_user_command(
    services: &AdminServices<'_>,
    command: UserCommand,
    events: EventSink<'_>,
) -> Result<()> {
    let (identity, now) = (services.identity, services.clock.now());
    let result = match command {
        UserCommand::Add { username, members, password } => {
            let change = UserChange::read(members)?;
            let password = services.hash_new_password(password, &username).await?;
            let mut user = new_user(username, Some(password));
            change.apply(&mut user);
            // A new user has no tokens.
            user.epoch = 0;
            let user = identity.users.add_user(user, now).await?;
            warn(user_warnings(services.resources, &user).await, events);
            format!("added user {} (sub {})", user.username, user.sub)
        }
        UserCommand::Change { username, members } => {
            let change = UserChange::read(members)?;
            let user = identity.users.change_user(&username, now, |user| change.apply(user)).await?;
            warn(user_warnings(services.resources, &user).await, events);
            format!("changed user {username}")
        }
        UserCommand::List | UserCommand::ListIrregularNames => {
            let irregular_names = matches!(command, UserCommand::ListIrregularNames);
            let users = identity.users.all_users(now).await?;
            let shared = shared_names(&users);
            for user in users {
                let is_shared = user.claims.preferred_username.as_ref().is_some_and(|name| {
                    *name != user.username && shared.contains(&user_name::counted_name(name))
                });
                let is_irregular = is_shared || user_name::check_new_name(&user.username).is_err();
                if irregular_names && !is_irregular {
                    continue;
                }
                let mut labels = Vec::new();
                labels.extend(user.disabled.then_some("disabled"));
                labels.extend(user.administrator.then_some("administrator"));
                labels.extend(user.demo.then_some("demo"));
                labels.extend(is_irregular.then_some("irregular name"));
                let labels =
                    if labels.is_empty() { String::new() } else { format!("  [{}]", labels.join(", ")) };
                let name = user.claims.name.unwrap_or_default();
                // Invisible characters are shown as escapes.
                let username = user.username.escape_debug();
                let text = format!("{username}  {}  {name}{labels}", user.sub);
                let json = json!({
                    "username": user.username, "sub": user.sub, "name": name, "disabled": user.disabled,
                    "administrator": user.administrator, "demo": user.demo, "irregular_name": is_irregular,
                });
                events(CommandEvent::Record { text, json });
            }
            return Ok(());
        }
        UserCommand::Show { name } => {
            let user = user_named(services, &name).await?;
            let methods = identity.sign_in.sign_in_methods(&user.sub, now).await?;
            let facts = user_facts(&user, &methods, &identity.provider_rules.current());
            let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
            let lines = facts.iter().map(|(name, value)| format!("{name:width$}  {value}"));
            let text = lines.collect::<Vec<_>>().join("\n");
            events(CommandEvent::Record { text, json: user_json(&user, &methods) });
            return Ok(());
        }
        UserCommand::SetPassword { name, keep_other_methods, password } => {
            let phc = services.hash_new_password(password, &name).await?;
            let user = user_named(services, &name).await?;
            let (others, others_text) = match keep_other_methods {
                true => (OtherMethods::Keep, "other sign-in methods were kept"),
                false => (
                    OtherMethods::RemoveAdded,
                    "passkeys, recovery codes and the accounts that the user has linked were removed",
                ),
            };
            // Someone who knew the old password may have sessions and tokens, so the new password ends all of
            // them.
            identity.users.reset_password(&user.sub, None, &phc, others, now).await?;
            format!("set the password of {name}; all sessions and tokens have ended, {others_text}")
        }
        UserCommand::RemoveMethods { name, methods } => {
            let user = user_named(services, &name).await?;
            let methods = match methods {
                RemovedMethods::Passkey(id) => MethodsToRemove::Passkey(id),
                RemovedMethods::LinkedAccount(id) => MethodsToRemove::LinkedAccount(id),
                RemovedMethods::ForgetAccount(id) => MethodsToRemove::KnownAccount(id),
                RemovedMethods::RecoveryCodes => MethodsToRemove::RecoveryCodes,
                RemovedMethods::All => MethodsToRemove::All,
            };
            if !identity.sign_in.remove_sign_in_methods(&user.sub, &methods, now).await? {
                bail!("{name} has no such sign-in method; `trefoil user show {name}` lists all");
            }
            format!("removed; all sessions and tokens of {name} have ended")
        }
        UserCommand::Disable { name } => {
            // Incrementing the epoch ends all sessions and tokens. `enable` does not restore them.
            identity
                .users
                .change_user(&name, now, |user| (user.disabled, user.epoch) = (true, user.epoch + 1))
                .await?;
            format!("disabled {name}; all sessions and tokens have ended")
        }
        UserCommand::Enable { name } => {
            identity.users.change_user(&name, now, |user| user.disabled = false).await?;
            format!("enabled {name}")
        }
        UserCommand::Delete { name, forget } => {
            let accounts = if forget { AccountsOfDeleted::Forget } else { AccountsOfDeleted::Remember };
            identity.users.delete_user(&name, accounts, now).await?;
            format!("deleted {name}")
        }
        UserCommand::SignOut { name } => {
            identity.users.sign_out_everywhere(&name, now).await?;
            format!("signed {name} out everywhere")
        }
    };
    events(CommandEvent::Line(result));
    Ok(())
}

/// The names that apps see of several users. Providers chose the names of users whom an earlier version
/// created.
fn shared_names(users: &[User]) -> HashSet<String> {
    let (mut seen, mut shared) = (HashSet::new(), HashSet::new());
    for user in users {
        let names = [Some(&user.username), user.claims.preferred_username.as_ref()];
        let names: BTreeSet<_> =
            names.into_iter().flatten().map(|name| user_name::counted_name(name)).collect();
        for name in names {
            if !seen.insert(name.clone()) {
                shared.insert(name);
            }
        }
    }
    shared
}

async fn user_named(services: &AdminServices<'_>, name: &str) -> Result<User> {
    let user = services.identity.users.user_by_name(name, services.clock.now()).await?;
    Ok(user.ok_or_else(|| UserError::Unknown(name.to_owned()))?)
}

/// The result of `trefoil user show` as JSON.
fn user_json(user: &User, methods: &SignInMethods) -> Value {
    let passkeys = methods.passkeys.iter().map(|passkey| {
        json!({
            "id": passkey.id, "name": passkey.name, "since": fhir::instant::format(passkey.since),
            "last_used": passkey.last_used.map(fhir::instant::format),
        })
    });
    let linked_accounts = methods.linked_accounts.iter().map(|link| {
        json!({
            "id": link.id, "label": link.label, "provider": link.provider,
            "since": fhir::instant::format(link.since),
        })
    });
    let removed_accounts = methods.removed_accounts.iter().map(|link| {
        json!({
            "id": link.id, "label": link.label, "provider": link.provider,
            "removed": link.removed.map(fhir::instant::format),
        })
    });
    let claims = user.claims.values().map(|(row, value)| {
        let value = match value {
            ClaimValue::Text(text) => json!(text),
            ClaimValue::Boolean(value) => json!(value),
        };
        (row.name.to_owned(), value)
    });
    let mut shown = json!({
        "username": user.username, "sub": user.sub, "fhir_user": user.fhir_user, "patients": user.patients,
        "groups": user.groups, "allowed_scopes": user.allowed_scopes.to_string(), "disabled": user.disabled,
        "administrator": user.administrator, "password": user.password.is_some(),
        "recovery_codes": methods.recovery_codes, "passkeys": passkeys.collect::<Vec<_>>(),
        "linked_accounts": linked_accounts.collect::<Vec<_>>(),
        "removed_accounts": removed_accounts.collect::<Vec<_>>(),
    });
    if let Some(members) = shown.as_object_mut() {
        members.extend(claims);
    }
    shown
}

/// Names and values of `trefoil user show`, in the order of display.
pub fn user_facts(
    user: &User,
    methods: &SignInMethods,
    providers: &[IdentityProvider],
) -> Vec<(String, String)> {
    let time = fhir::instant::format;
    let yes = |it: bool| if it { "yes" } else { "no" };
    let ids = |ids: &[String]| if ids.is_empty() { "-".to_owned() } else { ids.join(" ") };
    let mut rows: Vec<(String, String)> = [
        ("user", user.username.clone()),
        ("sub", user.sub.clone()),
        ("fhir user", user.fhir_user.clone().unwrap_or_else(|| "-".to_owned())),
        ("patients", ids(&user.patients)),
        ("groups", ids(&user.groups)),
        ("allowed scopes", user.allowed_scopes.to_string()),
        ("disabled", yes(user.disabled).to_owned()),
        ("administrator", yes(user.administrator).to_owned()),
        ("password", yes(user.password.is_some()).to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    rows.extend(user.claims.values().map(|(row, value)| {
        let value = match value {
            ClaimValue::Text(text) => text,
            ClaimValue::Boolean(value) => yes(value),
        };
        (row.name.replace('_', " "), value.to_owned())
    }));
    if let Some(mapped) = &user.mapped {
        let values = mapped.values.iter().flatten().map(|(claim, value)| format!("{claim}={value}"));
        let given: Vec<_> = values.chain(mapped.fhir_user.clone()).collect();
        let of = mapped.issuer.as_deref().unwrap_or("a provider, before an upgrade");
        let until = match providers.iter().find(|provider| mapped.issuer.as_ref() == Some(&provider.issuer)) {
            Some(provider) => format!("until {}", time(mapped.ends(provider.rights_max_age))),
            None => "which count while this provider is configured".to_owned(),
        };
        rows.push(("rights".to_owned(), format!("{}  from {of}, {until}", given.join(" "))));
    }
    for passkey in &methods.passkeys {
        let used =
            passkey.last_used.map_or("never used".to_owned(), |used| format!("last used {}", time(used)));
        let text = format!("{}  {}  since {}, {used}", passkey.id, passkey.name, time(passkey.since));
        rows.push(("passkey".to_owned(), text));
    }
    rows.push(("recovery codes".to_owned(), methods.recovery_codes.to_string()));
    for link in &methods.linked_accounts {
        let text = format!("{}  {} at {}  since {}", link.id, link.label, link.provider, time(link.since));
        rows.push(("linked account".to_owned(), text));
    }
    for link in &methods.removed_accounts {
        let removed = link.removed.map(time).unwrap_or_default();
        let text = format!("{}  {} at {}  since {removed}; refused", link.id, link.label, link.provider);
        rows.push(("removed account".to_owned(), text));
    }
    // Otherwise an administrator would look for the reason why a claim has no effect.
    if user.is_mapped && !user.set_by_hand.is_empty() {
        let names: Vec<_> = user.set_by_hand.iter().map(String::as_str).collect();
        rows.push((
            "set by hand".to_owned(),
            format!("{}  (the provider does not change these)", names.join(" ")),
        ));
    }
    rows
}

/// Executes `trefoil client …`.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_client_command(
    services: &AdminServices<'_>,
    command: ClientCommand,
    events: EventSink<'_>,
) -> Result<()> {
    let (identity, now) = (services.identity, services.clock.now());
    let unknown = |id: &str| format!("client '{id}' does not exist; `trefoil client list` shows all clients");
    match command {
        ClientCommand::Add { id, members } => {
            let metadata: ClientMetadata = serde_json::from_value(members.into())?;
            let mut client = metadata.into_client(&id, None)?;
            let secret = client.needs_secret().then(|| services.clock.random.secret());
            client.secret_digests = secret.iter().map(|secret| Client::secret_digest(secret)).collect();
            identity.clients.add_client(&client, now).await?;
            warn(client_warnings(services.resources, &client).await, events);
            events(CommandEvent::Line(format!("added client {}", client.client_id)));
            if let Some(secret) = secret {
                print_secret(&secret, events);
            }
        }
        ClientCommand::Change { id, members } => {
            let (changed, secret) = identity.clients.change_client(&id, None, &members, now).await?;
            warn(client_warnings(services.resources, &changed.client).await, events);
            events(CommandEvent::Line(format!("changed client {id}")));
            if let Some(secret) = secret {
                print_secret(&secret, events);
            }
        }
        ClientCommand::List => {
            for client in identity.clients.all_clients(now).await? {
                let label = match (client.demo, client.declared) {
                    (true, _) => "  [demo]",
                    (false, true) => "  [declared]",
                    (false, false) => "",
                };
                let text = format!("{}  {}  {}{label}", client.client_id, client.name, client.scopes);
                let json = json!({
                    "client_id": client.client_id, "client_name": client.name,
                    "scope": client.scopes.to_string(), "demo": client.demo, "declared": client.declared,
                });
                events(CommandEvent::Record { text, json });
            }
        }
        ClientCommand::Show { id } => {
            let client =
                identity.clients.all_clients(now).await?.into_iter().find(|client| client.client_id == id);
            let mut shown = serde_json::to_value(client.with_context(|| unknown(&id))?)?;
            // The digests are not secret, but operators do not need them.
            if let Some(shown) = shown.as_object_mut() {
                shown.remove("replaced_secrets");
                let secrets =
                    shown.remove("secret_digests").and_then(|digests| digests.as_array().map(Vec::len));
                shown.insert("secrets".to_owned(), secrets.unwrap_or_default().into());
            }
            events(CommandEvent::Record { text: serde_json::to_string_pretty(&shown)?, json: shown });
        }
        ClientCommand::RotateSecret { id, overlap_s } => {
            let overlap = SignedDuration::from_secs(overlap_s.into());
            print_secret(&identity.clients.rotate_client_secret(&id, overlap, now).await?, events);
        }
        ClientCommand::Delete { id } => {
            if !identity.clients.delete_client(&id, now).await? {
                bail!(unknown(&id));
            }
            events(CommandEvent::Line(format!("deleted client {id}; its tokens are no longer accepted")));
        }
    }
    Ok(())
}

fn warn(warnings: Vec<String>, events: EventSink<'_>) {
    for warning in warnings {
        events(CommandEvent::Trouble(format!("warning: {warning}")));
    }
}

fn print_secret(secret: &str, events: EventSink<'_>) {
    let text = format!(
        "client_secret {secret}\nsave the secret now: only a digest is stored, and it cannot be shown again"
    );
    events(CommandEvent::Record { text, json: json!({ "client_secret": secret }) });
}

/// Executes `trefoil keys …`.
///
/// # Errors
/// An error that describes the failure and the remedy.
pub async fn execute_keys_command(
    services: &AdminServices<'_>,
    command: KeysCommand,
    events: EventSink<'_>,
) -> Result<()> {
    let (identity, now) = (services.identity, services.clock.now());
    match command {
        KeysCommand::List => {
            for key in identity.signing_keys.list_keys(now).await? {
                let (purpose, stage) = (serde_json::to_value(key.purpose)?, serde_json::to_value(key.stage)?);
                let gone = key
                    .gone_at
                    .map(|time| format!(", gone at {}", fhir::instant::format(time)))
                    .unwrap_or_default();
                let text = format!(
                    "{}  {}  {}  {}  made {}{gone}",
                    key.kid,
                    purpose.as_str().unwrap_or_default(),
                    key.alg.name(),
                    stage.as_str().unwrap_or_default(),
                    fhir::instant::format(key.created),
                );
                let json = json!({
                    "kid": key.kid, "purpose": purpose, "alg": key.alg.name(), "stage": stage,
                    "created": fhir::instant::format(key.created),
                    "gone_at": key.gone_at.map(fhir::instant::format),
                });
                events(CommandEvent::Record { text, json });
            }
        }
        // The secret signs only short-lived values, so that the old one is not kept.
        KeysCommand::RotateServerSecret => {
            identity.server_secret.rotate(now).await?;
            events(CommandEvent::Line(
                "rotated the server secret: sign-ins in progress, known browsers, user codes of devices, search cursors \
                 and signed URLs of export files are no longer valid"
                    .to_owned(),
            ));
        }
        KeysCommand::Rotate { now: at_once } => {
            identity.signing_keys.rotate_keys(at_once, now).await?;
            events(CommandEvent::Line(
                "rotated: the next keys are active now; the previous ones stay published until their tokens have expired"
                    .to_owned(),
            ));
        }
        KeysCommand::Revoke { kid } => {
            if !identity.signing_keys.revoke_key(&kid, now).await? {
                bail!("key '{kid}' does not exist; `trefoil keys list` shows all keys");
            }
            events(CommandEvent::Line(format!(
                "revoked key {kid}; tokens signed with it are no longer accepted"
            )));
        }
    }
    Ok(())
}
