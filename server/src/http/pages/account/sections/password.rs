//! The section about the password.

use identity::sign_in::password::MAX_PASSWORD_BYTES;
use maud::{Markup, html};

use crate::http::pages::account::visit::AccountVisit;
use crate::http::pages::csrf;
use crate::http::pages::texts::{fill, t};

pub(super) fn section(visit: &AccountVisit, min_length: usize, wrong: Option<&str>) -> Markup {
    let has_one = visit.user.password.is_some();
    let described = |field: &str| (wrong == Some(field)).then_some("notice");
    let of_new = if wrong == Some("new") { "notice password-hint" } else { "password-hint" };
    html! {
        h2 { (t("Password")) }
        form method="post" action="/account/password" {
            (csrf::hidden_field(&visit.browser))
            // Password managers store the user name with the new password.
            input type="text" name="username" value=(visit.user.username) autocomplete="username" hidden;
            @if has_one {
                label for="current" { (t("Current password")) }
                input #current name="current" type="password" autocomplete="current-password" maxlength=(MAX_PASSWORD_BYTES) required
                    aria-describedby=[described("current")] aria-invalid=[described("current").map(|_| "true")];
            }
            label for="new" { (t("New password")) }
            input #new name="new" type="password" autocomplete="new-password" minlength=(min_length) maxlength=(MAX_PASSWORD_BYTES)
                required aria-describedby=(of_new) aria-invalid=[described("new").map(|_| "true")];
            p #password-hint .quiet { (fill("At least {} characters; several unrelated words are a good choice. All other sessions and apps are signed out by the change.", &[&min_length])) }
            label.check {
                input type="checkbox" name="remove" value="methods" autocomplete="off";
                (t("Also remove my passkeys, recovery codes and linked accounts. Choose this if someone else may have used your account."))
            }
            button.second type="submit" { @if has_one { (t("Change the password")) } @else { (t("Set a password")) } }
        }
    }
}
