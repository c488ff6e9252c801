//! Compares a response with the expectation of its step.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use url::Url;

use super::matcher::{self, Difference};
use crate::spec::expectation::{
    AddressPart, ErrorDialect, Expectation, ExpectedJwt, ExpectedRedirect, ExpectedStatus,
};
use crate::spec::permits::Permit;
use crate::wire::exchange::Answer;
use crate::wire::variables::{UnknownVariable, Variables};
use crate::wire::{adapt, answer_part, jose};

const FHIR_JSON: &str = "application/fhir+json";
/// Difference in seconds between `expires_in` and the claims of a token that rounding and delays explain.
const LIFETIME_TOLERANCE_S: u64 = 30;

/// The context of a comparison: variables, keys and permitted choices.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// Variables of the expectation.
    pub vars: &'a Variables,
    /// Published key set of the server.
    pub keys: &'a Value,
    /// Choices that the server has.
    pub permits: &'a [Permit],
}

impl Comparison<'_> {
    fn permits(&self, permit: Permit) -> bool {
        self.permits.contains(&permit)
    }

    /// Returns whether the status of a response is another one that the row permits.
    fn permits_status(&self, expected: &ExpectedStatus, status: u16) -> bool {
        let is_redirect = || expected.matches(302) && status == 303;
        let is_refusal = || (expected.matches(400) || expected.matches(401)) && [400, 401].contains(&status);
        self.permits(Permit::Redirect) && is_redirect() || self.permits(Permit::RefusedClient) && is_refusal()
    }
}

/// All differences between a response and an expectation.
///
/// # Errors
/// [`UnknownVariable`] if the expectation contains an unknown variable.
pub fn check_response(
    expect: &Expectation,
    response: &Answer,
    comparison: &Comparison<'_>,
) -> Result<Vec<Difference>, UnknownVariable> {
    let vars = comparison.vars;
    let mut out = Vec::new();
    if let Some(expected) = &expect.status
        && !expected.matches(response.status.as_u16())
        && !comparison.permits_status(expected, response.status.as_u16())
    {
        out.push(format!("status: {} instead of {expected}", response.status.as_u16()));
    }
    if let Some(expected) = &expect.content_type {
        let actual = media_type(response, expected, vars).map(Value::from);
        matcher::text("content type", expected, actual.as_ref(), vars, &mut out)?;
    }
    check_headers(&expect.headers, response, vars, comparison.permits, &mut out)?;
    if let Some(dialect) = expect.dialect {
        check_error_format(dialect, response, vars, &mut out)?;
    }
    if let Some(expected) = &expect.json {
        let mut expected = Cow::Borrowed(expected);
        if comparison.permits(Permit::Lifetime) && expected["expires_in"].is_number() {
            expected.to_mut()["expires_in"] = json!("$number");
        }
        let json = response.json();
        matcher::json("body", &expected, json.as_ref(), vars, &mut out)?;
        let parts = json.as_ref().map(|json| (json["expires_in"].as_u64(), json["access_token"].as_str()));
        if let Some((Some(lifetime), Some(token))) = parts {
            out.extend(wrong_lifetime(lifetime, token));
        }
    }
    if let Some(expected) = &expect.parameters {
        check_parameters(expected, response, vars, &mut out)?;
    }
    if let Some(expected) = &expect.location {
        check_redirect(expected, response, comparison, &mut out)?;
    }
    for (source, expected) in &expect.jwt {
        check_token(source, expected, response, comparison, &mut out)?;
    }
    let text = response.text();
    for part in &expect.body_contains {
        let part = vars.fill(part)?;
        if !text.contains(&part) {
            out.push(format!("the body does not contain '{part}'"));
        }
    }
    for part in &expect.body_absent {
        let part = vars.fill(part)?;
        if text.contains(&part) {
            out.push(format!("the body contains '{part}'"));
        }
    }
    if let Some(expected) = expect.lines
        && text.lines().count() != expected
    {
        out.push(format!("{} lines instead of {expected}", text.lines().count()));
    }
    if let Some(expected) = &expect.ndjson {
        check_ndjson(expected, &text, vars, &mut out)?;
    }
    Ok(out)
}

