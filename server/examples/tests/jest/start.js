// One server for all tests. Its addresses and secrets are in a variable, which the workers of jest inherit.
const { Trefoil } = require("trefoil-server");

module.exports = async () => {
  globalThis.trefoil = await Trefoil.start();
  process.env.TREFOIL = JSON.stringify(globalThis.trefoil.facts);
};
