//! Masks secrets in a text, in each form in which requests, pages and JSON contain them.
//!
//! A short secret, such as the password `a`, is masked only where it stands alone, because it also occurs
//! within words.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

const MASK: &str = "***";
/// Number of characters below which a secret is masked only where it stands alone.
const SHORT: usize = 8;

/// The text with the secrets masked, and with the values of cookies that it sets.
pub fn mask(text: &str, secrets: &BTreeSet<String>) -> String {
    let forms: BTreeSet<(usize, String)> = secrets
        .iter()
        .flat_map(|secret| {
            let length = secret.chars().count();
            forms(secret).into_iter().map(move |form| (length, form))
        })
        .filter(|(_, form)| text.contains(form))
        .collect();
    let forms: Vec<(bool, String)> = forms.into_iter().map(|(length, form)| (length < SHORT, form)).collect();
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (is_short, form) in &forms {
        let mut from = 0;
        while let Some(offset) = text[from..].find(form.as_str()).map(|offset| from + offset) {
            let span = offset..offset + form.len();
            if !is_short || stands_alone(text, &span) {
                spans.push(span);
            }
            from = offset + text[offset..].chars().next().map_or(1, char::len_utf8);
        }
    }
    spans.sort_by_key(|span| span.start);
    let mut output = String::with_capacity(text.len());
    let mut end = 0;
    for span in spans {
        // Secrets can overlap, or contain each other.
        if end == 0 || span.start > end {
            output.push_str(&text[end..span.start]);
            output.push_str(MASK);
        }
        end = end.max(span.end);
    }
    output.push_str(&text[end..]);
    output.split_inclusive('\n').map(mask_cookies).collect()
}

/// Returns whether the text at a place is not a part of a longer word.
fn stands_alone(text: &str, span: &Range<usize>) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (before, form, after) = (&text[..span.start], &text[span.clone()], &text[span.end..]);
    let begins = !is_word(form.chars().next()) || !is_word(before.chars().next_back()) || ends_escape(before);
    let ends = !is_word(form.chars().next_back()) || !is_word(after.chars().next());
    begins && ends
}

/// Returns whether a text ends with an escaped character, such as `%3D`, `\n` or `\u0026`.
fn ends_escape(text: &str) -> bool {
    let hexadecimal = |prefix: &str, digits: usize| {
        let start = text.len().checked_sub(prefix.len() + digits);
        let escape = start.and_then(|start| text.get(start..));
        let end = escape.and_then(|escape| escape.strip_prefix(prefix));
        end.is_some_and(|end| end.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let letter = ["\\n", "\\r", "\\t", "\\b", "\\f"].iter().any(|escape| text.ends_with(escape));
    letter || hexadecimal("%", 2) || hexadecimal("\\u", 4)
}

/// The forms in which texts contain a secret: as it is, in a URL or form, in JSON, in HTML and quoted for a
/// shell.
fn forms(secret: &str) -> Vec<String> {
    let encoded: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let percent = encoded.replace('+', "%20");
    let json = Value::from(secret).to_string();
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut forms = vec![
        secret.to_owned(),
        with_small_digits(&percent),
        with_small_digits(&encoded),
        percent,
        encoded,
        json[1..json.len() - 1].to_owned(),
        secret.replace('\'', r"'\''"),
    ];
    for quote in ["\"", "&quot;", "&#34;"] {
        let html = html.replace('"', quote);
        forms.extend(["'", "&#39;", "&#x27;"].map(|apostrophe| html.replace('\'', apostrophe)));
    }
    forms
}

/// A percent-encoded text with its hexadecimal digits in lower case.
fn with_small_digits(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(2));
        text.extend(["%", &digits.to_ascii_lowercase(), rest]);
    }
    text
}

/// Masks the value of the cookie in a line of a response that sets one.
fn mask_cookies(line: &str) -> String {
    let cookie_line = line.strip_prefix("set-cookie: ").and_then(|cookie| {
        let (name, rest) = cookie.split_once('=')?;
        let end = rest.find([';', '\n']).unwrap_or(rest.len());
        Some(format!("set-cookie: {name}={MASK}{}", &rest[end..]))
    });
    cookie_line.unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(text: &str, secret: &str) -> String {
        mask(text, &BTreeSet::from([secret.to_owned()]))
    }

    #[test]
    fn a_short_secret_is_masked_where_it_stands_alone() {
        assert_eq!(
            masked("a=1 banana -a- %3Da%26 \\na \\u0026a", "a"),
            "***=1 banana -***- %3D***%26 \\n*** \\u0026***"
        );
        assert_eq!(masked("the demonstration of demo", "demo"), "the demonstration of ***");
        assert_eq!(masked("xlong-secretx", "long-secret"), "x***x");
        assert_eq!(masked("<input value=\"'&quot;\">", "'\""), "<input value=\"***\">");
    }

    #[test]
    fn digits_of_escapes_can_be_small() {
        assert_eq!(with_small_digits("aB%3F%C3%a"), "aB%3f%c3%a");
    }

    proptest! {
        /// A secret of any length is masked in every place where requests and responses contain values.
        #[test]
        fn a_secret_of_any_length_is_masked(secret in "[ -~äß]{1,12}") {
            let form: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
            let json = Value::from(secret.as_str()).to_string();
            let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            let shell = secret.replace('\'', r"'\''");
            for (before, value, after) in [
                ("password=", form.as_str(), "&next=1"),
                ("continue=%3Fpassword%3D", form.as_str(), "%26x"),
                ("{\"password\":", json.as_str(), "}"),
                ("<input value=\"", html.as_str(), "\">"),
                ("curl -d '", shell.as_str(), "' https://a.example"),
                ("authorization: Bearer ", secret.as_str(), "\n"),
            ] {
                // The text around the value may contain the secret too.
                let around = masked(before, &secret) == before && masked(after, &secret) == after;
                let text = masked(&format!("{before}{value}{after}"), &secret);
                let is_masked = text.split_once(MASK).is_some_and(|(left, right)| {
                    format!("{before}\"").starts_with(left) && format!("\"{after}").ends_with(right)
                });
                prop_assert!(!around || is_masked, "{text}");
            }
        }

        /// A word that only contains a short secret is not masked.
        #[test]
        fn words_are_not_masked(secret in "[a-z0-9]{1,7}", before in "[a-z]{1,5}", after in "[a-z]{0,5}") {
            prop_assume!(!before.contains(&secret) && !after.contains(&secret));
            let word = format!("({before}{secret}{after})");
            prop_assert_eq!(masked(&word, &secret), word);
        }
    }
}
