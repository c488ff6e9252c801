module.exports = { globalSetup: "./start.js", globalTeardown: "./stop.js" };
