//! Client metadata: the form of a client in `trefoil.toml`, in command-line options and in the admin API.
//! Members that RFC 7591, OpenID Connect Registration, RFC 9126 or RFC 9449 define have the names of those
//! specifications.

use std::fmt::Display;

use serde_json::{Map, Value, json};

use crate::jose::SigningAlg;
use crate::model::client::{
    AssertionAudiencePolicy, AuthMethod, Client, GrantType, RegistrationError, ResponseType,
};
use crate::model::client_values::NamedValue;
pub use crate::model::members::ClientMetadata;
use crate::model::nearest_name::nearest_name;
use crate::model::redirect_uri::RegisteredRedirectUri;
use crate::model::scope::Scopes;

/// A member of client metadata that was rejected.
#[derive(Debug, thiserror::Error)]
#[error("{member}: {reason}")]
pub struct InvalidMetadata {
    /// Name of the member.
    pub member: &'static str,
    /// Index of the rejected value, if the member is a list.
    pub index: usize,
    /// Reason for the rejection, and the accepted values.
    pub reason: String,
}

fn invalid(member: &'static str, index: usize, reason: impl Display) -> InvalidMetadata {
    InvalidMetadata { member, index, reason: reason.to_string() }
}

/// Minimum number of characters of a client secret.
const MIN_SECRET_LENGTH: usize = 32;

impl ClientMetadata {
    /// Checks the metadata and returns the client. `secret` is the client secret in plain text, if it is
    /// known.
    ///
    /// # Errors
    /// Returns [`InvalidMetadata`] for the first member that is rejected.
    pub fn into_client(self, client_id: &str, secret: Option<&str>) -> Result<Client, InvalidMetadata> {
        let members = self.stored_members(client_id);
        let auth_methods: Vec<_> =
            self.token_endpoint_auth_method.into_iter().chain(self.token_endpoint_auth_methods).collect();
        let mut auth_methods: Vec<AuthMethod> = parse_names("token_endpoint_auth_methods", &auth_methods)?;
        if auth_methods.is_empty() {
            let has_keys = self.jwks.is_some() || self.jwks_uri.is_some();
            match (has_keys, secret) {
                (true, _) => auth_methods.push(AuthMethod::PrivateKeyJwt),
                // Libraries differ in how they send a secret by default.
                (false, Some(_)) => {
                    auth_methods.extend([AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost]);
                }
                (false, None) => auth_methods.push(AuthMethod::None),
            }
        }
        let is_public = auth_methods == [AuthMethod::None];
        let pkce_required = self.pkce_required.unwrap_or(true);
        // Only clients of the demo project can be public without PKCE.
        if is_public && !pkce_required {
            return Err(invalid("pkce_required", 0, "a public client must use PKCE"));
        }
        let native = match self.application_type.as_deref() {
            None | Some("web") => false,
            Some("native") => true,
            Some(other) => {
                let reason = format!("'{other}' is not known; use web or native");
                return Err(invalid("application_type", 0, reason));
            }
        };
        let mut response_types: Vec<ResponseType> = parse_names("response_types", &self.response_types)?;
        if response_types.is_empty() && !self.redirect_uris.is_empty() {
            response_types.push(ResponseType::Code);
        }
        // RFC 7591 also lists `implicit`, which is not a grant type of the token endpoint.
        let names: Vec<_> = self.grant_types.iter().filter(|name| *name != "implicit").cloned().collect();
        let mut grant_types: Vec<GrantType> = parse_names("grant_types", &names)?;
        if self.grant_types.is_empty() {
            if response_types.contains(&ResponseType::Code) {
                grant_types.extend([GrantType::AuthorizationCode, GrantType::RefreshToken]);
            } else if !is_public && response_types.is_empty() {
                grant_types.push(GrantType::ClientCredentials);
            }
        }
        if secret.is_some_and(|secret| secret.chars().count() < MIN_SECRET_LENGTH) {
            return Err(invalid("client_secret", 0, RegistrationError::WeakSecret));
        }
        let scope = self.scope.as_deref().unwrap_or("openid");
        let mut client = Client {
            name: self.client_name.unwrap_or_else(|| client_id.to_owned()),
            redirect_uris: parse_redirect_uris("redirect_uris", &self.redirect_uris, native)?,
            post_logout_redirect_uris: parse_redirect_uris(
                "post_logout_redirect_uris",
                &self.post_logout_redirect_uris,
                native,
            )?,
            response_types,
            grant_types,
            auth_methods,
            secret_digests: secret.map(Client::secret_digest).into_iter().collect(),
            jwks: match self.jwks {
                None => Vec::new(),
                Some(set) => set["keys"]
                    .as_array()
                    .cloned()
                    .ok_or_else(|| invalid("jwks", 0, "the JWK Set has no member 'keys'"))?,
            },
            assertion_algs: self
                .token_endpoint_auth_signing_alg
                .into_iter()
                .chain(self.token_endpoint_auth_signing_algs)
                .collect(),
            assertion_audience: match self.assertion_audience.as_deref() {
                None | Some("token_endpoint_or_issuer") => AssertionAudiencePolicy::TokenEndpointOrIssuer,
                Some("issuer") => AssertionAudiencePolicy::Issuer,
                Some(other) => {
                    let reason = format!("'{other}' is not known; use token_endpoint_or_issuer or issuer");
                    return Err(invalid("assertion_audience", 0, reason));
                }
            },
            id_token_alg: self.id_token_signed_response_alg,
            scopes: Scopes::parse(scope).map_err(|error| invalid("scope", 0, error))?,
            pkce_required,
            native,
            consent: !self.first_party,
            groups: self.groups.filter(|groups| !groups.is_empty()),
            ..members
        };
        client.apply_fapi2();
        client.check_registration().map_err(|error| invalid(member_of(&error), 0, error))?;
        Ok(client)
    }
}

