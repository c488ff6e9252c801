# The programs, built from this checkout: `nix build ./server/packages/nix` or `nix run ./server/packages/nix -- serve`.
{
  description = "OAuth 2.0, FHIR terminology and Bulk FHIR export server, with its client and suite";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      forEachSystem = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      workspace = (builtins.fromTOML (builtins.readFile ../../../Cargo.toml)).workspace;
    in
    {
      packages = forEachSystem (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "trefoil";
          version = workspace.package.version;
          src = ../../..;
          cargoLock.lockFile = ../../../Cargo.lock;
          cargoBuildFlags = [ "--bin=trefoil" "--bin=trefoil-tui" "--bin=trefoil-conformance" ];
          nativeBuildInputs = [ pkgs.cmake pkgs.installShellFiles ];
          # The tests need browsers, databases and proxies: `cargo xtask test` runs them.
          doCheck = false;
          postInstall = ''
            for program in trefoil trefoil-tui; do
              installShellCompletion --cmd $program --bash <($out/bin/$program completions bash)
              $out/bin/$program man --out man
            done
            installManPage man/*
          '';
          meta = {
            description = "OAuth 2.0, FHIR terminology and Bulk FHIR export server";
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "trefoil";
            platforms = systems;
          };
        };
      });

      apps = forEachSystem (pkgs: {
        default = {
          type = "app";
          program = "${self.packages.${pkgs.system}.default}/bin/trefoil";
        };
      });

      formatter = forEachSystem (pkgs: pkgs.nixfmt-rfc-style);
    };
}
