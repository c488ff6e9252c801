//! Laws of terminology operations, on random code systems that are sent with each request (`tx-resource`), or
//! on the code systems and value sets of the profile.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::law_test::{Broken, Finding, LawTest, failure};
use crate::environment::preconditions::CaseContext;
use crate::run::verdict::ShownExchange;

/// URLs of the resources that are sent with a request.
pub(crate) const SYSTEM: &str = "https://laws.example/CodeSystem/random";
pub(crate) const SET: &str = "https://laws.example/ValueSet/random";

/// A random hierarchy: the parent of each code but the first, as an index below its own; and the root of a
/// value set.
#[derive(Debug, Clone)]
pub(crate) struct Hierarchy {
    parents: Vec<Index>,
    root: Index,
}

/// Returns random hierarchies.
pub(crate) fn hierarchies() -> impl Strategy<Value = Hierarchy> {
    let parents = proptest::collection::vec(any::<Index>(), 1..10);
    (parents, any::<Index>()).prop_map(|(parents, root)| Hierarchy { parents, root })
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let codes = (0..=self.parents.len()).map(|code| match self.parent(code) {
            Some(parent) => format!("c{code} below c{parent}"),
            None => format!("c{code}"),
        });
        f.write_str(&codes.collect::<Vec<_>>().join(", "))
    }
}

impl Hierarchy {
    pub(crate) fn codes(&self) -> Vec<String> {
        (0..=self.parents.len()).map(|index| format!("c{index}")).collect()
    }

    /// The index of the parent of a code. Every third code has none.
    fn parent(&self, code: usize) -> Option<usize> {
        let index = self.parents.get(code.checked_sub(1)?)?.index(code);
        (!code.is_multiple_of(3)).then_some(index)
    }

    fn concept(&self, code: usize) -> Value {
        let children = (0..=self.parents.len()).filter(|child| self.parent(*child) == Some(code));
        let concepts: Vec<_> = children.map(|child| self.concept(child)).collect();
        let mut concept = json!({ "code": format!("c{code}"), "display": format!("Code {code}") });
        if !concepts.is_empty() {
            concept["concept"] = concepts.into();
        }
        concept
    }

    fn code_system(&self) -> Value {
        let roots = (0..=self.parents.len()).filter(|code| self.parent(*code).is_none());
        json!({
            "resourceType": "CodeSystem", "url": SYSTEM, "status": "active", "content": "complete",
            "hierarchyMeaning": "is-a", "caseSensitive": true,
            "concept": roots.map(|root| self.concept(root)).collect::<Vec<_>>(),
        })
    }

    /// The code that the value set contains with its descendants.
    fn root(&self) -> String {
        format!("c{}", self.root.index(self.parents.len() + 1))
    }

    /// A value set with the descendants of a code.
    fn value_set(&self) -> Value {
        let filter = json!({ "property": "concept", "op": "is-a", "value": self.root() });
        json!({
            "resourceType": "ValueSet", "url": SET, "status": "active",
            "compose": { "include": [{ "system": SYSTEM, "filter": [filter] }] },
        })
    }

    /// The parameters that send the resources.
    pub(crate) fn resources(&self) -> Vec<Value> {
        vec![
            json!({ "name": "tx-resource", "resource": self.code_system() }),
            json!({ "name": "tx-resource", "resource": self.value_set() }),
        ]
    }
}

/// Returns whether the server uses resources that come with a request.
pub(crate) fn accepts_resources(test: &LawTest<'_>) -> bool {
    test.environment.target.treatment.house_rules
        || test.environment.target.profile.get("tx_resources").is_some_and(|accepts| *accepts == true)
}

/// Fails the law unless the server uses resources that come with a request.
fn needs_resources(test: &LawTest<'_>) -> Result<(), Broken> {
    if accepts_resources(test) {
        Ok(())
    } else {
        Err(Broken::Lacking("the profile does not allow tx-resource".to_owned()))
    }
}

/// A parameter with a value of this type.
pub(crate) fn parameter(name: &str, kind: &str, value: &str) -> Value {
    json!({ "name": name, format!("value{kind}"): value })
}

fn bearer(context: &CaseContext) -> Value {
    let token = context.vars.text("system_token").unwrap_or_default();
    if token.is_empty() { Value::Null } else { "$system_token".into() }
}

/// The request of an operation in the form of the tables.
pub(crate) fn post(context: &CaseContext, operation: &str, parameters: Vec<Value>) -> Value {
    let body = json!({ "resourceType": "Parameters", "parameter": parameters });
    json!({ "post": format!("fhir/{operation}"), "json": body, "bearer": bearer(context) })
}

/// The value of a parameter of a Parameters resource.
pub(crate) fn found<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    let all = body["parameter"].as_array()?;
    let parameter = all.iter().find(|parameter| parameter["name"] == name)?;
    parameter.as_object()?.iter().find(|(key, _)| key.starts_with("value")).map(|(_, value)| value)
}

