# The formula for Homebrew. `cargo xtask dist` fills in version, address and digests.
class Trefoil < Formula
  desc "OAuth 2.0, FHIR terminology and Bulk FHIR export server, with its client and suite"
  homepage "@RELEASES@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_linux do
    on_intel do
      url "@RELEASES@/trefoil-@VERSION@-x86_64-linux.tar.gz"
      sha256 "@SHA256_x86_64@"
    end
    on_arm do
      url "@RELEASES@/trefoil-@VERSION@-aarch64-linux.tar.gz"
      sha256 "@SHA256_aarch64@"
    end
  end

  def install
    bin.install "trefoil", "trefoil-tui", "trefoil-conformance"
    %w[trefoil trefoil-tui].each do |program|
      generate_completions_from_executable(bin/program, "completions", shells: [:bash, :zsh, :fish])
      system bin/program, "man", "--out", buildpath/"man"
    end
    man1.install Dir["man/*.1"]
  end

  service do
    run [opt_bin/"trefoil", "serve", "--data", var/"trefoil"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/trefoil --version")
  end
end