/// The media type of a response. A server that sends FHIR resources as `application/json` fails one row; the
/// other rows accept this media type instead of the expected one.
fn media_type(response: &Answer, expected: &str, vars: &Variables) -> Option<String> {
    let stated = response.media_type()?;
    let is_accepted = expected == FHIR_JSON && stated == "application/json" && adapt::has_plain_json(vars);
    Some(if is_accepted { FHIR_JSON.to_owned() } else { stated })
}

/// Checks that other sites cannot frame a page: by `frame-ancestors` of a content security policy, or by
/// `X-Frame-Options` (RFC 9700 section 4.16).
pub fn check_framing(page: &Answer) -> Option<Difference> {
    let policy = page.header("content-security-policy").unwrap_or_default().to_lowercase();
    let ancestors = policy.split([';', ',']).find_map(|part| part.trim().strip_prefix("frame-ancestors"));
    let is_limited = ancestors.is_some_and(|sources| !sources.split_whitespace().any(|source| source == "*"));
    let options = page.header("x-frame-options").unwrap_or_default().to_lowercase();
    let is_denied = ["deny", "sameorigin"].contains(&options.trim());
    (!is_limited && !is_denied).then(|| {
        "other sites can frame the page: it has neither frame-ancestors nor X-Frame-Options".to_owned()
    })
}

/// Returns whether a response redirects within the server.
fn is_own_page(location: Option<&str>, vars: &Variables) -> bool {
    let base = vars.text("base_url").ok().and_then(|base| Url::parse(base).ok());
    let (Some(base), Some(location)) = (base, location) else { return false };
    base.join(location).is_ok_and(|to| to.origin() == base.origin())
}

/// Compares headers of a response.
///
/// # Errors
/// [`UnknownVariable`] if an expected header contains an unknown variable.
pub fn check_headers(
    expected: &BTreeMap<String, String>,
    response: &Answer,
    vars: &Variables,
    permits: &[Permit],
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    for (name, pattern) in expected {
        let actual = response.header(name);
        let may_lead_to_page = name == "location" && permits.contains(&Permit::ErrorPage);
        if may_lead_to_page && pattern == "$absent" && is_own_page(actual.as_deref(), vars) {
            continue;
        }
        let actual = actual.map(Value::from);
        matcher::text(&format!("header {name}"), pattern, actual.as_ref(), vars, out)?;
    }
    Ok(())
}

/// The codes of an issue, a required binding (FHIR R4, value set issue-type), as a regular expression.
const ISSUE_TYPES: &str = "invalid|structure|required|value|invariant|security|login|unknown|expired|forbidden|suppressed|\
                           processing|not-supported|duplicate|multiple-matches|not-found|deleted|too-long|code-invalid|\
                           extension|too-costly|business-rule|conflict|transient|lock-error|no-store|exception|timeout|\
                           incomplete|throttled|informational|success";

/// Checks the format of an error.
fn check_error_format(
    dialect: ErrorDialect,
    response: &Answer,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let (expected, pattern) = match dialect {
        ErrorDialect::Oauth => ("application/json", json!({ "error": "$regex:[a-z_]+" })),
        ErrorDialect::Fhir => {
            let issue = json!({ "severity": "$regex:error|fatal", "code": format!("$regex:{ISSUE_TYPES}") });
            let pattern = json!({ "resourceType": "OperationOutcome", "issue": { "$each": issue } });
            (FHIR_JSON, pattern)
        }
        ErrorDialect::Page => ("text/html", Value::Null),
    };
    let media_type = media_type(response, expected, vars).unwrap_or_default();
    if media_type != expected {
        out.push(format!("content type: '{media_type}' instead of {expected}"));
    }
    match pattern {
        Value::Null => Ok(()),
        pattern => matcher::json("body", &pattern, response.json().as_ref(), vars, out),
    }
}

