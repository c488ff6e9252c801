// Passkeys: shows the forms that need script, asks the browser, and sends what it says. Nothing is decided here.
(() => {
  "use strict";
  if (!window.PublicKeyCredential || !navigator.credentials) return;

  const bytes = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  // The options come with binary values in base64url.
  const decoded = (options) => {
    const result = { ...options, challenge: bytes(options.challenge) };
    if (options.user) result.user = { ...options.user, id: bytes(options.user.id) };
    for (const list of ["excludeCredentials", "allowCredentials"]) {
      if (options[list]) result[list] = options[list].map((known) => ({ ...known, id: bytes(known.id) }));
    }
    return result;
  };

  const encoded = (credential) => {
    const response = {};
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (credential.response[name]) response[name] = text(credential.response[name]);
    }
    if (credential.response.getTransports) response.transports = credential.response.getTransports();
    return JSON.stringify({ id: credential.id, rawId: text(credential.rawId), type: credential.type, response });
  };

  const begin = async (form) => {
    if (form.dataset.begun) return { options: JSON.parse(form.dataset.begun) };
    const body = new URLSearchParams({ csrf: form.elements.csrf.value });
    const answer = await fetch(form.dataset.options, { method: "POST", body });
    if (!answer.ok) throw new Error("begin");
    return answer.json();
  };

  let waiting = null;

  const ask = async (form, more) => {
    const { ceremony, options } = await begin(form);
    const publicKey = decoded(options);
    const credential = form.dataset.passkey === "create"
      ? await navigator.credentials.create({ publicKey, ...more })
      : await navigator.credentials.get({ publicKey, ...more });
    if (ceremony) form.elements.ceremony.value = ceremony;
    form.elements.credential.value = encoded(credential);
    form.submit();
  };

  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const status = form.querySelector("[role=status]");
    form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (waiting) waiting.abort();
      status.textContent = status.dataset.waiting;
      try {
        await ask(form, {});
      } catch (error) {
        status.textContent = error.name === "InvalidStateError"
          ? status.dataset.known
          : status.dataset.unused;
      }
    });
  }

  // Passkeys among the suggestions of the user name's field; a new challenge before the old one is over.
  const suggest = async (form) => {
    if (!await window.PublicKeyCredential.isConditionalMediationAvailable?.()) return;
    for (;;) {
      waiting = new AbortController();
      const timer = setTimeout(() => waiting.abort("again"), 4 * 60 * 1000);
      try {
        return await ask(form, { mediation: "conditional", signal: waiting.signal });
      } catch {
        if (waiting.signal.reason !== "again") return;
      } finally {
        clearTimeout(timer);
      }
    }
  };
  const form = document.querySelector("form[data-passkey=get][data-options]");
  if (form) suggest(form);
})();
