// Where the programs are: in a package for this machine, which npm has chosen by its operating system and processor.

const { spawnSync } = require("node:child_process");
const { constants } = require("node:os");
const { dirname, join } = require("node:path");

// The path of a program. Without a package for this machine it is the name, which the PATH resolves.
exports.path = (name) => {
  const platform = `trefoil-server-${process.platform}-${process.arch}`;
  try {
    return join(dirname(require.resolve(`${platform}/package.json`)), "bin", name);
  } catch (error) {
    if (error.code === "MODULE_NOT_FOUND") return name;
    throw error;
  }
};

// Runs a program with the arguments of this process, and ends as it ends.
exports.run = (name) => {
  // A signal from the terminal reaches both; this process waits for the end of the program.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
  const { status, signal, error } = spawnSync(exports.path(name), process.argv.slice(2), { stdio: "inherit" });
  if (error) {
    const machine = `${process.platform} on ${process.arch}`;
    const missing = `no package has ${name} for ${machine}; install the program, and it is found on the PATH`;
    console.error(error.code === "ENOENT" ? missing : `cannot start ${name}: ${error.message}`);
    process.exit(127);
  }
  process.exit(status ?? 128 + constants.signals[signal]);
};
