//! The operations as a caller uses them: resources in, Parameters or errors out.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod agreement;
mod built_in;
mod closure;
mod costs;
mod ecl;
mod ecosystem;
mod expand;
mod expressions;
mod fuzz;
mod instances;
mod laws;
mod mixed_codings;
mod real_data;
mod subsumption;
mod support;
mod text_filter;
mod translate;
mod validate_code;
mod version_choice;
