//! Scopes: those of OpenID Connect, custom scopes, and SMART scopes in the v1 and v2 notations (SMART App
//! Launch 2.2).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::client_values::{NamedValue, named_values};
use crate::model::nearest_name::nearest_name;

named_values! {
    /// The scopes that name no resource type.
    NamedScope {
        /// OpenID Connect Core section 3.1.2.1.
        Openid = "openid",
        /// OpenID Connect Core section 5.4.
        Email = "email",
        /// OpenID Connect Core section 5.4.
        Phone = "phone",
        /// OpenID Connect Core section 5.4.
        Profile = "profile",
        /// SMART App Launch 2.2, scopes for identity data.
        FhirUser = "fhirUser",
        /// SMART App Launch 2.2: the context of an app that opens another.
        Launch = "launch",
        /// SMART App Launch 2.2: a patient, who is chosen at the sign-in.
        LaunchPatient = "launch/patient",
        /// SMART App Launch 2.2: an encounter.
        LaunchEncounter = "launch/encounter",
        /// OpenID Connect Core section 11.
        OfflineAccess = "offline_access",
        /// SMART App Launch 2.2: a refresh token that ends with the session.
        OnlineAccess = "online_access",
        /// The admin API of this server. Only an administrator can grant it.
        Admin = "trefoil/admin",
        /// Tokens that may create launch contexts.
        CreateLaunch = "trefoil/launch",
        /// Tokens of a monitoring that may read the metrics of this server, and nothing else.
        Metrics = "trefoil/metrics",
    }

    /// The data that a SMART scope makes accessible.
    ScopeContext {
        /// Data in the compartment of the launch patient.
        Patient = "patient",
        /// Data that the signed-in user may see.
        User = "user",
        /// Data that a back-end client may read or change.
        System = "system",
    }
}

/// Scope of the admin API.
pub const ADMIN_SCOPE: &str = NamedScope::Admin.name();

impl NamedScope {
    /// `true` for the scopes of OpenID Connect and SMART App Launch, which every client may know.
    pub fn is_standard(self) -> bool {
        !matches!(self, Self::Admin | Self::CreateLaunch | Self::Metrics)
    }

    /// `true` if the scope is not granted to a back end, which has no user.
    pub fn needs_user(self) -> bool {
        match self {
            Self::Openid
            | Self::Email
            | Self::Phone
            | Self::Profile
            | Self::OfflineAccess
            | Self::OnlineAccess => true,
            Self::FhirUser
            | Self::Launch
            | Self::LaunchPatient
            | Self::LaunchEncounter
            | Self::Admin
            | Self::CreateLaunch
            | Self::Metrics => false,
        }
    }

    /// The scopes of OpenID Connect and SMART App Launch.
    pub fn standard() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|scope| scope.is_standard())
    }

    /// Whether the text is a scope of OpenID Connect or SMART App Launch that names no resource type.
    pub fn is_standard_name(scope: &str) -> bool {
        Self::named(scope).is_some_and(Self::is_standard)
    }
}

impl ScopeContext {
    /// The context of a scope for resources, which may be malformed otherwise.
    pub fn of(scope: &str) -> Option<Self> {
        Self::named(scope.split_once('/')?.0)
    }
}

/// Returns the standard or SMART scope that a scope was probably meant to be, or `None` if it is one or is
/// similar to none.
pub fn nearest_scope(scope: &str) -> Option<String> {
    if SmartScope::parse(scope).is_some() || NamedScope::is_standard_name(scope) {
        return None;
    }
    if let Some((context, rest)) = scope.split_once('/')
        && ScopeContext::named(context).is_some()
    {
        let (kind, permissions) = rest.split_once('.').unwrap_or((rest, ""));
        let kind = match fhir::resource_type(kind) {
            Some(kind) => kind,
            None if kind == "*" => "*",
            None => nearest_name(kind, fhir::RESOURCE_TYPES.iter().copied())?,
        };
        let candidate = format!("{context}/{kind}.{permissions}");
        let is_valid = SmartScope::parse(&candidate).is_some();
        return Some(if is_valid { candidate } else { format!("{context}/{kind}.rs") });
    }
    nearest_name(scope, NamedScope::standard().map(NamedScope::name)).map(str::to_owned)
}

