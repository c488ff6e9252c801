//! Subcommands of sign-in and tokens.

use std::io::IsTerminal as _;
use std::time::Duration;

use command_line::text::{local_time, one_line};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;

use super::given_token::{given, read_token};
use crate::api::{
    Api, ApiError, Bearer, Revocation, SIGN_IN_AGAIN, SignatureStatus, SignedOut, TokenInspection, TokenKind,
    UserTokens, meaning,
};
use crate::args::{AskArgs, InspectArgs, SignInArgs, SignOutArgs, TokenAction, TokenArgs};
use crate::browser;
use crate::failure::CommandFailure;
use crate::journey::{self, Patience, Step};
use crate::output::Output;

/// Seconds that a sign-in waits for a browser if nobody can paste an address.
const SECONDS_WITHOUT_TERMINAL: u64 = 300;

pub(super) async fn sign_in(api: &Api, args: &SignInArgs) -> Result<(), CommandFailure> {
    let tokens = user_signs_in(api, args).await?;
    let session = &tokens.session;
    if let Some(reason) = &session.not_stored {
        // A later run of the program could neither use the tokens nor revoke them.
        let end = match api.sign_out().await {
            Ok(SignedOut { revocation: Revocation::Revoked, .. }) => "they were revoked",
            _ => "they are valid until they expire",
        };
        return Err(ApiError::SignIn(format!("the tokens cannot be stored, and {end}: {reason}")).into());
    }
    Output { json: args.json }.result(&tokens.answer, || {
        let who = session.subject.as_deref().unwrap_or("a user whose name is unknown (no openid scope)");
        format!("signed in as {who}\nscope   {}\nexpires {}", session.scope, local_time(session.expires_at))
    })
}

/// Signs in a user with the method of the options.
pub(super) async fn user_signs_in(api: &Api, args: &SignInArgs) -> Result<UserTokens, CommandFailure> {
    let output = Output { json: args.json };
    let tell = |step| report_step(api, output, step);
    let scope = args.scope.as_deref().unwrap_or(&api.profile().scope);
    if args.device {
        return Ok(journey::sign_in_on_device(api, scope, tell).await?);
    }
    let (sender, pasted) = mpsc::channel(1);
    let can_paste = std::io::stdin().is_terminal();
    let at_most = args.timeout.or((!can_paste).then_some(SECONDS_WITHOUT_TERMINAL)).map(Duration::from_secs);
    let patience = Patience { can_paste, at_most };
    if can_paste {
        // Uses a separate thread, because reading from a terminal cannot be cancelled when the browser
        // responds first.
        std::thread::spawn(move || {
            let lines = std::io::stdin().lines().map_while(Result::ok);
            lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
        });
    }
    Ok(journey::sign_in(api, scope, patience, pasted, tell).await?)
}

fn report_step(api: &Api, output: Output, step: Step) {
    match step {
        Step::GoTo { url, browser } => {
            let failure = browser.err().filter(|_| api.profile().open_browser);
            output.instruction("open-browser", json!({ "url": url, "browserError": failure }), || {
                let failure = failure.as_ref().map(|reason| format!("No browser was opened: {reason}\n"));
                format!(
                    "{}Sign in at this address:\n{url}\nIf the browser does not return here, paste its last address.",
                    failure.unwrap_or_default()
                )
            });
        }
        Step::PasteRefused(reason) => {
            output.instruction("paste-rejected", json!({ "message": reason }), || format!("Error: {reason}"));
        }
        Step::Device(prompt) => {
            let details = json!({
                "userCode": prompt.user_code, "address": prompt.address,
                "completeAddress": prompt.complete_address, "expiresAt": prompt.expires_at,
            });
            output.instruction("enter-code", details, || {
                let complete = prompt.complete_address.as_ref();
                let complete = complete.map(|address| format!("\nor open {address}")).unwrap_or_default();
                format!(
                    "Open {} on any device and enter the code {}{complete}",
                    prompt.address, prompt.user_code
                )
            });
        }
    }
}

/// The token of the user: that of an earlier run of the program, or that of a new sign-in.
pub(super) async fn user_bearer(api: &Api, args: &SignInArgs) -> Result<Bearer, CommandFailure> {
    let restored = if args.scope.is_none() { api.restore_session().await } else { None };
    if restored.is_none() {
        if api.has_shared_session() {
            Output { json: args.json }.progress("sign-in-again", json!({}), || SIGN_IN_AGAIN.to_owned());
        }
        user_signs_in(api, args).await?;
    }
    Ok(Bearer::User)
}

