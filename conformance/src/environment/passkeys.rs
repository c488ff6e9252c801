//! Passkeys of users that a case creates: added on the account page, and used at sign-in.

use serde_json::Value;
use test_parties::{Authenticator, PRESENT, VERIFIED};

use super::applications::unexpected;
use super::browser::{self, address};
use super::cookies::CookieJar;
use super::error::SetupError;
use super::preconditions::CaseContext;
use super::target::TestTarget;
use crate::environment::page_request::get;
use crate::wire::exchange::Answer;
use crate::wire::html_form::form_inputs;

/// Sends a form to a page and returns the response.
async fn submit(
    target: &TestTarget,
    cookies: &mut CookieJar,
    path: &str,
    form: &[(&str, &str)],
) -> Result<Answer, SetupError> {
    let request = browser::post(address(&format!("{}{path}", target.addresses.base_url))?, form);
    target.send(&request, cookies).await
}

/// Opens a page and returns the value of its input `csrf`.
async fn form_token(target: &TestTarget, cookies: &mut CookieJar, path: &str) -> Result<String, SetupError> {
    let request = get(address(&format!("{}{path}", target.addresses.base_url))?);
    let response = target.send(&request, cookies).await?;
    let inputs = form_inputs(&response.text());
    let token = inputs.into_iter().find(|input| input.name == "csrf").map(|input| input.value);
    token.ok_or_else(|| unexpected(path, &response))
}

/// Begins a ceremony and returns its id and its options.
async fn begin(
    target: &TestTarget,
    cookies: &mut CookieJar,
    path: &str,
    csrf: &str,
) -> Result<(String, Value), SetupError> {
    let response = submit(target, cookies, path, &[("csrf", csrf)]).await?;
    let Some(start) = response.json().filter(|_| response.status.is_success()) else {
        return Err(unexpected(path, &response));
    };
    Ok((start["ceremony"].as_str().unwrap_or_default().to_owned(), start["options"].clone()))
}

/// Adds a passkey for the user who is signed in in the browser of the case; `required` also requires it after
/// the password. Then begins a sign-in in a new browser: `$csrf`, `$ceremony`, `$credential`, and
/// `$unverified` for a credential without verification of the user.
///
/// # Errors
/// [`SetupError`] if the server rejects the passkey.
pub async fn set_up(
    target: &TestTarget,
    context: &mut CaseContext,
    required: bool,
) -> Result<(), SetupError> {
    let mut authenticator = Authenticator::new(&target.addresses.base_url, fastrand::u64(..));
    let csrf = form_token(target, &mut context.cookies, "/account").await?;
    let (ceremony, options) = begin(target, &mut context.cookies, "/account/passkeys/options", &csrf).await?;
    let credential = authenticator.create(&options);
    let form =
        [("csrf", csrf.as_str()), ("ceremony", &ceremony), ("credential", &credential), ("name", "Garden")];
    let mut forms = vec![("/account/passkeys", form.to_vec())];
    if required {
        forms.push(("/account/passkeys/ask", vec![("csrf", csrf.as_str()), ("ask", "yes")]));
    }
    for (path, form) in forms {
        let response = submit(target, &mut context.cookies, path, &form).await?;
        if response.status != http::StatusCode::SEE_OTHER {
            return Err(unexpected(path, &response));
        }
    }
    context.cookies = CookieJar::new();
    let csrf = form_token(target, &mut context.cookies, "/sign-in").await?;
    let (ceremony, options) = begin(target, &mut context.cookies, "/passkey/options", &csrf).await?;
    for (variable, flags) in [("unverified", PRESENT), ("credential", VERIFIED)] {
        authenticator.flags = flags;
        context.vars.set(variable, authenticator.get(&options));
    }
    context.vars.set("csrf", csrf);
    context.vars.set("ceremony", ceremony);
    Ok(())
}