/// A list of scopes without duplicates, in the order of the parsed text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Scopes(Vec<ScopeEntry>);

/// One scope. A SMART scope is parsed when the list is created, because every FHIR request evaluates it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScopeEntry {
    text: String,
    smart_scopes: Option<ParsedScope>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ParsedScope {
    context: ScopeContext,
    kind: &'static str,
    permissions: ScopePermissions,
    is_granular: bool,
}

impl From<String> for ScopeEntry {
    fn from(text: String) -> Self {
        let smart_scopes =
            SmartScope::parse(&text).map(|SmartScope { context, kind, permissions, query }| ParsedScope {
                context,
                kind: fhir::resource_type(kind).unwrap_or("*"),
                permissions,
                is_granular: query.is_some(),
            });
        Self { text, smart_scopes }
    }
}

impl From<Vec<String>> for Scopes {
    fn from(scopes: Vec<String>) -> Self {
        Self(scopes.into_iter().map(ScopeEntry::from).collect())
    }
}

impl From<Scopes> for Vec<String> {
    fn from(scopes: Scopes) -> Self {
        scopes.0.into_iter().map(|scope| scope.text).collect()
    }
}

/// The error for a text that is not a list of scopes (RFC 6749 section 3.3).
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not a list of scopes separated by spaces")]
pub struct MalformedScope(pub String);

impl Scopes {
    /// Parses a list separated by spaces. Spaces around the list and repeated ones are ignored, because
    /// clients that join lists send them. A text without scopes is an empty list.
    ///
    /// # Errors
    /// Returns [`MalformedScope`] for characters that RFC 6749 section 3.3 does not allow, which are also the
    /// other kinds of white space.
    pub fn parse(text: &str) -> Result<Self, MalformedScope> {
        let scopes = || text.split(' ').filter(|scope| !scope.is_empty());
        let legal = |b: u8| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b);
        if !scopes().all(|scope| scope.bytes().all(legal)) {
            return Err(MalformedScope(text.to_owned()));
        }
        Ok(scopes().collect())
    }

    /// Returns `true` if the list contains exactly this scope.
    pub fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|s| s.text == scope)
    }

    /// Returns `true` if the list contains this scope.
    pub fn has(&self, scope: NamedScope) -> bool {
        self.contains(scope.name())
    }

    /// Returns `true` if a scope of the list grants all permissions of `scope`.
    pub fn covers(&self, scope: &str) -> bool {
        match SmartScope::parse(scope) {
            Some(requested) => self.smart_scopes().any(|own| own.covers(&requested)),
            None => self.contains(scope),
        }
    }

    /// Returns `true` if a SMART scope of the list grants these permissions on a resource type in this
    /// context.
    pub fn allow_access(&self, context: ScopeContext, kind: &str, permissions: ScopePermissions) -> bool {
        self.smart_scopes().any(|own| own.context == context && own.allows(kind, permissions))
    }

    /// Returns `true` if the scopes require a launch patient, as a launch of SMART App Launch does.
    pub fn is_launch(&self) -> bool {
        self.has(NamedScope::LaunchPatient)
            || self.smart_scopes().any(|scope| scope.context == ScopeContext::Patient)
    }

    /// Returns the scopes of this list that `other` covers.
    #[must_use]
    pub fn covered_by(&self, other: &Self) -> Self {
        self.filter(|scope| other.covers(scope))
    }

    /// Returns the scopes for which `test` returns `true`.
    #[must_use]
    pub fn filter(&self, test: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|scope| test(&scope.text)).cloned().collect())
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the scopes in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|scope| scope.text.as_str())
    }

    /// Returns the SMART scopes in the order of the list.
    pub fn smart_scopes(&self) -> impl Iterator<Item = SmartScope<'_>> {
        self.0.iter().filter_map(|scope| {
            let ParsedScope { context, kind, permissions, is_granular } = scope.smart_scopes?;
            let query = is_granular.then(|| scope.text.split_once('?')).flatten().map(|(_, query)| query);
            Some(SmartScope { context, kind, permissions, query })
        })
    }
}

