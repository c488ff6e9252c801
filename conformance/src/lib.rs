//! The conformance suite: the specification as tables of rows, and what runs them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`spec`] | the tables under `specs/`: requirements, cases, gaps; the language of a case |
//! | [`world`] | the server under test, the fake identity providers, the browser, the givens |
//! | [`run`] | carries out a case and judges the answers |
//! | [`report`] | listeners to a run: terminal, JSON lines, JUnit |
//! | [`tx`] | HL7's terminology ecosystem suite, run against any FHIR R4 server |
//! | [`cli`] | the program `trefoil-conformance` |
//!
//! The suite starts the server as a program and judges bytes on the wire. It shares no type with the
//! server, so a wrong name cannot be right on both sides.

pub mod cli;
pub mod report;
pub mod run;
pub mod spec;
pub mod tx;
pub mod world;
