// The documentation page: loads the documents of this server, lists what they describe, and lets you try it.
import { code, h, inline, json, limits, prose, resolve, schemaTree, typeName } from "/docs/render.js";

const METHODS = ["get", "post", "patch", "put", "delete"];
const token = document.getElementById("token");
const filter = document.getElementById("filter");
const contents = document.getElementById("contents");
const main = document.getElementById("main");

token.value = sessionStorage.getItem("seriatim.token") || "";
token.addEventListener("input", () => sessionStorage.setItem("seriatim.token", token.value));

start();

async function start() {
  try {
    const api = await load("/api/v1/openapi.json");
    const socket = await load("/asyncapi.json").catch(() => null);
    document.getElementById("version").textContent = api.info.version;
    main.replaceChildren(introduction(api), ...groups(api), ...(socket ? [frames(socket)] : []));
    list();
    openTarget();
  } catch (failure) {
    main.replaceChildren(h("h1", {}, "The documentation could not be loaded"), h("p", {}, String(failure.message || failure)));
  }
}

async function load(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

// --- REST ---------------------------------------------------------------------------------------------------------

function introduction(api) {
  return h("section", {}, h("h1", {}, `${api.info.title} API`), h("p", { class: "lead" }, api.info.summary || ""),
    prose(api.info.description),
    h("p", {}, "The document itself: ", h("a", { href: "/api/v1/openapi.json" }, "openapi.json"), "."));
}

function groups(api) {
  const all = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })));
  const known = api.tags || [];
  const names = [...new Set([...known.map((tag) => tag.name), ...all.map((each) => each.tags?.[0] || "other")])];
  return names.map((name) => {
    const mine = all.filter((each) => (each.tags?.[0] || "other") === name);
    if (!mine.length) return null;
    const tag = known.find((each) => each.name === name);
    return h("section", { "data-group": name }, h("h2", {}, name), h("p", { class: "lead" }, tag?.description || ""),
      mine.map((each) => operation(each, api)));
  }).filter(Boolean);
}

function operation(each, api) {
  const body = each.requestBody?.content?.["application/json"];
  const parameters = (each.parameters || []).map((parameter) => resolve(parameter, api));
  return details(each.operationId, each.method, each.path, each.summary, each.security ? "needs a token" : "public", () => [
    prose(each.description),
    parameters.length ? [h("h4", {}, "Parameters"), parameterTable(parameters, api)] : null,
    body ? [h("h4", {}, each.requestBody.required ? "Body" : "Body (optional)"), schemaTree(body.schema, api), json(body.example)] : null,
    h("h4", {}, "Answers"),
    Object.entries(each.responses).map(([status, response]) => answer(status, resolve(response, api), api)),
    h("h4", {}, "With curl"), code(curl(each, parameters, body)),
    h("h4", {}, "Try it"), tryIt(each, parameters, body),
  ]);
}

function details(id, method, title, summary, note, content) {
  const box = h("div");
  const element = h("details", { class: "operation", id },
    h("summary", {}, h("span", { class: `method ${method}` }, method), h("span", { class: "path" }, title),
      h("span", { class: "what" }, inline(summary || "")), note ? h("span", { class: "lock" }, note) : null), box);
  // Written when first opened: a page of a hundred forms is slow to load and slower to read.
  element.addEventListener("toggle", () => {
    if (element.open && !box.childNodes.length) box.append(...content().flat(3).filter(Boolean));
  });
  return element;
}

function parameterTable(parameters, api) {
  return h("table", {}, h("thead", {}, h("tr", {}, ["Name", "In", "Type", "Meaning"].map((name) => h("th", {}, name)))),
    h("tbody", {}, parameters.map((each) => h("tr", {},
      h("td", {}, h("code", {}, each.name), each.required ? [" ", h("span", { class: "required" }, "required")] : null),
      h("td", {}, each.in),
      h("td", {}, h("span", { class: "type" }, typeName(each.schema, api))),
      h("td", {}, inline(each.description || ""), " ", h("span", { class: "type" }, limits(each.schema)))))));
}

function answer(status, response, api) {
  const content = response.content?.["application/json"];
  const label = [h("span", { class: `status ${status < 400 ? "good" : "bad"}` }, status), response.description || ""];
  if (!content) return h("p", { class: "answer" }, label);
  return h("details", { class: "answer" }, h("summary", {}, label), schemaTree(content.schema, api), json(content.example));
}

function curl(each, parameters, body) {
  const lines = [`curl -X ${each.method.toUpperCase()} '${location.origin}${each.path}'`];
  if (each.security) lines.push(`-H "Authorization: Bearer $TOKEN"`);
  for (const parameter of parameters.filter((one) => one.in === "header" && one.required)) {
    lines.push(`-H '${parameter.name}: ${parameter.schema.examples?.[0] || "…"}'`);
  }
  if (body) lines.push(`-H 'Content-Type: application/json'`, `-d '${JSON.stringify(body.example).replaceAll("'", "'\\''")}'`);
  return lines.join(" \\\n  ");
}

