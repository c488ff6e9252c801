import { expect, test } from "@playwright/test";
import { Trefoil } from "trefoil-server";

const server = Trefoil.attach(JSON.parse(process.env.TREFOIL ?? ""));

test("a person signs in and sees her account", async ({ page }) => {
  const { username, password, claims } = server.demo.user;
  await page.goto(`${server.baseUrl}/account`);
  await page.getByLabel("User name").fill(username);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await expect(page.getByText(claims.name).first()).toBeVisible();
});
