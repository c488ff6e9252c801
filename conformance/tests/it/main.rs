//! Whole exchanges as snapshots, and laws over the running server. Each test starts a server of its
//! own, which ends with it. The rows of the tables are in `tests/rows.rs`.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod documentation;
mod exchanges;
mod laws;
mod tx;

use std::path::PathBuf;
use std::sync::LazyLock;

use tokio::runtime::Runtime;
use trefoil_conformance::environment::preconditions::{self, CaseContext};
use trefoil_conformance::environment::{TestEnvironment, server};
use trefoil_conformance::run::exchange;
use trefoil_conformance::spec::request::Request;
use trefoil_conformance::wire::build::build_request;
use trefoil_conformance::wire::exchange::Answer;

/// A server, and a runtime to speak with it.
struct Trial {
    world: TestEnvironment,
    runtime: Runtime,
}

impl Trial {
    /// Builds the server where it is out of date, once, and starts it.
    fn start() -> Self {
        static BUILT: LazyLock<PathBuf> = LazyLock::new(|| server::build().unwrap());
        assert!(BUILT.is_file(), "{}", BUILT.display());
        let runtime = Runtime::new().unwrap();
        let world = runtime.block_on(TestEnvironment::start()).unwrap();
        Self { world, runtime }
    }

    /// A scene in which this is given.
    fn given(&self, names: &[&str]) -> CaseContext {
        let mut scene = CaseContext::new(&self.world);
        for name in names {
            self.runtime.block_on(preconditions::set_up(&self.world, name, &mut scene)).unwrap();
        }
        scene
    }

    /// Sends a request as the tables write it, and again while 202 comes back where it polls.
    fn ask(&self, scene: &mut CaseContext, request: &str) -> Answer {
        let request: Request = toml::from_str(request).unwrap();
        let sent = build_request(&request, &scene.vars).unwrap();
        self.runtime.block_on(exchange(&self.world, scene, &sent, request.poll)).unwrap()
    }
}