fn check_parameters(
    expected: &BTreeMap<String, Value>,
    response: &Answer,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let body = response.json().unwrap_or_default();
    if body["resourceType"] != "Parameters" {
        out.push(format!("the body is not a Parameters resource but {}", body["resourceType"]));
    }
    let parameters = body["parameter"].as_array().cloned().unwrap_or_default();
    for (name, expected) in expected {
        let sent_parameter = parameters.iter().find(|parameter| parameter["name"] == name.as_str());
        matcher::json(&format!("parameter {name}"), expected, sent_parameter, vars, out)?;
    }
    Ok(())
}

/// Checks that the response redirects to `to` with exactly the expected parameters in the query or the
/// fragment, and with no parameters in the other part.
fn check_redirect(
    expected: &ExpectedRedirect,
    response: &Answer,
    comparison: &Comparison<'_>,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let vars = comparison.vars;
    let to = vars.fill(&expected.to)?;
    let Some(location) = response.header("location") else {
        out.push("there is no Location".to_owned());
        return Ok(());
    };
    let (address, fragment) = match location.split_once('#') {
        Some((address, fragment)) => (address, Some(fragment)),
        None => (location.as_str(), None),
    };
    let added = match address.strip_prefix(&to) {
        Some("") => Some(""),
        Some(rest) if to.contains('?') => rest.strip_prefix('&'),
        Some(rest) => rest.strip_prefix('?'),
        None => None,
    };
    let Some(added) = added else {
        out.push(format!("Location: '{address}' instead of '{to}' and parameters"));
        return Ok(());
    };
    let has_fragment = fragment.is_some_and(|fragment| !fragment.is_empty());
    let part = match expected.part {
        None if has_fragment && comparison.permits(Permit::ErrorInFragment) => Some(AddressPart::Fragment),
        part => part,
    };
    let carried = match part {
        Some(AddressPart::Fragment) => {
            if !added.is_empty() {
                out.push(format!("Location: the query carries '{added}'"));
            }
            fragment.unwrap_or_default()
        }
        Some(AddressPart::Query) | None => {
            if let Some(fragment) = fragment {
                out.push(format!("Location: there is a fragment '{fragment}'"));
            }
            added
        }
    };
    let pairs: Vec<_> = form_urlencoded::parse(carried.as_bytes()).into_owned().collect();
    for (name, pattern) in &expected.params {
        let values: Vec<_> = pairs.iter().filter(|(key, _)| key == name).collect();
        if values.len() > 1 {
            out.push(format!("Location: {name} appears {} times", values.len()));
        }
        let location = values.first().map(|(_, value)| Value::from(value.as_str()));
        if name == "iss" && location.is_none() && comparison.permits(Permit::NoIssuer) {
            continue;
        }
        let is_lifetime = name == "expires_in" && comparison.permits(Permit::Lifetime);
        if is_lifetime
            && let Some(lifetime) = values.first().and_then(|(_, value)| value.parse::<u64>().ok())
            && lifetime > 0
        {
            let token =
                pairs.iter().find(|(name, _)| name == "access_token").map(|(_, token)| token.as_str());
            out.extend(token.and_then(|token| wrong_lifetime(lifetime, token)));
            continue;
        }
        // Parameters are compared as texts, even if they look like numbers.
        matcher::text(&format!("Location {name}"), pattern, location.as_ref(), vars, out)?;
    }
    Ok(())
}

