//! A client as it is written down, by flags or in `trefoil.toml`, and what becomes of it: names of RFC 7591 in,
//! a checked [`Client`] out. What is left out follows from the rest.

use std::fmt::Display;

use identity::client::{AuthMethod, Client, GrantType, RegistrationError, ResponseType};
use identity::redirect_uri::RegisteredRedirectUri;
use identity::scope::Scopes;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The texts of a registration.
#[derive(Debug, Default)]
pub struct Registration {
    /// `client_id`
    pub client_id: String,
    /// `client_name`
    pub client_name: Option<String>,
    /// `redirect_uris`
    pub redirect_uris: Vec<String>,
    /// `post_logout_redirect_uris`
    pub post_logout_redirect_uris: Vec<String>,
    /// `response_types`
    pub response_types: Vec<String>,
    /// `grant_types`
    pub grant_types: Vec<String>,
    /// `token_endpoint_auth_methods`
    pub auth_methods: Vec<String>,
    /// `token_endpoint_auth_signing_algs`
    pub assertion_algs: Vec<String>,
    /// `scope`
    pub scope: Option<String>,
    /// `jwks`: a JWK Set.
    pub jwks: Option<Value>,
    /// `jwks_uri`
    pub jwks_uri: Option<String>,
    /// `client_secret`: the text itself, read from where it lies.
    pub secret: Option<String>,
    /// `id_token_signed_response_alg`
    pub id_token_alg: Option<String>,
    /// `application_type` is `native`.
    pub native: bool,
    /// May PKCE be left out?
    pub pkce_optional: bool,
    /// Is it the operator's own, so that nobody is asked?
    pub first_party: bool,
    /// Does it get refresh tokens without `offline_access`?
    pub always_refresh: bool,
    /// Grace of refresh tokens.
    pub refresh_grace_s: u32,
    /// `require_pushed_authorization_requests`
    pub require_par: bool,
    /// `dpop_bound_access_tokens`
    pub dpop_bound: bool,
    /// May it introspect tokens of others?
    pub introspects: bool,
    /// Groups that it may export; none is all.
    pub groups: Vec<String>,
}

/// What is wrong, and where.
#[derive(Debug)]
pub struct Wrong {
    /// The member of the registration.
    pub key: &'static str,
    /// Which of its values.
    pub at: usize,
    /// Why, and what to do.
    pub why: String,
}

impl Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for Wrong {}

fn wrong(key: &'static str, at: usize, why: impl Display) -> Wrong {
    Wrong { key, at, why: why.to_string() }
}

/// Shortest secret.
const SECRET: usize = 32;