/// Asks `$subsumes`; the outcome is `None` if the server reports an error.
fn subsumes(
    test: &LawTest<'_>,
    context: &mut CaseContext,
    hierarchy: &Hierarchy,
    (a, b): (&str, &str),
) -> Result<(String, ShownExchange), Broken> {
    let mut parameters = hierarchy.resources();
    parameters.extend([
        parameter("codeA", "Code", a),
        parameter("codeB", "Code", b),
        parameter("system", "Uri", SYSTEM),
    ]);
    let request = post(context, "CodeSystem/$subsumes", parameters);
    let (answer, shown) = test.ask(context, request)?;
    let body = answer.json().unwrap_or_default();
    match found(&body, "outcome").and_then(Value::as_str) {
        Some(outcome) => Ok((outcome.to_owned(), shown)),
        None => {
            Err(Broken::Lacking(format!("$subsumes with tx-resource answers {}", answer.status.as_u16())))
        }
    }
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn mirrored(test: &LawTest<'_>) -> Result<(), Broken> {
    needs_resources(test)?;
    let mut context = test.given(&["system-token"])?;
    let values = (hierarchies(), any::<Index>(), any::<Index>());
    test.for_all(&values, 2, |(hierarchy, a, b)| {
        let codes = hierarchy.codes();
        let (a, b) = (a.get(&codes), b.get(&codes));
        let (forward, first) = subsumes(test, &mut context, &hierarchy, (a, b))?;
        let (backward, second) = subsumes(test, &mut context, &hierarchy, (b, a))?;
        let mirror = match forward.as_str() {
            "subsumes" => "subsumed-by",
            "subsumed-by" => "subsumes",
            same => same,
        };
        if backward != mirror {
            let difference =
                format!("{b} and {a}: {backward} instead of {mirror}, because {a} and {b}: {forward}; the codes are {hierarchy}");
            return Ok(Some(failure(vec![first, second], difference)));
        }
        let wrong = a == b && forward != "equivalent";
        let difference = format!("{a} and itself: {forward} instead of equivalent; the codes are {hierarchy}");
        Ok(wrong.then(|| failure(vec![first], difference)))
    })
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn transitive(test: &LawTest<'_>) -> Result<(), Broken> {
    needs_resources(test)?;
    let mut context = test.given(&["system-token"])?;
    let values = (hierarchies(), any::<Index>());
    test.for_all(&values, 3, |(hierarchy, lowest)| {
        // A code, its parent and the parent of that.
        let c = lowest.index(hierarchy.codes().len());
        let Some((b, a)) = hierarchy.parent(c).and_then(|b| Some((b, hierarchy.parent(b)?))) else {
            return Ok(None);
        };
        let [a, b, c] = [a, b, c].map(|index| format!("c{index}"));
        let mut exchanges = Vec::new();
        for (upper, lower) in [(&a, &b), (&b, &c), (&a, &c)] {
            let (outcome, exchange) = subsumes(test, &mut context, &hierarchy, (upper, lower))?;
            exchanges.push(exchange);
            if outcome != "subsumes" {
                let difference =
                    format!("{upper} and {lower}: {outcome} instead of subsumes; the codes are {hierarchy}");
                return Ok(Some(failure(exchanges, difference)));
            }
        }
        Ok(None)
    })
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn get_equals_post(test: &LawTest<'_>) -> Result<(), Broken> {
    let mut context = test.given(&["system-token"])?;
    let questions = stored_questions(test, &mut context)?;
    test.for_all(&any::<Index>(), 2, |index| {
        let (operation, parameters) = index.get(&questions);
        let query: serde_json::Map<_, _> = parameters
            .iter()
            .map(|(name, _, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect();
        let get = json!({ "get": format!("fhir/{operation}"), "query": query, "bearer": bearer(&context) });
        let (by_get, first) = test.ask(&mut context, get)?;
        let all = parameters.iter().map(|(name, kind, value)| parameter(name, kind, value)).collect();
        let request = post(&context, operation, all);
        let (by_post, second) = test.ask(&mut context, request)?;
        Ok(compared(&by_get, &by_post, vec![first, second]))
    })
}

/// Compares the statuses, and the results without the order of their parameters.
fn compared(
    by_get: &crate::wire::exchange::Answer,
    by_post: &crate::wire::exchange::Answer,
    exchanges: Vec<ShownExchange>,
) -> Finding {
    let parts = |response: &crate::wire::exchange::Answer| {
        let body = response.json().unwrap_or_default();
        let values = ["result", "display", "outcome", "code", "name"].map(|name| found(&body, name).cloned());
        (response.status.as_u16(), values)
    };
    let (get, post) = (parts(by_get), parts(by_post));
    let text = |(status, named): &(u16, [Option<Value>; 5])| {
        let values = named.iter().flatten().map(Value::to_string);
        std::iter::once(status.to_string()).chain(values).collect::<Vec<_>>().join(", ")
    };
    (get != post)
        .then(|| failure(exchanges, format!("GET answers {}; POST answers {}", text(&get), text(&post))))
}

/// A question: operation and parameters with name, type and value.
pub(crate) type Question = (&'static str, Vec<(&'static str, &'static str, String)>);

/// Returns questions about the code systems and value sets of the profile.
pub(crate) fn stored_questions(
    test: &LawTest<'_>,
    context: &mut CaseContext,
) -> Result<Vec<Question>, Broken> {
    let urls = |name: &str| -> Vec<String> {
        let all = test.environment.target.profile.get(name).and_then(Value::as_array);
        all.into_iter().flatten().filter_map(|one| one["url"].as_str().map(str::to_owned)).collect()
    };
    let (systems, sets) = (urls("code_systems"), urls("value_sets"));
    let mut questions: Vec<Question> = Vec::new();
    for system in &systems {
        let request =
            json!({ "get": "fhir/CodeSystem", "query": { "url": system }, "bearer": bearer(context) });
        let (answer, _) = test.ask(context, request)?;
        let bundle = answer.json().unwrap_or_default();
        let mut codes = vec!["no-such-code".to_owned()];
        collect_codes(&bundle["entry"][0]["resource"]["concept"], &mut codes);
        // Neighbours in the resource are often parent and child, so that all outcomes occur.
        for pair in codes.windows(2) {
            let parameter = |name, kind, value: &str| (name, kind, value.to_owned());
            questions.push((
                "CodeSystem/$subsumes",
                vec![
                    parameter("system", "Uri", system),
                    parameter("codeA", "Code", &pair[0]),
                    parameter("codeB", "Code", &pair[1]),
                ],
            ));
            questions.push((
                "CodeSystem/$lookup",
                vec![parameter("system", "Uri", system), parameter("code", "Code", &pair[1])],
            ));
            let of_set = |set: &String| {
                vec![
                    parameter("url", "Uri", set),
                    parameter("system", "Uri", system),
                    parameter("code", "Code", &pair[1]),
                ]
            };
            questions.extend(sets.iter().map(|set| ("ValueSet/$validate-code", of_set(set))));
        }
    }
    if questions.is_empty() {
        return Err(Broken::Lacking("the profile has no 'code_systems' whose codes can be read".to_owned()));
    }
    Ok(questions)
}

fn collect_codes(concepts: &Value, codes: &mut Vec<String>) {
    for concept in concepts.as_array().into_iter().flatten() {
        codes.extend(concept["code"].as_str().map(str::to_owned));
        collect_codes(&concept["concept"], codes);
    }
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn agrees_with_expand(test: &LawTest<'_>) -> Result<(), Broken> {
    needs_resources(test)?;
    let mut context = test.given(&["system-token"])?;
    test.for_all(&(hierarchies(), any::<Index>()), 2, |(hierarchy, code)| {
        let mut parameters = hierarchy.resources();
        parameters.push(parameter("url", "Uri", SET));
        let request = post(&context, "ValueSet/$expand", parameters);
        let (expansion, first) = test.ask(&mut context, request)?;
        let expansion = expansion.json().unwrap_or_default();
        if expansion["resourceType"] != "ValueSet" {
            return Err(Broken::Lacking("$expand with tx-resource is not supported".to_owned()));
        }
        let codes = hierarchy.codes();
        let code = code.get(&codes);
        let mut codes_in_list = Vec::new();
        collect_expansion(&expansion["expansion"]["contains"], &mut codes_in_list);
        let mut parameters = hierarchy.resources();
        let question = [("url", "Uri", SET), ("system", "Uri", SYSTEM), ("code", "Code", code)];
        parameters.extend(question.map(|(name, kind, value)| parameter(name, kind, value)));
        let request = post(&context, "ValueSet/$validate-code", parameters);
        let (answer, second) = test.ask(&mut context, request)?;
        let body = answer.json().unwrap_or_default();
        let (is_listed, result) = (codes_in_list.contains(code), found(&body, "result").and_then(Value::as_bool));
        let response = result.map_or("has no result".to_owned(), |result| format!("answers {result}"));
        let verb = if is_listed { "lists" } else { "does not list" };
        let difference = format!(
            "{code}: $validate-code {response}, and $expand {verb} it; the set contains {}, and the codes are {hierarchy}",
            hierarchy.root()
        );
        Ok((result != Some(is_listed)).then(|| failure(vec![first, second], difference)))
    })
}

fn collect_expansion(contains: &Value, codes: &mut Vec<String>) {
    for item in contains.as_array().into_iter().flatten() {
        if item["abstract"] != true {
            codes.extend(item["code"].as_str().map(str::to_owned));
        }
        collect_expansion(&item["contains"], codes);
    }
}
