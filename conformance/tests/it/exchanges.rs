//! Snapshots of complete responses, for review. Values that differ between runs are replaced by their names.

use serde_json::Value;
use trefoil_conformance::wire::exchange::Answer;

use crate::Trial;

/// Headers that are equal in all responses or differ between runs.
const LEFT_OUT: [&str; 3] = ["date", "content-length", "x-request-id"];
/// Names of members and parameters whose values are random or depend on the time.
const BY_NAME: [&str; 10] = [
    "access_token",
    "id_token",
    "refresh_token",
    "code",
    "sub",
    "transactionTime",
    "expires",
    "content-location",
    "url",
    "date",
];

/// Replaces the values of `names` in a JSON value, at any depth.
fn redact(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if names.contains(&name.as_str()) => *text = format!("[{name}]"),
                    _ => redact(value, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, names)),
        _ => {}
    }
}

/// Returns the status, headers and body of a response as text.
fn text(trial: &Trial, response: &Answer, names: &[&str]) -> String {
    let mut lines = vec![response.status.to_string()];
    for name in response.headers.keys().filter(|name| !LEFT_OUT.contains(&name.as_str())) {
        let value = match names.contains(&name.as_str()) {
            true => format!("[{name}]"),
            false => response.header(name.as_str()).unwrap_or_default(),
        };
        lines.push(format!("{name}: {value}"));
    }
    lines.push(String::new());
    match response.json() {
        Some(mut body) => {
            redact(&mut body, names);
            lines.push(serde_json::to_string_pretty(&body).unwrap());
        }
        None => lines.push(response.text()),
    }
    let mut text = lines.join("\n").trim_end().to_owned();
    for name in ["code", "access_token", "id_token"] {
        // Replaces the values of URL parameters.
        while let Some(at) = text.find(&format!("{name}=")).map(|at| at + name.len() + 1)
            && !text[at..].starts_with('[')
        {
            let end = text[at..].find(['&', '\n']).map_or(text.len(), |end| at + end);
            text.replace_range(at..end, &format!("[{name}]"));
        }
    }
    let encoded: String =
        form_urlencoded::byte_serialize(trial.environment.target.addresses.base_url.as_bytes()).collect();
    let version = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
    text.replace(version, "\"[version]\"")
        .replace(&trial.environment.target.addresses.base_url, "https://server")
        .replace(&encoded, "https%3A%2F%2Fserver")
}

#[test]
fn complete_responses_match_their_snapshots() {
    let trial = Trial::start();
    let check = |name: &str, preconditions: &[&str], request: &str, names: &[&str]| {
        let response = trial.ask(&mut trial.given(preconditions), request);
        insta::assert_snapshot!(name, text(&trial, &response, names));
    };
    check(
        "authorize",
        &["signed-in"],
        r#"get = "authorize"
        query = { response_type = "code", client_id = "$public.client_id", redirect_uri = "$public.redirect_uris.1", state = "s 1", scope = "openid" }"#,
        &BY_NAME,
    );
    check(
        "authorize-error",
        &[],
        r#"get = "authorize"
        query = { response_type = "code", client_id = "$public.client_id", redirect_uri = "$public.redirect_uris.0", state = "s 1", scope = "nonsense" }"#,
        &BY_NAME,
    );
    check(
        "authorize-token",
        &["signed-in"],
        r#"get = "authorize"
        query = { response_type = "token", client_id = "$public.client_id", redirect_uri = "$public.redirect_uris.0", state = "s 1", scope = "openid" }"#,
        &BY_NAME,
    );
    check(
        "token",
        &["confidential-code"],
        r#"post = "token"
        headers = { authorization = "Basic $confidential.basic" }
        form = { grant_type = "authorization_code", redirect_uri = "$redirect_uri", code = "$code" }"#,
        &BY_NAME,
    );
    check("token-error", &[], "post = \"token\"\nform = { grant_type = \"password\" }", &BY_NAME);
    check("userinfo", &["token"], "get = \"userinfo\"\nbearer = \"$token\"", &BY_NAME);
    check("userinfo-error", &[], "get = \"userinfo\"\nbearer = \"nonsense\"", &BY_NAME);
    let care_aids = "https://trefoil.example/fhir/CodeSystem/care-aids";
    check(
        "validate-code",
        &["system-token"],
        &format!(
            r#"get = "fhir/ValueSet/starter-kit/$validate-code"
            query = {{ system = "{care_aids}", code = "cane", display = "Banana" }}
            bearer = "$system_token""#
        ),
        &[],
    );
    check(
        "subsumes",
        &["system-token"],
        &format!(
            r#"get = "fhir/CodeSystem/$subsumes"
            query = {{ system = "{care_aids}", codeA = "stick", codeB = "cane" }}
            bearer = "$system_token""#
        ),
        &[],
    );
    check(
        "operation-outcome",
        &["system-token"],
        r#"get = "fhir/ValueSet/$validate-code"
        query = { url = "https://nobody.example/ValueSet/none", system = "s", code = "c" }
        bearer = "$system_token""#,
        &[],
    );
    check("kick-off", &["system-token"], "get = \"fhir/$export\"\nbearer = \"$system_token\"", &BY_NAME);
    check("manifest", &["export"], "get = \"$bulk.status_url\"\nbearer = \"$system_token\"", &BY_NAME);
    check("discovery", &[], "get = \"/.well-known/openid-configuration\"", &[]);
    check("sign-out", &[], "get = \"/sign-out\"", &["set-cookie"]);
}

#[test]
fn the_capability_statement_matches_its_snapshot() {
    let trial = Trial::start();
    let mut response = trial.ask(&mut trial.given(&[]), "get = \"fhir/metadata\"");
    let mut body = response.json().unwrap();
    // All types have the same interactions, so the snapshot contains only the types with operations and one
    // other type.
    let kinds = body["rest"][0]["resource"].as_array_mut().unwrap();
    assert!(kinds.len() > 140, "{} resource types", kinds.len());
    kinds.retain(|kind| kind.get("operation").is_some() || kind["type"] == "Patient");
    response.body = body.to_string().into();
    insta::assert_snapshot!("metadata", text(&trial, &response, &["date", "releaseDate"]));
}
