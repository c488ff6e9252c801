//! The operations as a caller sees them: resources in, Parameters or errors out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agreement;
mod built_in;
mod costs;
mod cut_off;
mod displays;
mod ecosystem;
mod expand;
mod extensions;
mod fuzz;
mod icd10cm;
mod laws;
mod lookup;
mod progress;
mod real_data;
mod releases;
mod subsumes;
mod subsumption;
mod support;
mod text_filter;
mod validate_code;
