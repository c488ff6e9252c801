//! FHIR R4 terminology: `$validate-code` and `CodeSystem/$subsumes` over immutable,
//! in-memory indexes. No HTTP, no async, and no IO but for [`load`], which reads releases: the edge feeds resources
//! in and asks questions.
//!
//! | module | what lives there |
//! |---|---|
//! | [`input`] | the parameters of a request, typed (body) or untyped (query) |
//! | [`budget`] | the steps, memory and time that one question may take |
//! | [`error`] | why a question could not be judged |
//! | [`terminology`] | the service: `apply`, `validate_code`, `subsumes`, `lookup`, `expand` |
//! | [`index`] | a compiled code system, to be saved and read back |
//! | [`load`] | published releases of code systems, read into indexes |
//! | `catalog` | what is stored, by id and by canonical URL; the choice between versions |
//! | `built_in` | languages, countries and their subdivisions, currencies, media types, units |
//! | `code_system` | one code system, compiled: codes, columns, hierarchy with interval labels |
//! | `definition` | one StructureDefinition: the value sets that its elements are bound to |
//! | `ecl` | SNOMED CT's expression constraint language |
//! | `value_set` | one value set, compiled: includes, filters, the search for a code, all its members |
//! | `overlay` | resources that requests bring along, kept compiled by content |
//! | `validate` | the rules of `$validate-code` and `$batch-validate-code` |
//! | [`subsumes`] | the rules of `$subsumes` |
//! | [`expand`], `lookup` | the rules of `$expand` and `$lookup` |
//! | `places` | the first place of a key in a list |
//! | `texts` | all displays and designations of a concept |
//! | `display`, `version` | languages and displays; versions and canonical URLs |
//! | `messages` | every text a caller reads in `issues`, in one table |
//! | `wire` | CodeSystem and ValueSet as JSON writes them |
//!
//! Nothing is expanded to test a code, nothing is compiled before it is used, and a question works
//! on one catalog from beginning to end, whatever changes meanwhile.
//!
//! ```
//! use fhir::Parameters;
//! use trefoil_terminology::{Change, Input, Level, Terminology};
//!
//! let colours = r#"{"resourceType":"CodeSystem","id":"colours","url":"urn:colours","status":"active",
//!     "content":"complete","concept":[{"code":"red","concept":[{"code":"crimson"}]}]}"#;
//! let terminology = Terminology::default();
//! terminology.apply([Change::Put { kind: "CodeSystem", id: "colours".into(), bytes: colours.into() }]);
//!
//! let query = Parameters::from_query("codeA=red&codeB=crimson");
//! let answer = terminology.subsumes(Level::Instance("colours"), Input::from_query(&query)).unwrap();
//! assert_eq!(answer.text("outcome"), Some("subsumes"));
//! ```

pub mod budget;
mod built_in;
mod catalog;
mod code_system;
mod definition;
mod display;
mod ecl;
pub mod error;
pub mod expand;
pub mod index;
pub mod input;
mod kept;
pub mod load;
mod lookup;
mod messages;
mod overlay;
mod places;
pub mod subsumes;
pub mod terminology;
mod texts;
mod validate;
mod value_set;
mod version;
mod wire;

pub use budget::Budget;
pub use error::{FilterFault, TxError, Unprocessable};
pub use index::Index;
pub use input::{Input, Level};
pub use subsumes::Subsumption;
pub use terminology::{Change, Problem, Terminology};
