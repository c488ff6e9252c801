//! The texts of the pages, in English and German. The English text is the key of the table, so that a page is
//! readable without it; a text that is not in the table is shown in English. `{}` is a placeholder for a
//! value.
//!
//! To add a language, add a variant of [`Language`] and a column.

use maud::{Markup, PreEscaped, html};

use super::language::Language;

/// A text in the language of the current page.
pub fn t(english: &str) -> &str {
    match super::page_request::language() {
        Language::English => english,
        Language::German => {
            let translation = TEXTS.iter().find(|(key, _)| *key == english);
            translation.map_or(english, |(_, german)| german)
        }
    }
}

/// A text with values for its placeholders.
pub fn fill(english: &str, values: &[&dyn std::fmt::Display]) -> String {
    let mut parts = t(english).split("{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        if let Some(value) = values.get(index) {
            text.push_str(&value.to_string());
        }
        text.push_str(part);
    }
    text
}

/// A text with markup for its placeholders.
pub fn phrase(english: &str, values: &[Markup]) -> Markup {
    let values: Vec<&dyn std::fmt::Display> = values.iter().map(|value| &value.0 as _).collect();
    // The table contains no markup, and maud has escaped the values.
    let escaped = html! { (t(english)) }.into_string();
    let mut parts = escaped.split("{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        if let Some(value) = values.get(index) {
            text.push_str(&value.to_string());
        }
        text.push_str(part);
    }
    PreEscaped(text)
}

