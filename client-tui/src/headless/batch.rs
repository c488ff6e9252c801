//! The subcommand that validates a file of codes. Each result is printed when it is known, in the order of
//! the file.

use command_line::text::one_line;
use std::path::Path;
use std::pin::pin;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use spreadsheet::ReadOptions;

use super::terminology::terminology_bearer;
use crate::api::Api;
use crate::args::ValidateBatchArgs;
use crate::batch::{self, BatchDefaults, BatchResult, BatchSummary};
use crate::failure::CommandFailure;
use crate::output::Output;

pub(super) async fn validate_batch(api: &Api, args: ValidateBatchArgs) -> Result<(), CommandFailure> {
    if args.file == Path::new("-") && args.ask.ask.token.token_file.as_deref() == Some(Path::new("-")) {
        return Err(CommandFailure::Usage(
            "only one of the file and the token can be read from stdin".to_owned(),
        ));
    }
    let defaults = BatchDefaults {
        url: args.url.unwrap_or_default(),
        id: args.id.unwrap_or_default(),
        system: args.system.unwrap_or_default(),
    };
    let options = ReadOptions { encoding: args.encoding, sheet: args.sheet };
    let in_file = |reason: String| CommandFailure::Usage(format!("{}: {reason}", args.file.display()));
    let text = batch::read_text(&args.file, &options).map_err(|error| in_file(error.to_string()))?;
    let rows = batch::read(&text, &defaults).map_err(|error| in_file(error.to_string()))?;
    let bearer = terminology_bearer(api, &args.ask).await?;
    let width = rows.iter().map(|row| row.question.code.chars().count()).max().unwrap_or(0);
    let output = Output { json: args.ask.ask.sign_in.json };
    if args.csv {
        output.result(&Value::Null, || csv_line(&BatchResult::COLUMNS))?;
    }
    let mut summary = BatchSummary::default();
    let mut results = pin!(batch::run(api, rows, &bearer, args.parallel));
    while let Some(item) = results.next().await {
        summary.add(item.verdict());
        output.result(&item, || match args.csv {
            true => csv_line(&item.columns()),
            false => {
                let (verdict, code) = (item.verdict().word(), &item.code);
                let row = format!("{:>6}  {verdict:<7}  {code:<width$}  {}", item.row, item.explanation());
                one_line(&row).into_owned()
            }
        })?;
    }
    output.progress("summary", json!(summary), || summary.sentence());
    if summary.failed > 0 {
        return Err(CommandFailure::Batch { failed: summary.failed, total: summary.total });
    }
    args.ask.verdict(summary.invalid == 0)
}

/// A CSV record without its line end.
fn csv_line(values: &[impl AsRef<[u8]>]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(values).expect("a record in memory can be written");
    let line = writer.into_inner().expect("a record in memory can be written");
    String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()
}