function tryIt(each, parameters, body) {
  const fields = parameters.filter((one) => one.name !== "X-Request-ID").map((one) => ({ one, input:
    h("input", { name: one.name, required: one.required, placeholder: one.in, autocomplete: "off", spellcheck: "false",
      value: one.in === "header" && one.required ? one.schema.examples?.[0] : undefined }) }));
  const text = body ? h("textarea", { spellcheck: "false", "aria-label": "body" }, JSON.stringify(body.example, null, 2)) : null;
  const result = h("div", { class: "result", "aria-live": "polite" });
  return h("form", { class: "try", onsubmit: async (event) => {
    event.preventDefault();
    result.replaceChildren(h("p", {}, "…"));
    result.replaceChildren(...await send(each, fields, text).catch((failure) => [h("p", {}, String(failure))]));
  } }, fields.map(({ one, input }) => h("label", {}, one.name, input)), text ? h("label", { class: "body" }, "body", text) : null,
  h("button", { class: "primary" }, "Send"), result);
}

async function send(each, fields, text) {
  let path = each.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const { one, input } of fields) {
    if (!input.value) continue;
    if (one.in === "path") path = path.replace(`{${one.name}}`, encodeURIComponent(input.value));
    else if (one.in === "query") query.set(one.name, input.value);
    else headers[one.name] = input.value;
  }
  if (each.security && token.value) headers.Authorization = `Bearer ${token.value.trim()}`;
  if (text) headers["Content-Type"] = "application/json";
  const began = performance.now();
  const response = await fetch(path + (query.size ? `?${query}` : ""), { method: each.method.toUpperCase(), headers, body: text?.value });
  const took = Math.round(performance.now() - began);
  const answered = await response.text();
  adopt(answered);
  const shown = ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "retry-after", "x-idempotent-replay"]
    .filter((name) => response.headers.has(name)).map((name) => `${name}: ${response.headers.get(name)}`).join("\n");
  return [h("p", {}, h("span", { class: `status ${response.ok ? "good" : "bad"}` }, String(response.status)), `${took} ms`),
    code(shown), answered ? code(pretty(answered)) : null].filter(Boolean);
}

// Whoever signs in on this page goes on with the token they got.
function adopt(answered) {
  try {
    const fresh = JSON.parse(answered)?.data?.tokens?.access_token;
    if (fresh) { token.value = fresh; token.dispatchEvent(new Event("input")); }
  } catch { /* not JSON: nothing to adopt */ }
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// --- WebSocket ----------------------------------------------------------------------------------------------------

function frames(api) {
  const messages = Object.entries(api.components?.messages || {});
  const sides = directions(api);
  return h("section", { "data-group": "websocket" }, h("h2", { class: "plain" }, "WebSocket"),
    h("p", { class: "lead" }, api.info?.description ? "" : "The frames of the socket at /v1/ws."), prose(api.info?.description),
    h("p", {}, "The document itself: ", h("a", { href: "/asyncapi.json" }, "asyncapi.json"), "."),
    messages.map(([name, given]) => {
      const message = resolve(given, api);
      const side = sides[name] || "frame";
      const examples = message.examples || resolve(message.payload, api).examples || [];
      return details(`frame-${name}`, side, message.name || name, message.summary || message.title || "",
        { send: "you send it", receive: "you receive it" }[side], () => [
          prose(message.description), message.payload ? schemaTree(message.payload, api) : null,
          examples.map((example) => json(example.payload || example)),
        ]);
    }));
}

// An AsyncAPI document speaks from the server's side: what it receives, you send.
function directions(api) {
  const found = {};
  for (const each of Object.values(api.operations || {})) {
    const side = each.action === "receive" ? "send" : "receive";
    const channel = resolve(each.channel, api);
    for (const message of each.messages || Object.values(channel.messages || {})) {
      const name = (message.$ref || "").split("/").pop();
      const inner = resolve(message, api);
      for (const key of [name, inner.name]) if (key) found[key] = side;
    }
  }
  return found;
}

// --- finding things -----------------------------------------------------------------------------------------------

function list() {
  contents.replaceChildren(...[...main.querySelectorAll("section[data-group]")].flatMap((section) => [
    h("h2", {}, section.dataset.group),
    h("ul", {}, [...section.querySelectorAll("details.operation")].map((each) => h("li", {},
      h("a", { href: `#${each.id}` },
        h("span", { class: each.querySelector(".method").className }, each.querySelector(".method").textContent),
        h("span", {}, each.querySelector(each.id.startsWith("frame-") ? ".path" : ".what").textContent))))),
  ]));
}

filter.addEventListener("input", () => {
  const wanted = filter.value.trim().toLowerCase();
  for (const link of contents.querySelectorAll("li")) {
    const target = document.getElementById(link.querySelector("a").hash.slice(1));
    const text = `${target.querySelector("summary").textContent} ${target.id}`.toLowerCase();
    link.hidden = target.hidden = !text.includes(wanted);
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    event.preventDefault();
    filter.focus();
  }
});

window.addEventListener("hashchange", openTarget);

function openTarget() {
  const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (target?.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView({ block: "start" });
    target.querySelector("summary").focus({ preventScroll: true });
  }
}
