//! Whole exchanges as snapshots, and laws over the running server. Each test starts a server of its
//! own, which ends with it. The rows of the tables are in `tests/rows.rs`.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod exchanges;
mod laws;
mod tx;

use std::path::PathBuf;
use std::sync::LazyLock;

use tokio::runtime::Runtime;
use trefoil_conformance::run;
use trefoil_conformance::run::exchange::Answer;
use trefoil_conformance::spec::row::Request;
use trefoil_conformance::world::givens::{self, Scene};
use trefoil_conformance::world::{World, server};

/// A server, and a runtime to speak with it.
struct Trial {
    world: World,
    runtime: Runtime,
}

impl Trial {
    /// Builds the server where it is out of date, once, and starts it.
    fn start() -> Self {
        static BUILT: LazyLock<PathBuf> = LazyLock::new(|| server::build().unwrap());
        assert!(BUILT.is_file(), "{}", BUILT.display());
        let runtime = Runtime::new().unwrap();
        let world = runtime.block_on(World::start()).unwrap();
        Self { world, runtime }
    }

    /// A scene in which this is given.
    fn given(&self, names: &[&str]) -> Scene {
        let mut scene = Scene::new(&self.world);
        for name in names {
            self.runtime.block_on(givens::make(&self.world, name, &mut scene)).unwrap();
        }
        scene
    }

    /// Sends a request as the tables write it, and again while 202 comes back where it polls.
    fn ask(&self, scene: &mut Scene, request: &str) -> Answer {
        let request: Request = toml::from_str(request).unwrap();
        let sent = run::build(&request, &scene.vars).unwrap();
        self.runtime.block_on(run::exchange(&self.world, scene, &sent, request.poll)).unwrap()
    }
}
