// What is wrong with the page that is shown: a list of sentences. Numbers are those of WCAG 2.2.
const wrong = [];
const need = (holds, text) => { if (!holds) wrong.push(text); };
const all = (css) => [...document.querySelectorAll(css)];
const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
const shown = (css) => all(css).filter(seen);
const named = (element) => (element.getAttribute("aria-label") ?? element.textContent).trim();
const outline = (element) => element.outerHTML.slice(0, 90);

// 3.1.1, 2.4.2, 1.3.1, 2.4.6
need(/^[a-z]{2}/.test(document.documentElement.lang), "no language");
need(document.title.length > 3, "no title");
need(all("main").length === 1 && all("body > header").length === 1, "no landmarks");
need(document.querySelector("meta[name=viewport]")?.content.includes("width=device-width"), "no viewport");
need(!/user-scalable=no|maximum-scale/.test(document.querySelector("meta[name=viewport]")?.content), "no zoom");
need(shown("h1").length === 1, `${shown("h1").length} first headings`);
let level = 0;
for (const heading of shown("h1, h2, h3, h4")) {
  const next = Number(heading.tagName[1]);
  need(next <= level + 1, `heading ${heading.textContent} skips a level`);
  level = next;
}
// 4.1.2, 3.3.2, 1.3.5
for (const input of shown("input:not([type=hidden]), select, textarea")) {
  const label = [...input.labels].map((label) => label.textContent).join("").trim();
  need(label || input.getAttribute("aria-label"), `no label: ${outline(input)}`);
  need(input.hasAttribute("autocomplete"), `no autocomplete: ${outline(input)}`);
}
for (const control of shown("button, a[href]")) {
  need(named(control), `no name: ${outline(control)}`);
  // 2.5.3: what is read aloud begins with what is seen.
  const label = control.getAttribute("aria-label");
  need(!label || label.startsWith(control.textContent.trim()), `another name than seen: ${outline(control)}`);
}
for (const element of all("[aria-describedby]")) {
  for (const id of element.getAttribute("aria-describedby").split(" ")) {
    need(document.getElementById(id), `described by nothing: ${outline(element)}`);
  }
}
const ids = all("[id]").map((element) => element.id);
need(new Set(ids).size === ids.length, `an id stands twice: ${ids}`);
// 3.3.1: an error belongs to the fields of its form.
const notice = document.querySelector("#notice");
if (notice && shown("form input:not([type=hidden])").length > 0) {
  need(notice.getAttribute("role") === "alert", "an error that is not announced");
  need(all("[aria-describedby~=notice]").length > 0, "an error without its field");
}

// 1.4.3, 1.4.11
const parse = (text) => {
  const numbers = text.match(/[\d.]+/g).map(Number);
  return { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
};
const over = (front, back) => front.rgb.map((value, at) => value * front.alpha + back[at] * (1 - front.alpha));
const ground = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  return layers.reduceRight((back, front) => over(front, back), [255, 255, 255]);
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  if (!node.textContent.trim() || !seen(element) || ["SCRIPT", "NOSCRIPT"].includes(element.tagName)) continue;
  const style = getComputedStyle(element);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const back = ground(element);
  const ratio = contrast(over(parse(style.color), back), back);
  need(ratio >= (large ? 3 : 4.5), `contrast ${ratio.toFixed(2)}: ${node.textContent.trim().slice(0, 40)}`);
}
for (const control of shown("input:not([type=hidden]), button, .button")) {
  const style = getComputedStyle(control);
  const around = ground(control.parentElement);
  const edge = over(parse(style.borderTopColor), around);
  const best = Math.max(contrast(edge, around), contrast(ground(control), around));
  need(best >= 3, `the edge of ${outline(control)} has contrast ${best.toFixed(2)}`);
}
// 2.5.8: large enough to be hit.
for (const control of shown("button, .button, input:not([type=hidden])")) {
  const box = control.getBoundingClientRect();
  need(box.height >= 24 && box.width >= 24, `too small: ${outline(control)}`);
}
// 1.4.10: nothing is cut off or to be scrolled to the side.
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
need(wide <= 0, `${wide} pixels too wide at ${document.documentElement.clientWidth}`);
return wrong;
