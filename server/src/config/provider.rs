//! `[[provider]]`: external OpenID Connect providers.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use identity::SigningAlg;
use identity::model::claim_mapping::{ClaimMapping, ClaimRule};
use identity::model::provider::{AssertionTarget, IdentityProvider, ProviderClientAuth, ProviderEndpoints};
use identity::model::scope::{ScopeContext, Scopes, nearest_scope};
use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::documented::{Required, implicit, settings_table};
use super::{ConfigError, ConfigSource};

settings_table! {
    /// An external OpenID Connect provider. Its redirect URI is `https://id.example/oauth2/idpresponse/NAME`.
    pub struct ProviderSection {
        /// Name of the provider, and the value of `identity_provider` in requests.
        name: Required<Spanned<String>> = Required::MISSING,
        /// `google` sets issuer and endpoints.
        preset: Option<Spanned<String>> = None,
        /// Issuer identifier; required without a preset. If no endpoint is set, the endpoints are read from
        /// the discovery document of the issuer.
        issuer: Option<String> = None,
        /// URL of the authorization endpoint.
        authorization_endpoint: Option<String> = None,
        /// URL of the token endpoint.
        token_endpoint: Option<String> = None,
        /// URL of the key set.
        jwks_uri: Option<String> = None,
        /// URL of the userinfo endpoint, from which claims are read that the ID token lacks. With discovery,
        /// that of the discovery document.
        userinfo_endpoint: Option<String> = None,
        /// Client id of this server at the provider.
        client_id: Required<String> = Required::MISSING,
        /// Not allowed: secrets must not be in this file.
        client_secret: Option<Spanned<IgnoredAny>> = None,
        /// File with the client secret.
        client_secret_file: Option<Spanned<PathBuf>> = None,
        /// Environment variable with the client secret.
        client_secret_env: Option<Spanned<String>> = None,
        /// Authentication at the token endpoint: `client_secret_basic` (default with a secret),
        /// `client_secret_post`, `private_key_jwt`, or `none` (default without a secret). `private_key_jwt`
        /// signs with the server's own keys: register `https://id.example/.well-known/jwks.json` at the
        /// provider.
        token_endpoint_auth_method: Option<Spanned<String>> = None,
        /// Algorithm of `private_key_jwt`: `RS256` (default), `ES256`, `ES384` or `EdDSA`.
        token_endpoint_auth_signing_alg: Option<Spanned<String>> = None,
        /// Audience of `private_key_jwt`: `issuer` (default) or `token_endpoint`.
        assertion_audience: Option<Spanned<String>> = None,
        /// Scopes to request, separated by spaces.
        scopes: String = "openid profile email".to_owned(),
        /// Create a user at the first sign-in with an unknown account. Otherwise users must link accounts
        /// themselves.
        create_users: bool = false,
        /// Link an unknown account to the user with the same verified e-mail address, if this user has no
        /// sign-in method. Other users confirm the link with theirs.
        link_by_email: bool = false,
        /// Claim with the FHIR resource that represents the user, such as `Practitioner/p1`. It is used if
        /// this server has the resource. A path such as `a.b` leads into objects.
        fhir_user_claim: Option<String> = None,
        /// Names and telephone numbers are copied when the user is created, or at each sign-in.
        update_claims: UpdateClaims = UpdateClaims::default(),
        /// Let users with an account of the provider also sign in with a password, passkey or recovery code
        /// of this server.
        own_methods: bool = true,
        /// Time for which the rights of `mapping` and `fhir_user_claim` count, from the last sign-in at the
        /// provider, 60 to 31622400. Then refresh tokens end, and apps sign in again.
        rights_max_age_s: Spanned<u32> ["seconds"] = implicit(86_400),
        /// Values of claims that give scopes and patients.
        mapping: Vec<Spanned<MappingSection>> = Vec::new(),
        /// Maximum wait for the response headers, and between two parts of the body.
        timeout_ms: u64 ["milliseconds"] = 8_000,
    }
}

settings_table! {
    /// The rights that a value of a claim gives to a user, from one sign-in to the next. Members that an
    /// administrator has set by hand stay.
    pub struct MappingSection {
        /// Name of the claim, such as `groups`, or a path into objects, such as `realm_access.roles`. A rule
        /// on `email` or `phone_number` applies only if the provider says that it has verified the value.
        claim: Required<String> = Required::MISSING,
        /// The value, or one of several.
        value: Required<String> = Required::MISSING,
        /// Scopes that the user may grant besides the default ones, separated by spaces. `trefoil/admin`
        /// makes the user an administrator.
        allowed_scopes: Option<Spanned<String>> = None,
        /// Groups whose members are patients of the user, by id.
        groups: Vec<String> = Vec::new(),
    }
}

/// When names and telephone numbers are copied from a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateClaims {
    /// When the user is created.
    #[default]
    AtCreation,
    /// At each sign-in.
    Always,
}

