#!/usr/bin/env node
require("../programs.js").run("trefoil-tui");
