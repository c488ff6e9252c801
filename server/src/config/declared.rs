//! `[[client]]` and `[[scope]]`: clients and scopes declared in the file. What is wrong is told with its line
//! and key.

use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::{ConfigError, File};
use crate::registration::{Registration, needs_secret};
use crate::settings::CustomScope;
use identity::client::Client;
use identity::scope::{RESERVED, Scopes, SmartScope};

/// `[[client]]`, with the names of RFC 7591 and OpenID Connect Registration where they have one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSection {
    client_id: Spanned<String>,
    client_name: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<Spanned<String>>,
    #[serde(default)]
    post_logout_redirect_uris: Vec<Spanned<String>>,
    #[serde(default)]
    response_types: Vec<Spanned<String>>,
    #[serde(default)]
    grant_types: Vec<Spanned<String>>,
    token_endpoint_auth_method: Option<Spanned<String>>,
    #[serde(default)]
    token_endpoint_auth_methods: Vec<Spanned<String>>,
    token_endpoint_auth_signing_alg: Option<Spanned<String>>,
    #[serde(default)]
    token_endpoint_auth_signing_algs: Vec<Spanned<String>>,
    scope: Option<Spanned<String>>,
    jwks: Option<Spanned<toml::Table>>,
    jwks_file: Option<Spanned<PathBuf>>,
    jwks_uri: Option<Spanned<String>>,
    client_secret: Option<Spanned<IgnoredAny>>,
    client_secret_file: Option<Spanned<PathBuf>>,
    client_secret_env: Option<Spanned<String>>,
    id_token_signed_response_alg: Option<Spanned<String>>,
    application_type: Option<Spanned<String>>,
    #[serde(default)]
    require_pushed_authorization_requests: bool,
    #[serde(default)]
    dpop_bound_access_tokens: bool,
    pkce_required: Option<Spanned<bool>>,
    #[serde(default)]
    first_party: bool,
    #[serde(default)]
    always_refresh: bool,
    #[serde(default)]
    refresh_grace_s: u32,
    #[serde(default)]
    introspects: bool,
    #[serde(default)]
    groups: Vec<String>,
}

/// A declared client.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The client.
    pub client: Client,
    /// The line of its id.
    pub line: usize,
}

fn texts(values: &[Spanned<String>]) -> Vec<String> {
    values.iter().map(|value| value.as_ref().clone()).collect()
}

impl ClientSection {
    /// Where a value of a member stands; the client's id where the member was left out.
    fn span(&self, key: &str, at: usize) -> Range<usize> {
        let lists = match key {
            "redirect_uris" => self.redirect_uris.get(at),
            "post_logout_redirect_uris" => self.post_logout_redirect_uris.get(at),
            "response_types" => self.response_types.get(at),
            "grant_types" => self.grant_types.get(at),
            "token_endpoint_auth_methods" => {
                self.token_endpoint_auth_method.iter().chain(&self.token_endpoint_auth_methods).nth(at)
            }
            "token_endpoint_auth_signing_algs" => self
                .token_endpoint_auth_signing_alg
                .iter()
                .chain(&self.token_endpoint_auth_signing_algs)
                .nth(at),
            "scope" => self.scope.as_ref(),
            "jwks_uri" => self.jwks_uri.as_ref(),
            "id_token_signed_response_alg" => self.id_token_signed_response_alg.as_ref(),
            _ => None,
        };
        let others = match key {
            "jwks" => self.jwks.as_ref().map(Spanned::span).or(self.jwks_file.as_ref().map(Spanned::span)),
            "pkce_required" => self.pkce_required.as_ref().map(Spanned::span),
            "client_secret" => {
                let file = self.client_secret_file.as_ref().map(Spanned::span);
                file.or(self.client_secret_env.as_ref().map(Spanned::span))
            }
            _ => None,
        };
        lists.map(Spanned::span).or(others).unwrap_or_else(|| self.client_id.span())
    }