impl MappingSection {
    fn check(self, file: &ConfigSource<'_>, table: &Range<usize>) -> Result<ClaimRule, ConfigError> {
        let allowed_scopes = match &self.allowed_scopes {
            None => Scopes::default(),
            Some(text) => {
                let refuse = |reason: String| file.value_error(text.span(), "allowed_scopes", reason);
                let scopes = Scopes::parse(text.as_ref()).map_err(|error| refuse(error.to_string()))?;
                for scope in scopes.iter() {
                    if ScopeContext::of(scope) == Some(ScopeContext::System) {
                        let reason = format!("'{scope}' is granted to clients only, by client_credentials");
                        return Err(refuse(reason));
                    }
                    if let Some(nearest) = nearest_scope(scope) {
                        return Err(refuse(format!("'{scope}' is not known; did you mean '{nearest}'?")));
                    }
                }
                scopes
            }
        };
        if let Some(id) = self.groups.iter().find(|id| !fhir::is_id(id)) {
            return Err(file.value_error(
                table.clone(),
                "groups",
                format!("'{id}' is not the id of a Group"),
            ));
        }
        let (claim, value) = (self.claim.get(file, table, "claim")?, self.value.get(file, table, "value")?);
        Ok(ClaimRule { claim, value, allowed_scopes, groups: self.groups })
    }
}

/// A provider with the time limit for requests to it.
#[derive(Debug, Clone)]
pub struct ConfiguredProvider {
    /// The provider, as the identity crate uses it.
    pub provider: IdentityProvider,
    /// Maximum wait for the response headers, and between two parts of the body.
    pub timeout: Duration,
}

/// Checks a provider.
///
/// # Errors
/// [`ConfigError`] if a member is missing or a secret is written in the file.
pub(super) fn check_provider(
    section: Spanned<ProviderSection>,
    file: &ConfigSource<'_>,
) -> Result<ConfiguredProvider, ConfigError> {
    let table = section.span();
    let section = section.into_inner();
    let google = match &section.preset {
        None => false,
        Some(preset) if preset.as_ref() == "google" => true,
        Some(other) => {
            let reason = format!("'{}' is not known; use google", other.as_ref());
            return Err(file.value_error(other.span(), "preset", reason));
        }
    };
    let name = section.name.get(file, &table, "name")?;
    let (span, name) = (name.span(), name.into_inner());
    // The member exists only so that its error can name the remedy.
    if let Some(inline) = &section.client_secret {
        let reason = "secrets are not allowed in this file; use client_secret_file or client_secret_env";
        return Err(file.value_error(inline.span(), "client_secret", reason));
    }
    let secret = file.read_secret(
        "client_secret",
        section.client_secret_file.as_ref(),
        section.client_secret_env.as_ref(),
    )?;
    let client_auth = check_client_auth(
        secret,
        section.token_endpoint_auth_method.as_ref(),
        section.token_endpoint_auth_signing_alg.as_ref(),
        section.assertion_audience.as_ref(),
        &span,
        file,
    )?;
    let issuer = match (section.issuer, google) {
        (Some(issuer), _) => issuer,
        (None, true) => GOOGLE_ISSUER.to_owned(),
        (None, false) => {
            return Err(file.value_error(span, "issuer", format!("provider '{name}' needs issuer")));
        }
    };
    let set = [
        ("authorization_endpoint", section.authorization_endpoint),
        ("token_endpoint", section.token_endpoint),
        ("jwks_uri", section.jwks_uri),
    ];
    let endpoints = if set.iter().all(|(_, address)| address.is_none()) && !google {
        None
    } else {
        let need = |(key, address): (&'static str, Option<String>)| {
            let preset = GOOGLE_ENDPOINTS.iter().find(|(name_of_row, _)| google && *name_of_row == key);
            address.or_else(|| preset.map(|(_, address)| (*address).to_owned())).ok_or_else(|| {
                let reason =
                    format!("provider '{name}' needs {key}; set all endpoints, or none for discovery");
                file.value_error(span.clone(), key, reason)
            })
        };
        let [authorization_endpoint, token_endpoint, jwks_uri] = set.map(need);
        Some(ProviderEndpoints {
            authorization_endpoint: authorization_endpoint?,
            token_endpoint: token_endpoint?,
            jwks_uri: jwks_uri?,
            userinfo_endpoint: section.userinfo_endpoint,
            sends_issuer: false,
        })
    };
    let rules = section.mapping.into_iter().map(|rule| {
        let table = rule.span();
        rule.into_inner().check(file, &table)
    });
    let seconds = file.bounded_number("rights_max_age_s", &section.rights_max_age_s, 60..=31_622_400)?;
    let rights_max_age = SignedDuration::from_secs(seconds.into());
    let mapping = ClaimMapping {
        rules: rules.collect::<Result<_, _>>()?,
        // `[[claim]]` adds them.
        passed_on: Vec::new(),
        fhir_user_claim: section.fhir_user_claim,
        renews_claims: section.update_claims == UpdateClaims::Always,
    };
    Ok(ConfiguredProvider {
        timeout: Duration::from_millis(section.timeout_ms),
        provider: IdentityProvider {
            issuer,
            endpoints,
            name,
            client_id: section.client_id.get(file, &table, "client_id")?,
            client_auth,
            scopes: section.scopes,
            google,
            create_users: section.create_users,
            link_by_email: section.link_by_email,
            own_methods: section.own_methods,
            rights_max_age,
            mapping,
        },
    })
}

