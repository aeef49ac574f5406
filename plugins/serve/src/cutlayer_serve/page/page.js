"use strict";
const byId = (id) => document.getElementById(id);
let key = "";
let locked = false;  // the service asks for a key: no request is sent until one is entered

function row(body, cells) {
  const line = body.insertRow();
  for (const cell of cells) {
    const box = line.insertCell();
    if (cell instanceof Node) box.append(cell); else box.textContent = cell === null || cell === undefined ? "–" : String(cell);
  }
  return line;
}

function say(text) {
  byId("message").textContent = text;
  byId("message").hidden = !text;
}

async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (key) headers.Authorization = "Bearer " + key;
  const response = await fetch(path, { ...options, headers });
  const body = await response.json();
  if (response.status === 401) {
    locked = true;
    byId("login").hidden = false;
    throw new Error(key ? "This key is not one of a caller of this service." : "This service asks for an API key: enter it below.");
  }
  if (!response.ok) throw new Error(body.error || response.statusText);
  return body;
}

function state(name) {
  const mark = document.createElement("span");
  mark.className = name;
  mark.textContent = name;
  return mark;
}

const rounded = (value, digits = 4) => (typeof value === "number" ? value.toFixed(digits) : "–");
const expected = (e) => (e && e.value !== null ? `${e.metric} ${rounded(e.value, 3)}` : "not measured");

function show(status) {
  byId("version").textContent = `version ${status.version}`;
  byId("parties").replaceChildren();
  for (const party of status.parties) {
    row(byId("parties"), [party.name, party.role, state(party.state), party.latency_ms.p50, party.latency_ms.p99, party.role === "active" ? "–" : party.connections]);
  }
  byId("expected").textContent = `Expected now, with ${status.expected.contributed.join(", ") || "nobody"}: ${expected(status.expected)}`;
  byId("versions").replaceChildren();
  for (const v of status.versions) {
    const current = v.version === status.version ? state("present") : "";
    if (current) current.textContent = "answers";
    row(byId("versions"), [v.version, v.run, v.connected.join(", ") || "nobody", v.rows, current]);
  }
  const drift = status.drift || [];
  byId("drift-section").hidden = !drift.length;
  byId("drift").replaceChildren();
  for (const d of drift) row(byId("drift"), [d.of, d.psi === null ? "too few rows" : rounded(d.psi, 3), d.rows]);
}

let unreachable = false;

async function refresh() {
  if (locked) return;
  try {
    show(await ask("/v1/status"));
    byId("service").hidden = false;
    if (unreachable) say("");
    unreachable = false;
  } catch (failure) {
    unreachable = true;
    say(failure.message);
  }
}

function showAnswer(answer) {
  byId("answer").hidden = false;
  byId("rows").replaceChildren();
  for (const p of answer.predictions) {
    const subset = answer.subsets[p.subset];
    const absent = Object.entries(subset.absent).map(([name, why]) => `${name}: ${why}`).join("; ");
    const value = p.probability ?? p.value;
    const shown = p.reason ? `none: ${p.reason}` : value !== undefined && value !== null ? rounded(value) : Object.entries(p.probabilities || {}).map(([c, v]) => `${c} ${rounded(v)}`).join(", ");
    row(byId("rows"), [p.id, shown, subset.contributed.join(", "), absent || "nobody", expected(subset.expected)]);
  }
}

async function predict() {
  const ids = byId("ids").value.split(",").map((text) => text.trim()).filter(Boolean);
  try {
    showAnswer(await ask("/v1/predict", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ids }) }));
    say("");
  } catch (failure) {
    byId("answer").hidden = true;
    say(failure.message);
  }
}

byId("try").addEventListener("submit", (event) => {
  event.preventDefault();
  predict();
});

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value.trim();
  locked = !key;
  byId("login").hidden = !locked;
  refresh();
});

refresh();
setInterval(refresh, 2000);

const asked = new URLSearchParams(location.hash.slice(1)).get("ids");
if (asked) {
  byId("ids").value = asked;
  predict();
}