fn check_token(
    source: &str,
    expected: &ExpectedJwt,
    response: &Answer,
    comparison: &Comparison<'_>,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let token = answer_part::find_part(response, source);
    let Some(token) = token.as_ref().and_then(Value::as_str) else {
        out.push(format!("{source}: there is no token"));
        return Ok(());
    };
    let (vars, keys) = (comparison.vars, comparison.keys);
    let Some(parts) = jose::parts(token) else {
        if !source.ends_with("access_token") || !comparison.permits(Permit::OpaqueToken) {
            out.push(format!("{source}: this is not a JWT"));
        }
        return Ok(());
    };
    if !jose::is_signed(token, keys) {
        out.push(format!("{source}: its signature does not match a published key"));
    }
    if parts.header["kid"].is_null() && keys["keys"].as_array().is_some_and(|all| all.len() > 1) {
        out.push(format!(
            "{source} header.kid: nothing, although several keys are published (Core 1.0, 10.1)"
        ));
    }
    if let Some(expected) = &expected.header {
        matcher::json(&format!("{source} header"), expected, Some(&parts.header), vars, out)?;
    }
    if let Some(expected) = &expected.claims {
        let mut claims = parts.claims.clone();
        if comparison.permits(Permit::AudienceForm) {
            align_audience(&mut claims, &expected["aud"]);
        }
        matcher::json(&format!("{source} claims"), expected, Some(&claims), vars, out)?;
    }
    Ok(())
}

/// Brings the audience of a token into the form of the expected one: a single audience may be a text or an
/// array with one element (RFC 7519 4.1.3).
fn align_audience(claims: &mut Value, expected: &Value) {
    let aligned = match (&claims["aud"], expected) {
        (Value::Array(audiences), Value::String(_)) if audiences.len() == 1 => audiences[0].clone(),
        (Value::String(audience), Value::Array(_)) => json!([audience]),
        _ => return,
    };
    claims["aud"] = aligned;
}

/// The difference between `expires_in` and the end of an access token, if it is a JWT that states it (RFC
/// 6749 5.1, RFC 9068 2.2).
fn wrong_lifetime(expires_in: u64, access_token: &str) -> Option<Difference> {
    let claims = jose::parts(access_token)?.claims;
    let [issued, ends] = ["iat", "exp"].map(|claim| claims[claim].as_u64());
    let stated = ends?.checked_sub(issued?)?;
    let differs = stated.abs_diff(expires_in) > LIFETIME_TOLERANCE_S;
    differs.then(|| format!("expires_in: {expires_in}, but the access token ends {stated} s after its issue"))
}