pub(super) async fn sign_out(api: &Api, args: &SignOutArgs) -> Result<(), CommandFailure> {
    api.check_writable("revokes tokens")?;
    let output = Output { json: args.json };
    let signed_out = match api.restore_session().await {
        Some(_) => Some(api.sign_out().await?),
        // An earlier sign-out could not revoke its tokens.
        None => match api.revoke_pending().await {
            Err(_) if args.forget => None,
            other => Some(other?.ok_or(ApiError::NotSignedIn)?),
        },
    };
    let forgotten = args.forget && api.forget_pending()?;
    if let Some(signed_out) = signed_out.as_ref().filter(|_| args.browser) {
        browser::open(signed_out.browser_sign_out()?).map_err(ApiError::SignIn)?;
    }
    let revocation = signed_out.as_ref().map(|signed_out| &signed_out.revocation);
    let details = json!({
        "signedOut": true,
        "revoked": revocation == Some(&Revocation::Revoked),
        "toBeRevoked": matches!(revocation, Some(Revocation::Pending(_))) && !forgotten,
    });
    output.result(&details, || match (&signed_out, forgotten) {
        (_, true) => "Signed out here; the token is not revoked, and is valid until it expires.".to_owned(),
        (Some(signed_out), false) => signed_out.sentence(),
        (None, false) => "No token is left here.".to_owned(),
    })
}

pub(super) async fn userinfo(api: &Api, args: &AskArgs) -> Result<(), CommandFailure> {
    let bearer = match given(&args.token)? {
        Some(bearer) => bearer,
        None => user_bearer(api, &args.sign_in).await?,
    };
    let claims = api.userinfo(&bearer).await?;
    Output { json: args.sign_in.json }.result(&claims, || {
        let width = claims.keys().map(String::len).max().unwrap_or(0);
        let line = |(name, value): (&String, &serde_json::Value)| match value.as_str() {
            Some(text) => one_line(&format!("{name:width$}  {text}")).into_owned(),
            None => one_line(&format!("{name:width$}  {value}")).into_owned(),
        };
        claims.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}
pub(super) async fn token(api: &Api, args: &TokenArgs) -> Result<(), CommandFailure> {
    if let Some(TokenAction::Inspect(args)) = &args.action {
        return inspect(api, args).await;
    }
    let token = api.ask_backend_token(args.scope.as_deref().unwrap_or(&api.profile().backend_scope)).await?;
    Output { json: args.json }.result(&token, || token.access_token.clone())
}

async fn inspect(api: &Api, args: &InspectArgs) -> Result<(), CommandFailure> {
    let inspection = match &args.file {
        Some(file) => api.inspect_given(&read_token(file)?, args.introspect).await,
        None => {
            api.restore_session().await;
            let kind = if args.id_token { TokenKind::Id } else { TokenKind::UserAccess };
            api.inspect(kind, args.introspect).await?
        }
    };
    print_inspection(&inspection, args.json)
}

/// Prints header and claims of a token without a server.
///
/// # Errors
/// [`CommandFailure`] if the token cannot be read, or if it is not a JWT.
pub fn decode_token(args: &InspectArgs) -> Result<(), CommandFailure> {
    let Some(file) = &args.file else { return Err(ApiError::NotSignedIn.into()) };
    let token = read_token(file)?;
    let inspection = TokenInspection::decode(&token);
    if inspection.content.is_none() {
        return Err(CommandFailure::Usage(
            "the token is not a JWT: only the server can read it; name it, for example by --profile"
                .to_owned(),
        ));
    }
    print_inspection(&inspection, args.json)
}

fn print_inspection(inspection: &TokenInspection, json: bool) -> Result<(), CommandFailure> {
    Output { json }.result(inspection, || {
        let mut text = match &inspection.signature {
            SignatureStatus::Valid => "signature  valid".to_owned(),
            SignatureStatus::Invalid(reason) => format!("signature  INVALID: {}", one_line(reason)),
            SignatureStatus::Unknown(reason) => format!("signature  not checked: {}", one_line(reason)),
        };
        let claims = inspection.content.as_ref().map(|content| &content.claims);
        let members =
            inspection.content.iter().flat_map(|content| content.header.iter().chain(&content.claims));
        let introspection = inspection.introspection.as_ref();
        if let Some(introspection) = introspection {
            text.push_str(&format!("\nserver     {}", introspection.sentence()));
        }
        let more = introspection.into_iter().flat_map(|report| report.members_beside(claims));
        for (name, value) in members.chain(more) {
            let is_time = matches!(name.as_str(), "exp" | "iat" | "nbf" | "auth_time");
            let time = value.as_i64().filter(|_| is_time).and_then(|time| Timestamp::from_second(time).ok());
            let value = match (time, value.as_str()) {
                (Some(time), _) => local_time(time),
                (None, Some(text)) => text.to_owned(),
                (None, None) => value.to_string(),
            };
            let row = format!("{name:<18} {value}  {}", meaning(name));
            text.push_str(&format!("\n{}", one_line(&row)));
        }
        text
    })
}
