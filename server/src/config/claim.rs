//! `[[claim]]`: claims about users that the operator declares. Each error names its line and key.

use std::ops::Range;

use identity::model::declared_claim::{ClaimKind, ClaimSource, DeclaredClaim, is_reserved};
use identity::model::scope::NamedScope;
use toml::Spanned;

use super::ConfiguredProvider;
use super::documented::{Required, settings_table};
use super::settings::CustomScope;
use super::{ConfigError, ConfigSource};

settings_table! {
    /// A claim about users, such as `groups`, which apps receive with a scope.
    pub struct ClaimSection {
        /// Name of the claim.
        name: Required<Spanned<String>> = Required::MISSING,
        /// Scope with which apps receive it: `profile` or the name of a `[[scope]]`. Every user may grant it.
        scope: Required<Spanned<String>> = Required::MISSING,
        /// Source of the values as `PROVIDER:CLAIM`, such as `Hospital:realm_access.roles`. The values end
        /// with the rights of the sign-in at the provider. Without this setting,
        /// `trefoil user change ada --claim groups=nurse` sets values.
        from: Option<Spanned<String>> = None,
        /// Type of the values. The values of a list are texts.
        kind: ClaimKind = ClaimKind::List,
        /// Whether ID tokens contain it, beside userinfo. More than 200 values or 8 KiB are in userinfo only.
        id_token: bool = true,
        /// Whether access tokens contain it, for your own resource servers.
        access_token: bool = false,
    }
}

impl ClaimSection {
    /// Checks the section and returns the claim.
    pub fn check(
        self,
        file: &ConfigSource<'_>,
        table: &Range<usize>,
        scopes: &[CustomScope],
        providers: &[ConfiguredProvider],
    ) -> Result<DeclaredClaim, ConfigError> {
        let name = self.name.get(file, table, "name")?;
        let is_word =
            |text: &str| !text.is_empty() && !text.contains(['=', ' ']) && !text.contains(char::is_control);
        if !is_word(name.as_ref()) || is_reserved(name.as_ref()) {
            let reason = match is_word(name.as_ref()) {
                true => {
                    format!("the claim '{}' has a meaning of its own; choose another name", name.as_ref())
                }
                false => "a claim must be one word without '='".to_owned(),
            };
            return Err(file.value_error(name.span(), "name", reason));
        }
        let scope = self.scope.get(file, table, "scope")?;
        let is_declared = scopes.iter().any(|candidate| candidate.name == *scope.as_ref());
        if !is_declared && *scope.as_ref() != NamedScope::Profile.name() {
            let reason = format!(
                "the scope '{}' has no description for users; add a [[scope]] with this name, or use profile",
                scope.as_ref()
            );
            return Err(file.value_error(scope.span(), "scope", reason));
        }
        let source = match self.from {
            None => ClaimSource::Users,
            Some(from) => {
                let refuse = |reason: String| file.value_error(from.span(), "from", reason);
                let parts = from.as_ref().split_once(':').filter(|(_, path)| !path.is_empty());
                let (provider, path) = parts
                    .ok_or_else(|| refuse("write PROVIDER:CLAIM, such as Hospital:groups".to_owned()))?;
                if !providers.iter().any(|candidate| candidate.provider.name == provider) {
                    return Err(refuse(format!("no [[provider]] has the name '{provider}'")));
                }
                ClaimSource::Provider { provider: provider.to_owned(), path: path.to_owned() }
            }
        };
        let (name, scope) = (name.into_inner(), scope.into_inner());
        let (in_id_token, in_access_token) = (self.id_token, self.access_token);
        Ok(DeclaredClaim { name, scope, kind: self.kind, source, in_id_token, in_access_token })
    }
}

/// Checks the sections, of which no two may have the same name, and gives the providers the claims that are
/// taken from them.
pub fn check_claims(
    sections: Vec<Spanned<ClaimSection>>,
    file: &ConfigSource<'_>,
    scopes: &[CustomScope],
    providers: &mut [ConfiguredProvider],
) -> Result<Vec<DeclaredClaim>, ConfigError> {
    let mut claims: Vec<DeclaredClaim> = Vec::new();
    for section in sections {
        let table = section.span();
        let claim = section.into_inner().check(file, &table, scopes, providers)?;
        if claims.iter().any(|earlier| earlier.name == claim.name) {
            let reason = format!("the claim '{}' is declared twice; a claim has one source", claim.name);
            return Err(file.value_error(table, "name", reason));
        }
        claims.push(claim);
    }
    for configured in providers {
        let is_from = |claim: &&DeclaredClaim| match &claim.source {
            ClaimSource::Provider { provider, .. } => *provider == configured.provider.name,
            ClaimSource::Users => false,
        };
        configured.provider.mapping.passed_on = claims.iter().filter(is_from).cloned().collect();
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use crate::config::checks::{check_refused, load};

    const PROVIDER: &str = "[[provider]]\nname = \"Hospital\"\nissuer = \"https://idp.example\"\nclient_id = \"trefoil\"\n\
                            token_endpoint_auth_method = \"none\"\n";
    const SCOPE: &str = "[[scope]]\nname = \"groups\"\ndescription = \"see your groups\"\n";

    #[test]
    fn each_fault_of_a_claim_is_named_with_its_line() {
        let check =
            |claim: &str, says: &str| check_refused(&format!("{PROVIDER}{SCOPE}[[claim]]\n{claim}"), says);
        check("scope = \"groups\"", "name");
        check("name = \"groups\"", "scope");
        check(
            "name = \"email\"\nscope = \"groups\"",
            "line 10: name: the claim 'email' has a meaning of its own",
        );
        check("name = \"sub\"\nscope = \"groups\"", "the claim 'sub' has a meaning of its own");
        check("name = \"a=b\"\nscope = \"groups\"", "one word without '='");
        check("name = \"roles\"\nscope = \"roles\"", "line 11: scope: the scope 'roles' has no description");
        check("name = \"roles\"\nscope = \"groups\"\nkind = \"set\"", "unknown variant `set`");
        check("name = \"roles\"\nscope = \"groups\"\nfrom = \"roles\"", "from: write PROVIDER:CLAIM");
        check(
            "name = \"roles\"\nscope = \"groups\"\nfrom = \"Clinic:roles\"",
            "no [[provider]] has the name 'Clinic'",
        );
        let one = "name = \"roles\"\nscope = \"groups\"\n";
        check(&format!("{one}[[claim]]\n{one}"), "the claim 'roles' is declared twice");
    }

    #[test]
    fn a_provider_has_the_claims_that_are_taken_from_it() {
        let claims = "[[claim]]\nname = \"groups\"\nscope = \"groups\"\nfrom = \"Hospital:realm_access.roles\"\n\
                      [[claim]]\nname = \"ward\"\nscope = \"profile\"\nkind = \"text\"\nid_token = false\n";
        let settings = load(&format!("{PROVIDER}{SCOPE}{claims}")).unwrap().settings;
        let names = |claims: &[super::DeclaredClaim]| {
            claims.iter().map(|claim| claim.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&settings.claims), ["groups", "ward"]);
        assert_eq!(names(&settings.providers[0].provider.mapping.passed_on), ["groups"]);
        let in_tokens = settings.claims.iter().map(|claim| (claim.in_id_token, claim.in_access_token));
        assert_eq!(in_tokens.collect::<Vec<_>>(), [(true, false), (false, false)]);
    }
}
