//! Subcommands of terminology operations.

use command_line::text::one_line;
use serde_json::json;

use super::given_token::given;
use super::identity::{user_bearer, user_signs_in};
use crate::api::{
    Api, Bearer, EXPANSION_PAGE, ExpandQuery, ExpandedCode, LookupQuery, SubsumesQuery, ValidateCode,
};
use crate::args::{ExpandArgs, LookupArgs, SubsumesArgs, TerminologyArgs, ValidateCodeArgs};
use crate::failure::CommandFailure;
use crate::output::Output;

/// The token for a terminology operation: the one on the command line, the one of the backend client, or the
/// one of a user who signs in.
pub(super) async fn terminology_bearer(api: &Api, args: &TerminologyArgs) -> Result<Bearer, CommandFailure> {
    match given(&args.ask.token)? {
        Some(bearer) => Ok(bearer),
        None if args.sign_in_first => {
            user_signs_in(api, &args.ask.sign_in).await?;
            Ok(Bearer::User)
        }
        None if api.profile().backend.is_some() => Ok(Bearer::Backend),
        None if api.profile().is_anonymous() => Ok(Bearer::Anonymous),
        None => user_bearer(api, &args.ask.sign_in).await,
    }
}

pub(super) fn validate_code_query(args: &ValidateCodeArgs) -> ValidateCode {
    ValidateCode {
        url: args.url.clone().unwrap_or_default(),
        id: args.id.clone().unwrap_or_default(),
        system: args.system.clone(),
        code: args.code.clone(),
        display: args.display.clone().unwrap_or_default(),
    }
}

pub(super) fn subsumes_query(args: &SubsumesArgs) -> SubsumesQuery {
    SubsumesQuery {
        system: args.system.clone().unwrap_or_default(),
        id: args.id.clone().unwrap_or_default(),
        version: args.codes.version.clone().unwrap_or_default(),
        code_a: args.codes.code_a.clone(),
        code_b: args.codes.code_b.clone(),
    }
}

pub(super) fn lookup_query(args: &LookupArgs) -> LookupQuery {
    LookupQuery {
        system: args.concept.system.clone(),
        version: args.concept.version.clone().unwrap_or_default(),
        code: args.concept.code.clone(),
        properties: args.properties.clone(),
    }
}

pub(super) fn expand_query(args: &ExpandArgs) -> ExpandQuery {
    ExpandQuery {
        url: args.url.clone(),
        filter: args.filter.clone().unwrap_or_default(),
        offset: args.offset.map(|offset| offset.to_string()).unwrap_or_default(),
    }
}

pub(super) async fn validate_code(api: &Api, args: ValidateCodeArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = validate_code_query(&args);
    let report = api.validate_code(&query, &bearer).await?;
    Output { json: args.ask.ask.sign_in.json }.result(&report, || {
        let mut text = report.result.to_string();
        for more in [&report.display, &report.message].into_iter().flatten() {
            text.push_str(&format!("\n{}", one_line(more)));
        }
        for issue in &report.issues {
            text.push_str(&format!("\n{}", one_line(&issue.sentence())));
        }
        text
    })?;
    args.ask.verdict(report.result)
}

pub(super) async fn subsumes(api: &Api, args: SubsumesArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = subsumes_query(&args);
    let report = api.subsumes(&query, &bearer).await?;
    Output { json: args.ask.ask.sign_in.json }.result(&report, || {
        let sentence = report.sentence(&query.code_a, &query.code_b);
        format!("{}\n{}", one_line(&report.outcome), one_line(&sentence))
    })?;
    args.ask.verdict(matches!(report.outcome.as_str(), "subsumes" | "equivalent"))
}

pub(super) async fn lookup(api: &Api, args: LookupArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = lookup_query(&args);
    let report = api.lookup(&query, &bearer).await?;
    Output { json: args.ask.ask.sign_in.json }.result(&report, || {
        let mut text = one_line(report.display.as_deref().unwrap_or_default()).into_owned();
        let facts =
            [("system", &report.name), ("version", &report.version), ("definition", &report.definition)];
        for (name, value) in facts {
            if let Some(value) = value {
                text.push_str(&format!("\n{name}  {}", one_line(value)));
            }
        }
        for designation in &report.designations {
            let language = designation.language.as_deref().unwrap_or("-");
            let text_of_designation = one_line(&designation.value);
            text.push_str(&format!("\ndesignation  {}  {text_of_designation}", one_line(language)));
        }
        for property in &report.properties {
            let description = property.description.as_deref().unwrap_or_default();
            let row = format!("{}  {}  {description}", property.code, property.value);
            text.push_str(&format!("\n{}", one_line(&row)));
        }
        text
    })
}

pub(super) async fn expand(api: &Api, args: ExpandArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = expand_query(&args);
    let expansion = api.expand(&query, &bearer).await?;
    let output = Output { json: args.ask.ask.sign_in.json };
    let end = args.offset.unwrap_or(0) + expansion.codes.len() as u64;
    if expansion.total.is_some_and(|total| total > end) || expansion.codes.len() as u64 >= EXPANSION_PAGE {
        output.progress("more", json!({ "offset": end, "total": expansion.total }), || {
            format!("there are more codes; --offset {end} prints the next page")
        });
    }
    output.result(&expansion, || {
        let line = |code: &ExpandedCode| {
            let system = code.system.as_deref().unwrap_or_default();
            let columns = [&code.code, code.display.as_deref().unwrap_or_default(), system];
            columns.map(one_line).join("\t")
        };
        expansion.codes.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

impl TerminologyArgs {
    /// Turns a negative result into a failure if `--exit-status` is set.
    pub(super) fn verdict(&self, positive: bool) -> Result<(), CommandFailure> {
        if self.exit_status && !positive { Err(CommandFailure::NegativeResult) } else { Ok(()) }
    }
}
