// What a plug-in may ask of the server. Under Node the answers are a test's: lines go to standard error, and the texts behind keys are those given to
// `remember`.
import { keyOf } from "./keys.js";

let server;
let textOf;
const texts = new Map();

// What a test may look at.
export const lines = [];
export const counters = {};

// Of a component: what it was given.
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

// Adds to a counter of the plug-in's own.
export function metricAdd(name, value) {
  if (server) return server.metricAdd(name, value);
  counters[name] = (counters[name] ?? 0) + value;
}

// The text behind a key, if the server still remembers it.
export function keyText(key) {
  return server ? server.keyText(key) : texts.get(key);
}

// The client's id of a live sequence. Only with the grant sequence-text.
export function sequenceText(of) {
  if (textOf) return textOf(of);
  if (server) throw new Error("this component was built without ids: name sequenceText in plugin.js");
  return String(of);
}

// A test's stand-in for a text the server has met.
export function remember(text) {
  const key = keyOf(text);
  texts.set(key, text);
  return key;
}
