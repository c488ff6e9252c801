//! The conformance suite: the specification as tables of rows, and their runner.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | the tables under `specs/`: requirements, cases, gaps |
//! | [`wire`] | requests and responses, variables, tokens |
//! | [`profile`] | properties of a server that the suite cannot discover |
//! | [`environment`] | the server under test, fake identity providers, preconditions |
//! | [`run`] | runs cases and checks the responses |
//! | [`report`] | listeners to a run: the terminal and files in several formats |
//! | [`laws`] | properties of every server, tested with random requests |
//! | [`board`] | several servers in one run, as one page |
//! | [`init`] | writes the profile of a server |
//! | [`compare`] | compares the reports of two runs |
//! | [`explain`] | texts that describe requirements and cases |
//! | [`tx`] | HL7's terminology ecosystem suite, for any FHIR R4 server |
//! | [`cli`] | the program `trefoil-conformance` |
//!
//! The suite starts the server as a separate process and checks the bytes of its responses. It shares no type
//! with the server, because a wrong name that both use would not be detected. `tests/in_process` also checks
//! the rows about terminology against the terminology crate.

pub mod board;
pub mod cli;
pub mod compare;
pub mod environment;
pub mod explain;
pub mod init;
pub mod laws;
pub mod profile;
pub mod report;
pub mod run;
pub mod spec;
pub mod tx;
pub mod wire;
