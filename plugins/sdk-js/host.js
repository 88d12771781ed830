// Functions of the server. In a test, lines go to standard error, and the texts of keys are those of `remember`.
import { keyOf } from "./keys.js";

let server;
let textOf;
const texts = new Map();

// For tests: the lines and counters so far.
export const lines = [];
export const counters = {};

// For a component: the server's functions.
export function connect(host, sequenceText) {
  server = host;
  textOf = sequenceText;
}

// Writes a line to the server's log; level 0 is an error, 3 for debugging.
export function log(level, message) {
  if (server) return server.log(level, String(message));
  lines.push([level, message]);
  console.error(`log ${level}: ${message}`);
}

export const error = (message) => log(0, message);
export const warn = (message) => log(1, message);
export const info = (message) => log(2, message);
export const debug = (message) => log(3, message);

// Adds to a counter of the plug-in. `labels` is an object.
export function metricAdd(name, value, labels = {}) {
  const given = Object.entries(labels).map(([label, text]) => ({ name: label, value: String(text) }));
  if (server) return server.metricAdd(name, given, value);
  const counter = given.length ? `${name}{${given.map((label) => `${label.name}="${label.value}"`).join()}}` : name;
  counters[counter] = (counters[counter] ?? 0) + value;
}

// The text whose hash is `key`, if the server knows it.
export function keyText(key) {
  return server ? server.keyText(key) : texts.get(key);
}

// The client's id of a live sequence. Only with the grant sequence-text.
export function sequenceText(of) {
  if (textOf) return textOf(of);
  if (server) throw new Error("this component was built without ids: name sequenceText in plugin.js");
  return String(of);
}

// Makes a text known, as a request does in the server.
export function remember(text) {
  const key = keyOf(text);
  texts.set(key, text);
  return key;
}
