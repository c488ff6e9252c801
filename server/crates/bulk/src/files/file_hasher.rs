//! The hash of a file, from which its `ETag` is made.

use xxhash_rust::xxh3::Xxh3;

/// Hash of a file's bytes for its `ETag`. XXH3 takes a twentieth of the time of a cryptographic hash. It does
/// not protect against manipulation: an attacker who could choose exported bytes could also change the
/// content itself.
#[derive(Default)]
pub(crate) struct FileHasher(Xxh3);

impl FileHasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash as text. The first letter names the algorithm.
    pub fn finish(&self) -> String {
        format!("x{:032x}", self.0.digest128())
    }

    /// The hash without the letter of the algorithm.
    pub fn digits(hash: &str) -> &str {
        hash.trim_start_matches('x')
    }

    /// `true` if this version of the server computes hashes with the same algorithm, so that `hash` can be
    /// compared.
    pub fn made(hash: &str) -> bool {
        hash.starts_with('x')
    }
}
