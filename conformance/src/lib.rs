//! The conformance suite: the specification as tables of rows, and their runner.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | the tables under `specs/`: requirements, cases, gaps |
//! | [`wire`] | requests and responses, variables, tokens |
//! | [`environment`] | the server under test, fake identity providers, preconditions |
//! | [`run`] | runs cases and checks the responses |
//! | [`report`] | listeners to a run: terminal, JSON lines, JUnit |
//! | [`explain`] | requirements and cases as texts for people |
//! | [`tx`] | HL7's terminology ecosystem suite, for any FHIR R4 server |
//! | [`cli`] | the program `trefoil-conformance` |
//!
//! The suite starts the server as a program and checks the bytes on the wire. It shares no type with the server, so
//! that a wrong name cannot pass by being the same on both sides. `tests/in_process` checks the rows of terminology against
//! the terminology crate, too.

pub mod cli;
pub mod environment;
pub mod explain;
pub mod report;
pub mod run;
pub mod spec;
pub mod tx;
pub mod wire;
