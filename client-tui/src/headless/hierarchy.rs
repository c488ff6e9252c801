//! Subcommands about the hierarchy of a code system: the neighbours of a concept, and the path between two
//! codes.

use super::terminology::terminology_bearer;
use crate::api::{Api, ConceptLabel, HierarchyQuery, PathQuery};
use crate::args::{CodePairArgs, ConceptArgs, PathArgs, TreeArgs};
use crate::failure::CommandFailure;
use crate::output::Output;
use command_line::text::one_line;

pub(super) async fn tree(api: &Api, args: TreeArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let TreeArgs { concept: ConceptArgs { system, version, code }, ask } = args;
    let query = HierarchyQuery { system, version: version.unwrap_or_default(), code };
    let level = api.concept(&query, &bearer).await?;
    Output { json: ask.ask.sign_in.json }.result(&level, || {
        let concept = ConceptLabel { code: level.code.clone(), display: level.display.clone() };
        let mut lines: Vec<_> = level.parents.iter().map(|parent| label(0, parent)).collect();
        lines.push(label(usize::from(!level.parents.is_empty()), &concept));
        let depth = 1 + usize::from(!level.parents.is_empty());
        lines.extend(level.children.iter().map(|child| label(depth, child)));
        lines.join("\n")
    })
}

pub(super) async fn path(api: &Api, args: PathArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let PathArgs { system, codes: CodePairArgs { version, code_a, code_b }, ask } = args;
    let query = PathQuery { system, version: version.unwrap_or_default(), code_a, code_b };
    let steps = api.hierarchy_path(&query, &bearer).await?;
    Output { json: ask.ask.sign_in.json }.result(&steps, || {
        let mut lines = vec![one_line(&steps.sentence()).into_owned()];
        lines.extend(steps.chain.iter().enumerate().map(|(depth, concept)| label(depth, concept)));
        lines.join("\n")
    })?;
    ask.verdict(!steps.chain.is_empty())
}

/// A concept as a line, indented by its depth.
fn label(depth: usize, concept: &ConceptLabel) -> String {
    let display = concept.display.as_deref().unwrap_or_default();
    let text = format!("{}  {display}", concept.code);
    format!("{:indent$}{}", "", one_line(&text), indent = 2 * depth).trim_end().to_owned()
}
