//! The token that is sent instead of that of the profile.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use crate::api::Bearer;
use crate::args::{TOKEN_VARIABLE, TokenSource};
use crate::failure::CommandFailure;

/// Maximum size of a token in bytes.
const MAX_TOKEN: u64 = 1 << 20;

/// The token of the file or of the environment; `None` if neither is given.
pub(super) fn given(source: &TokenSource) -> Result<Option<Bearer>, CommandFailure> {
    let token = match &source.token_file {
        Some(file) => Some(read_token(file)?),
        None => std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()),
    };
    Ok(token.map(Bearer::Given))
}

/// Reads the token in a file, or in stdin if the file is `-`.
pub(super) fn read_token(file: &Path) -> Result<String, CommandFailure> {
    let mut text = String::new();
    if file == Path::new("-") {
        // A script may write more lines later.
        std::io::stdin().read_line(&mut text).map_err(CommandFailure::Stdin)?;
        return Ok(text.trim().to_owned());
    }
    let read = std::fs::File::open(file).and_then(|file| file.take(MAX_TOKEN).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text.trim().to_owned()),
        // The text may be a token: it is not repeated.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename) => {
            Err(CommandFailure::Usage(format!(
                "no file has that name; a token itself is not accepted as an argument, because all users of this \
                 machine can read arguments: store it in a file, write it to stdin (-), or set {TOKEN_VARIABLE}"
            )))
        }
        Err(error) => Err(CommandFailure::Usage(format!("the file with the token cannot be read: {error}"))),
    }
}
