//! The sections about passkeys and recovery codes.

use identity::sign_in::passkey::MAX_NAME_LENGTH;
use maud::{Markup, html};
use store::StoreError;

use crate::http::extract::RequestContext;
use crate::http::pages::account::visit::{AccountVisit, date_time};
use crate::http::pages::csrf;
use crate::http::pages::sign_in::passkey_form::ceremony_status;
use crate::http::pages::texts::{fill, phrase, t};

/// The section about passkeys.
pub(super) async fn section(context: &RequestContext, visit: &AccountVisit) -> Result<Markup, StoreError> {
    let identity = &context.app.identity;
    // A passkey belongs to a host name (WebAuthn, RP ID).
    if !identity.sign_in.supports_passkeys() {
        return Ok(html! {
            h2 { (t("Passkeys")) }
            p.quiet { (t("Passkeys require a server with a host name; this one is used by its IP address.")) }
        });
    }
    let passkeys = identity.sign_in.user_passkeys(&visit.user.sub, context.now).await?;
    let is_required = identity.sign_in.requires_passkey(&visit.user.sub, context.now).await?;
    Ok(html! {
        h2 { (t("Passkeys")) }
        p.quiet { (t("A passkey lets you sign in with your fingerprint, face or PIN. It cannot be phished.")) }
        @if !passkeys.is_empty() {
            ul.rows {
                @for passkey in &passkeys {
                    li {
                        div {
                            strong { (passkey.name) }
                            div.quiet {
                                (phrase("added {}", &[date_time(passkey.since)])) br;
                                @match passkey.last_used {
                                    Some(time) => { (phrase("last used {}", &[date_time(time)])) }
                                    None => { (t("not used yet")) }
                                }
                            }
                        }
                        (visit.button("/account/passkeys/remove", &[("id", &passkey.id)], t("Remove"),
                            Some(&fill("Remove the passkey {}", &[&passkey.name]))))
                    }
                }
            }
        }
        form hidden method="post" action="/account/passkeys" data-passkey="create" data-options="/account/passkeys/options" {
            (csrf::hidden_field(&visit.browser))
            input type="hidden" name="ceremony" value="";
            input type="hidden" name="credential" value="";
            label for="passkey-name" { (t("Name of a new passkey")) }
            input #passkey-name name="name" autocomplete="off" maxlength=(MAX_NAME_LENGTH) aria-describedby="passkey-hint";
            p #passkey-hint .quiet { (t("For example, the name of the device that it is on.")) }
            button.second type="submit" { (t("Add a passkey")) }
            (ceremony_status())
        }
        noscript { p.quiet { (t("Adding a passkey requires JavaScript.")) } }
        @if visit.user.password.is_some() && !passkeys.is_empty() {
            @if is_required {
                p { (t("Signing in with your password also requires a passkey.")) }
                (visit.button("/account/passkeys/ask", &[("ask", "no")], t("Do not require a passkey after the password"), None))
            } @else {
                p { (t("You can sign in with your password alone.")) }
                (visit.button("/account/passkeys/ask", &[("ask", "yes")], t("Require a passkey after the password"), None))
            }
        }
    })
}

/// The section about recovery codes.
pub(super) async fn recovery_section(
    context: &RequestContext,
    visit: &AccountVisit,
) -> Result<Markup, StoreError> {
    let code_count = context.app.identity.sign_in.count_recovery_codes(&visit.user.sub, context.now).await?;
    Ok(html! {
        h2 { (t("Recovery codes")) }
        p {
            @match code_count {
                0 => { (t("You have no recovery codes. Each one signs you in once if you lose all other ways to sign in.")) }
                1 => { (t("You have one recovery code left.")) }
                code_count => { (fill("You have {} recovery codes left.", &[&code_count])) }
            }
        }
        (visit.button("/account/recovery-codes", &[], t("Generate new recovery codes"), None))
    })
}
