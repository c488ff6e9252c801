//! Questions about what no server states of itself: users and clients. An empty answer to the first question
//! of a member leaves the member out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

use serde_json::json;

/// A question, and the member of the profile's table that it fills.
struct Question {
    key: &'static str,
    text: &'static str,
    /// Whether the answer is a list, whose items are separated by spaces.
    is_list: bool,
}

const fn one(key: &'static str, text: &'static str) -> Question {
    Question { key, text, is_list: false }
}

const fn list(key: &'static str, text: &'static str) -> Question {
    Question { key, text, is_list: true }
}

const REDIRECTS: Question = list("redirect_uris", "  its redirect URIs");
const SCOPES: Question = list("scopes", "  its scopes");

/// The tables of a profile that are asked for, with their questions.
const TABLES: [(&str, &str, &[Question]); 6] = [
    ("users", "[[users]]", &[one("username", "User name of a test user"), one("password", "  its password")]),
    ("users", "[[users]]", &[one("username", "User name of another one"), one("password", "  its password")]),
    ("public", "[public]", &[one("client_id", "Client without a secret, for browsers"), REDIRECTS, SCOPES]),
    (
        "confidential",
        "[confidential]",
        &[one("client_id", "Client with a secret"), one("client_secret", "  its secret"), REDIRECTS, SCOPES],
    ),
    (
        "backend",
        "[[backend]]",
        &[
            one("client_id", "Back end with a private key (SMART Backend Services)"),
            one("jwk_file", "  file with the key, as a JWK"),
            one("alg", "  its algorithm, ES384 or RS384"),
            SCOPES,
        ],
    ),
    (
        "resource_server",
        "[resource_server]",
        &[one("client_id", "Client that may introspect tokens"), one("client_secret", "  its secret")],
    ),
];

/// The tables of a profile that were answered, by the member of the profile.
pub type Answers = BTreeMap<&'static str, String>;

/// Asks, and returns the tables.
///
/// # Errors
/// An error if the answers cannot be read.
pub fn ask(input: &mut impl BufRead, output: &mut impl Write) -> io::Result<Answers> {
    let mut answers = Answers::new();
    writeln!(output, "No server states its users and clients. Press Enter to leave one out.")?;
    'tables: for (member, head, questions) in TABLES {
        let mut table = format!("{head}\n");
        for (number, question) in questions.iter().enumerate() {
            write!(output, "{}: ", question.text)?;
            output.flush()?;
            let mut line = String::new();
            let is_end = input.read_line(&mut line)? == 0;
            let value = line.trim();
            if is_end || (value.is_empty() && number == 0) {
                continue 'tables;
            }
            let _ = match (value.is_empty(), question.is_list) {
                (true, _) => Ok(()),
                (false, true) => {
                    writeln!(table, "{} = {}", question.key, json!(value.split(' ').collect::<Vec<_>>()))
                }
                (false, false) => writeln!(table, "{} = {}", question.key, json!(value)),
            };
        }
        answers.entry(member).or_default().push_str(&table);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_tables_of_a_profile() {
        let typed = "ada\na \"long\" one\nbea\nshort\napp\nhttps://a.example/cb https://a.example/b\n\n\nme\nkey.json\nES384\n";
        let mut prompts = Vec::new();
        let answers = ask(&mut typed.as_bytes(), &mut prompts).unwrap();
        let text = answers.values().map(String::as_str).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(text);
        let profile: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(profile["users"][0]["password"].as_str(), Some("a \"long\" one"));
        assert!(String::from_utf8(prompts).unwrap().contains("Client with a secret: Back end"));
        assert!(ask(&mut &b""[..], &mut Vec::new()).unwrap().is_empty());
    }
}