impl<'a> FromIterator<&'a str> for Scopes {
    fn from_iter<I: IntoIterator<Item = &'a str>>(scopes: I) -> Self {
        let mut names = BTreeSet::new();
        Self(scopes.into_iter().filter(|s| names.insert(*s)).map(|s| s.to_owned().into()).collect())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " " })?;
            f.write_str(scope)?;
        }
        Ok(())
    }
}

/// Permissions of a SMART scope, as a bit set in the order `cruds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScopePermissions(u8);

impl ScopePermissions {
    /// Create, update and delete: `write` in the v1 notation.
    pub const WRITE: Self = Self(0b1_0110);
    /// Read and search: `read` in the v1 notation.
    pub const READ: Self = Self(0b0_1001);
    /// Create.
    pub const CREATE: Self = Self(0b1_0000);
    /// Read one resource by its id.
    pub const GET: Self = Self(0b0_1000);
    /// Search.
    pub const SEARCH: Self = Self(0b0_0001);
    /// Update.
    pub const UPDATE: Self = Self(0b0_0100);
    /// Delete.
    pub const DELETE: Self = Self(0b0_0010);

    fn parse(text: &str) -> Option<Self> {
        match text {
            "read" => return Some(Self::READ),
            "write" => return Some(Self::WRITE),
            "*" => return Some(Self(0b1_1111)),
            "" => return None,
            _ => {}
        }
        // The v2 notation: letters of `cruds` in this order, each at most once.
        let mut rest = "cruds".char_indices();
        let mut bits = 0;
        for letter in text.chars() {
            let (offset, _) = rest.find(|(_, c)| *c == letter)?;
            bits |= 0b1_0000 >> offset;
        }
        Some(Self(bits))
    }

    /// Returns `true` if these permissions include all of `other`.
    pub fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Writes the v2 notation.
impl fmt::Display for ScopePermissions {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        "cruds"
            .chars()
            .enumerate()
            .filter(|(bit, _)| self.0 & (0b1_0000 >> bit) != 0)
            .try_for_each(|(_, c)| write!(f, "{c}"))
    }
}

/// A SMART scope such as `system/*.rs` or `user/ValueSet.read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmartScope<'a> {
    /// The data that the scope makes accessible.
    pub context: ScopeContext,
    /// Resource type, or `*` for all types of R4.
    pub kind: &'a str,
    /// The permissions on that data.
    pub permissions: ScopePermissions,
    /// Query of a granular scope (`?category=…`).
    pub query: Option<&'a str>,
}

impl<'a> SmartScope<'a> {
    /// Parses a SMART scope. Returns `None` for any other scope.
    pub fn parse(scope: &'a str) -> Option<Self> {
        let (context, rest) = scope.split_once('/')?;
        let context = ScopeContext::named(context)?;
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (kind, permissions) = rest.split_once('.')?;
        let is_type = kind == "*" || fhir::resource_type(kind).is_some();
        is_type.then_some(Self { context, kind, permissions: ScopePermissions::parse(permissions)?, query })
    }

    /// Returns `true` if this scope grants all permissions of `other`. A granular scope covers granular
    /// scopes with at least its parameters, each of which restricts the access further. Granular scopes that
    /// cannot be evaluated are not covered by any scope, and are therefore never granted: those with other
    /// permissions than read and search, and those for all types.
    pub fn covers(&self, other: &SmartScope) -> bool {
        let is_narrower = match (self.query, other.query) {
            (_, Some(_)) if other.kind == "*" || !ScopePermissions::READ.contains_all(other.permissions) => {
                false
            }
            (_, Some("")) | (Some(_), None) => false,
            (None, _) => true,
            (Some(own), Some(others)) => {
                own.split('&').all(|part| others.split('&').any(|other| other == part))
            }
        };
        is_narrower
            && self.context == other.context
            && (self.kind == "*" || self.kind == other.kind)
            && self.permissions.contains_all(other.permissions)
    }

