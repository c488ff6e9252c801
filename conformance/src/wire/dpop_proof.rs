//! DPoP proofs as rows describe them (RFC 9449 4.2): valid, or invalid in one member.

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderName, Method, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use url::Url;

use super::variables::Variables;
use super::{jose, random};
use crate::spec::request::DpopProof;

/// Name of the variable with the private key of a case.
pub const KEY_VARIABLE: &str = "dpop_key";

/// The headers that a proof adds to a request.
///
/// # Errors
/// A message if the row refers to an unknown variable, or if the case has no key.
pub fn proof_headers(
    proof: &DpopProof,
    method: &Method,
    url: &Url,
    vars: &Variables,
) -> Result<Vec<(HeaderName, String)>, String> {
    let key = if proof.other_key {
        jose::fresh_key("other").map_err(|error| error.to_string())?
    } else {
        vars.get(KEY_VARIABLE).cloned().ok_or("the case has no key: add the precondition 'dpop-key'")?
    };
    let token = proof.token.as_ref().map(|token| vars.fill(token)).transpose().map_err(|e| e.to_string())?;
    let mut public = jose::public_half(&key);
    if let Some(members) = public.as_object_mut() {
        members.retain(|name, _| matches!(name.as_str(), "kty" | "crv" | "x" | "y"));
    }
    let mut head = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": public });
    let mut claims = json!({
        "jti": random::random_text(), "htm": method.as_str(), "htu": url.as_str(), "iat": Timestamp::now().as_second(),
    });
    if let Some(token) = &token {
        claims["ath"] = URL_SAFE_NO_PAD.encode(digest(&SHA256, token.as_bytes())).into();
    }
    for (name, value) in &proof.header {
        // A row may send the private key instead of the public one.
        let value = if value == "$private" { key.clone() } else { value.clone() };
        change_member(&mut head, name, value, vars)?;
    }
    for (name, value) in &proof.claims {
        let times = matches!(name.as_str(), "iat" | "nbf" | "exp");
        let value = match value.as_i64() {
            Some(ahead) if times => (Timestamp::now().as_second() + ahead).into(),
            _ => value.clone(),
        };
        change_member(&mut claims, name, value, vars)?;
    }
    let signer = match proof.forged {
        true => jose::fresh_key("other").map_err(|error| error.to_string())?,
        false => key,
    };
    let text = match &proof.text {
        Some(text) => text.clone(),
        None => jose::sign(&signer, &head, &claims).map_err(|error| error.to_string())?,
    };
    let mut headers = vec![(HeaderName::from_static("dpop"), text); proof.times.unwrap_or(1)];
    headers.extend(token.map(|token| (header::AUTHORIZATION, format!("DPoP {token}"))));
    Ok(headers)
}

fn change_member(target: &mut Value, name: &str, value: Value, vars: &Variables) -> Result<(), String> {
    if value == "$absent" {
        target.as_object_mut().map(|members| members.remove(name));
    } else {
        target[name] = vars.fill_json(&value).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The thumbprint of a key (RFC 7638), to which tokens are bound.
pub fn thumbprint(jwk: &Value) -> String {
    let text = format!(r#"{{"crv":{},"kty":{},"x":{},"y":{}}}"#, jwk["crv"], jwk["kty"], jwk["x"], jwk["y"]);
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}
