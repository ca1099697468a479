// Turns pieces of an OpenAPI or AsyncAPI document into elements. Text is always set as text, never as markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Paragraphs, `code` and **strong**: all the Markdown that the descriptions use.
export function prose(text) {
  return (text || "").split(/\n\s*\n/).filter(Boolean).map((paragraph) => h("p", {}, inline(paragraph)));
}

export function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`")) return h("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return h("strong", {}, part.slice(2, -2));
    return part;
  });
}

export function code(text) {
  const button = h("button", { type: "button", class: "copy", onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return h("div", { class: "codebox" }, h("pre", { tabindex: "0" }, text), button);
}

export function json(value) {
  return code(JSON.stringify(value, null, 2));
}

export function resolve(node, root) {
  let found = node;
  for (let depth = 0; found && found.$ref && depth < 20; depth += 1) {
    found = found.$ref.slice(2).split("/").reduce((at, key) => at?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  }
  return found || {};
}

// What kind of value it is, in a few words.
export function typeName(schema, root) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  for (const key of ["anyOf", "oneOf"]) {
    if (schema[key]) return schema[key].map((each) => typeName(each, root)).join(" | ");
  }
  if (schema.type === "array") return `array of ${schema.items ? typeName(schema.items, root) : "anything"}`;
  return [].concat(schema.type || "anything").join(" | ");
}

export function limits(schema) {
  const plain = schema.anyOf ? Object.assign({}, ...schema.anyOf, schema) : schema;
  const found = [];
  if (plain.minLength !== undefined || plain.maxLength !== undefined) found.push(`${plain.minLength ?? 0}–${plain.maxLength ?? "∞"} characters`);
  if (plain.minItems !== undefined || plain.maxItems !== undefined) found.push(`${plain.minItems ?? 0}–${plain.maxItems ?? "∞"} items`);
  if (plain.minimum !== undefined || plain.maximum !== undefined) found.push(`${plain.minimum ?? "−∞"} … ${plain.maximum ?? "∞"}`);
  if (plain.pattern && plain.pattern.length <= 40) found.push(plain.pattern); // a long one is told in words
  if (plain.default !== undefined && plain.default !== null) found.push(`default ${JSON.stringify(plain.default)}`);
  return found.join(", ");
}

// The fields of a schema as a nested list. `depth` ends what refers to itself.
export function schemaTree(schema, root, depth = 0) {
  const whole = resolve(schema, root);
  const parts = whole.allOf ? whole.allOf.map((each) => resolve(each, root)) : [whole];
  const properties = Object.assign({}, ...parts.map((part) => part.properties || {}));
  const required = parts.flatMap((part) => part.required || []);
  if (!Object.keys(properties).length) {
    const inner = whole.items || (whole.anyOf || whole.oneOf || []).find((each) => resolve(each, root).properties);
    if (inner && depth < 6 && resolve(inner, root).properties) return schemaTree(inner, root, depth + 1);
    return null;
  }
  return h("ul", { class: "schema" }, Object.entries(properties).map(([name, field]) => h("li", {},
    h("code", {}, name), " ", h("span", { class: "type" }, typeName(field, root)),
    required.includes(name) ? [" ", h("span", { class: "required" }, "required")] : null,
    limits(field) ? [" ", h("span", { class: "type" }, `(${limits(field)})`)] : null,
    field.description ? [" — ", inline(field.description)] : null,
    depth < 6 ? schemaTree(field, root, depth + 1) : null)));
}