/// The texts in English and German.
const TEXTS: &[(&str, &str)] = &[
    // The frame and error pages.
    ("Not found", "Nicht gefunden"),
    ("Not supported", "Nicht unterstützt"),
    ("Something went wrong", "Es ist ein Fehler aufgetreten"),
    ("This request cannot be answered", "Diese Anfrage kann nicht beantwortet werden"),
    ("Details for developers", "Einzelheiten für Entwickler"),
    ("Status", "Status"),
    ("Request", "Anfrage"),
    ("Client", "Client"),
    ("Rejected address", "Abgelehnte Adresse"),
    ("Time", "Zeit"),
    ("not sent", "nicht gesendet"),
    ("Back to {}", "Zurück zu {}"),
    ("To the start page", "Zur Startseite"),
    ("This server has no home page.", "Dieser Server hat keine Startseite."),
    ("There is no page at {}.", "Unter {} gibt es keine Seite."),
    ("This server has no pages in this language.", "Dieser Server hat keine Seiten in dieser Sprache."),
    (
        "The application that sent you here is not registered with this server.",
        "Die Anwendung, die Sie hierher geschickt hat, ist bei diesem Server nicht registriert.",
    ),
    (
        "The application requested a redirect to an address that is not registered for it.",
        "Die Anwendung wollte zu einer Adresse zurückleiten, die für sie nicht registriert ist.",
    ),
    (
        "The request from the application has expired or was already used. Go back to the application and try again.",
        "Die Anfrage der Anwendung ist abgelaufen oder wurde schon verwendet. Gehen Sie zur Anwendung zurück und versuchen Sie es noch einmal.",
    ),
    (
        "This sign-in was not started in this browser, or has expired. Return to the application and start again.",
        "Diese Anmeldung wurde nicht in diesem Browser begonnen oder ist abgelaufen. Gehen Sie zur Anwendung zurück und beginnen Sie neu.",
    ),
    (
        "This form was not sent from our page in this browser. Allow cookies, go back, load the page again and repeat.",
        "Dieses Formular wurde nicht von unserer Seite in diesem Browser gesendet. Erlauben Sie Cookies, gehen Sie zurück, laden Sie die Seite neu und wiederholen Sie die Eingabe.",
    ),
    // Sign-in.
    ("Sign in", "Anmelden"),
    ("Back to sign-in", "Zurück zur Anmeldung"),
    ("to continue to {}", "weiter zu {}"),
    ("User name", "Benutzername"),
    ("Password", "Passwort"),
    ("Show password", "Passwort anzeigen"),
    ("Forgot password?", "Passwort vergessen?"),
    ("Use a recovery code", "Wiederherstellungscode verwenden"),
    (
        "If you have a passkey, choose it instead of the password. Otherwise the administrator of this server can set a new password for you.",
        "Wenn Sie einen Passkey haben, wählen Sie ihn anstelle des Passworts. Sonst kann der Administrator dieses Servers ein neues Passwort für Sie setzen.",
    ),
    ("Sign in with {}", "Mit {} anmelden"),
    ("Sign in with a passkey", "Mit einem Passkey anmelden"),
    (
        "Your {} account {} is not linked to an account here yet. To link it, sign in once with your account here.",
        "Ihr Konto {} {} ist noch mit keinem Konto hier verknüpft. Melden Sie sich zum Verknüpfen einmal mit Ihrem Konto hier an.",
    ),
    ("Do not link it", "Nicht verknüpfen"),
    ("The user name or the password is wrong.", "Der Benutzername oder das Passwort ist falsch."),
    (
        "Too many people are signing in at this moment. Please try again.",
        "Im Augenblick melden sich zu viele Personen an. Bitte versuchen Sie es noch einmal.",
    ),
    ("Too many attempts. Try again in {} s.", "Zu viele Versuche. Versuchen Sie es in {} s noch einmal."),
    ("Too many attempts. Try again in {} min.", "Zu viele Versuche. Versuchen Sie es in {} min noch einmal."),
    ("This passkey was not accepted.", "Dieser Passkey wurde nicht angenommen."),
    ("Waiting for your passkey…", "Warten auf Ihren Passkey …"),
    (
        "This device has a passkey for this account already.",
        "Dieses Gerät hat schon einen Passkey für dieses Konto.",
    ),
    (
        "No passkey was used. You can try again.",
        "Es wurde kein Passkey benutzt. Sie können es noch einmal versuchen.",
    ),
    ("Use your passkey", "Verwenden Sie Ihren Passkey"),
    ("Use a passkey", "Passkey verwenden"),
    (
        "Your password is correct. This account also requires a passkey.",
        "Ihr Passwort ist richtig. Dieses Konto verlangt auch einen Passkey.",
    ),
    (
        "Passkeys require JavaScript. A recovery code does not.",
        "Passkeys benötigen JavaScript, Wiederherstellungscodes nicht.",
    ),
    ("You can use each recovery code only once.", "Jeder Wiederherstellungscode gilt nur einmal."),
    ("Recovery code", "Wiederherstellungscode"),
    (
        "The user name or the code is wrong, or the code was used before.",
        "Der Benutzername oder der Code ist falsch, oder der Code wurde schon verwendet.",
    ),
    // Consent and scopes.
    ("{} on {}", "{} auf {}"),
    ("An unknown browser", "Ein unbekannter Browser"),
    ("Allow {}?", "{} zulassen?"),
    ("{} asks to:", "{} möchte:"),
    ("The answer goes to {}.", "Die Antwort geht an {}."),
    (
        "The answer goes to a program on your own device.",
        "Die Antwort geht an ein Programm auf Ihrem eigenen Gerät.",
    ),
    ("Patient: {}", "Patient: {}"),
    (
        "This application runs on your own device. Allow it only if you have just opened it there.",
        "Diese Anwendung läuft auf Ihrem eigenen Gerät. Lassen Sie sie nur zu, wenn Sie sie gerade dort geöffnet haben.",
    ),
    (
        "For the developer: this account cannot grant {}.",
        "Für die Entwickler: Dieses Konto kann {} nicht gewähren.",
    ),
    ("Refused requests", "Abgelehnte Anfragen"),
    ("You are signed in as {}.", "Sie sind als {} angemeldet."),
    ("Not you? Switch account", "Nicht Sie? Konto wechseln"),
    ("You can withdraw this at any time on {}.", "Sie können dies jederzeit auf {} widerrufen."),
    ("your account page", "Ihrer Kontoseite"),
    ("Allow", "Zulassen"),
    ("Do not allow", "Nicht zulassen"),
    ("know that it is you", "wissen, dass Sie es sind"),
    ("see your name", "Ihren Namen sehen"),
    ("see your e-mail address", "Ihre E-Mail-Adresse sehen"),
    ("see your phone number", "Ihre Telefonnummer sehen"),
    ("know which health record is yours", "wissen, welche Gesundheitsakte Ihre ist"),
    (
        "know what you are working on in the application that opened it",
        "wissen, woran Sie in der Anwendung arbeiten, die sie geöffnet hat",
    ),
    ("know which visit you are working on", "wissen, an welchem Besuch Sie arbeiten"),
    ("open other applications for a patient", "andere Anwendungen für einen Patienten öffnen"),
    ("know which patient you are working with", "wissen, mit welchem Patienten Sie arbeiten"),
    ("keep access while you are away", "den Zugriff behalten, während Sie abwesend sind"),
    ("keep access while you are signed in", "den Zugriff behalten, solange Sie angemeldet sind"),
    ("administer this server", "diesen Server verwalten"),
    ("read and change {}", "{} lesen und ändern"),
    ("change {}", "{} ändern"),
    ("read {}", "{} lesen"),
    ("all health records", "alle Gesundheitsdaten"),
    ("{} records", "Daten der Art {}"),
    (" of the patient", " des Patienten"),
    (" that you may see", ", die Sie sehen dürfen"),
    (", only those with ", ", nur jene mit "),
    (" and ", " und "),
    ("use {}", "{} verwenden"),
    // Devices.
    ("Connect a device", "Gerät verbinden"),
    (
        "A device or a program without a browser shows a code. Enter it here, to use your account there.",
        "Ein Gerät oder ein Programm ohne Browser zeigt einen Code. Geben Sie ihn hier ein, um dort Ihr Konto zu benutzen.",
    ),
    ("Code", "Code"),
    ("Continue", "Weiter"),
    (
        "Eight letters, such as BCDF-GHJK, that your device shows.",
        "Acht Buchstaben wie BCDF-GHJK, die Ihr Gerät anzeigt.",
    ),
    (
        "This code is unknown, has expired or was already used. Check the code on your device.",
        "Dieser Code ist unbekannt, abgelaufen oder wurde schon verwendet. Prüfen Sie den Code auf Ihrem Gerät.",
    ),
    ("Does your device show this code?", "Zeigt Ihr Gerät diesen Code an?"),
    (
        "You cannot grant any of the access that this device requests.",
        "Sie können von dem Zugriff, den dieses Gerät verlangt, nichts gewähren.",
    ),
    ("{} asks to act for you, {}, and to:", "{} möchte für Sie, {}, handeln und:"),
    (
        "Say yes only if you started this yourself, on a device that is in front of you. Anyone who sent you a code or a link would get access to your account.",
        "Antworten Sie nur mit Ja, wenn Sie dies selbst an einem Gerät begonnen haben, das vor Ihnen steht. Wer Ihnen einen Code oder Link geschickt hat, bekäme sonst Zugriff auf Ihr Konto.",
    ),
    ("Yes, connect it", "Ja, verbinden"),
    ("No", "Nein"),
    ("Device connected", "Gerät verbunden"),
    (
        "Return to your device. It continues automatically in a few seconds.",
        "Kehren Sie zu Ihrem Gerät zurück. Es fährt in einigen Sekunden von selbst fort.",
    ),
    ("Access denied", "Zugriff verweigert"),
    (
        "Access for the device was denied. You can close this page.",
        "Der Zugriff des Geräts wurde verweigert. Sie können diese Seite schließen.",
    ),
    // Patients.
    ("Choose a patient", "Patienten auswählen"),
    (
        "{} works with one patient. Choose whose records it opens.",
        "{} arbeitet mit einem Patienten. Wählen Sie, wessen Akte geöffnet wird.",
    ),
    ("Name, record number, birth date or id", "Name, Patientennummer, Geburtsdatum oder Kennung"),
    ("Search", "Suchen"),
    ("The search is not finished.", "Die Suche ist noch nicht beendet."),
    ("No patient with this name was found.", "Es wurde kein Patient mit diesem Namen gefunden."),
    ("born {}", "geboren {}"),
    ("Cancel", "Abbrechen"),
    ("More patients", "Weitere Patienten"),
    (
        "This patient does not exist, or you do not have access.",
        "Diesen Patienten gibt es nicht, oder Sie haben keinen Zugriff.",
    ),
    // Sign-out.
    ("Sign out", "Abmelden"),
    ("Do you want to sign out of this browser?", "Möchten Sie sich in diesem Browser abmelden?"),
    ("You are signed out", "Sie sind abgemeldet"),
    ("You can close this page.", "Sie können diese Seite schließen."),
    ("Back to the application", "Zurück zur Anwendung"),
    // Home.
    ("Welcome to {}", "Willkommen bei {}"),
    (
        "A small server for health apps: OpenID Connect sign-in, FHIR R4 terminology, and Bulk FHIR export.",
        "Ein kleiner Server für Gesundheits-Apps: Anmeldung mit OpenID Connect, FHIR-R4-Terminologie und Bulk-FHIR-Export.",
    ),
    ("You are not signed in.", "Sie sind nicht angemeldet."),
    ("Documentation", "Dokumentation"),
    ("Your account", "Ihr Konto"),
    ("Console of this server", "Konsole dieses Servers"),
    ("For developers", "Für Entwickler"),
    ("This server is working.", "Dieser Server arbeitet."),
    (
        "This server cannot store anything at the moment. Its operator finds the reason in the log.",
        "Dieser Server kann zurzeit nichts speichern. Sein Betreiber findet den Grund im Protokoll.",
    ),
    ("Keys", "Schlüssel"),
    ("Health", "Zustand"),
    ("Try it", "Ausprobieren"),
    ("Copy", "Kopieren"),
    ("Copied", "Kopiert"),
    (
        "A browser warns about the certificate until the development CA of this server is trusted:",
        "Ein Browser warnt vor dem Zertifikat, bis der Entwicklungs-CA dieses Servers vertraut wird:",
    ),
    ("Demo users", "Demo-Benutzer"),
    ("Their passwords are in {}.", "Ihre Passwörter stehen in {}."),
    // Every page.
    ("Get help", "Hilfe"),
    ("Imprint", "Impressum"),
    ("Privacy", "Datenschutz"),
    // The console.
    (
        "only administrators may use the console. Ask one of them if you need something from it.",
        "nur Administratoren können die Konsole benutzen. Fragen Sie sie, wenn Sie etwas daraus brauchen.",
    ),
    // The account.
    ("Sign out of this browser", "In diesem Browser abmelden"),
    ("Sign in again", "Erneut anmelden"),
    ("Back to your account", "Zurück zu Ihrem Konto"),
    (
        "The session was ended. Apps signed in from it are signed out too.",
        "Die Sitzung ist beendet, und mit ihr die Apps, die aus ihr angemeldet wurden.",
    ),
    (
        "The passkey was added. You can sign in with it from now on.",
        "Der Passkey wurde hinzugefügt. Sie können sich von jetzt an mit ihm anmelden.",
    ),
    (
        "The passkey was removed and no longer signs you in.",
        "Der Passkey wurde entfernt und gilt nicht mehr zur Anmeldung.",
    ),
    (
        "The password was changed. All other sessions and apps are signed out.",
        "Das Passwort wurde geändert. Alle anderen Sitzungen und Apps sind abgemeldet.",
    ),
    (
        "The account was linked. You can sign in with it from now on.",
        "Das Konto wurde verknüpft. Sie können sich von jetzt an mit ihm anmelden.",
    ),
    (
        "Permission withdrawn. The application is signed out and must ask again.",
        "Erlaubnis widerrufen. Die Anwendung ist abgemeldet und muss erneut fragen.",
    ),
    ("The link was removed.", "Die Verknüpfung wurde entfernt."),
    ("Saved.", "Gespeichert."),
    ("Signed in as {} ({}).", "Angemeldet als {} ({})."),
    (
        "Sign in again for this change: it adds a way to sign in to your account, and your sign-in is more than 15 minutes old.",
        "Melden Sie sich für diese Änderung erneut an: Sie fügt Ihrem Konto eine Anmeldeart hinzu, und Ihre Anmeldung ist mehr als 15 Minuten alt.",
    ),
    ("Applications", "Anwendungen"),
    (
        "Applications with your permission. Withdrawing it signs you out of the application.",
        "Anwendungen mit Ihrer Erlaubnis. Ein Widerruf meldet Sie in der Anwendung ab.",
    ),
    ("allowed {} to", "erlaubt am {}:"),
    ("Withdraw", "Widerrufen"),
    ("Withdraw the permission of {}", "Erlaubnis von {} widerrufen"),
    ("This permission was already withdrawn.", "Diese Erlaubnis wurde schon widerrufen."),
    ("Linked accounts", "Verknüpfte Konten"),
    (
        "You can sign in here with an account at another provider.",
        "Sie können sich hier mit einem Konto bei einem anderen Anbieter anmelden.",
    ),
    ("linked {}", "verknüpft am {}"),
    ("Unlink", "Trennen"),
    ("Unlink {} {}", "{} {} trennen"),
    ("Link {}", "{} verknüpfen"),
    ("This provider does not exist.", "Diesen Anbieter gibt es nicht."),
    (
        "The provider cannot be reached. Please try again later.",
        "Der Anbieter ist nicht erreichbar. Bitte versuchen Sie es später noch einmal.",
    ),
    ("This link was removed already.", "Diese Verknüpfung wurde schon entfernt."),
    ("Where you are signed in", "Wo Sie angemeldet sind"),
    ("this browser", "dieser Browser"),
    ("from {}", "von {}"),
    ("since {}", "seit {}"),
    ("by {}", "über {}"),
    ("last used {}", "zuletzt benutzt {}"),
    ("End", "Beenden"),
    ("End the session in {}", "Sitzung in {} beenden"),
    ("{} sessions", "{} Sitzungen"),
    ("Sign out all other sessions", "Alle anderen Sitzungen abmelden"),
    (
        "All other sessions were ended. Apps signed in from them are signed out too.",
        "Alle anderen Sitzungen wurden beendet. Apps, die von ihnen aus angemeldet wurden, sind ebenfalls abgemeldet.",
    ),
    ("Sign out everywhere", "Überall abmelden"),
    (
        "Everywhere means: all browsers, and all apps that you signed in to with this account.",
        "Überall heißt: in allen Browsern und in allen Apps, in denen Sie sich mit diesem Konto angemeldet haben.",
    ),
    ("This session has ended already.", "Diese Sitzung ist schon beendet."),
    ("All sessions and all apps are signed out.", "Alle Sitzungen und alle Apps sind abgemeldet."),
    ("How you sign in", "So melden Sie sich an"),
    (
        "You sign in with {}. This account has no password, passkeys or recovery codes of its own.",
        "Sie melden sich mit {} an. Dieses Konto hat kein eigenes Passwort, keine Passkeys und keine Wiederherstellungscodes.",
    ),
    ("Passkeys", "Passkeys"),
    (
        "Passkeys require a server with a host name; this one is used by its IP address.",
        "Passkeys benötigen einen Server mit einem Hostnamen; dieser wird über seine IP-Adresse benutzt.",
    ),
    (
        "A passkey lets you sign in with your fingerprint, face or PIN. It cannot be phished.",
        "Mit einem Passkey melden Sie sich mit Fingerabdruck, Gesicht oder PIN an. Er kann nicht durch Phishing gestohlen werden.",
    ),
    ("Name of a new passkey", "Name eines neuen Passkeys"),
    (
        "For example, the name of the device that it is on.",
        "Zum Beispiel der Name des Geräts, auf dem er liegt.",
    ),
    ("Add a passkey", "Passkey hinzufügen"),
    ("Adding a passkey requires JavaScript.", "Das Hinzufügen eines Passkeys benötigt JavaScript."),
    (
        "Signing in with your password also requires a passkey.",
        "Die Anmeldung mit Ihrem Passwort verlangt auch einen Passkey.",
    ),
    ("You can sign in with your password alone.", "Sie können sich allein mit Ihrem Passwort anmelden."),
    ("Recovery codes", "Wiederherstellungscodes"),
    ("Do not require a passkey after the password", "Nach dem Passwort keinen Passkey verlangen"),
    ("Require a passkey after the password", "Nach dem Passwort einen Passkey verlangen"),
    ("Generate new recovery codes", "Neue Wiederherstellungscodes erzeugen"),
    ("added {}", "hinzugefügt am {}"),
    ("not used yet", "noch nicht benutzt"),
    ("Remove", "Entfernen"),
    ("Remove the passkey {}", "Passkey {} entfernen"),
    (
        "You have no recovery codes. Each one signs you in once if you lose all other ways to sign in.",
        "Sie haben keine Wiederherstellungscodes. Jeder meldet Sie einmal an, wenn Sie alle anderen Anmeldearten verloren haben.",
    ),
    ("You have one recovery code left.", "Sie haben noch einen Wiederherstellungscode."),
    ("You have {} recovery codes left.", "Sie haben noch {} Wiederherstellungscodes."),
    (
        "Write these down or print them, and keep them away from this device. Each signs you in once.",
        "Schreiben Sie diese auf oder drucken Sie sie aus, und bewahren Sie sie getrennt von diesem Gerät auf. Jeder meldet Sie einmal an.",
    ),
    (
        "They are not shown again, and older ones have stopped working.",
        "Sie werden nicht noch einmal angezeigt, und ältere gelten nicht mehr.",
    ),
    ("I have saved them", "Ich habe sie gesichert"),
    ("Your recovery codes", "Ihre Wiederherstellungscodes"),
    (
        "This passkey was not accepted. Please try again.",
        "Dieser Passkey wurde nicht angenommen. Bitte versuchen Sie es noch einmal.",
    ),
    ("Current password", "Aktuelles Passwort"),
    ("New password", "Neues Passwort"),
    (
        "At least {} characters; several unrelated words are a good choice. All other sessions and apps are signed out by the change.",
        "Mindestens {} Zeichen; mehrere Wörter ohne Zusammenhang sind eine gute Wahl. Die Änderung meldet alle anderen Sitzungen und Apps ab.",
    ),
    (
        "Also remove my passkeys, recovery codes and linked accounts. Choose this if someone else may have used your account.",
        "Auch meine Passkeys, Wiederherstellungscodes und verknüpften Konten entfernen. Wählen Sie dies, wenn jemand anderes Ihr Konto benutzt haben kann.",
    ),
    ("Change the password", "Passwort ändern"),
    ("Set a password", "Passwort setzen"),
    ("Set the password and sign in", "Passwort setzen und anmelden"),
    (
        "For the account {}. This link can be used once.",
        "Für das Konto {}. Dieser Link kann einmal verwendet werden.",
    ),
    (
        "This link was used before, has expired or was replaced by a newer one. Ask for a new link.",
        "Dieser Link wurde schon verwendet, ist abgelaufen oder wurde durch einen neueren ersetzt. Bitten Sie um einen neuen Link.",
    ),
    ("The current password is wrong.", "Das aktuelle Passwort ist falsch."),
    ("The password was changed elsewhere.", "Das Passwort wurde anderswo geändert."),
    // Errors of passkeys and accounts, as sentences.
    (
        "The request expired or was started in another window; please try again.",
        "Die Anfrage ist abgelaufen oder wurde in einem anderen Fenster begonnen; bitte versuchen Sie es noch einmal.",
    ),
    (
        "This is your only way to sign in; set a password or add another passkey first.",
        "Dies ist Ihre einzige Anmeldeart; setzen Sie zuerst ein Passwort oder fügen Sie einen anderen Passkey hinzu.",
    ),
    (
        "This is your only way to sign in; set a password or add a passkey first.",
        "Dies ist Ihre einzige Anmeldeart; setzen Sie zuerst ein Passwort oder fügen Sie einen Passkey hinzu.",
    ),
    ("Add a passkey first.", "Fügen Sie zuerst einen Passkey hinzu."),
    ("This account is linked to another user.", "Dieses Konto ist mit einem anderen Benutzer verknüpft."),
    ("This account no longer exists.", "Dieses Konto gibt es nicht mehr."),
    (
        "This account was changed elsewhere. Please try again.",
        "Dieses Konto wurde anderswo geändert. Bitte versuchen Sie es noch einmal.",
    ),
];

