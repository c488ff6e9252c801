//! Property test that `$expand` with `filter` returns the codes that a scan of all texts finds, including
//! texts of the value set and of supplements.

use std::collections::BTreeSet;

use fhir::Parameters;
use proptest::prelude::*;
use serde_json::{Value, json};
use trefoil_terminology::{OperationInput, OperationLevel, Terminology};

use crate::support::{put, run_expand};

/// Returns the letters of a text without case, accents and widths.
fn plain(text: &str) -> Vec<char> {
    let letter = |letter: char| match letter {
        'Ä' | 'ä' => 'a',
        '１' => '1',
        other => other.to_ascii_lowercase(),
    };
    text.chars().map(letter).collect()
}

/// Returns whether a word of the text starts with this one, comparing letter by letter from each start of a
/// word. Each Chinese letter starts one, and so does a Latin letter after it.
fn begins_word(text: &str, word: &str) -> bool {
    let is_chinese = |letter: char| matches!(letter, '欠' | '損');
    let (letters, word) = (plain(text), plain(word));
    (0..letters.len()).any(|at| {
        let begins = at == 0
            || is_chinese(letters[at])
            || letters[at].is_alphanumeric()
                && (!letters[at - 1].is_alphanumeric() || is_chinese(letters[at - 1]));
        begins && letters[at..].starts_with(&word)
    })
}

/// Generates a few texts of letters, digits and other characters.
fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[abAB1１Ä欠損 -]{1,6}", 1..4)
}

/// Returns a concept with these texts as display and designations.
fn concept(code: &str, texts: &[String]) -> Value {
    let designations: Vec<_> = texts[1..].iter().map(|text| json!({ "value": text })).collect();
    json!({ "code": code, "display": texts[0], "designation": designations })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_filter_finds_what_a_scan_finds(
        concepts in prop::collection::vec(texts(), 6),
        supplement in prop::collection::vec(prop::option::of(texts()), 6),
        listed in prop::collection::vec(prop::option::of(texts()), 6),
        lists in any::<bool>(),
        exact in any::<[bool; 2]>(),
        words in prop::collection::vec("[ab1ä欠損-]{1,3}", 1..3),
    ) {
        let code = |at: usize| format!("A{at}-b");
        let system = json!({
            "resourceType": "CodeSystem", "id": "s", "url": "urn:s", "status": "active", "content": "complete",
            "caseSensitive": exact[0],
            "concept": concepts.iter().enumerate().map(|(at, texts)| concept(&code(at), texts)).collect::<Vec<_>>(),
        });
        let added = supplement.iter().enumerate().filter_map(|(at, texts)| Some(concept(&code(at), texts.as_ref()?)));
        let more = json!({
            "resourceType": "CodeSystem", "id": "m", "url": "urn:m", "status": "active", "content": "supplement",
            "supplements": "urn:s", "caseSensitive": exact[1], "concept": added.collect::<Vec<_>>(),
        });
        let mut include = json!({ "system": "urn:s" });
        if lists {
            let list = listed.iter().enumerate().filter_map(|(at, texts)| Some(concept(&code(at), texts.as_ref()?)));
            include["concept"] = list.chain([json!({ "code": "A0-b", "display": "again" })]).collect();
        }
        let set = json!({ "resourceType": "ValueSet", "id": "v", "url": "urn:v", "status": "active",
            "compose": { "include": [include] } });
        let terminology = Terminology::default();
        terminology.apply([&system, &more, &set].map(|json| put(&json.to_string())));

        let filter = words.join(" ");
        let mut query = Parameters::from_query("url=urn:v&useSupplement=urn:m&excludeNested=true");
        query.push_string("filter", filter.clone());
        let response = run_expand(&terminology, OperationLevel::Type, OperationInput::from_query(&query)).unwrap();
        let rows = response["expansion"]["contains"].as_array().cloned().unwrap_or_default();
        let codes: BTreeSet<_> = rows.iter().map(|row| row["code"].as_str().unwrap().to_owned()).collect();

        let is_in = |at: usize| !lists || at == 0 || listed[at].is_some();
        let none = Vec::new();
        let expected: BTreeSet<_> = (0..concepts.len())
            .filter(|at| is_in(*at))
            .filter(|at| {
                let of_set = if lists { listed[*at].as_ref().unwrap_or(&none) } else { &none };
                let again = if lists && *at == 0 && listed[0].is_none() { vec!["again".to_owned()] } else { vec![] };
                let all = [vec![code(*at)], again, concepts[*at].clone(), of_set.clone(),
                    supplement[*at].clone().unwrap_or_default()].concat();
                words.iter().all(|word| all.iter().any(|text| begins_word(text, word)))
            })
            .map(code)
            .collect();
        prop_assert_eq!(codes, expected, "{}", filter);
        prop_assert_eq!(response["expansion"]["total"].as_u64().unwrap() as usize, rows.len());
    }
}
