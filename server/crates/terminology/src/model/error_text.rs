//! Texts of errors, which the answers of `$validate-code` also contain.
//!
//! HL7's terminology ecosystem compares texts literally, so the wording is that of its reference server. The
//! comments state the ids of the texts in the message table of that server.

/// Text for a request without a code in any form. The text of the reference server lacks the closing bracket
/// too.
pub(crate) const NOTHING_TO_VALIDATE: &str = "Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters";

/// The text with the id `Unable_to_resolve_value_Set_`.
pub(crate) fn unknown_value_set(url: &str) -> String {
    format!("A definition for the value Set '{url}' could not be found")
}

/// The text with the id `UNKNOWN_CODESYSTEM`, `UNKNOWN_CODESYSTEM_VERSION` or
/// `UNKNOWN_CODESYSTEM_VERSION_NONE`.
pub(crate) fn unknown_code_system(system: &str, version: Option<&str>, stored_versions: &[String]) -> String {
    let rest = "could not be found, so the code cannot be validated";
    match (version, stored_versions) {
        (None, _) => format!("A definition for CodeSystem '{system}' {rest}"),
        (Some(version), []) => format!(
            "A definition for CodeSystem '{system}' version '{version}' {rest}. No versions of this code system are known"
        ),
        (Some(version), stored_versions) => format!(
            "A definition for CodeSystem '{system}' version '{version}' {rest}. Valid versions: {}",
            // The same list format as the reference server.
            match stored_versions {
                [first @ .., last] if first.len() > 1 => format!("{} and {last}", first.join(", ")),
                few => few.join(" or "),
            }
        ),
    }
}

/// The text with the id `UNKNOWN_CODESYSTEM_EXP`, `UNKNOWN_CODESYSTEM_VERSION_EXP` or
/// `UNKNOWN_CODESYSTEM_VERSION_EXP_NONE`.
pub(crate) fn unknown_code_system_in_set(
    system: &str,
    version: Option<&str>,
    stored_versions: &[String],
) -> String {
    unknown_code_system(system, version, stored_versions)
        .replace("so the code cannot be validated", "so the value set cannot be expanded")
}

/// The text with the id `VALUESET_VERSION_CHECK`.
pub(crate) fn version_not_allowed(system: &str, version: &str, required: &str) -> String {
    format!(
        "The version '{version}' is not allowed for system '{system}': required to be '{required}' by a version-check parameter"
    )
}

/// The text with the id `VALUESET_TOO_COSTLY`.
pub(crate) fn too_costly(value_set: &str, limit: usize) -> String {
    format!("The value set '{value_set}' expansion has too many codes to display (>{limit})")
}

/// The text with the id `Unknown_Code_in_Version`, and the reason why the code cannot be read.
pub(super) fn unreadable_code(
    code: &str,
    system: &str,
    version: Option<&str>,
    reason: Option<&str>,
) -> String {
    let text = unknown_code(code, system, version);
    match reason {
        Some(reason) => format!("{text}: {reason}"),
        None => text,
    }
}

/// The text with the id `Unknown_Code_in_Version`.
pub(crate) fn unknown_code(code: &str, system: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("Unknown code '{code}' in the CodeSystem '{system}' version '{version}'"),
        None => format!("Unknown code '{code}' in the CodeSystem '{system}'"),
    }
}
