module.exports = () => globalThis.trefoil.stop();
