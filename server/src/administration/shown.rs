//! The JSON of users, sign-in methods, sessions, consents, clients and keys, which is the same at all doors.

use std::collections::BTreeSet;

use anyhow::Context as _;
use identity::authorize::consent::UserConsent;
use identity::model::client::Client;
use identity::model::client_metadata::ClientMetadata;
use identity::model::user::{StandardClaims, User};
use identity::sign_in::one_time_link::NewOneTimeLink;
use identity::sign_in::session::Session;
use identity::sign_in::sign_in_methods::SignInMethods;
use identity::tokens::signing_key::{KeyPurpose, KeyStage, SigningKey};
use jiff::Timestamp;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::member_flags::{ClientTable, MemberFlags};

fn time(time: Timestamp) -> String {
    fhir::instant::format(time)
}

/// A user.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "User")]
pub struct ShownUser<'a> {
    sub: &'a str,
    username: &'a str,
    #[schemars(with = "Map<String, Value>")]
    claims: &'a StandardClaims,
    allowed_scopes: String,
    fhir_user: Option<&'a str>,
    patients: &'a [String],
    groups: &'a [String],
    own_claims: &'a [String],
    /// Members that an administrator set, which the provider does not change.
    set_by_hand: &'a BTreeSet<String>,
    administrator: bool,
    disabled: bool,
    has_password: bool,
    demo: bool,
    /// Whether the name is not accepted for a new user, or apps see another user with it. Only in lists of
    /// all users.
    #[serde(skip_serializing_if = "Option::is_none")]
    irregular_name: Option<bool>,
    /// A new one-time link for a user who was invited. It is shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_time_link: Option<ShownOneTimeLink>,
    /// The sign-in methods, if the user is shown alone.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    methods: Option<ShownMethods<'a>>,
}

impl<'a> ShownUser<'a> {
    /// A user without sign-in methods.
    pub fn new(user: &'a User) -> Self {
        Self {
            sub: &user.sub,
            username: &user.username,
            claims: &user.claims,
            allowed_scopes: user.allowed_scopes.to_string(),
            fhir_user: user.fhir_user.as_deref(),
            patients: &user.patients,
            groups: &user.groups,
            own_claims: &user.own_claims,
            set_by_hand: &user.set_by_hand,
            administrator: user.administrator,
            disabled: user.disabled,
            has_password: user.password.is_some(),
            demo: user.demo,
            irregular_name: None,
            one_time_link: None,
            methods: None,
        }
    }

    /// The user with a new one-time link.
    #[must_use]
    pub fn with_link(self, one_time_link: Option<ShownOneTimeLink>) -> Self {
        Self { one_time_link, ..self }
    }

    /// The user in a list of all users.
    #[must_use]
    pub fn in_list(self, irregular_name: Option<bool>) -> Self {
        Self { irregular_name, ..self }
    }

    /// The user with the sign-in methods.
    #[must_use]
    pub fn with_methods(self, methods: ShownMethods<'a>) -> Self {
        Self { methods: Some(methods), ..self }
    }
}

/// A new one-time link. It is shown once.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OneTimeLink")]
pub struct ShownOneTimeLink {
    /// Id of the link in the audit log.
    id: String,
    /// Address of the page on which the user sets a password.
    url: String,
    /// Time at which the link ends if it is not used.
    #[schemars(with = "String")]
    expires_at: Timestamp,
}

impl ShownOneTimeLink {
    /// A link of the server with this base URL.
    pub fn new(link: NewOneTimeLink, base_url: &str) -> Self {
        Self { url: link.address(base_url), id: link.id, expires_at: link.expires }
    }

    /// The lines for people, with a QR code of the address if it is wanted.
    ///
    /// # Errors
    /// An error if the address is too long for a QR code.
    pub fn text(&self, with_qr: bool) -> anyhow::Result<String> {
        let mut text = format!(
            "{}\nthe link sets a password once, until {}; the one who opens it acts as the user",
            self.url,
            self.expires_at.strftime("%Y-%m-%d %H:%M UTC")
        );
        if with_qr {
            let code = QrCode::new(&self.url).context("the address is too long for a QR code")?;
            // Dark modules are blank, because most terminals are dark.
            let blocks =
                code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
            text = format!("{text}\n{blocks}");
        }
        Ok(text)
    }
}

/// The sign-in methods of a user.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SignInMethods")]
pub struct ShownMethods<'a> {
    /// Whether the user has a password.
    password: bool,
    passkeys: Vec<ShownPasskey<'a>>,
    /// Number of recovery codes that are left.
    recovery_codes: usize,
    linked_accounts: Vec<ShownLink<'a>>,
    removed_accounts: Vec<ShownLink<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Passkey")]
struct ShownPasskey<'a> {
    id: &'a str,
    name: &'a str,
    since: String,
    last_used: Option<String>,
}

