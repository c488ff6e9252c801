//! `[[client]]` and `[[scope]]`: clients and scopes declared in the configuration. Each error names its line
//! and key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use toml::Spanned;
use toml::de::DeValue;

use super::documented::{Required, settings_table};
use super::{ConfigError, ConfigSource};
use crate::config::settings::CustomScope;
use identity::model::client::Client;
use identity::model::client_metadata::ClientMetadata;
use identity::model::members::client_members;
use identity::model::nearest_name::nearest_name;
use identity::model::scope::{NamedScope, Scopes, SmartScope};

/// `[[client]]`: the members of a client (see [`client_members`]) and of [`FILE_MEMBERS`].
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct ClientSection(Spanned<BTreeMap<Spanned<String>, Spanned<toml::Value>>>);

/// Members that exist only in the configuration file, with their defaults and meanings. `client_secret` is
/// not one of them: it is rejected with its own message.
pub(super) const FILE_MEMBERS: [(&str, &str, &str); 4] = [
    ("client_id", "required", "Public identifier"),
    ("jwks_file", "none", "File with the public JWK Set, instead of `jwks`"),
    ("client_secret_file", "none", "File with the secret"),
    ("client_secret_env", "none", "Environment variable with the secret"),
];

/// The names of the members of `[[client]]`.
fn accepted_members() -> impl Iterator<Item = &'static str> {
    client_members().map(|row| row.name).chain(FILE_MEMBERS.map(|(name, ..)| name))
}

/// A checked client of the configuration file.
#[derive(Debug, Clone)]
pub struct DeclaredClient {
    /// The checked client.
    pub client: Client,
    /// Line of `client_id` in the file, for errors.
    pub line: usize,
}

impl ClientSection {
    /// Removes a member from the section and returns its value.
    fn take_member<T: DeserializeOwned>(
        &mut self,
        file: &ConfigSource<'_>,
        key: &'static str,
    ) -> Result<Option<Spanned<T>>, ConfigError> {
        let Some(value) = self.0.as_mut().remove(key) else { return Ok(None) };
        let span = value.span();
        let value = value
            .into_inner()
            .try_into()
            .map_err(|error| file.value_error(span.clone(), key, error.message()))?;
        Ok(Some(Spanned::new(span, value)))
    }

    /// The position of a value of a member, or `None` if the member is missing.
    fn position(&self, file: &ConfigSource<'_>, key: &str, index: usize) -> Option<Range<usize>> {
        let span = self.0.as_ref().get(key)?.span();
        let array = DeValue::parse(file.text.get(span.clone())?).ok();
        let value = array.as_ref().and_then(|array| array.as_ref().as_array()?.get(index).map(Spanned::span));
        Some(value.map_or(span.clone(), |value| span.start + value.start..span.start + value.end))
    }

    /// Deserializes the metadata one member at a time, so that each error has the line of its member.
    fn metadata(&self, file: &ConfigSource<'_>) -> Result<ClientMetadata, ConfigError> {
        let members = self.0.as_ref();
        for (key, value) in members {
            if !accepted_members().any(|name| name == key.as_ref()) {
                return Err(file.value_error(key.span(), key.as_ref().clone(), unknown_member(key.as_ref())));
            }
            let one = toml::Table::from_iter([(key.as_ref().clone(), value.as_ref().clone())]);
            if let Err(error) = one.try_into::<ClientMetadata>() {
                return Err(file.value_error(key.span(), key.as_ref().clone(), error.message()));
            }
        }
        let all = members.iter().map(|(key, value)| (key.as_ref().clone(), value.as_ref().clone()));
        let all: toml::Table = all.collect();
        all.try_into()
            .map_err(|error: toml::de::Error| file.value_error(self.0.span(), "client", error.message()))
    }