const GOOGLE_ISSUER: &str = "https://accounts.google.com";
const GOOGLE_ENDPOINTS: [(&str, &str); 3] = [
    ("authorization_endpoint", "https://accounts.google.com/o/oauth2/v2/auth"),
    ("token_endpoint", "https://oauth2.googleapis.com/token"),
    ("jwks_uri", "https://www.googleapis.com/oauth2/v3/certs"),
];

/// Checks the authentication of this server at the provider. `name` is the position of the provider's name.
fn check_client_auth(
    secret: Option<String>,
    method: Option<&Spanned<String>>,
    alg: Option<&Spanned<String>>,
    audience: Option<&Spanned<String>>,
    name: &Range<usize>,
    file: &ConfigSource<'_>,
) -> Result<ProviderClientAuth, ConfigError> {
    // OpenID Connect Registration 1.0 section 2: client_secret_basic is the default.
    let default = if secret.is_some() { "client_secret_basic" } else { "none" };
    let refuse = |reason: &str| {
        let span = method.map_or_else(|| name.clone(), Spanned::span);
        Err(file.value_error(span, "token_endpoint_auth_method", reason))
    };
    match (method.map_or(default, |method| method.as_ref()), secret) {
        ("client_secret_basic", Some(secret)) => Ok(ProviderClientAuth::SecretBasic(secret)),
        ("client_secret_post", Some(secret)) => Ok(ProviderClientAuth::SecretPost(secret)),
        ("client_secret_basic" | "client_secret_post", None) => {
            refuse("this method needs client_secret_file or client_secret_env")
        }
        ("none", None) => Ok(ProviderClientAuth::None),
        ("private_key_jwt", None) => Ok(ProviderClientAuth::PrivateKeyJwt {
            alg: match alg {
                None => SigningAlg::default(),
                Some(name) => SigningAlg::parse(name.as_ref()).ok_or_else(|| {
                    let reason =
                        format!("'{}' is not known; use RS256, ES256, ES384 or EdDSA", name.as_ref());
                    file.value_error(name.span(), "token_endpoint_auth_signing_alg", reason)
                })?,
            },
            audience: match audience.map(|audience| (audience.as_ref().as_str(), audience.span())) {
                None | Some(("issuer", _)) => AssertionTarget::Issuer,
                Some(("token_endpoint", _)) => AssertionTarget::TokenEndpoint,
                Some((other, span)) => {
                    let reason = format!("'{other}' is not known; use issuer or token_endpoint");
                    return Err(file.value_error(span, "assertion_audience", reason));
                }
            },
        }),
        ("none" | "private_key_jwt", Some(_)) => refuse("this method uses no client secret"),
        _ => refuse("use client_secret_basic, client_secret_post, private_key_jwt or none"),
    }
}

#[cfg(test)]
mod tests {
    use identity::model::provider::{AssertionTarget, ProviderClientAuth};

    use crate::config::checks::{check_refused, load};

    #[test]
    fn the_google_preset_needs_only_the_client() {
        let config =
            load("[[provider]]\nname = \"Google\"\npreset = \"google\"\nclient_id = \"c\"\n").unwrap();
        assert_eq!(config.settings.providers[0].provider.issuer, "https://accounts.google.com");
        assert!(config.settings.providers[0].provider.google);
    }

    #[test]
    fn a_provider_has_all_endpoints_or_discovery_and_one_way_to_authenticate() {
        let provider = "[[provider]]\nname = \"P\"\nissuer = \"https://idp.example\"\nclient_id = \"c\"\n";
        let config = load(provider).unwrap();
        assert_eq!(config.settings.providers[0].provider.endpoints, None);
        check_refused(
            &format!("{provider}jwks_uri = \"https://idp.example/jwks\"\n"),
            "all endpoints, or none",
        );
        let method = |name: &str| format!("{provider}token_endpoint_auth_method = \"{name}\"\n");
        let config = load(&method("private_key_jwt")).unwrap();
        let expected = ProviderClientAuth::PrivateKeyJwt {
            alg: identity::SigningAlg::Rs256,
            audience: AssertionTarget::Issuer,
        };
        assert_eq!(config.settings.providers[0].provider.client_auth, expected);
        check_refused(&method("client_secret_post"), "line 5: token_endpoint_auth_method: this method needs");
        check_refused(&method("client_secret_jwt"), "use client_secret_basic");
        let jwt = method("private_key_jwt");
        check_refused(&format!("{jwt}token_endpoint_auth_signing_alg = \"PS256\"\n"), "'PS256' is not known");
        check_refused(&format!("{jwt}assertion_audience = \"token\"\n"), "use issuer or token_endpoint");
    }
}