/// Checks that each line is JSON that matches.
fn check_ndjson(
    expected: &Value,
    text: &str,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    if text.is_empty() || !text.ends_with('\n') {
        out.push("the last line does not end".to_owned());
    }
    for (index, line) in text.lines().enumerate() {
        let parsed = serde_json::from_str::<Value>(line).ok();
        matcher::json(&format!("line {}", index + 1), expected, parsed.as_ref(), vars, out)?;
        if out.len() > 10 {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn found(expect: &Expectation, response: &Answer, permits: &[Permit]) -> Vec<Difference> {
        let comparison = Comparison { vars: &Variables::default(), keys: &Value::Null, permits };
        check_response(expect, response, &comparison).unwrap()
    }

    #[track_caller]
    fn check(expect: &str, status: u16, headers: &[(&'static str, &str)], body: &str, differences: &[&str]) {
        let expect: Expectation = toml::from_str(expect).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let response = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: map,
            body: body.to_owned().into(),
        };
        assert_eq!(found(&expect, &response, &[]), differences);
    }

    #[test]
    fn a_status_is_compared_with_numbers_and_classes() {
        check("status = 200", 200, &[], "", &[]);
        check("status = \"4xx\"", 404, &[], "", &[]);
        check("status = [400, 401]", 403, &[], "", &["status: 403 instead of 400 or 401"]);
    }

    #[test]
    fn query_and_fragment_of_a_location_are_checked_separately() {
        let location = |address| [("location", address)];
        let query = "location = { to = \"https://a/cb\", part = \"query\", params = { code = \"$any\", state = \"$absent\" } }";
        check(query, 302, &location("https://a/cb?code=1"), "", &[]);
        check(
            query,
            302,
            &location("https://a/cb?code=1&state=2"),
            "",
            &["Location state: \"2\" instead of $absent"],
        );
        check(query, 302, &location("https://a/cb?code=1&code=2"), "", &["Location: code appears 2 times"]);
        check(
            query,
            302,
            &location("https://a/cb#code=1"),
            "",
            &["Location: there is a fragment 'code=1'", "Location code: nothing instead of $any"],
        );
        check(
            query,
            302,
            &location("https://a/cbx?code=1"),
            "",
            &["Location: 'https://a/cbx?code=1' instead of 'https://a/cb' and parameters"],
        );
        let own = "location = { to = \"https://a/cb?x=1\", part = \"fragment\", params = { t = \"2\" } }";
        check(own, 302, &location("https://a/cb?x=1#t=2"), "", &[]);
        check(own, 302, &location("https://a/cb?x=1&y=3#t=2"), "", &["Location: the query carries 'y=3'"]);
    }

    #[test]
    fn errors_must_have_the_format_of_the_dialect() {
        let fhir = [("content-type", "application/fhir+json")];
        let outcome = r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid","details":{"text":"t"}}]}"#;
        check("dialect = \"fhir\"", 400, &fhir, outcome, &[]);
        check(
            "dialect = \"fhir\"",
            400,
            &fhir,
            "{}",
            &[
                "body.resourceType: nothing instead of \"OperationOutcome\"",
                "body.issue: nothing instead of a list that is not empty",
            ],
        );
        check(
            "dialect = \"oauth\"",
            400,
            &fhir,
            r#"{"error":"x"}"#,
            &["content type: 'application/fhir+json' instead of application/json"],
        );
    }

    #[test]
    fn parameters_are_compared_by_name() {
        let body = r#"{"resourceType":"Parameters","parameter":[{"name":"result","valueBoolean":true}]}"#;
        check(
            "parameters = { result = { valueBoolean = true }, display = \"$absent\" }",
            200,
            &[],
            body,
            &[],
        );
        check(
            "parameters = { result = { valueBoolean = false } }",
            200,
            &[],
            body,
            &["parameter result.valueBoolean: true instead of false"],
        );
    }

    #[test]
    fn a_server_may_choose_what_a_row_permits() {
        let answer = |status: u16, body: &str| Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        let differences = |expect: &str, response: &Answer, permits: &[Permit]| {
            let expect: Expectation = toml::from_str(expect).unwrap();
            found(&expect, response, permits).len()
        };
        let lifetime = "json = { expires_in = 3600 }";
        assert_eq!(differences(lifetime, &answer(200, r#"{"expires_in":60}"#), &[Permit::Lifetime]), 0);
        assert_eq!(differences(lifetime, &answer(200, r#"{"expires_in":60}"#), &[]), 1);
        assert_eq!(differences(lifetime, &answer(200, r#"{"expires_in":"3600"}"#), &[Permit::Lifetime]), 1);
        let refusal = "status = 400\njson = { error = \"invalid_client\" }";
        assert_eq!(
            differences(refusal, &answer(401, r#"{"error":"invalid_client"}"#), &[Permit::RefusedClient]),
            0
        );
        assert_eq!(differences(refusal, &answer(401, r#"{"error":"invalid_client"}"#), &[]), 1);
        let mut claims = json!({ "aud": ["a"] });
        align_audience(&mut claims, &json!("a"));
        assert_eq!(claims["aud"], "a");
        align_audience(&mut claims, &json!(["a"]));
        assert_eq!(claims["aud"], json!(["a"]));
        let mut two = json!({ "aud": ["a", "b"] });
        align_audience(&mut two, &json!("a"));
        assert_eq!(two["aud"], json!(["a", "b"]));
    }
}