    /// Checks the section and returns the client.
    pub fn check(
        mut self,
        file: &ConfigSource<'_>,
        scopes: &[CustomScope],
    ) -> Result<DeclaredClient, ConfigError> {
        let section = self.0.span();
        let client_id = self.take_member::<String>(file, "client_id")?;
        let client_id =
            client_id.ok_or_else(|| file.value_error(section, "client_id", "the client id is missing"))?;
        if let Some(inline) = self.take_member::<IgnoredAny>(file, "client_secret")? {
            let reason = "secrets are not allowed in this file; use client_secret_file or client_secret_env";
            return Err(file.value_error(inline.span(), "client_secret", reason));
        }
        let secret_file = self.take_member::<PathBuf>(file, "client_secret_file")?;
        let secret_env = self.take_member::<String>(file, "client_secret_env")?;
        let secret = file.read_secret("client_secret", secret_file.as_ref(), secret_env.as_ref())?;
        let jwks_file = self.take_member::<PathBuf>(file, "jwks_file")?;
        let mut metadata = self.metadata(file)?;
        if let Some(path) = &jwks_file {
            if metadata.jwks.is_some() {
                return Err(file.value_error(path.span(), "jwks_file", "use jwks or jwks_file, not both"));
            }
            metadata.jwks = Some(read_key_set(file, path)?);
        }
        let client = metadata.into_client(client_id.as_ref(), secret.as_deref()).map_err(|error| {
            // `into_client` puts the value of the singular member, if any, before those of the plural member,
            // which shifts the index.
            let singular = match error.member {
                "token_endpoint_auth_methods" => "token_endpoint_auth_method",
                "token_endpoint_auth_signing_algs" => "token_endpoint_auth_signing_alg",
                _ => "",
            };
            let has_singular = usize::from(self.0.as_ref().contains_key(singular));
            let position = match error.index.checked_sub(has_singular) {
                Some(index) => self.position(file, error.member, index),
                None => self.position(file, singular, 0),
            };
            let secret = secret_file.as_ref().map(Spanned::span).or(secret_env.as_ref().map(Spanned::span));
            let position = position.or(match error.member {
                "jwks" => jwks_file.as_ref().map(Spanned::span),
                "client_secret" => secret,
                _ => None,
            });
            file.value_error(position.unwrap_or_else(|| client_id.span()), error.member, &error.reason)
        })?;
        let is_described =
            |scope: &str| is_built_in(scope) || scopes.iter().any(|candidate| candidate.name == scope);
        if let Some(unknown) = client.scopes.iter().find(|scope| !is_described(scope)) {
            let span = self.position(file, "scope", 0).unwrap_or_else(|| client_id.span());
            let reason =
                format!("the scope '{unknown}' has no description for users; add a [[scope]] with this name");
            return Err(file.value_error(span, "scope", reason));
        }
        if client.needs_secret() && client.secret_digests.is_empty() {
            let reason = "a client with a secret needs client_secret_file or client_secret_env";
            return Err(file.value_error(client_id.span(), "client_id", reason));
        }
        Ok(DeclaredClient { client, line: file.line_of(client_id.span()) })
    }
}

fn read_key_set(file: &ConfigSource<'_>, path: &Spanned<PathBuf>) -> Result<serde_json::Value, ConfigError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let reason = format!("failed to read {}: {error}", path.as_ref().display());
        file.value_error(path.span(), "jwks_file", reason)
    };
    let text = std::fs::read(file.resolve_path(path.as_ref())).map_err(|error| unreadable(&error))?;
    serde_json::from_slice(&text).map_err(|error| unreadable(&error))
}

fn unknown_member(name: &str) -> String {
    let names: Vec<_> = accepted_members().map(|name| format!("`{name}`")).collect();
    let hint = nearest_name(name, accepted_members()).map(|name| format!("; did you mean `{name}`?"));
    format!("unknown field `{name}`, expected one of {}{}", names.join(", "), hint.unwrap_or_default())
}

/// `true` if the server defines the scope, and its description.
fn is_built_in(scope: &str) -> bool {
    NamedScope::named(scope).is_some() || SmartScope::parse(scope).is_some()
}

/// The scopes of the demo project.
pub(super) fn demo_scopes() -> impl Iterator<Item = CustomScope> {
    [
        ("garden.notes", "read your garden notes"),
        ("garden.plans", "read your garden plans"),
        ("address", "see your postal address"),
    ]
    .into_iter()
    .map(|(name, description)| CustomScope { name: name.to_owned(), description: description.to_owned() })
}

settings_table! {
    /// A scope of your applications.
    pub struct ScopeSection {
        /// Name of the scope, without spaces.
        name: Required<Spanned<String>> = Required::MISSING,
        /// Description on the consent page, as a continuation of "The application asks to:".
        description: Required<Spanned<String>> = Required::MISSING,
    }
}

