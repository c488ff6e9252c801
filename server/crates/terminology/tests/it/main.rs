//! The two operations as a caller sees them: resources in, Parameters or errors out.

mod fuzz;
mod laws;
mod real_data;
mod releases;
mod subsumes;
mod support;
mod validate_code;
