//! Scopes: the reserved ones of OpenID Connect, plain custom ones, and SMART scopes (SMART App
//! Launch 2.2, scopes; v1 and v2 spellings mean the same).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Scopes that the system reserves (SPEC, authorize).
pub const RESERVED: [&str; 4] = ["openid", "email", "phone", "profile"];

/// Opens the admin API; a user needs to be an administrator to grant it.
pub const ADMIN: &str = "trefoil/admin";

/// A list of scopes without doubles, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Scopes(Vec<Scope>);

/// A scope and, of a SMART scope, what it says: every FHIR request asks for that.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scope {
    text: String,
    smart: Option<Smart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Smart {
    context: Context,
    kind: &'static str,
    permissions: Permissions,
    is_granular: bool,
}

impl From<String> for Scope {
    fn from(text: String) -> Self {
        let smart = SmartScope::parse(&text).map(|SmartScope { context, kind, permissions, query }| Smart {
            context,
            kind: fhir::resource_type(kind).unwrap_or("*"),
            permissions,
            is_granular: query.is_some(),
        });
        Self { text, smart }
    }
}

impl From<Vec<String>> for Scopes {
    fn from(scopes: Vec<String>) -> Self {
        Self(scopes.into_iter().map(Scope::from).collect())
    }
}

impl From<Scopes> for Vec<String> {
    fn from(scopes: Scopes) -> Self {
        scopes.0.into_iter().map(|scope| scope.text).collect()
    }
}

/// The text is no list of scopes (RFC 6749 3.3).
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not a list of scopes separated by single spaces")]
pub struct MalformedScope(pub String);

impl Scopes {
    /// Reads a space-separated list. An empty text is an empty list.
    ///
    /// # Errors
    /// [`MalformedScope`] for characters that RFC 6749 3.3 leaves out and for doubled spaces.
    pub fn parse(text: &str) -> Result<Self, MalformedScope> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let legal = |b: u8| b == 0x21 || (0x23..=0x5b).contains(&b) || (0x5d..=0x7e).contains(&b);
        if text.split(' ').any(|scope| scope.is_empty() || !scope.bytes().all(legal)) {
            return Err(MalformedScope(text.to_owned()));
        }
        Ok(text.split(' ').collect())
    }

    /// Is this very scope in the list?
    pub fn has(&self, scope: &str) -> bool {
        self.0.iter().any(|s| s.text == scope)
    }

    /// Does one of the list cover the scope whole?
    pub fn covers(&self, scope: &str) -> bool {
        match SmartScope::parse(scope) {
            Some(asked) => self.smart().any(|held| held.covers(&asked)),
            None => self.has(scope),
        }
    }

    /// Does one of the list allow this on a type, in this context?
    pub fn allow(&self, context: Context, kind: &str, permissions: Permissions) -> bool {
        self.smart().any(|held| held.context == context && held.allows(kind, permissions))
    }

    /// Is a patient's data asked for: a launch in the sense of SMART App Launch?
    pub fn is_launch(&self) -> bool {
        self.has("launch/patient") || self.smart().any(|scope| scope.context == Context::Patient)
    }

    /// Those that `other` covers whole.
    #[must_use]
    pub fn covered_by(&self, other: &Self) -> Self {
        self.filter(|scope| other.covers(scope))
    }

    /// Those for which the test holds.
    #[must_use]
    pub fn filter(&self, test: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|scope| test(&scope.text)).cloned().collect())
    }

    /// Is the list empty?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scopes in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|scope| scope.text.as_str())
    }

    /// The SMART scopes among them.
    pub fn smart(&self) -> impl Iterator<Item = SmartScope<'_>> {
        self.0.iter().filter_map(|scope| {
            let Smart { context, kind, permissions, is_granular } = scope.smart?;
            let query = is_granular.then(|| scope.text.split_once('?')).flatten().map(|(_, query)| query);
            Some(SmartScope { context, kind, permissions, query })
        })
    }
}