impl ScopeSection {
    /// Checks the section and returns the scope.
    pub fn check(self, file: &ConfigSource<'_>, table: &Range<usize>) -> Result<CustomScope, ConfigError> {
        let name = self.name.get(file, table, "name")?;
        let (span, name) = (name.span(), name.into_inner());
        let description = self.description.get(file, table, "description")?;
        let is_one = Scopes::parse(&name).is_ok_and(|scopes| scopes.iter().count() == 1);
        if description.as_ref().trim().is_empty() {
            let reason = "users must be able to read what they allow; write for example: read your notes";
            return Err(file.value_error(description.span(), "description", reason));
        }
        match (is_one, is_built_in(&name)) {
            (false, _) => Err(file.value_error(span, "name", "a scope must be one word without spaces")),
            (true, true) => {
                Err(file.value_error(span, "name", format!("the scope '{name}' is reserved by the server")))
            }
            (true, false) => Ok(CustomScope { name, description: description.into_inner() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::checks::{check_refused, load};

    #[test]
    fn errors_of_a_declared_client_contain_line_and_key() {
        let client = |rest: &str| format!("[server]\n\n[[client]]\nclient_id = \"web\"\n{rest}\n");
        let check =
            |rest: &str, says: &[&str]| says.iter().for_each(|says| check_refused(&client(rest), says));
        check("redirect_uri = 3", &["line 5", "did you mean `redirect_uris`?"]);
        check(
            "redirect_uris = [\n  \"https://app.example/cb\",\n  \"http://app.example/cb\",\n]",
            &["line 7: redirect_uris: redirect URI 'http://app.example/cb' is not HTTPS"],
        );
        check("redirect_uris = 3", &["line 5: redirect_uris: invalid type: integer"]);
        check(
            "client_secret_fil = \"x\"",
            &["line 5: client_secret_fil: unknown", "did you mean `client_secret_file`?"],
        );
        check(
            "token_endpoint_auth_method = \"none\"\ntoken_endpoint_auth_methods = [\n\"x\"]",
            &["line 7: token_endpoint_auth_methods: 'x' is not known"],
        );
        check(
            "grant_types = [\"authorisation_code\"]",
            &["line 5: grant_types", "did you mean 'authorization_code'?"],
        );
        check("token_endpoint_auth_method = \"client_secret\"", &["line 5: token_endpoint_auth_methods"]);
        check(
            "client_secret = \"0123456789\"",
            &["line 5: client_secret", "secrets are not allowed in this file"],
        );
        check("client_secret_file = \"no-such-file\"", &["line 5: client_secret: failed to read"]);
        check(
            "client_secret_env = \"TREFOIL_NO_SUCH\"",
            &["line 5", "the environment variable TREFOIL_NO_SUCH is not set"],
        );
        check("jwks_uri = \"http://keys.example/\"", &["line 5: jwks_uri"]);
        check("jwks = { keys = [{ kty = \"EC\", kid = \"k\" }] }", &["line 5: jwks: key 0"]);
        check("id_token_signed_response_alg = \"none\"", &["line 5: id_token_signed_response_alg"]);
        check(
            "token_endpoint_auth_method = \"client_secret_basic\"",
            &["line 4: client_id", "needs client_secret_file"],
        );
        check("pkce_required = false", &["line 5: pkce_required", "must use PKCE"]);
        check("application_type = \"phone\"", &["line 5: application_type"]);
        check("scope = \"a  b\"", &["line 5: scope"]);
        check("[[client]]\nclient_id = \"web\"", &["line 6: client_id: 'web' is declared twice"]);
        // The error must not contain the rejected value, because it may be a secret.
        let error = load(&client("client_secret = \"s3cr3t-value\"")).unwrap_err().to_string();
        assert!(!error.contains("s3cr3t"), "{error}");
    }

    #[test]
    fn a_declared_client_needs_few_members() {
        let config = load(
            "[identity]\nallow_private_jwks = [\"keys.internal\"]\n[server]\ntrusted_proxies = [\"10.0.0.1\"]\n\
             [[client]]\nclient_id = \"web\"\nredirect_uris = [\"https://app.example/cb\"]\n\
             [[client]]\nclient_id = \"batch\"\njwks_uri = \"https://keys.example/jwks\"\nscope = \"system/*.rs\"\n\
             [[scope]]\nname = \"notes\"\ndescription = \"Read your notes\"\n",
        )
        .unwrap();
        let (web, batch) = (&config.clients[0].client, &config.clients[1].client);
        assert!(web.is_public() && web.pkce_required && web.consent);
        assert_eq!(web.grant_types.len(), 2);
        assert_eq!(batch.auth_methods, [identity::model::client::AuthMethod::PrivateKeyJwt]);
        assert_eq!(batch.grant_types, [identity::model::client::GrantType::ClientCredentials]);
        assert_eq!(config.settings.describe("notes"), Some("Read your notes"));
        assert_eq!(config.settings.trusted_proxies.networks.len(), 1);
    }
}
