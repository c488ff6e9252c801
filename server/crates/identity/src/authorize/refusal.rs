//! Why an authorization request is refused. The client receives an error code without a description, so that
//! the server's log must say what was rejected and what mends it.

use std::fmt;

use crate::model::error_code::ErrorCode;
use crate::model::scope::Scopes;

/// Maximum length of a rejected value in the log, in bytes.
const MAX_VALUE_BYTES: usize = 200;

/// A refusal of an authorization request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Error code for the client.
    pub error: ErrorCode,
    /// The reason, without values of the request. `None` if nothing is wrong with the request or with the
    /// registration: the user refused, or a page is needed and `prompt=none` forbids it.
    pub reason: Option<&'static str>,
    /// The rejected value, escaped, of at most 200 bytes.
    pub value: Option<String>,
    /// The action of the operator or the developer that helps.
    pub remedy: Option<String>,
}

impl From<ErrorCode> for Refusal {
    fn from(error: ErrorCode) -> Self {
        Self { error, reason: None, value: None, remedy: None }
    }
}

impl Refusal {
    /// A refusal with a reason.
    pub fn new(error: ErrorCode, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..Self::from(error) }
    }

    /// A refusal as `invalid_request`.
    pub(crate) fn invalid_request(reason: &'static str) -> Self {
        Self::new(ErrorCode::InvalidRequest, reason)
    }

    /// Adds the rejected value.
    #[must_use]
    pub fn with_value(mut self, value: Option<&str>) -> Self {
        self.value = value.map(escaped_value);
        self
    }

    /// Adds what mends it.
    #[must_use]
    pub fn mended_by(mut self, remedy: String) -> Self {
        self.remedy = Some(remedy);
        self
    }
}

impl Refusal {
    /// The reason and the value, for the client. The remedy is for the operator: it can contain the
    /// registration of the client, which anyone could read who knows the id of a public client.
    pub fn description(&self) -> String {
        Self { remedy: None, ..self.clone() }.to_string()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.unwrap_or_else(|| self.error.as_str()))?;
        if let Some(value) = &self.value {
            write!(f, ": '{value}'")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// A value of the request in one line of at most 200 bytes. Characters other than visible ASCII are
/// percent-encoded, and quotation marks, so that the text can be quoted anywhere.
fn escaped_value(value: &str) -> String {
    const MORE: &str = "...";
    let mut escaped = String::new();
    for byte in value.bytes() {
        let is_plain = (byte.is_ascii_graphic() || byte == b' ') && !b"%\\\"'".contains(&byte);
        let next = if is_plain { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        if escaped.len() + next.len() > MAX_VALUE_BYTES - MORE.len() {
            return escaped + MORE;
        }
        escaped += &next;
    }
    escaped
}

/// The scopes of a list that another one does not contain.
pub(crate) fn dropped(requested: &Scopes, scopes: &Scopes) -> Scopes {
    requested.filter(|scope| !scopes.contains(scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_short_line_of_ascii() {
        let refusal =
            |value: &str| Refusal::invalid_request("state is repeated").with_value(Some(value)).value;
        assert_eq!(refusal("a b").as_deref(), Some("a b"));
        assert_eq!(refusal("a\nb'\"é%").as_deref(), Some("a%0Ab%27%22%C3%A9%25"));
        for long in ["x".repeat(1_000), "\n".repeat(1_000), "é".repeat(1_000)] {
            let value = refusal(&long).unwrap();
            assert!(value.len() <= 200 && value.ends_with("..."), "{value}");
        }
    }

    #[test]
    fn the_text_says_what_why_and_what_to_do() {
        let refusal = Refusal::new(ErrorCode::InvalidScope, "the scope is not registered for the client")
            .with_value(Some("patient/Encounter.rs"))
            .mended_by("add it to the client".to_owned());
        let text = "the scope is not registered for the client: 'patient/Encounter.rs'; add it to the client";
        assert_eq!(refusal.to_string(), text);
        assert_eq!(refusal.description(), text.split(';').next().unwrap());
        assert_eq!(Refusal::from(ErrorCode::AccessDenied).to_string(), "access_denied");
    }
}