/// The text of an error as a sentence.
pub fn as_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_negotiated_by_weight() {
        for (accepted, language) in [
            ("", Language::English),
            ("de", Language::German),
            ("de-AT,en;q=0.8", Language::German),
            ("en, de;q=0.9", Language::English),
            ("fr, DE-ch;q=0.5, en;q=0.3", Language::German),
            ("de;q=0", Language::English),
            ("fr", Language::English),
        ] {
            assert_eq!(Language::negotiate(accepted), language, "{accepted}");
        }
    }

    #[test]
    fn each_text_is_translated_once_with_the_same_placeholders() {
        for (at, (english, german)) in TEXTS.iter().enumerate() {
            assert!(!TEXTS[..at].iter().any(|(other, _)| other == english), "{english}");
            assert_eq!(english.matches("{}").count(), german.matches("{}").count(), "{english}");
        }
    }

    /// The literal texts of the calls of `t`, `fill` and `phrase` in the source of the pages.
    #[test]
    fn every_text_of_a_page_is_in_the_table() {
        let call = regex::Regex::new(r#"\b(?:t|fill|phrase)\(\s*"((?:[^"\\]|\\.)*)""#).unwrap();
        let mut count = 0;
        let mut folders =
            vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/pages"))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let source = std::fs::read_to_string(&path).unwrap();
                for captured in call.captures_iter(&source) {
                    let text = &captured[1];
                    assert!(TEXTS.iter().any(|(english, _)| *english == text), "{}: {text}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 80, "only {count} texts were found");
    }
}
