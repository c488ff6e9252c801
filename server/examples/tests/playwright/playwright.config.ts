import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: ".",
  outputDir: "results",
  globalSetup: "./server.ts",
  use: {
    // A browser that is installed already; without the variable, Playwright's own.
    launchOptions: process.env.CHROMIUM ? { executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] } : {},
  },
});
