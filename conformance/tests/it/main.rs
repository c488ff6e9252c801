//! Snapshots of complete exchanges, and properties of the running server. Each test starts a separate server
//! and stops it at the end. The rows of the tables are in `tests/rows.rs`.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod bulk_server;
mod documentation;
mod exchanges;
mod interface_coverage;
mod laws;
mod masking;
mod other_servers;
mod reports;
mod run_options;
mod scripted_pages;
mod tx;
mod wire_faults;

use std::path::PathBuf;
use std::sync::LazyLock;

use tokio::runtime::Runtime;
use trefoil_conformance::environment::TestEnvironment;
use trefoil_conformance::environment::preconditions::{self, CaseContext};
use trefoil_conformance::run::sending::{RepeatedStatus, exchange};
use trefoil_conformance::spec::request::Request;
use trefoil_conformance::wire::build::build_request;
use trefoil_conformance::wire::exchange::Answer;

/// A server, and a runtime for the requests to it.
struct Trial {
    environment: TestEnvironment,
    runtime: Runtime,
}

impl Trial {
    /// Starts the server. The first call builds it if necessary.
    fn start() -> Self {
        static BUILT: LazyLock<PathBuf> = LazyLock::new(|| test_server::build().unwrap());
        assert!(BUILT.is_file(), "{}", BUILT.display());
        let runtime = Runtime::new().unwrap();
        let environment = runtime.block_on(TestEnvironment::start()).unwrap();
        Self { environment, runtime }
    }

    /// Returns the context of a case with these preconditions.
    fn given(&self, names: &[&str]) -> CaseContext {
        let mut context = CaseContext::new(&self.environment);
        for name in names {
            self.runtime.block_on(preconditions::set_up(&self.environment, name, &mut context)).unwrap();
        }
        context
    }

    /// Sends a request in the form of the tables. If the request has `poll`, it is repeated while the status
    /// is 202.
    fn ask(&self, context: &mut CaseContext, request: &str) -> Answer {
        let request: Request = toml::from_str(request).unwrap();
        let http_request = build_request(&request, &context.vars).unwrap();
        let repeated = RepeatedStatus { poll: request.poll, expects_limit: false };
        self.runtime.block_on(exchange(&self.environment, context, &http_request, repeated)).unwrap().answer
    }
}