    /// Returns `true` if the scope grants these permissions on all resources of a type in its context. A
    /// granular scope does not.
    pub fn allows(&self, kind: &str, permissions: ScopePermissions) -> bool {
        self.query.is_none()
            && (self.kind == "*" || self.kind == kind)
            && self.permissions.contains_all(permissions)
    }
}

impl fmt::Display for ScopeContext {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Writes the v2 notation.
impl fmt::Display for SmartScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}.{}", self.context, self.kind, self.permissions)?;
        self.query.map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_checked_and_deduplicated() {
        assert_eq!(Scopes::parse("openid email openid").unwrap().to_string(), "openid email");
        for empty in ["", " ", "   "] {
            assert!(Scopes::parse(empty).unwrap().is_empty());
        }
        for spaces in [" openid email", "openid email ", "openid   email", "  openid  email  "] {
            assert_eq!(Scopes::parse(spaces).unwrap().to_string(), "openid email");
        }
        for bad in ["a\"b", "a\\b", "a\tb", "a\nb", "\ta", "a\r\n", "a\u{a0}b", "a\u{2003}b", "ä"] {
            assert!(Scopes::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[track_caller]
    fn check(own: &str, requested: &str, expected: bool) {
        assert_eq!(Scopes::parse(own).unwrap().covers(requested), expected, "{own} covers {requested}");
    }

    #[test]
    fn v1_and_v2_spellings_are_equivalent() {
        check("system/*.read", "system/Patient.rs", true);
        check("system/*.rs", "system/*.read", true);
        check("system/*.rs", "system/Patient.r", true);
        check("system/Group.cud", "system/Group.write", true);
        check("system/*.*", "system/Patient.cruds", true);
        check("system/Patient.rs", "system/*.rs", false);
        check("system/Patient.r", "system/Patient.rs", false);
        check("user/*.rs", "system/*.rs", false);
        check("system/Observation.rs?category=laboratory", "system/Observation.rs", false);
        check("openid", "openid", true);
        check("openid", "email", false);
    }

    #[test]
    fn granular_scopes_are_covered_by_wider_ones() {
        check("system/*.rs", "system/Observation.rs?category=laboratory", true);
        check("system/Observation.read", "system/Observation.r?category=laboratory", true);
        check("system/Observation.rs?category=a", "system/Observation.rs?category=a", true);
        check("system/Observation.rs?category=a", "system/Observation.s?status=final&category=a", true);
        check("system/Observation.rs?category=a&status=final", "system/Observation.rs?category=a", false);
        check("system/Observation.rs?category=a", "system/Observation.rs?category=b", false);
        check("system/Observation.rs?category=a", "system/Observation.rs", false);
        check("system/Patient.rs", "system/Observation.rs?category=a", false);
        check("user/*.rs", "system/Observation.rs?category=a", false);
        check("system/*.rs", "system/*.rs?_tag=a", false);
        check("system/*.cruds", "system/Observation.cruds?category=a", false);
        check("system/*.rs", "system/Observation.rs?", false);
    }

    #[test]
    fn smart_scopes_are_written_in_the_v2_notation() {
        for (scope, written) in [
            ("system/*.read", "system/*.rs"),
            ("user/ValueSet.write", "user/ValueSet.cud"),
            ("patient/Observation.*", "patient/Observation.cruds"),
            ("patient/Observation.s?category=laboratory", "patient/Observation.s?category=laboratory"),
        ] {
            assert_eq!(SmartScope::parse(scope).unwrap().to_string(), written);
        }
    }

    #[test]
    fn malformed_smart_scopes_are_not_parsed() {
        for text in [
            "system/*",
            "system/Patient.sr",
            "system/Patient.rr",
            "system/.rs",
            "sys/Patient.rs",
            "system/Patient.",
            "system/Pat1ent.rs",
            "system/patient.rs",
        ] {
            assert_eq!(SmartScope::parse(text), None, "{text}");
        }
    }
}