impl Registration {
    /// Judges it all.
    ///
    /// # Errors
    /// [`Wrong`]: the member, which of its values, and what to do.
    pub fn client(self) -> Result<Client, Wrong> {
        let mut auth_methods: Vec<AuthMethod> =
            words("token_endpoint_auth_methods", &self.auth_methods, &AUTH_METHODS)?;
        if auth_methods.is_empty() {
            let has_keys = self.jwks.is_some() || self.jwks_uri.is_some();
            auth_methods.push(match (has_keys, &self.secret) {
                (true, _) => AuthMethod::PrivateKeyJwt,
                (false, Some(_)) => AuthMethod::ClientSecretBasic,
                (false, None) => AuthMethod::None,
            });
        }
        let is_public = auth_methods == [AuthMethod::None];
        // The demo alone has public clients that may do without.
        if is_public && self.pkce_optional {
            return Err(wrong("pkce_required", 0, "a public client must use PKCE"));
        }
        let mut response_types: Vec<ResponseType> =
            words("response_types", &self.response_types, &RESPONSE_TYPES)?;
        if response_types.is_empty() && !self.redirect_uris.is_empty() {
            response_types.push(ResponseType::Code);
        }
        // RFC 7591 lists `implicit` too, which is no grant of the token endpoint.
        let named: Vec<_> = self.grant_types.iter().filter(|name| *name != "implicit").cloned().collect();
        let mut grant_types: Vec<GrantType> = words("grant_types", &named, &GRANT_TYPES)?;
        if self.grant_types.is_empty() {
            if response_types.contains(&ResponseType::Code) {
                grant_types.extend([GrantType::AuthorizationCode, GrantType::RefreshToken]);
            } else if !is_public && response_types.is_empty() {
                grant_types.push(GrantType::ClientCredentials);
            }
        }
        if self.secret.as_ref().is_some_and(|secret| secret.chars().count() < SECRET) {
            return Err(wrong("client_secret", 0, RegistrationError::WeakSecret));
        }
        let scope = self.scope.as_deref().unwrap_or("openid");
        let client = Client {
            name: self.client_name.unwrap_or_else(|| self.client_id.clone()),
            redirect_uris: addresses("redirect_uris", &self.redirect_uris, self.native)?,
            post_logout_redirect_uris: addresses(
                "post_logout_redirect_uris",
                &self.post_logout_redirect_uris,
                self.native,
            )?,
            response_types,
            grant_types,
            auth_methods,
            secret_digests: self.secret.iter().map(|secret| Client::secret_digest(secret)).collect(),
            jwks: match self.jwks {
                None => Vec::new(),
                Some(set) => set["keys"]
                    .as_array()
                    .cloned()
                    .ok_or_else(|| wrong("jwks", 0, "the JWK Set has no member 'keys'"))?,
            },
            jwks_uri: self.jwks_uri,
            assertion_algs: self.assertion_algs,
            id_token_alg: self.id_token_alg,
            scopes: Scopes::parse(scope).map_err(|error| wrong("scope", 0, error))?,
            pkce_required: !self.pkce_optional,
            native: self.native,
            always_refresh: self.always_refresh,
            refresh_grace_s: self.refresh_grace_s,
            require_par: self.require_par,
            dpop_bound: self.dpop_bound,
            consent: !self.first_party,
            introspects: self.introspects,
            groups: (!self.groups.is_empty()).then_some(self.groups),
            ..Client::new(self.client_id)
        };
        client.check().map_err(|error| wrong(key_of(&error), 0, error))?;
        Ok(client)
    }
}

const AUTH_METHODS: [&str; 4] = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"];
const RESPONSE_TYPES: [&str; 4] = ["code", "token", "id_token", "id_token token"];
const GRANT_TYPES: [&str; 4] = [
    "authorization_code",
    "refresh_token",
    "client_credentials",
    "urn:ietf:params:oauth:grant-type:device_code",
];

/// Does this way to authenticate need a secret?
pub fn needs_secret(client: &Client) -> bool {
    let with_secret = [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost];
    client.auth_methods.iter().any(|method| with_secret.contains(method))
}

/// The member that an error of the rules speaks of.
fn key_of(error: &RegistrationError) -> &'static str {
    match error {
        RegistrationError::WeakSecret => "client_secret",
        RegistrationError::BadKey(_) => "jwks",
        RegistrationError::BadKeySetAddress(_) => "jwks_uri",
        RegistrationError::BadAlgorithm { what: "assertions", .. } => "token_endpoint_auth_signing_algs",
        RegistrationError::BadAlgorithm { .. } => "id_token_signed_response_alg",
        RegistrationError::Exists(_)
        | RegistrationError::AddedByCommand(_)
        | RegistrationError::Declared(_)
        | RegistrationError::BadId(_)
        | RegistrationError::Contradiction(_)
        | RegistrationError::Store(_) => "client_id",
    }
}

fn addresses(key: &'static str, uris: &[String], native: bool) -> Result<Vec<RegisteredRedirectUri>, Wrong> {
    let parse = |(at, uri): (usize, &String)| {
        RegisteredRedirectUri::parse(uri, native).map_err(|error| wrong(key, at, error))
    };
    uris.iter().enumerate().map(parse).collect()
}

/// Reads the words of an enum as the standards spell them.
fn words<T: DeserializeOwned>(key: &'static str, texts: &[String], known: &[&str]) -> Result<Vec<T>, Wrong> {
    let read = |(at, text): (usize, &String)| {
        serde_json::from_value(Value::from(text.as_str())).map_err(|_| {
            let nearest = nearest(text, known.iter().copied());
            let hint = nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
            wrong(key, at, format!("'{text}' is not known; use {}{hint}", known.join(", ")))
        })
    };
    texts.iter().enumerate().map(read).collect()
}

/// The known name that looks most like this one, if one does.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::normalized_damerau_levenshtein(text, name), name))
        .filter(|(likeness, _)| *likeness > 0.5)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