/// Pairs of members of which a change of one replaces the other.
const EXCLUSIVE_MEMBERS: [(&str, &str); 3] = [
    ("token_endpoint_auth_method", "token_endpoint_auth_methods"),
    ("token_endpoint_auth_signing_alg", "token_endpoint_auth_signing_algs"),
    ("jwks", "jwks_uri"),
];

impl ClientMetadata {
    /// Returns the metadata of a client with changes in the form of a JSON merge patch (RFC 7396): `null`
    /// restores the default of a member.
    ///
    /// # Errors
    /// Returns the error of the first member that is unknown or has another type.
    pub fn with_changes(client: &Client, changes: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let Value::Object(mut members) = serde_json::to_value(Self::from(client))? else {
            unreachable!("a struct serializes to an object")
        };
        for (member, value) in changes {
            for (one, other) in EXCLUSIVE_MEMBERS {
                if member == one {
                    members.remove(other);
                } else if member == other {
                    members.remove(one);
                }
            }
            match value {
                Value::Null => drop(members.remove(member)),
                value => drop(members.insert(member.clone(), value.clone())),
            }
        }
        serde_json::from_value(members.into())
    }
}

impl From<&Client> for ClientMetadata {
    fn from(client: &Client) -> Self {
        let uris = |uris: &[RegisteredRedirectUri]| uris.iter().cloned().map(String::from).collect();
        Self {
            client_name: Some(client.name.clone()),
            redirect_uris: uris(&client.redirect_uris),
            post_logout_redirect_uris: uris(&client.post_logout_redirect_uris),
            response_types: names_of(&client.response_types),
            grant_types: names_of(&client.grant_types),
            token_endpoint_auth_methods: names_of(&client.auth_methods),
            token_endpoint_auth_signing_algs: client.assertion_algs.clone(),
            assertion_audience: names_of(&[client.assertion_audience]).pop(),
            jwks: Some(json!({ "keys": client.jwks })),
            scope: Some(client.scopes.to_string()),
            id_token_signed_response_alg: Some(
                client.id_token_alg.clone().unwrap_or_else(|| SigningAlg::default().name().to_owned()),
            ),
            application_type: Some(if client.native { "native" } else { "web" }.to_owned()),
            pkce_required: Some(client.pkce_required),
            first_party: !client.consent,
            ..Self::of_stored_members(client)
        }
    }
}

/// The name of the member that an error of [`Client::check_registration`] refers to.
fn member_of(error: &RegistrationError) -> &'static str {
    match error {
        RegistrationError::WeakSecret => "client_secret",
        RegistrationError::BadKey(_) => "jwks",
        RegistrationError::BadKeySetAddress(_) => "jwks_uri",
        RegistrationError::BadLifetime { member, .. } => member,
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

fn parse_redirect_uris(
    member: &'static str,
    uris: &[String],
    native: bool,
) -> Result<Vec<RegisteredRedirectUri>, InvalidMetadata> {
    let parse = |(index, uri): (usize, &String)| {
        let registered =
            RegisteredRedirectUri::parse(uri, native).and_then(RegisteredRedirectUri::without_wildcard);
        registered.map_err(|error| invalid(member, index, error))
    };
    uris.iter().enumerate().map(parse).collect()
}

/// Parses names of enum variants as the specifications spell them.
fn parse_names<T: NamedValue>(member: &'static str, names: &[String]) -> Result<Vec<T>, InvalidMetadata> {
    let parse = |(index, name): (usize, &String)| {
        T::named(name).ok_or_else(|| {
            let nearest = nearest_name(name, T::NAMES.iter().copied());
            let hint = nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
            invalid(member, index, format!("'{name}' is not known; use {}{hint}", T::NAMES.join(", ")))
        })
    };
    names.iter().enumerate().map(parse).collect()
}

fn names_of<T: NamedValue>(values: &[T]) -> Vec<String> {
    values.iter().map(|value| value.name().to_owned()).collect()
}
