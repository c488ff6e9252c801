//! The subcommand that sends one question to two servers and compares their answers.

use command_line::text::one_line;
use serde::Serialize;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use super::terminology::{
    expand_query, lookup_query, subsumes_query, terminology_bearer, validate_code_query,
};
use crate::api::{Api, ApiError, Bearer};
use crate::args::{CompareArgs, ComparedQuestion};
use crate::compare::{ComparedMember, compare as compare_answers};
use crate::failure::CommandFailure;
use crate::other_server::OtherServer;
use crate::output::Output;

pub(super) async fn compare(api: &Api, args: CompareArgs) -> Result<(), CommandFailure> {
    let CompareArgs { other_profile, other_url, question } = args;
    let (other, other_bearer) = match (other_profile, other_url) {
        (Some(name), _) => OtherServer::Profile(name),
        (None, url) => OtherServer::Url(url.unwrap_or_default()),
    }
    .connect(api)
    .await?;
    let options = question.options();
    let bearer = terminology_bearer(api, options).await?;
    let (here, there) = tokio::join!(ask(api, &question, &bearer), ask(&other, &question, &other_bearer));
    let (here, there) = (here?, there?);
    let members = compare_answers(&here, &there);
    let differences: Vec<_> = members.iter().filter(|member| member.differs()).collect();
    let result = json!({
        "here": { "server": api.profile().fhir_base, "answer": here },
        "other": { "server": other.profile().fhir_base, "answer": there },
        "differences": differences,
    });
    Output { json: options.ask.sign_in.json }
        .result(&result, || table(&api.profile().fhir_base, &other.profile().fhir_base, &members))?;
    options.verdict(differences.is_empty())
}

/// Sends the question. A response with an error status is an answer, too.
async fn ask(api: &Api, question: &ComparedQuestion, bearer: &Bearer) -> Result<Value, ApiError> {
    fn value<A: Serialize>(report: Result<A, ApiError>) -> Result<Value, ApiError> {
        match report {
            Ok(comparison) => Ok(json!(comparison)),
            // The address of the request differs in any case.
            Err(ApiError::Refused { status, text, .. }) => {
                Ok(json!({ "status": status.as_u16(), "error": text }))
            }
            Err(error) => Err(error),
        }
    }
    match question {
        ComparedQuestion::ValidateCode(args) => {
            value(api.validate_code(&validate_code_query(args), bearer).await)
        }
        ComparedQuestion::Subsumes(args) => value(api.subsumes(&subsumes_query(args), bearer).await),
        ComparedQuestion::Lookup(args) => value(api.lookup(&lookup_query(args), bearer).await),
        ComparedQuestion::Expand(args) => value(api.expand(&expand_query(args), bearer).await),
    }
}

/// The answers as a table of two columns. A mark precedes members that differ.
fn table(here: &str, other: &str, members: &[ComparedMember]) -> String {
    let text = |value: &Option<Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    let mut rows = vec![(" ", String::new(), here.to_owned(), other.to_owned())];
    rows.extend(members.iter().map(|member| {
        let mark = if member.differs() { "!" } else { " " };
        (mark, member.path.clone(), text(&member.here), text(&member.other))
    }));
    let width = |column: fn(&(&str, String, String, String)) -> usize| {
        rows.iter().map(column).max().unwrap_or(0).min(48)
    };
    let (path_width, here_width) = (width(|row| row.1.width()), width(|row| row.2.width()));
    let line = |(mark, path, here, other): &(&str, String, String, String)| {
        one_line(&format!("{mark} {path:<path_width$}  {here:<here_width$}  {other}")).into_owned()
    };
    let mut lines: Vec<_> = rows.iter().map(line).collect();
    lines.push(match members.iter().filter(|member| member.differs()).count() {
        0 => "The answers are the same.".to_owned(),
        1 => "1 difference".to_owned(),
        count => format!("{count} differences"),
    });
    lines.join("\n")
}
