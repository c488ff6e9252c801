//! Templates of texts in the expectations of HL7's terminology ecosystem suite.
//!
//! | expected text | matches |
//! |---|---|
//! | `$$` | anything but a boolean |
//! | `$id$`, `$uuid$`, `$instant$`, `$date$`, `$semver$`, `$url$`, `$token$`, `$string$`, `$version$` | text of that form |
//! | `…$version$…` | the text with the server's FHIR version inserted |
//! | `$choice:a\|b$` | one of the alternatives |
//! | `$fragments:a\|b$` | text that contains every fragment, in any case |
//! | `$external:N:a\|b$` | the text N of the server's messages; without one, as `$fragments`, for the part up to the next colon |
//! | anything else | the same text |

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

/// Text formats, by the placeholder that a template uses for them.
static FORMS: LazyLock<HashMap<&str, Regex>> = LazyLock::new(|| {
    let zone = r"(Z|[+-]\d\d:\d\d)";
    let time = r"T\d\d:\d\d:\d\d(\.\d+)?";
    let form =
        |pattern: &str| Regex::new(&format!(r"\A(?:{pattern})\z")).expect("the patterns are valid constants");
    HashMap::from([
        ("$id$", form(r"[A-Za-z0-9\-.]{1,64}")),
        ("$uuid$", form(r"(urn:uuid:)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")),
        ("$instant$", form(&format!(r"\d{{4}}-\d\d-\d\d{time}{zone}"))),
        ("$date$", form(&format!(r"\d{{4}}(-\d\d(-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?{zone}?)?)?)?"))),
        ("$semver$", form(r"\d+(\.\d+){1,2}([-+][0-9A-Za-z.\-+]+)?")),
        ("$url$", form(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+")),
        ("$token$", form(r"[0-9A-Za-z_][0-9A-Za-z_.\-]*")),
        ("$string$", form(r"(?s).+")),
        ("$version$", form(r"(?s).+")),
    ])
});

/// Returns whether a text matches a template. `externals` are the texts of the server's messages, by number.
pub(super) fn matches(
    expected: &str,
    response: &str,
    fhir_version: &str,
    externals: Option<&HashMap<String, String>>,
) -> bool {
    if expected == response || expected == "$$" {
        return true;
    }
    // The narrative of a resource is not compared.
    if expected.contains("<div") && response.contains("<div") {
        return true;
    }
    let Some(template) = expected.strip_prefix('$').and_then(|rest| rest.strip_suffix('$')) else {
        return expected.contains("$version$") && expected.replace("$version$", fhir_version) == response;
    };
    match template.split_once(':') {
        Some(("choice", choices)) => choices.split('|').any(|choice| choice == response),
        Some(("fragments", fragments)) => has_fragments(fragments, response),
        Some(("external", rest)) => {
            let number = rest.split(':').next().unwrap_or_default();
            if let Some(text) = externals.and_then(|texts| texts.get(number)) {
                return text == response;
            }
            // The official runner splits the template at every colon, so it compares only the scheme of a
            // URL. The messages of some servers rely on this.
            let fragments = rest.split(':').nth(1).unwrap_or_default();
            has_fragments(fragments, response)
        }
        _ => FORMS.get(expected).is_some_and(|form| form.is_match(response)),
    }
}

fn has_fragments(fragments: &str, answer: &str) -> bool {
    let response = answer.to_lowercase();
    fragments.split('|').all(|fragment| response.contains(&fragment.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_templates() {
        let texts = HashMap::from([("9".to_owned(), "Exactly this".to_owned())]);
        for (expected, answer, matches) in [
            ("a", "a", true),
            ("a", "A", false),
            ("$$", "anything", true),
            ("$", "x", false),
            ("$id$", "a-b.c", true),
            ("$id$", "a b", false),
            ("$uuid$", "urn:uuid:8acdbfdc-e9d2-11ed-a05b-0242ac120003", true),
            ("$instant$", "2026-11-21T10:00:00.5Z", true),
            ("$instant$", "2026-11-21", false),
            ("$date$", "2026-11", true),
            ("$date$", "2026-11-21T10:00+01:00", true),
            ("$date$", "November", false),
            ("$semver$", "5.0.0", true),
            ("$semver$", "five", false),
            ("$url$", "http://x/y", true),
            ("$token$", "a_b", true),
            ("$string$", "", false),
            ("$unheard-of$", "x", false),
            ("R $version$ it is", "R 4.0.1 it is", true),
            ("R $version$ it is", "R 5.0.0 it is", false),
            ("$choice:a|b$", "b", true),
            ("$choice:a|b$", "c", false),
            ("$fragments:One|two$", "two and one", true),
            ("$fragments:One|two$", "two", false),
            ("$external:9$", "Exactly this", true),
            ("$external:9$", "exactly this", false),
            ("$external:1$", "anything", true),
            ("$external:1:one|http://x$", "ONE http only", true),
            ("$external:1:one|http://x$", "one", false),
            ("<div>a</div>", "<div>b</div>", true),
        ] {
            let result = super::matches(expected, answer, "4.0.1", Some(&texts));
            assert_eq!(result, matches, "{expected} and {answer}");
        }
    }
}
