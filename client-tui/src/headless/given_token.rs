//! The token of the command line.

use crate::api::Bearer;
use crate::failure::CommandFailure;

/// The token of the command line. `-` reads it from the first line of stdin.
pub(super) fn given(token: &str) -> Result<Bearer, CommandFailure> {
    if token != "-" {
        return Ok(Bearer::Given(token.to_owned()));
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(CommandFailure::Stdin)?;
    Ok(Bearer::Given(line.trim().to_owned()))
}