/// An account at a provider that is or was linked.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LinkedAccount")]
struct ShownLink<'a> {
    id: &'a str,
    provider: &'a str,
    label: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<String>,
}

impl<'a> ShownMethods<'a> {
    /// The methods of a user.
    pub fn new(user: &User, methods: &'a SignInMethods) -> Self {
        let passkeys = methods.passkeys.iter().map(|passkey| ShownPasskey {
            id: &passkey.id,
            name: &passkey.name,
            since: time(passkey.since),
            last_used: passkey.last_used.map(time),
        });
        let linked = methods.linked_accounts.iter().map(|link| ShownLink {
            id: &link.id,
            provider: &link.provider,
            label: &link.label,
            since: Some(time(link.since)),
            removed: None,
        });
        let removed = methods.removed_accounts.iter().map(|link| ShownLink {
            id: &link.id,
            provider: &link.provider,
            label: &link.label,
            since: None,
            removed: link.removed.map(time),
        });
        Self {
            password: user.password.is_some(),
            passkeys: passkeys.collect(),
            recovery_codes: methods.recovery_codes,
            linked_accounts: linked.collect(),
            removed_accounts: removed.collect(),
        }
    }
}

/// A session of a user.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct ShownSession<'a> {
    /// Id, by which it is ended.
    sid: &'a str,
    auth_time: Option<String>,
    last_seen: String,
    amr: &'a [String],
    provider: Option<&'a str>,
    address: &'a str,
    user_agent: &'a str,
}

impl<'a> ShownSession<'a> {
    /// A session.
    pub fn new(session: &'a Session) -> Self {
        Self {
            sid: &session.sid,
            auth_time: session.auth_time.map(time),
            last_seen: time(session.last_seen),
            amr: &session.amr,
            provider: session.provider.as_deref(),
            address: &session.origin.address,
            user_agent: &session.origin.agent,
        }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let Self { sid, last_seen, address, user_agent, .. } = self;
        format!("{sid}  last seen {last_seen}  {}  {address}  {user_agent}", self.amr.join(" "))
    }
}

/// A consent of a user.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Consent")]
pub struct ShownConsent<'a> {
    client_id: &'a str,
    scope: String,
    at: String,
}

impl<'a> ShownConsent<'a> {
    /// A consent.
    pub fn new(consent: &'a UserConsent) -> Self {
        Self { client_id: &consent.client_id, scope: consent.scopes.to_string(), at: time(consent.at) }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        format!("{}  {}  since {}", self.client_id, self.scope, self.at)
    }
}

/// A client, without digests of secrets.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Client")]
pub struct ShownClient<'a> {
    client_id: &'a str,
    #[serde(flatten)]
    #[schemars(with = "MemberFlags<ClientTable>")]
    metadata: ClientMetadata,
    /// Whether the client is declared in `trefoil.toml`.
    declared: bool,
    demo: bool,
    /// Number of secrets that are valid.
    secrets: usize,
    /// A new secret, which is shown once.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<&'a str>,
}

impl<'a> ShownClient<'a> {
    /// A client at a time, by which replaced secrets may have ended.
    pub fn new(client: &'a Client, now: Timestamp) -> Self {
        let replaced = client.replaced_secrets.iter().filter(|replaced| now < replaced.until);
        Self {
            client_id: &client.client_id,
            metadata: client.into(),
            declared: client.declared,
            demo: client.demo,
            secrets: client.secret_digests.len() + replaced.count(),
            client_secret: None,
        }
    }

    /// The client with a new secret.
    #[must_use]
    pub fn with_secret(self, client_secret: Option<&'a str>) -> Self {
        Self { client_secret, ..self }
    }
}

/// A new secret of a client, which is shown once.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ClientSecret")]
pub struct ShownSecret<'a> {
    /// The client.
    pub client_id: &'a str,
    /// The secret.
    pub client_secret: &'a str,
}

/// A signing key, without its private part.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SigningKey")]
pub struct ShownKey<'a> {
    kid: &'a str,
    #[schemars(with = "String")]
    purpose: KeyPurpose,
    alg: &'a str,
    #[schemars(with = "String")]
    stage: KeyStage,
    created: String,
    gone_at: Option<String>,
}

impl<'a> ShownKey<'a> {
    /// A key.
    pub fn new(key: &'a SigningKey) -> Self {
        Self {
            kid: &key.kid,
            purpose: key.purpose,
            alg: key.alg.name(),
            stage: key.stage,
            created: time(key.created),
            gone_at: key.gone_at.map(time),
        }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let Self { kid, purpose, alg, stage, created, gone_at } = self;
        let gone = gone_at.as_ref().map(|gone| format!(", gone at {gone}")).unwrap_or_default();
        let [purpose, stage] = [json!(purpose), json!(stage)];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!("{kid}  {}  {alg}  {}  made {created}{gone}", text(&purpose), text(&stage))
    }
}
