//! Tests of the import: they import releases and check indexes, answers, and errors with file and line.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod claml;
mod dialects;
mod extensions;
mod fuzz;
mod icd10cm;
mod icd11;
mod meddra;
mod ndc;
mod omop;
mod packages;
mod progress;
mod releases;
mod spreadsheets;
mod support;
mod syndication;
mod truncated_tables;