impl<'a> FromIterator<&'a str> for Scopes {
    fn from_iter<I: IntoIterator<Item = &'a str>>(scopes: I) -> Self {
        let mut seen = BTreeSet::new();
        Self(scopes.into_iter().filter(|s| seen.insert(*s)).map(|s| s.to_owned().into()).collect())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (at, scope) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " " })?;
            f.write_str(scope)?;
        }
        Ok(())
    }
}

/// Whose data a SMART scope opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// The compartment of the launch patient.
    Patient,
    /// What the signed-in user may see.
    User,
    /// What a back-end client may see.
    System,
}

/// What a SMART scope allows, as bits `cruds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions(u8);

impl Permissions {
    /// Create, update and delete: `write` of v1.
    pub const WRITE: Self = Self(0b1_0110);
    /// Read and search: `read` of v1.
    pub const READ: Self = Self(0b0_1001);
    /// Create.
    pub const CREATE: Self = Self(0b1_0000);
    /// Read by id.
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
        // v2: letters of `cruds`, in this order, each at most once.
        let mut rest = "cruds".char_indices();
        let mut bits = 0;
        for letter in text.chars() {
            let (at, _) = rest.find(|(_, c)| *c == letter)?;
            bits |= 0b1_0000 >> at;
        }
        Some(Self(bits))
    }

    /// Are all of the other's permissions among these?
    pub fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A SMART scope such as `system/*.rs` or `user/ValueSet.read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmartScope<'a> {
    /// Whose data.
    pub context: Context,
    /// Resource type, or `*` for each type of R4.
    pub kind: &'a str,
    /// What may be done.
    pub permissions: Permissions,
    /// Query of a granular scope (`?category=…`).
    pub query: Option<&'a str>,
}

impl<'a> SmartScope<'a> {
    /// Reads a SMART scope; `None` for anything else.
    pub fn parse(scope: &'a str) -> Option<Self> {
        let (context, rest) = scope.split_once('/')?;
        let context = match context {
            "patient" => Context::Patient,
            "user" => Context::User,
            "system" => Context::System,
            _ => return None,
        };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (kind, permissions) = rest.split_once('.')?;
        let named = kind == "*" || fhir::resource_type(kind).is_some();
        named.then_some(Self { context, kind, permissions: Permissions::parse(permissions)?, query })
    }

    /// Does this scope cover the other whole? Nothing covers a granular one: its query is not applied to
    /// resources here, so that it is not granted.
    pub fn covers(&self, other: &SmartScope) -> bool {
        self.context == other.context && other.query.is_none() && self.allows(other.kind, other.permissions)
    }

    /// Does it allow this on a type?
    pub fn allows(&self, kind: &str, permissions: Permissions) -> bool {
        self.query.is_none()
            && (self.kind == "*" || self.kind == kind)
            && self.permissions.contain(permissions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_checked_and_freed_of_doubles() {
        assert_eq!(Scopes::parse("openid email openid").unwrap().to_string(), "openid email");
        assert!(Scopes::parse("").unwrap().is_empty());
        for bad in [" openid", "openid ", "a  b", "a\"b", "a\\b", "a\tb", "ä"] {
            assert!(Scopes::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[track_caller]
    fn check(held: &str, asked: &str, expected: bool) {
        assert_eq!(Scopes::parse(held).unwrap().covers(asked), expected, "{held} covers {asked}");
    }

    #[test]
    fn v1_and_v2_mean_the_same() {
        check("system/*.read", "system/Patient.rs", true);
        check("system/*.rs", "system/*.read", true);
        check("system/*.rs", "system/Patient.r", true);
        check("system/Group.cud", "system/Group.write", true);
        check("system/*.*", "system/Patient.cruds", true);
        check("system/Patient.rs", "system/*.rs", false);
        check("system/Patient.r", "system/Patient.rs", false);
        check("user/*.rs", "system/*.rs", false);
        check("system/*.rs", "system/Observation.rs?category=laboratory", false);
        check("system/Observation.rs?category=a", "system/Observation.rs?category=a", false);
        check("system/Observation.rs?category=laboratory", "system/Observation.rs", false);
        check("openid", "openid", true);
        check("openid", "email", false);
    }

    #[test]
    fn what_is_no_smart_scope() {
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
