//! Laws: properties that hold for every server, tested with random requests. A failure names the smallest
//! request that breaks the law, and the seed that repeats the run.
//!
//! | module | laws |
//! |---|---|
//! | [`authorization`] | redirect URIs are compared exactly; a code is spent once |
//! | [`difference`] | not a law: two servers that are asked the same |
//! | [`terminology`] | `$subsumes` is an order; `$validate-code` agrees with `$expand`; GET agrees with POST |
//! | [`export`] | an export is complete, without duplicates, and its parts add up |
//! | `law_test` | the test of a law with random requests, and the report of a violation |

pub mod authorization;
pub mod difference;
pub mod export;
mod law_test;
pub mod terminology;

use std::fmt::Debug;
use std::time::Instant;

use tokio::runtime::Runtime;

pub use self::law_test::{Broken, Finding, LawTest, failure};
use crate::environment::TestEnvironment;
use crate::run::verdict::{CaseOutcome, Verdict};
use crate::spec::requirement::{BoundActor, Level, Requirement};

/// Number of random values that are tried for each law, unless `--budget` states another one.
pub const BUDGET: u32 = 60;

/// A law.
#[derive(Debug)]
pub struct Law {
    /// Id in reports.
    pub id: &'static str,
    /// Statement of the law.
    pub gist: &'static str,
    /// URL of the clause of a standard that states it, or from which it follows.
    pub standard: &'static str,
    test: fn(&LawTest<'_>) -> Result<(), Broken>,
}

/// All laws.
pub const LAWS: [Law; 9] = [
    Law {
        id: "law/authorize/redirect-exact",
        gist: "A redirect URI that differs from the registered one in any character never receives a response.",
        standard: "https://www.rfc-editor.org/rfc/rfc9700#section-2.1",
        test: authorization::redirect_exact,
    },
    Law {
        id: "law/token/code-once",
        gist: "Of several concurrent requests with the same code, one at most receives tokens.",
        standard: "https://www.rfc-editor.org/rfc/rfc6749#section-4.1.2",
        test: authorization::code_once,
    },
    Law {
        id: "law/subsumes/mirrored",
        gist: "$subsumes of B and A mirrors that of A and B; a code is equivalent to itself.",
        standard: "https://hl7.org/fhir/R4/codesystem-operation-subsumes.html",
        test: terminology::mirrored,
    },
    Law {
        id: "law/subsumes/transitive",
        gist: "If A subsumes B, and B subsumes C, then A subsumes C.",
        standard: "https://hl7.org/fhir/R4/codesystem-operation-subsumes.html",
        test: terminology::transitive,
    },
    Law {
        id: "law/terminology/get-equals-post",
        gist: "An operation by GET answers like the same operation by POST.",
        standard: "https://hl7.org/fhir/R4/operations.html#executing",
        test: terminology::get_equals_post,
    },
    Law {
        id: "law/validate-code/agrees-with-expand",
        gist: "$validate-code finds exactly the codes in a value set that $expand lists.",
        standard: "https://hl7.org/fhir/R4/valueset-operation-validate-code.html",
        test: terminology::agrees_with_expand,
    },
    Law {
        id: "law/export/increments-add-up",
        gist: "An export with _since contains exactly the resources that were changed after that time.",
        standard: "https://hl7.org/fhir/uv/bulkdata/STU2/export.html#query-parameters",
        test: export::increments_add_up,
    },
    Law {
        id: "law/export/no-duplicates",
        gist: "Each resource of an export occurs once, and the counts of the manifest are right.",
        standard: "https://hl7.org/fhir/uv/bulkdata/STU2/export.html#response---complete-status",
        test: export::no_duplicates,
    },
    Law {
        id: "law/export/types-add-up",
        gist: "The exports of each type alone contain together what one export of all types contains.",
        standard: "https://hl7.org/fhir/uv/bulkdata/STU2/export.html#query-parameters",
        test: export::types_add_up,
    },
];

impl Law {
    /// The law as a requirement, for reports.
    pub fn requirement(&self) -> Requirement {
        Requirement {
            id: self.id.to_owned(),
            level: Level::Must,
            actor: BoundActor::Server,
            standard: Some(self.standard.to_owned()),
            house: None,
            gist: self.gist.to_owned(),
        }
    }
}

/// Asks two servers the same, at most about `budget` times. `seed` determines the questions.
pub fn compare(
    (first, second): (&TestEnvironment, &TestEnvironment),
    runtime: &Runtime,
    budget: u32,
    seed: u64,
) -> Verdict {
    let test = |environment| LawTest::new(environment, runtime, budget, seed);
    let verdict = verdict(difference::differs(&test(first), &test(second)));
    verdict.map_texts(|text| second.target.secrets.mask(&first.target.secrets.mask(text)))
}

fn verdict(tested: Result<(), Broken>) -> Verdict {
    match tested {
        Ok(()) => Verdict::Pass,
        Err(Broken::Failed(failure)) => Verdict::Fail(failure),
        Err(Broken::Lacking(reason)) => Verdict::Skip { reason },
        Err(Broken::Inconclusive(reason)) => Verdict::Inconclusive { reason },
    }
}

/// Tests a law with `budget` random values that `seed` determines.
pub fn test(
    law: &Law,
    environment: &TestEnvironment,
    runtime: &Runtime,
    budget: u32,
    seed: u64,
) -> CaseOutcome {
    let started = Instant::now();
    let verdict = match environment.lost() {
        Some(reason) => Verdict::Inconclusive { reason },
        None => verdict((law.test)(&LawTest::new(environment, runtime, budget, seed))),
    };
    CaseOutcome {
        id: law.id.to_owned(),
        covers: vec![law.id.to_owned()],
        level: Level::Must,
        verdict: verdict.map_texts(|text| environment.target.secrets.mask(text)),
        took_ms: super::run::verdict::milliseconds_since(started),
    }
}