    /// The checked client.
    pub fn read(self, file: &File<'_>) -> Result<Declared, ConfigError> {
        if let Some(inline) = &self.client_secret {
            let why = "a secret does not stand in this file; use client_secret_file or client_secret_env";
            return Err(file.wrong(inline.span(), "client_secret", why));
        }
        let secret =
            file.secret("client_secret", self.client_secret_file.as_ref(), self.client_secret_env.as_ref())?;
        let jwks = match (&self.jwks, &self.jwks_file) {
            (Some(_), Some(file_name)) => {
                return Err(file.wrong(file_name.span(), "jwks_file", "give the keys in one way only"));
            }
            (Some(inline), None) => Some(
                serde_json::to_value(inline.as_ref())
                    .map_err(|error| file.wrong(inline.span(), "jwks", error))?,
            ),
            (None, Some(path)) => {
                let unreadable = |error: &dyn std::fmt::Display| {
                    let why = format!("failed to read {}: {error}", path.as_ref().display());
                    file.wrong(path.span(), "jwks_file", why)
                };
                let text = std::fs::read(file.beside(path.as_ref())).map_err(|error| unreadable(&error))?;
                Some(serde_json::from_slice(&text).map_err(|error| unreadable(&error))?)
            }
            (None, None) => None,
        };
        let native = match self.application_type.as_ref().map(|kind| (kind.as_ref().as_str(), kind)) {
            None | Some(("web", _)) => false,
            Some(("native", _)) => true,
            Some((other, kind)) => {
                let why = format!("'{other}' is not known; use web or native");
                return Err(file.wrong(kind.span(), "application_type", why));
            }
        };
        let one_or_more = |one: &Option<Spanned<String>>, more: &[Spanned<String>]| {
            one.iter().chain(more).map(|value| value.as_ref().clone()).collect()
        };
        let registration = Registration {
            client_id: self.client_id.as_ref().clone(),
            client_name: self.client_name.clone(),
            redirect_uris: texts(&self.redirect_uris),
            post_logout_redirect_uris: texts(&self.post_logout_redirect_uris),
            response_types: texts(&self.response_types),
            grant_types: texts(&self.grant_types),
            auth_methods: one_or_more(&self.token_endpoint_auth_method, &self.token_endpoint_auth_methods),
            assertion_algs: one_or_more(
                &self.token_endpoint_auth_signing_alg,
                &self.token_endpoint_auth_signing_algs,
            ),
            scope: self.scope.as_ref().map(|scope| scope.as_ref().clone()),
            jwks,
            jwks_uri: self.jwks_uri.as_ref().map(|address| address.as_ref().clone()),
            secret,
            id_token_alg: self.id_token_signed_response_alg.as_ref().map(|alg| alg.as_ref().clone()),
            native,
            pkce_optional: self.pkce_required.as_ref().is_some_and(|required| !required.as_ref()),
            first_party: self.first_party,
            always_refresh: self.always_refresh,
            refresh_grace_s: self.refresh_grace_s,
            require_par: self.require_pushed_authorization_requests,
            dpop_bound: self.dpop_bound_access_tokens,
            introspects: self.introspects,
            groups: self.groups.clone(),
        };
        let client = registration
            .client()
            .map_err(|wrong| file.wrong(self.span(wrong.key, wrong.at), wrong.key, &wrong.why))?;
        if needs_secret(&client) && client.secret_digests.is_empty() {
            let why = "a client with a secret needs client_secret_file or client_secret_env";
            return Err(file.wrong(self.client_id.span(), "client_id", why));
        }
        Ok(Declared { client, line: file.line(self.client_id.span()) })
    }
}

/// `[[scope]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeSection {
    name: Spanned<String>,
    /// What the consent page says; the name where it is left out.
    description: Option<String>,
}

impl ScopeSection {
    /// The checked scope.
    pub fn read(self, file: &File<'_>) -> Result<CustomScope, ConfigError> {
        let name = self.name.as_ref();
        let is_one = Scopes::parse(name).is_ok_and(|scopes| scopes.iter().count() == 1);
        let taken = RESERVED.contains(&name.as_str())
            || SmartScope::parse(name).is_some()
            || ["offline_access", identity::scope::ADMIN].contains(&name.as_str());
        match (is_one, taken) {
            (false, _) => Err(file.wrong(self.name.span(), "name", "a scope is one word without spaces")),
            (true, true) => {
                Err(file.wrong(self.name.span(), "name", format!("the scope '{name}' is the server's own")))
            }
            (true, false) => Ok(CustomScope {
                description: self.description.unwrap_or_else(|| name.clone()),
                name: self.name.into_inner(),
            }),
        }
    }
}
